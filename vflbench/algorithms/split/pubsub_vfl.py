"""PubSub-VFL: asynchronous split learning over publish/subscribe channels.

Liu et al., arXiv 2510.12494, Algorithm 1. Each organisation has workers with replicas of its model, and a hub: gateway,
broker and parameter server. What a hub keeps for an epoch, with the channels Ce and Cg, is in epoch.py.

    passive worker      take the next batch j, publish z_j = f_p(x_j; theta_2) to Ce[j] and wait for nothing;
                        step when Cg[j] has a gradient
    active worker       take the oldest z_j of Ce, step theta_1 on loss(g(f_a(x_j), z_j), y_j),
                        publish d loss / d z_j to Cg[j]
    who waits           gives batch j up after T_ddl and tells the other side: j is taken once more (departure 11)
    parameter server    at the end of epoch t, where t mod DeltaT_t = 0:
                        theta <- the mean of the workers' replicas, back to them;
                        with average_every=K after every K steps of the party, and at the end of every epoch

Departures, where the paper is silent or cannot be taken literally
1. Messages pass hub to hub (one link each way); inside an organisation they are free. A hub's broker holds what comes
   to it.
2. A passive worker waits for the gradients of at most `outstanding` batches. It keeps the parameters and the graph of
   each; beyond a bound in bytes it computes the forward pass again.
3. A missed deadline or a failing worker ends an attempt. The batch goes back to the queue of the passive parties with
   the next attempt number; what belongs to an earlier attempt is discarded on arrival. Every party steps once on every
   batch of an epoch: one that has stepped takes part in later attempts without a step. The summary says what was
   repeated. The queue is in the order of batch IDs: with different orders, passive parties would wait for one another.
4. The oldest embedding is taken first, as in the paper, until the first attempt or batch of the epoch is given up. From
   then on, those younger than half of the deadline go first. If none is young, the newest goes first. Otherwise an
   overloaded active party would only train what is already too late, and the epoch would never end.
5. Several passive parties: an active worker takes a batch when all its embeddings are there. They have to come within
   the deadline.
6. Both parties average, in the epochs t with t mod DeltaT_t = 0 (equation 5; the listing averages theta_1 only).
   deadline=null waits for ever ("T_all = 0"). Adam is the default; equation 2 is plain gradient descent
   (optimizer=sgd). Each worker has its own moments. The active party standardises the targets of a regression. At the
   end of an epoch that does not average, the observer scores the mean of the replicas, which no party holds then.
7. A channel holds one attempt's message at a time, as earlier ones are discarded. So p and q are 1: more would change
   nothing, and nothing is dropped.
8. An epoch ends with a number from each passive party (again after a late notice) and one back (tag `epoch`). A
   `notice` has two numbers.
9. A worker that fails (failure_rate) is back at once, with its parameters. It loses what it had in hand and what it
   waited for. A worker whose process dies (engine=ray) does not come back. The others do its work; what its replica
   learnt since the last average is lost. A second forward pass takes no time on the modelled clock: the delay model
   was fitted without it.
10. With privacy, noise is calibrated for one publication of a row per epoch. A further attempt sends the same noisy row
    again, which tells nothing new. Its gradient is of that row; the worker takes it back through its latest forward
    pass. Embeddings are clipped, in the passive gradient too. The hub adds the noise; its scale is not the paper's
    (privacy/gdp.py).
11. With one passive party only that side has a deadline: it runs from the publication of an embedding until its
    gradient is there.
12. All parties draw an epoch's batches from a shared seed. A passive worker takes a gradient before a new batch.

Noise on embeddings does not protect gradients d loss / d z: labels can be read from them (attack=label_inference).
privacy=label_rr, gaussian_gradient and embedding_and_label are ours.
"""

import math
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import torch

from vflbench.algorithms.split import organisations, planner, split_privacy
from vflbench.algorithms.split.epoch import ActiveEpoch, Notice, PassiveEpoch, Result, Task, check_fruitful
from vflbench.algorithms.split.organisations import ACTIVE, passive_parties, workers_of
from vflbench.algorithms.split.worker_replica import Embedding, Gradient, Side, average, score
from vflbench.cards.algorithms.split.pubsub_vfl import Config
from vflbench.data.tasks import AlignedPart, AlignedPublic, AlignedTask
from vflbench.federation.delays import Delays
from vflbench.federation.party import Party, PartyLost, PartySpec
from vflbench.models.split_learning import Embedded
from vflbench.seeding import batches
from vflbench.types import FederationError, RunConfig

