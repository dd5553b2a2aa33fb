"""FedAvg: in each round a server averages the models that some of the workers have trained on their own rows.

McMahan, Moore, Ramage, Hampson, Agüera y Arcas, arXiv 1602.05629, Algorithm 1:

    paper                                        here
    K, C, E, B, eta                              workers, fraction, local_epochs, batch_size, lr
    P_k, n_k                                     a worker's shard, and its rows
    Server:
      initialise w_0                             of the stream `init`
      for each round t = 1, 2, ...
        m <- max(C K, 1)                         in `sampled`
        S_t <- random set of m clients           sampled
        for each k in S_t in parallel
          w_k <- ClientUpdate(k, w)              tags `model`, there, and `update`, back
        m_t <- sum_{k in S_t} n_k
        w <- sum_{k in S_t} n_k / m_t w_k        as w + sum n_k / m_t (w_k - w)
    ClientUpdate(k, w):
      split P_k into batches of size B           sgd.begin, anew for each local epoch
      for each local epoch, for each batch b
        w <- w - eta grad l(w; b)                sgd.step
      return w_k                                 w_k - w: codecs act on the difference

Two later changes to it are keys: `server_momentum` (FedAvgM: Hsu, Qi, Brown, arXiv 1909.06335; v <- beta v + the mean
difference, w <- w + server_lr v) and `prox` (FedProx: Li et al., arXiv 1812.06127; mu / 2 ||w_k - w||^2 is added to
the loss of every local step). With `local_steps` a sampled worker takes so many steps in place of E epochs.

Score and training loss: those of the server's model.

Departures from the paper, and what it leaves open
1. All parties draw S_t from the common stream `sampled`. So a worker that is not sampled waits for nothing: it sends
   and receives nothing.
2. C K is rounded to the nearest whole number.
3. A local epoch has floor(n_k / B) batches, at least 1; the remaining rows are left out. Each local epoch has an order
   of its own. `local_steps` start a new order in every round, and take another one when it ends.
4. A codec acts on the model there and on the difference back. With topk take codec.feedback=true: the largest entries
   of a model alone are no model.
5. L2 (weight_decay) is part of the gradient.
6. privacy=dp_sgd clips every example's gradient and adds noise to their sum; L2 and prox are neither clipped nor
   noised. Batches are drawn by Poisson sampling. All know S_t from the seed. So noise is calibrated to the rounds in
   which a worker will be sampled, and being sampled earns no other credit.
"""

from collections import Counter
from dataclasses import replace

import torch
from torch.nn.utils import vector_to_parameters

from vflbench import seeding
from vflbench.algorithms.gossip import worker_sgd
from vflbench.algorithms.gossip.worker_sgd import LocalSgd
from vflbench.cards.algorithms.gossip.fedavg import Config
from vflbench.data.tasks.sharded import Shard, ShardedPublic, ShardedTask
from vflbench.federation.party import SERVER, Party, PartySpec
from vflbench.models import classifiers
from vflbench.types import RunConfig


def parties(task: ShardedTask, config: RunConfig[Config]) -> dict[str, PartySpec]:
    """The server, and one worker per shard."""
    specs = worker_sgd.workers(worker, task, config, steps=lambda: steps(config, task.public))
    return {SERVER: PartySpec(server, role="server")} | specs


def sampled(config: RunConfig[Config], t: int) -> list[int]:
    """S_t: the numbers of the workers that take part in round `t`, in their order."""
    workers = config.algorithm.workers
    count = max(1, round(config.algorithm.fraction * workers))
    return sorted(seeding.stream(config.seed, f"sampled/{t}").choice(workers, count, replace=False).tolist())


def steps(config: RunConfig[Config], public: ShardedPublic) -> list[int]:
    """The steps of each worker in the whole run: those of the rounds in which it is sampled."""
    assert config.rounds is not None  # decided by the runner
    times = Counter(k for t in range(1, config.rounds + 1) for k in sampled(config, t))
    return [times[k] * steps_per_round(config.algorithm, n) for k, n in enumerate(public.rows)]


def steps_per_round(cfg: Config, rows: int) -> int:
    """The steps of a sampled worker with so many rows."""
    return cfg.local_steps or cfg.local_epochs * max(1, rows // cfg.batch_size)


async def server(me: Party, data: None, public: ShardedPublic, config: RunConfig[Config]) -> None:
    """Send the model to the sampled workers, and move by the mean of their differences, weighted by their rows."""
    cfg = config.algorithm
    me.state.model = worker_sgd.initial_model(public, config).to(me.device)
    me.state.velocity = torch.zeros_like(classifiers.flat(me.state.model))
    me.state.rows = 0  # rows that were trained on, counted each time; with local epochs those left out, too

    async for t in me.rounds():
        chosen = sampled(config, t)
        names, rows = [me.clients[k] for k in chosen], [public.rows[k] for k in chosen]
        w = classifiers.flat(me.state.model)
        await me.send_many(names, w, tag="model")
        updates = await me.recv_all(names, tag="update")
        mean = sum(n * update for n, update in zip(rows, updates, strict=True)) / sum(rows)
        me.state.velocity = cfg.server_momentum * me.state.velocity + mean
        w = w + cfg.server_lr * me.state.velocity
        vector_to_parameters(w, me.state.model.parameters())
        if cfg.local_steps:
            me.state.rows += cfg.local_steps * sum(min(n, cfg.batch_size) for n in rows)
        else:
            me.state.rows += cfg.local_epochs * sum(rows)
        if me.evaluates(t):
            me.report(parameters=w, epoch=me.state.rows / public.samples)


async def worker(me: Party, data: Shard, public: ShardedPublic, config: RunConfig[Config]) -> None:
    """In rounds where the worker is sampled, train the server's model on its own rows."""
    cfg, number = config.algorithm, me.clients.index(me.name)
    pull = cfg.lr * cfg.prox
    own = replace(public, rows=(len(data.labels),))  # an epoch is one over its own rows, not the mean worker's
    sgd = LocalSgd(me, data, own, config, planned=None if me.privacy is None else steps(config, public)[number])
    if cfg.local_steps:
        sgd.steps = cfg.local_steps

    async for t in me.rounds():
        if number not in sampled(config, t):
            continue
        w = start = await me.recv(SERVER, tag="model")
        for _ in range(1 if cfg.local_steps else cfg.local_epochs):
            for _ in sgd.begin(t):
                sgd.w = w
                w = await sgd.step(me, own=1 - pull)
                w = w + pull * start if pull else w
        await me.send(SERVER, w - start, tag="update")
        ended = sgd.end(t, False)
        if "train_loss" in ended:  # under dp_sgd all of its batches may be empty
            me.report(train_loss=ended["train_loss"])
