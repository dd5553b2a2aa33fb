"""FedBuff: FedAvg without rounds: a server adds updates as they come, and moves after every K of them.

Nguyen, Malik, Zhan, Yousefpour, Rabbat, Malek, Huba, AISTATS 2022, arXiv 2106.06639, Algorithm 1:

    paper                                        here
    K, Q, eta_g, eta_l                           buffer, local_steps(), server_lr, lr
    M_c, clients that train at a time            concurrency, a share of the workers; rounded, at least 1
    tau_i                                        how often the server has moved since client i got its model
    Server:
      initialise w_0                             of the stream `init`
      repeat
        whenever fewer than M_c clients train
          sample an idle one, send it w_t        stream `sampled`; tag `model`
        on an update Delta_i                     tag `update`
          Delta <- Delta + s(tau_i) Delta_i      s(tau) = 1 / sqrt(1 + tau)
          after every K updates
            w_{t+1} <- w_t + eta_g Delta / K
            Delta <- 0, t <- t + 1
    Client i, on a model w:
      y <- w
      Q times: y <- y - eta_l grad l(y; b)       batches as FedAvg's, of a new order for each model
      send Delta_i = y - w

Score: the server's model. Training loss: of the steps since the last evaluation, of all workers.

With K = M_c and workers that are equally fast, all updates of a buffer come at once: that is FedAvg, with all workers
weighted alike. With one worker at a time and K = 1 it is SGD, the model passing from worker to worker.

An update is as long as a step of FedAvg. So with K well below M_c the server moves further than any worker did, and
overshoots where local training is long: then a larger K, or server_lr below 1.

Departures from the paper, and what it leaves open
1. Who has sent an update is idle, and may be sampled again. Models go out when all updates that have come by then are
   added.
2. Q steps are `local_epochs` passes over the rows of the mean worker, for every worker alike. So updates are not
   weighted by rows. L2 (weight_decay) is part of the gradient.
3. A round is so many updates as make a pass over the data. The buffer is kept over its end. What it holds at the end of
   the run is lost. At the end of a round each worker gets an empty message (tag `round`), and goes on with its work.
   The round's time is that of the last worker to hear it: a slow link adds its latency, once, to every time on the
   curve.
4. privacy=dp_sgd clips every example's gradient and adds noise to their sum, as in FedAvg. How often a worker's update
   comes depends on time, and noise must be calibrated before. So a worker gets at most `uneven` times as many models as
   the mean worker's share of all updates. Noise is for so many.
"""

from typing import Any

import numpy as np
from torch import Tensor
from torch.nn.utils import vector_to_parameters

from vflbench.algorithms.gossip import worker_sgd
from vflbench.algorithms.gossip.worker_sgd import LocalSgd
from vflbench.cards.algorithms.gossip.fedbuff import Config
from vflbench.data.tasks import Shard, ShardedPublic, ShardedTask
from vflbench.federation.party import SERVER, Party, PartySpec
from vflbench.models import classifiers
from vflbench.types import ConfigError, Problem, RunConfig

MAIL = {"model": (SERVER,), "round": (SERVER,)}  # a worker's
IDLE = -1


def parties(task: ShardedTask, config: RunConfig[Config]) -> dict[str, PartySpec]:
    """The server, and one worker per shard.

    Raises
    ------
    ConfigError : as `shared.check_data`; or the run has too few updates to fill the buffer once.
    """
    cfg = config.algorithm
    planned = most_models(config, task.public) * local_steps(cfg, task.public)
    specs = worker_sgd.workers(worker, task, config, steps=lambda: [planned] * len(task.shards))
    assert config.rounds is not None  # decided by the runner
    if cfg.buffer > (count := updates(cfg, task.public, config.rounds)):
        allowed = f"must be at most {count}, the updates of the whole run: else the server never moves"
        raise ConfigError([Problem("algorithm.buffer", cfg.buffer, allowed)])
    return {SERVER: PartySpec(server, role="server")} | specs


def local_steps(cfg: Config, public: ShardedPublic) -> int:
    """Q: a worker's steps from a model to its update, the same for all."""
    return max(1, round(cfg.local_epochs * worker_sgd.steps_per_epoch(cfg, public)))


def updates(cfg: Config, public: ShardedPublic, t: int) -> int:
    """How many updates the server has taken at the end of round `t`: those that the steps of t rounds make."""
    return t * len(public.rows) * worker_sgd.steps_per_round(cfg, public) // local_steps(cfg, public)


