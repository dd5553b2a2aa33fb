"""Asynchronous LEASGD: workers wake by Poisson clocks, take a step, and pull a worker of the other pool and themselves
together.

Cheng et al., arXiv 1811.11124, announce it ("workers wake by Poisson processes with different rates"); its description
is in a supplement that no copy has. So all of the following is ours:

- Worker i wakes after exponential times of mean `interval` / rate_i, rates spread evenly over 1 - spread ... 1 +
  spread. On waking it takes one step of SGD, and sends its model to a worker of the other pool, unless an earlier
  answer is still due.
- Whoever gets a model, once it is idle, answers with its own and moves: w <- w + alpha (other - w). The first, on the
  answer, moves by alpha (answer - what it had sent): the sum of the two models is kept, whatever each has done in the
  meantime.
- Pools without meetings: models carry the sender's running loss. A worker ranks the losses it has heard of (its own is
  current): the floor((m - 1) / 2) highest follow. Of whom it has not heard, it takes its own loss.
- A round lasts `interval` times its batches: on average the mean worker takes as many steps, each on a batch drawn
  afresh.

With privacy=dp_sgd, losses are not covered (leasgd.py, 5). Noise is calibrated for a quarter more steps than a worker's
clock gives on average; one that has taken them goes on exchanging, and steps no more.
"""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch

from vflbench.algorithms.gossip import shared
from vflbench.algorithms.gossip.shared import LocalSgd, WorkerKeys, ranked
from vflbench.data.tasks import Shard, ShardedPublic, ShardedTask
from vflbench.federation.party import Party, PartySpec
from vflbench.types import AlgorithmInfo, Problem, Range, RunConfig, Sent

ALGORITHM = AlgorithmInfo(
    name="leasgd_async",
    summary="LEASGD without rounds: workers wake by Poisson clocks, step, and exchange models with one of the other "
    "pool",
    paper="Cheng et al. 2018, arXiv 1811.11124 (announced there; the protocol is ours)",
    label="LEASGD (async)",
    place=6,
    **shared.FAMILY,
    divided_by="workers",
    topologies=("complete",),
    time_dependent=True,
    # any codec: a pull towards a rounded model is one with noise
    remembered=("model",),
)
EXPOSES = (
    Sent("model", "worker", "worker", "parameters", "worker"),
    Sent("model", "worker", "worker", "sums", "worker"),  # its loss
)

SLACK = 1.25  # private steps that noise is calibrated for, over those expected


@dataclass
class Config(WorkerKeys):
    name: str = "leasgd_async"
    interval: float = 0.5  # seconds between two wake-ups of a worker of rate 1, on average
    spread: float = 0.5  # rates lie between 1 - spread and 1 + spread
    alpha: Annotated[float, Range(at_least=0)] = 0.5  # elastic step eta rho


def check(config: RunConfig) -> list[Problem]:
    """Rules across keys, before any data is loaded."""
    cfg: Config = config.algorithm
    problems = shared.check_pools(config)
    if not 0 <= cfg.spread < 1:
        problems.append(Problem("algorithm.spread", cfg.spread, "must be at least 0 and below 1"))
    if config.network.timing != "causal":
        problems.append(
            Problem("network.timing", config.network.timing, "leasgd_async depends on when each message comes: causal")
        )
    return problems


def parties(task: ShardedTask, config: RunConfig) -> dict[str, PartySpec]:
    """One worker per shard."""
    count = len(task.shards)
    return shared.workers(
        worker, task, config, paces=[wake_rate(config.algorithm, index, count) * SLACK for index in range(count)]
    )


async def worker(me: Party, data: Shard, public: ShardedPublic, config: RunConfig) -> None:
    """Steps when its clock rings, and answers whoever asks."""
    cfg: Config = config.algorithm
    state, own, count = me.state, me.clients.index(me.name), len(me.clients)
    others = [name for name in me.clients if name != me.name]
    rate = wake_rate(cfg, own, count)
    sgd = LocalSgd(me, data, public, config, pace=rate * SLACK)
    if me.privacy is not None:
        me.privacy.not_covered = "the losses that models carry, and what follows from them"
    state.model, state.sgd, state.wakes = sgd.model, sgd, 0
    state.heard = np.full(count, np.nan)  # losses of the others
    state.alarm = me.rng("wake").exponential(cfg.interval / rate)  # when it wakes next
    state.asked = None  # the model that an answer is due to

    async for t in me.rounds():
        sgd.start()
        end = t * sgd.steps * cfg.interval
        while True:
            try:
                src, message = await me.recv_any(
                    others, tag="model", timeout=max(0.0, min(state.alarm, end) - me.clock)
                )
            except TimeoutError:
                if state.alarm >= end:
                    break
                await wake(me, sgd, cfg, own)
                state.alarm += me.rng("wake").exponential(cfg.interval / rate)
            else:
                await meet(me, sgd, cfg, src, *message)
        me.report(**sgd.end(t, me.evaluates(t)) | {"iterations": state.wakes})


def wake_rate(cfg: Config, index: int, count: int) -> float:
    """How often worker `index` of `count` wakes, over the mean worker."""
    return 1 + cfg.spread * (2 * index / (count - 1) - 1)


async def wake(me: Party, sgd: LocalSgd, cfg: Config, own: int) -> None:
    """A step, and a model to a worker of the other pool."""
    state = me.state
    if me.privacy is None or me.privacy.taken < me.privacy.planned:
        sgd.draw()
        sgd.w = await sgd.step(me, old_needed=False)
        state.wakes += 1
    if state.asked is not None:
        return
    loss = float(sgd.running)
    losses = np.where(np.isnan(state.heard), loss, state.heard)
    losses[own] = loss
    roles = ranked(losses.tolist(), (len(losses) - 1) // 2)
    pool = [name for name, role in zip(me.clients, roles, strict=True) if role != roles[own]]
    state.asked = sgd.w.clone()
    await me.send(pool[int(me.rng("partners").integers(len(pool)))], (False, state.asked, loss), tag="model")


async def meet(
    me: Party, sgd: LocalSgd, cfg: Config, src: str, answers: bool, other: torch.Tensor, loss: float
) -> None:
    """Move towards the model of `src`, after answering it where it `answers` nothing yet."""
    me.state.heard[me.clients.index(src)] = loss
    own = me.state.asked if answers else sgd.w.clone()
    if answers:
        me.state.asked = None
    else:
        await me.send(src, (True, own, float(sgd.running)), tag="model")
    sgd.w.add_(other - own, alpha=cfg.alpha)