max_releases = split_privacy.max_releases


def most(task: AlignedTask, config: RunConfig[Config]) -> dict[str, int]:
    """As `shared.most`, where no planner chooses."""
    return organisations.most(task, config) if config.algorithm.planner == "none" else {}


def decide(task: AlignedTask, config: RunConfig[Config]) -> tuple[RunConfig[Config], dict[str, Any]]:
    """The configuration with the planner's choice, and its plan (Algorithm 2).

    Raises
    ------
    VflbenchError : nothing can be chosen.
    """
    return planner.decide(task, config, averages_per_epoch(config.algorithm, config.rounds or 1))


def parties(task: AlignedTask, config: RunConfig[Config]) -> dict[str, PartySpec]:
    """A hub and workers per organisation: `active`, `active_worker_0` ...

    Raises
    ------
    ConfigError : the workers or the deadline do not fit the data.
    """
    cfg = config.algorithm
    counts = cfg.workers, passive_workers(cfg)
    specs = organisations.teams(
        task, config, (active_hub, passive_hub), (active_worker, passive_worker), counts, expendable=True
    )
    organisations.check_batches(config, task.public.samples, workers=counts[0], passive_workers=counts[1])
    planner.check_deadline(config, Delays(config.compute))
    return specs


def passive_workers(cfg: Config) -> int:
    """Number of workers w_p of each passive party."""
    return cfg.passive_workers or cfg.workers


def interval(t: int, longest: int) -> int:
    """DeltaT_t of epoch t = 1, 2, ... (equation 5): 1, 1, 1, 2, 3, 4, 5, 5 ... for DeltaT_0 = 5."""
    return max(1, math.ceil(longest / 2 * math.tanh(2 * t / longest - 2) + longest / 2))


def averages(cfg: Config, t: int, last: int) -> bool:
    """Whether the replicas of an organisation are averaged at the end of epoch t."""
    if cfg.aggregation == "semi_async" and cfg.average_every is None:
        return t % interval(t, cfg.interval) == 0
    return cfg.aggregation != "never" or t == last