def most_models(config: RunConfig[Config], public: ShardedPublic) -> int:
    """How many models a worker gets at most; without privacy nothing but the run's end bounds them."""
    assert config.rounds is not None  # decided by the runner
    count = updates(config.algorithm, public, config.rounds)
    if config.privacy.name == "none":
        return count + len(public.rows)
    return int(np.ceil(config.algorithm.uneven * count / len(public.rows)))


# --- the server -------------------------------------------------------------------------------------------------------


async def server(me: Party, data: None, public: ShardedPublic, config: RunConfig[Config]) -> None:
    """Keep workers busy, and step on every K of their updates."""
    cfg = config.algorithm
    most, busy = most_models(config, public), max(1, round(cfg.concurrency * len(me.clients)))
    state = me.state
    state.model = worker_sgd.initial_model(public, config).to(me.device)
    state.version = 0  # t: steps so far
    state.buffer = []  # (worker, weight, update), since the last step
    state.base = np.full(len(me.clients), IDLE)  # the version that each worker trains
    state.models = np.zeros(len(me.clients), np.int64)  # sent to each worker
    state.received = state.staleness = 0  # updates; sum of their staleness

    async for t in me.rounds():
        while state.received < updates(cfg, public, t):
            free, idle = busy - int((state.base != IDLE).sum()), np.flatnonzero(state.base == IDLE)
            idle = idle[state.models[idle] < most]
            waits = None if free == 0 or len(idle) == 0 else 0.0  # all that has come by now goes first
            try:
                src, update = await me.recv_any(me.clients, tag="update", timeout=waits)
            except TimeoutError:
                chosen = me.rng("sampled").choice(idle, min(free, len(idle)), replace=False)
                state.base[chosen] = state.version
                state.models[chosen] += 1
                names = [me.clients[k] for k in sorted(chosen)]
                await me.send_many(names, classifiers.flat(state.model), tag="model")
            else:
                add(state, me.clients.index(src), update, cfg)
        await me.send_many(me.clients, None, tag="round")
        if me.evaluates(t):
            facts = {"staleness": state.staleness / max(1, state.received)}
            w, epoch = classifiers.flat(state.model), t / cfg.rounds_per_epoch
            me.report(parameters=w, epoch=epoch, iterations=state.version, facts=facts)


def add(state: Any, k: int, update: Tensor, cfg: Config) -> None:
    """Add the update of worker `k` to the buffer; a full one moves the model."""
    staleness = state.version - int(state.base[k])
    state.base[k] = IDLE
    state.received += 1
    state.staleness += staleness
    state.buffer.append((k, (1 + staleness) ** -0.5, update))
    if len(state.buffer) < cfg.buffer:
        return
    # in the order of workers, not of arrival
    total: Any = sum(weight * update for _, weight, update in sorted(state.buffer, key=lambda entry: entry[0]))
    w = classifiers.flat(state.model)
    vector_to_parameters(w + cfg.server_lr / cfg.buffer * total, state.model.parameters())
    state.buffer = []
    state.version += 1


# --- a worker ---------------------------------------------------------------------------------------------------------


async def worker(me: Party, data: Shard, public: ShardedPublic, config: RunConfig[Config]) -> None:
    """Train every model that comes on the worker's own rows, and send back its change.

    The end of a round is heard between two steps, and interrupts nothing: what is left to do is in the state.
    """
    steps = local_steps(config.algorithm, public)
    planned = None if me.privacy is None else most_models(config, public) * steps
    sgd, state = LocalSgd(me, data, public, config, planned=planned), me.state
    state.w = state.start = classifiers.flat(sgd.model)  # y and w: the model in training, and as it came
    state.batches = np.empty((0, 0), np.int64)  # of the steps that are left: row numbers

    async for t in me.rounds():
        sgd.start()
        sgd.w = state.w
        while True:
            try:
                _, tag, message = await me.recv_any(MAIL, timeout=0.0 if len(state.batches) else None)
            except TimeoutError:
                sgd.take(state.batches[0])
                sgd.w = await sgd.step(me, old_needed=False)
                state.batches = state.batches[1:]
                if not len(state.batches):
                    await me.send(SERVER, sgd.w - state.start, tag="update")
                continue
            if tag == "round":
                break
            sgd.w, state.start, state.batches = message, message.clone(), sgd.order(steps)
        state.w = sgd.w
        if sgd.seen:
            me.report(train_loss=sgd.end(t, False)["train_loss"])
