"""Asynchronous LEASGD: workers wake by Poisson clocks, take a step, and exchange pulls with a worker of the other pool.

Cheng et al., arXiv 1811.11124, announce it ("workers wake by Poisson processes with different rates"). They describe it
in a supplement that no copy has. So all of the following is ours:

- Worker i wakes after exponential times of mean `interval` / rate_i. The rates are spread evenly from 1 - spread to
  1 + spread. On waking it takes one step of SGD, and sends its model to a worker of the other pool, unless an earlier
  answer is still due.
- A worker that gets a model answers, once it is idle, with its own, and moves: w <- w + alpha (other - w). The sender
  moves on the answer, by alpha (answer - what it had sent). So the sum of the two models is kept, whatever each has
  done in the meantime.
- Pools need no meetings: models carry the sender's running loss. A worker ranks the latest losses that it has heard,
  and its own; the floor((m - 1) / 2) highest follow. For workers that it has not heard of, it takes its own loss.
- A round lasts `interval` times its number of batches. On average the mean worker takes as many steps, each on a newly
  drawn batch.

With partners=random a worker meets any other, and models carry no loss. With alpha = 0.5 that is AD-PSGD (Lian et al.,
ICML 2018, arXiv 1710.06952) on a complete graph: the gradient is that of the model before the two are averaged.

With privacy=dp_sgd, losses are not covered (leasgd.py, 5). A worker's clock depends on the seed alone, and not on when
messages come. So noise is calibrated to the steps that it will take.
"""

import numpy as np
import torch

from vflbench import seeding
from vflbench.algorithms.gossip import worker_sgd
from vflbench.algorithms.gossip.worker_sgd import LocalSgd, ranked
from vflbench.cards.algorithms.gossip.leasgd_async import Config
from vflbench.data.tasks import Shard, ShardedPublic, ShardedTask
from vflbench.federation.party import Party, PartySpec, party_names
from vflbench.types import RunConfig


def parties(task: ShardedTask, config: RunConfig[Config]) -> dict[str, PartySpec]:
    """One worker per shard."""
    names = party_names("worker", len(task.shards))
    return worker_sgd.workers(worker, task, config, steps=lambda: [wakes(config, task.public, name) for name in names])


async def worker(me: Party, data: Shard, public: ShardedPublic, config: RunConfig[Config]) -> None:
    """Step when the clock rings, and answer the models that come."""
    cfg = config.algorithm
    state, own, count = me.state, me.clients.index(me.name), len(me.clients)
    others = [name for name in me.clients if name != me.name]
    mean = cfg.interval / wake_rate(cfg, own, count)
    sgd = LocalSgd(me, data, public, config, planned=None if me.privacy is None else wakes(config, public, me.name))
    if me.privacy is not None and cfg.partners == "ranked":
        me.privacy.not_covered = ["the losses that models carry, and what follows from them"]
    state.model, state.sgd, state.wakes = sgd.model, sgd, 0
    state.heard = np.full(count, np.nan)  # losses of the others
    state.alarm = me.rng("wake").exponential(mean)  # when it wakes next
    state.asked = None  # the model that an answer is due to

    async for t in me.rounds():
        sgd.start()
        end = t * sgd.steps * cfg.interval
        while True:
            timeout = max(0.0, min(state.alarm, end) - me.clock)
            try:
                src, message = await me.recv_any(others, tag="model", timeout=timeout)
            except TimeoutError:
                if state.alarm >= end:
                    break
                await wake(me, sgd, cfg, own)
                state.alarm += me.rng("wake").exponential(mean)
            else:
                await meet(me, sgd, cfg, src, *message)
        me.report(**sgd.end(t, me.evaluates(t)) | {"iterations": state.wakes})


def wake_rate(cfg: Config, index: int, count: int) -> float:
    """How often worker `index` of `count` wakes, over the mean worker."""
    return 1 + cfg.spread * (2 * index / (count - 1) - 1)


def wakes(config: RunConfig[Config], public: ShardedPublic, name: str) -> int:
    """How often a worker will wake in the whole run; that depends on the seed alone."""
    assert config.rounds is not None  # decided by the runner
    cfg = config.algorithm
    names = party_names("worker", len(public.rows))
    mean = cfg.interval / wake_rate(cfg, names.index(name), len(names))
    end = config.rounds * worker_sgd.steps_per_round(cfg, public) * cfg.interval
    rng, alarm, count = seeding.stream(config.seed, f"wake/{name}"), 0.0, 0
    while (alarm := alarm + rng.exponential(mean)) < end:
        count += 1
    return count


async def wake(me: Party, sgd: LocalSgd, cfg: Config, own: int) -> None:
    """Take a step, and send the model to a worker of the other pool."""
    state = me.state
    sgd.draw()
    sgd.w = await sgd.step(me, old_needed=False)
    state.wakes += 1
    if state.asked is not None:
        return
    pool = [name for name in me.clients if name != me.name]
    if cfg.partners == "ranked":
        loss = float(sgd.running)
        losses = np.where(np.isnan(state.heard), loss, state.heard)
        losses[own] = loss
        roles = ranked(losses.tolist(), (len(losses) - 1) // 2)
        pool = [name for name, role in zip(me.clients, roles, strict=True) if role != roles[own]]
    state.asked = sgd.w.clone()
    partner = pool[int(me.rng("partners").integers(len(pool)))]
    await me.send(partner, (False, state.asked, *told_loss(sgd, cfg)), tag="model")


def told_loss(sgd: LocalSgd, cfg: Config) -> tuple[float, ...]:
    """What a model carries: the worker's running loss, where partners are ranked."""
    return (float(sgd.running),) if cfg.partners == "ranked" else ()


async def meet(
    me: Party, sgd: LocalSgd, cfg: Config, src: str, answers: bool, other: torch.Tensor, *loss: float
) -> None:
    """Move towards the model of `src`; if that model is no answer, answer it first."""
    if loss:
        me.state.heard[me.clients.index(src)] = loss[0]
    own = me.state.asked if answers else sgd.w
    if answers:
        me.state.asked = None
    else:
        await me.send(src, (True, own, *told_loss(sgd, cfg)), tag="model")
    sgd.w.add_(other.sub_(own), alpha=cfg.alpha)