def averages_per_epoch(cfg: Config, last: int) -> float:
    """The share of `last` epochs that end with an average; `last` may be more than one can go through."""
    if cfg.aggregation != "semi_async" or cfg.average_every is not None:
        return 1.0 if cfg.aggregation != "never" else 1 / last
    settled = min(last, 20 * cfg.interval)  # DeltaT_t is DeltaT_0 from then on
    early = sum(averages(cfg, t, last) for t in range(1, settled + 1))
    return (early + last // cfg.interval - settled // cfg.interval) / last


# --- workers ----------------------------------------------------------------------------------------------------------


async def passive_worker(me: Party, data: AlignedPart, public: AlignedPublic, config: RunConfig[Config]) -> None:
    """Embed batches, and step when their gradients come."""
    cfg = config.algorithm
    side = Side(me, data, public, config, passive_workers(cfg))
    hub = side.organisation
    me.state.model, me.state.optimiser = side.model, side.optimiser

    async for t in me.rounds():
        rows = batches(config.seed, t, public.samples, cfg.batch_size)
        made: dict[int, Embedded] = {}  # by batch ID
        while (task := Task(*await me.recv(hub, tag="task"))).kind != "end":
            j = task.batch
            if task.kind == "forget":
                made.pop(j, None)
                continue
            if task.kind == "average":
                await replace_by_mean(me, hub, side)
                continue
            if fails(me, cfg):
                made.clear()
                result = Result("failed", j, task.attempt)
            elif task.kind == "forward":
                made[j] = await side.embed(rows[j], len(made))
                result = Result("embedded", j, task.attempt, made[j].z)
            else:
                await side.backward(made.pop(j), rows[j], task.tensors, task.steps)
                result = Result("stepped", j, task.attempt)
            await me.send(hub, tuple(result), tag="worker")
        await replicate(me, hub, side, config, t)


async def active_worker(me: Party, data: AlignedPart, public: AlignedPublic, config: RunConfig[Config]) -> None:
    """Step on batches whose embeddings are there."""
    cfg = config.algorithm
    side = Side(me, data, public, config, cfg.workers)
    me.state.model, me.state.optimiser = side.model, side.optimiser
    await split_privacy.settle_labels(me, data.labels, hub=ACTIVE)

    async for t in me.rounds():
        rows = batches(config.seed, t, public.samples, cfg.batch_size)
        while (task := Task(*await me.recv(ACTIVE, tag="task"))).kind != "end":
            if task.kind == "average":
                await replace_by_mean(me, ACTIVE, side)
                continue
            if fails(me, cfg):
                result = Result("failed", task.batch, task.attempt)
            else:
                result = Result(
                    "stepped", task.batch, task.attempt, await side.learn(rows[task.batch], task.tensors, task.steps)
                )
            await me.send(ACTIVE, tuple(result), tag="worker")
        await replicate(me, ACTIVE, side, config, t)


def fails(me: Party, cfg: Config) -> bool:
    """Whether a worker loses the task that it has just received."""
    return cfg.failure_rate > 0 and me.rng("failures").random() < cfg.failure_rate


async def replicate(me: Party, hub: str, side: Side, config: RunConfig[Config], t: int) -> None:
    """A worker's part at the end of epoch t: send its replica, and take the mean where the epoch averages."""
    if averages(config.algorithm, t, config.rounds or 0):
        await replace_by_mean(me, hub, side)
    else:
        async with me.evaluating():
            await me.send(hub, side.theta, tag="replica")


async def replace_by_mean(me: Party, hub: str, side: Side) -> None:
    """Send a worker's replica to its hub, and take the mean of all."""
    await me.send(hub, side.theta, tag="replica")
    side.theta.copy_(await me.recv(hub, tag="model"))


# --- hubs -------------------------------------------------------------------------------------------------------------


async def passive_hub(me: Party, data: AlignedPart, public: AlignedPublic, config: RunConfig[Config]) -> None:
    """Deal batches to workers, publish their embeddings, and hand out the gradients that come."""
    cfg = config.algorithm
    workers = workers_of(me.name, passive_workers(cfg))
    side = Side(me, data, public, config)
    me.state.model = side.model
    sources = {"worker": workers, **{tag: [ACTIVE] for tag in ("gradient", "notice", "epoch")}}

    async for t in me.rounds():
        rows = batches(config.seed, t, public.samples, cfg.batch_size)
        epoch = PassiveEpoch(workers, len(rows), cfg.outstanding, cfg.deadline, cfg.average_every)
        async for src, tag, message in events(me, side, cfg, workers, epoch, sources):
            if tag == "worker":
                done = Result(*message)
                if epoch.on_result(src, done):
                    z = split_privacy.embeddings(me, done.value, rows[done.batch], epoch=t)
                    await me.send(ACTIVE, tuple(Embedding(done.batch, done.attempt, me.clock, z)), tag="embedding")
                    epoch.on_published(done.batch, me.clock)
            elif tag == "gradient":
                epoch.on_gradient(Gradient(*message))
            elif tag == "notice":
                epoch.on_notice(Notice(*message))
            else:
                epoch.ended = True
        split_privacy.forget(me)
        await me.send_many(workers, tuple(Task("end")), tag="task")
        await aggregate(me, workers, side, config, t)
        me.report(facts={f"staleness_{me.name}": sum(epoch.staleness) / len(epoch.staleness)})  # of the last epoch
        await score(me, side, t)


async def active_hub(me: Party, data: AlignedPart, public: AlignedPublic, config: RunConfig[Config]) -> None:
    """Collect embeddings, deal them to workers, and publish their gradients."""
    cfg = config.algorithm
    workers = workers_of(me.name, cfg.workers)
    side = Side(me, data, public, config)
    passive = passive_parties(me)
    me.state.model = side.model
    await split_privacy.settle_labels(me, data.labels, workers)
    me.state.counts = dict.fromkeys(("trained", "repeated", "discarded", "dropped"), 0)
    sources = {"worker": workers, **{tag: passive for tag in ("embedding", "notice", "epoch")}}

    async for t in me.rounds():
        rows = batches(config.seed, t, public.samples, cfg.batch_size)
        count = len(rows)
        epoch = ActiveEpoch(workers, count, passive, cfg.deadline, cfg.average_every)
        async for src, tag, message in events(me, side, cfg, workers, epoch, sources):
            if tag == "worker":
                done = Result(*message)
                if epoch.on_result(src, done):
                    _loss, dzs = done.value
                    dzs = split_privacy.gradients(me, dzs, rows[done.batch], public.samples, epoch=t)
                    for name, dz in zip(passive, dzs, strict=True):
                        await me.send(name, tuple(Gradient(done.batch, done.attempt, me.clock, dz)), tag="gradient")
            elif tag == "embedding":
                epoch.on_embedding(src, Embedding(*message), me.clock)
            elif tag == "notice":
                epoch.on_notice(src, Notice(*message))
            else:
                epoch.heeded[src] = message
        split_privacy.forget(me)
        await me.send_many(passive, t, tag="epoch")
        await me.send_many(workers, tuple(Task("end")), tag="task")
        me.state.counts = {name: me.state.counts[name] + more for name, more in epoch.counts().items()}
        await aggregate(me, workers, side, config, t)
        if epoch.losses:
            me.report(train_loss=sum(epoch.losses) / len(epoch.losses))
        me.report(epoch=t, iterations=t * count, facts={"batches": dict(me.state.counts)})
        await score(me, side, t)


async def events(
    me: Party,
    side: Side,
    cfg: Config,
    workers: list[str],
    epoch: PassiveEpoch | ActiveEpoch,
    sources: Mapping[str, Sequence[str]],
) -> AsyncIterator[tuple[str, str, Any]]:
    """Yield what comes to a hub until the epoch is over: sender, tag and message.

    Before each wait the replicas are averaged where it is time, idle workers get work, and the outbox is sent.
    """
    count = len(workers)  # at the start of the epoch
    while not epoch.over():
        check_fruitful(epoch.given_up, count, me.name, cfg.deadline, cfg.failure_rate)
        if epoch.averages():
            await me.send_many(workers, tuple(Task("average")), tag="task")
            before = list(workers)
            await average_replicas(me, workers, side)
            for lost_one in before:
                if lost_one not in workers:
                    epoch.on_loss(lost_one)
        epoch.serve(me.clock)
        for dst, message, tag in epoch.posted():
            await me.send(dst, message, tag=tag)
        try:
            event = await me.recv_any(sources, timeout=epoch.patience(me.clock))
        except TimeoutError:
            for j in epoch.expired(me.clock):
                epoch.abandon(j)
        except PartyLost as lost:
            leave(me, workers, lost.name)
            epoch.on_loss(lost.name)
        else:
            yield event


def leave(me: Party, workers: list[str], worker: str) -> None:
    """Let a hub go on without a worker.

    Raises
    ------
    FederationError : it was the last one.
    """
    workers.remove(worker)
    if not workers:
        raise FederationError(f"{me.name} has no workers left: the processes of all have died")


async def gather(me: Party, workers: list[str]) -> list[torch.Tensor]:
    """The replicas, in the workers' order; a worker whose process has died leaves the list."""
    replicas = []
    for worker in list(workers):
        try:
            replicas.append(await me.recv(worker, tag="replica"))
        except PartyLost:
            leave(me, workers, worker)
    return replicas


async def aggregate(me: Party, workers: list[str], side: Side, config: RunConfig[Config], t: int) -> None:
    """Set a hub's model to the mean of the replicas.

    In epochs that average, the workers get it; in others only an observer sees it.
    """
    if averages(config.algorithm, t, config.rounds or 0):
        await average_replicas(me, workers, side)
    else:
        async with me.evaluating():
            side.theta.copy_(average(await gather(me, workers)))


async def average_replicas(me: Party, workers: list[str], side: Side) -> None:
    """Set the hub's model, and the workers' replicas, to the mean of the replicas."""
    replicas = await gather(me, workers)
    side.theta.copy_(await me.compute(average, replicas, seconds=side.serving(len(workers))))
    await me.send_many(workers, side.theta, tag="model")
