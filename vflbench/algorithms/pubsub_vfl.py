"""PubSub-VFL: asynchronous split learning over publish/subscribe channels.

Liu et al., arXiv 2510.12494, Algorithm 1. Each organisation has workers with replicas of its model, and a hub: gateway, broker and
parameter server. A passive worker publishes the embedding of a batch and takes the next without waiting; whichever active worker is free
takes the oldest, steps and publishes the gradient; the passive worker steps when that comes. At an epoch's end hubs average replicas.

Departures, where the paper is silent or cannot be taken literally
1. Messages pass hub to hub (one link each way); inside an organisation they are free. A hub's broker holds what comes to it.
2. A passive worker has at most `outstanding` batches whose gradient it waits for; it keeps their parameters, and computes the forward
   pass again when the gradient comes.
3. A deadline that passes, and a worker that fails, abandon an attempt: its batch goes back to the queue of the passive parties, with the
   next attempt number, and what belongs to earlier ones is discarded on arrival. Every party steps once on every batch of an epoch: one
   that has stepped takes part in a later attempt without a step. What was repeated is in the summary. The queue is by batch ID: passive
   parties that took batches in different orders would wait for one another.
4. The oldest embedding is taken first, as in the paper, until an attempt of the epoch had to be given up. From then on one older than
   half of the deadline is taken only when none is younger, and then the newest first: oldest first would under overload train only what
   comes back too late, and an epoch would never end.
5. Several passive parties: an active worker takes a batch when all its embeddings are there; they have the deadline to come together.
6. Both parties average, in the epochs t with t mod DeltaT_t = 0 (equation 5; the listing averages theta_1 only). deadline=null waits for
   ever ("T_all = 0"). Adam is the default, equation 2 is plain gradient descent (optimizer=sgd); moments stay a worker's own. Targets
   of a regression are standardised by the active party. At the end of an epoch that does not average, the observer scores the mean of the
   replicas, which no party holds then.
7. A channel holds one attempt's message at a time, as earlier ones are discarded: p and q above 1 change nothing, and nothing is dropped.
8. An epoch ends with 8 bytes from each passive party and 8 back (tag `epoch`): all know then that nothing is under way.
9. A worker that fails (failure_rate) is back at once, with its parameters: a crash costs what it had in hand and what it waited for. One
   whose process dies (engine=ray) does not come back: the others do its work, and what its replica learnt since the last average is lost.
   The second forward pass of departure 2 takes no time on the modelled clock: the delay model is fitted without it.
10. With privacy, a batch with a row that was published as often as noise was calibrated for is left out, and counted as `skipped`.

Gradients d loss / d z are not protected: labels can be read from them (attack=label_inference).
"""

from __future__ import annotations

import bisect
import math
from collections import deque
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import torch

from vflbench.data.tasks import AlignedPart, AlignedPublic, AlignedTask
from vflbench.federation import planner
from vflbench.federation.broker import Broker
from vflbench.federation.delays import Delays
from vflbench.federation.party import Party, PartyLost, PartySpec, party_names
from vflbench.models import split_learning
from vflbench.models.split_learning import Keys, Side, average, batches, score
from vflbench.types import AlgorithmInfo, ConfigError, FederationError, Problem, RunConfig

ALGORITHM = AlgorithmInfo(
    name="pubsub_vfl",
    summary="asynchronous split learning: batches by publish/subscribe between two or more parties' workers",
    paper="Liu et al. 2025, arXiv 2510.12494 (Algorithm 1)",
    layouts=("aligned",),
    privacy=("none", "gdp_embedding"),
    attacks=("none", "embedding_inversion", "label_inference"),
    models=("mlp10", "residual_mlp"),
    epochs=True,
    published=(("embedding", "embedding_capacity"), ("gradient", "gradient_capacity")),
    modelled=True,
    time_dependent=True,
    # any codec: rounded embeddings and gradients are stale ones with noise; replicas stay inside an organisation
)

ACTIVE = "active"
FORWARD, BACKWARD, FORGET, END = "forward", "backward", "forget", "end"  # tasks of a worker
EMBEDDED, STEPPED, FAILED = "embedded", "stepped", "failed"  # what a worker says
SKIP = -1  # in a notice, instead of an attempt: nobody trains this batch
MOST_ATTEMPTS = 1000  # per worker, one after the other without a step of their party: more come only where no attempt can be in time


@dataclass
class Config(Keys):
    name: str = "pubsub_vfl"
    workers: int = 8  # w_a: workers of the active party
    passive_workers: int | None = 10  # w_p: workers of each passive party; null: as many as the active one has
    embedding_capacity: int = 5  # p: messages that a batch's embedding channel holds
    gradient_capacity: int = 5  # q: messages that a batch's gradient channel holds
    outstanding: int = 5  # batches of a passive worker that wait for their gradient, at most
    deadline: float | None = 10.0  # T_ddl: seconds that a subscriber waits; null: for ever
    aggregation: Literal["semi_async", "every_epoch", "never"] = "semi_async"  # of replicas: by equation 5 | every epoch | at the end only
    interval: int = 5  # DeltaT_0: semi_async: the interval that equation 5 grows to, epochs
    failure_rate: float = 0.0  # probability that a worker loses a task, and what it waits for: to see what a crash costs
    planner: Literal["none", "epoch", "paper"] = (
        "none"  # none | epoch (least time to target) | paper (literal objective): workers and batch
    )
    worker_range: list[int] = field(default_factory=lambda: [2, 50])  # planner: of each party
    batch_sizes: list[int] = field(default_factory=lambda: [16, 32, 64, 128, 256, 512, 1024])  # planner
    memory: list[list[float]] = field(
        default_factory=list
    )  # planner: of each party Mem_max, Mem_0, rho, chi (equation 13); empty: no bound


def check(config: RunConfig) -> list[Problem]:
    """Rules across keys, before any data is loaded."""
    cfg: Config = config.algorithm
    problems = split_learning.check_keys(config) + split_learning.check_workers(config) + split_learning.check_asynchronous(config)
    for key in ("passive_workers", "embedding_capacity", "gradient_capacity", "interval"):
        if getattr(cfg, key) is not None and getattr(cfg, key) < 1:
            problems.append(Problem(f"algorithm.{key}", getattr(cfg, key), "must be at least 1"))
    if cfg.deadline is not None and not 0 < cfg.deadline < math.inf:
        problems.append(Problem("algorithm.deadline", cfg.deadline, "must be a number of seconds above 0, or null: no deadline"))
    elif cfg.deadline is not None and cfg.deadline <= 2e-3 * config.network.client_server.latency_ms:
        there_and_back = f"a message takes {2 * config.network.client_server.latency_ms:g} ms there and back on {config.network.name}"
        problems.append(Problem("algorithm.deadline", cfg.deadline, f"{there_and_back}: every batch would be dropped"))
    if len(cfg.worker_range) != 2 or not 1 <= cfg.worker_range[0] <= cfg.worker_range[1]:
        problems.append(Problem("algorithm.worker_range", cfg.worker_range, "must be the least and the most workers: [2,50]"))
    if not cfg.batch_sizes or min(cfg.batch_sizes) < 1:
        problems.append(Problem("algorithm.batch_sizes", cfg.batch_sizes, "must be a list of numbers from 1"))
    if any(len(numbers) != 4 or min(numbers) < 0 or min(numbers[2:]) == 0 for numbers in cfg.memory):
        problems.append(Problem("algorithm.memory", cfg.memory, "must be a list of [Mem_max, Mem_0, rho, chi], rho and chi above 0"))
    elif len(cfg.memory) not in (0, cfg.parties):
        problems.append(Problem("algorithm.memory", cfg.memory, f"must have an entry for each of the {cfg.parties} parties, or be empty"))
    if cfg.planner != "none":
        problems += check_planned(config)
    if not 0 <= cfg.failure_rate < 0.9:
        problems.append(Problem("algorithm.failure_rate", cfg.failure_rate, "must be at least 0 and below 0.9"))
    elif cfg.failure_rate and cfg.deadline is None and cfg.parties > 2:
        wait = "without a deadline passive parties would wait for one another for ever: must be 0, or set algorithm.deadline"
        problems.append(Problem("algorithm.failure_rate", cfg.failure_rate, wait))
    return problems


def check_planned(config: RunConfig) -> list[Problem]:
    """What the planner does not know of."""
    problems, network = [], config.network
    if network.links or network.server_bandwidth_gbps is not None:
        key, value = ("links", network.links) if network.links else ("server_bandwidth_gbps", network.server_bandwidth_gbps)
        problems.append(Problem(f"network.{key}", value, "the planner knows links that are alike and not shared: algorithm.planner=none"))
    if config.model.dtype != "float32":
        problems.append(
            Problem("model.dtype", config.model.dtype, "the planner counts 4 bytes a number: float32, or algorithm.planner=none")
        )
    if config.engine.compute_clock not in ("auto", "modelled"):
        allowed = "the planner plans for the delay model: modelled, or algorithm.planner=none"
        problems.append(Problem("engine.compute_clock", config.engine.compute_clock, allowed))
    return problems


def decide(task: AlignedTask, config: RunConfig) -> tuple[RunConfig, dict[str, Any]]:
    """The configuration with the planner's choice of workers and batch size; what it promises, as `plan` in the summary.

    It plans without deadlines, failures and what is left out for privacy.

    Raises
    ------
    VflbenchError : nothing can be chosen.
    """
    cfg: Config = config.algorithm
    if cfg.planner == "none":
        return config, {}
    workers, last = range(cfg.worker_range[0], cfg.worker_range[1] + 1), config.rounds or 1
    sizes = [size for size in sorted(cfg.batch_sizes) if size <= task.public.samples]
    if not sizes:
        raise ConfigError([Problem("algorithm.batch_sizes", cfg.batch_sizes, f"there are {task.public.samples} training rows: none fits")])
    setting = planner.Setting(
        samples=task.public.samples,
        width=config.model.embedding,
        link=config.network.client_server,
        passive=task.parties - 1,
        active_workers=workers,
        passive_workers=workers,
        batch_sizes=sizes,
        outstanding=cfg.outstanding,
        synchronisations=sum(averages(cfg, t, last) for t in range(1, last + 1)) / last,
        memory=[planner.Memory(*numbers) for numbers in cfg.memory],
    )
    plan = planner.plan(Delays(config.compute), setting, cfg.planner)
    chosen = replace(cfg, workers=plan.active_workers, passive_workers=plan.passive_workers, batch_size=plan.batch_size)
    return replace(config, algorithm=chosen), {"plan": asdict(plan)}


def parties(task: AlignedTask, config: RunConfig) -> dict[str, PartySpec]:
    """A hub and workers for each organisation: `active`, `active_worker_0` ..., `passive_1`, `passive_1_worker_0` ...

    Raises
    ------
    ConfigError : more rows in a batch than there are, more workers than batches, or a deadline that no batch can meet.
    """
    cfg: Config = config.algorithm
    split_learning.check_task(config, task.public)
    split_learning.check_batches(config, task.public.samples, workers=cfg.workers, passive_workers=passive_workers(cfg))
    delays, specs = Delays(config.compute), {}
    check_deadline(config, delays)
    for number, organisation in enumerate([ACTIVE, *party_names("passive", task.parties)[1:]]):
        active = number == 0
        workers = party_names(f"{organisation}_worker", cfg.workers if active else passive_workers(cfg))
        role, data = "server" if active else "client", task.part(number)
        program = partial(active_hub if active else passive_hub, workers=workers)
        specs[organisation] = PartySpec(program, data, role, organisation, cores=1.0)
        program = partial(active_worker if active else passive_worker, number=number)
        for name in workers:
            specs[name] = PartySpec(program, data, role, organisation, cores=delays.cores(number, len(workers)), expendable=True)
    return specs


def check_deadline(config: RunConfig, delays: Delays) -> None:
    """Raise ConfigError where the delay model needs longer than the deadline for one batch, from its embedding to its gradient."""
    cfg: Config = config.algorithm
    if cfg.deadline is None or config.engine.compute_clock not in ("auto", "modelled"):
        return
    parts = [f"{part}_{way}" for part in ("active", "top") for way in ("forward", "backward")]
    step = sum(delays.seconds(part, cfg.batch_size, party=0, workers=cfg.workers) for part in parts) + config.compute.batch_latency
    needed = step + 2e-3 * config.network.client_server.latency_ms
    if cfg.deadline <= needed:
        allowed = (
            f"a gradient takes {needed:.3g} s to come with compute={config.compute.name} and batches of {cfg.batch_size}: more, or null"
        )
        raise ConfigError([Problem("algorithm.deadline", cfg.deadline, allowed)])


def passive_workers(cfg: Config) -> int:
    """w_p."""
    return cfg.passive_workers or cfg.workers


def max_releases(config: RunConfig, rounds: int) -> int:
    """How often a row has to be published: once an epoch. The mechanism adds what it allows for further attempts."""
    return rounds


def interval(t: int, longest: int) -> int:
    """DeltaT_t of epoch t = 1, 2, ... (equation 5): 1, 1, 1, 2, 3, 4, 5, 5 ... for DeltaT_0 = 5."""
    return max(1, math.ceil(longest / 2 * math.tanh(2 * t / longest - 2) + longest / 2))


def averages(cfg: Config, t: int, last: int) -> bool:
    """Whether the replicas of an organisation are averaged at the end of epoch t."""
    if cfg.aggregation == "semi_async":
        return t % interval(t, cfg.interval) == 0
    return cfg.aggregation == "every_epoch" or t == last


# --- workers ----------------------------------------------------------------------------------------------------------------------


async def passive_worker(me: Party, data: AlignedPart, public: AlignedPublic, config: RunConfig, number: int) -> None:
    """Embeds batches, and steps when their gradients come."""
    cfg, hub = config.algorithm, me.name.rpartition("_worker_")[0]
    side = Side(me, data, public, config, hub, partial(Delays(config.compute).seconds, party=number, workers=passive_workers(cfg)))
    me.state.model, me.state.optimiser = side.model, side.optimiser

    async for t in me.rounds():
        rows = batches(config.seed, t, public.samples, cfg.batch_size)
        made: dict[int, torch.Tensor] = {}  # batch ID -> the parameters that its embedding was made with
        while (message := await me.recv(hub, tag="task"))[0] != END:
            task, j, attempt, dz, steps = message
            if task == FORGET:
                made.pop(j, None)
            elif cfg.failure_rate and me.rng("failures").random() < cfg.failure_rate:
                made.clear()
                await me.send(hub, (FAILED, j, attempt, None), tag="worker")
            elif task == FORWARD:
                made[j] = side.theta.detach().clone()
                await me.send(hub, (EMBEDDED, j, attempt, await side.embed(rows[j])), tag="worker")
            else:
                await side.backward(made.pop(j), rows[j], dz, steps)
                await me.send(hub, (STEPPED, j, attempt, None), tag="worker")
        await replicate(me, hub, side, cfg, t, config)


async def active_worker(me: Party, data: AlignedPart, public: AlignedPublic, config: RunConfig, number: int) -> None:
    """Steps on batches whose embeddings are there."""
    cfg = config.algorithm
    side = Side(me, data, public, config, ACTIVE, partial(Delays(config.compute).seconds, party=number, workers=cfg.workers))
    me.state.model, me.state.optimiser = side.model, side.optimiser

    async for t in me.rounds():
        rows = batches(config.seed, t, public.samples, cfg.batch_size)
        while (message := await me.recv(ACTIVE, tag="task"))[0] != END:
            _, j, attempt, zs, steps = message
            if cfg.failure_rate and me.rng("failures").random() < cfg.failure_rate:
                await me.send(ACTIVE, (FAILED, j, attempt, None), tag="worker")
            else:
                await me.send(ACTIVE, (STEPPED, j, attempt, await side.learn(rows[j], zs, steps)), tag="worker")
        await replicate(me, ACTIVE, side, cfg, t, config)


async def replicate(me: Party, hub: str, side: Side, cfg: Config, t: int, config: RunConfig) -> None:
    """A worker's share in the end of epoch t."""
    theta = side.theta
    if averages(cfg, t, config.rounds or 0):
        await me.send(hub, theta, tag="replica")
        theta.copy_(await me.recv(hub, tag="model"))
    else:
        async with me.evaluating():
            await me.send(hub, theta, tag="replica")


# --- hubs -------------------------------------------------------------------------------------------------------------------------


def no_delay(part: str, rows: int) -> float:
    """A hub trains nothing."""
    return 0.0


async def gather(me: Party, workers: list[str]) -> list[torch.Tensor]:
    """The replicas, in the workers' order. A worker whose process has died leaves the list."""
    replicas = []
    for worker in list(workers):
        try:
            replicas.append(await me.recv(worker, tag="replica"))
        except PartyLost:
            leave(me, workers, worker)
    return replicas


def leave(me: Party, workers: list[str], worker: str) -> None:
    """A hub goes on without a worker. Raises FederationError where it was the last one."""
    workers.remove(worker)
    if not workers:
        raise FederationError(f"{me.name} has no workers left: the processes of all have died")


async def aggregate(me: Party, workers: list[str], side: Side, cfg: Config, t: int, config: RunConfig) -> None:
    """A hub's: its model becomes the mean of the replicas. In epochs that average its workers get it; else only an observer sees it."""
    theta = side.theta
    if averages(cfg, t, config.rounds or 0):
        replicas = await gather(me, workers)
        theta.copy_(await me.compute(average, replicas, seconds=config.compute.server_seconds * len(workers)))
        await me.send_many(workers, theta, tag="model")
    else:
        async with me.evaluating():
            theta.copy_(average(await gather(me, workers)))


async def passive_hub(me: Party, data: AlignedPart, public: AlignedPublic, config: RunConfig, workers: list[str]) -> None:
    """Deals batches to workers, publishes their embeddings, and hands out the gradients that come."""
    cfg: Config = config.algorithm
    side = Side(me, data, public, config, me.name, no_delay)
    me.state.model = side.model
    me.state.published = 0
    sources = {"worker": workers, **{tag: [ACTIVE] for tag in ("gradient", "notice", "epoch")}}

    async for t in me.rounds():
        epoch = PassiveEpoch(me, cfg, workers, batches(config.seed, t, public.samples, cfg.batch_size))
        over = False
        while not (over and epoch.complete()):
            await epoch.serve()
            try:
                src, tag, message = await me.recv_any(sources, timeout=epoch.patience())
            except TimeoutError:
                for j in epoch.gradients.expired(me.clock):
                    await epoch.abandon(j, tell=True)
                continue
            except PartyLost as lost:
                leave(me, workers, lost.name)
                await epoch.on_loss(lost.name)
                continue
            if tag == "worker":
                await epoch.on_worker(src, *message)
            elif tag == "gradient":
                epoch.on_gradient(message)
            elif tag == "notice":
                await epoch.on_notice(*message)
            else:
                over = True
        for worker in workers:
            await me.send(worker, (END, 0, 0, None, False), tag="task")
        await aggregate(me, workers, side, cfg, t, config)
        await score(me, side, t)


class PassiveEpoch:
    """A passive hub's view of one epoch."""

    def __init__(self, me: Party, cfg: Config, workers: list[str], rows: list[np.ndarray]) -> None:
        self.me, self.cfg, self.rows = me, cfg, rows
        self.queue = list(range(len(rows)))  # batch IDs that nobody has, smallest first: all passive parties take them in one order
        self.attempt = [0] * len(rows)
        self.held: dict[str, dict[int, None]] = {worker: {} for worker in workers}  # batches that a worker waits for, in its order
        self.owner: dict[int, str] = {}  # batch -> the worker that has it, or had it last
        self.arrived: dict[str, deque[int]] = {worker: deque() for worker in workers}  # batches whose gradient is there for a worker
        self.task: dict[str, tuple[str, int, bool] | None] = dict.fromkeys(workers)  # what a worker is at: kind, batch, a step?
        self.idle = deque(workers)
        self.finished: set[int] = set()  # stepped on, or skipped
        self.skipped: set[int] = set()
        self.gradients = Broker(cfg.gradient_capacity)
        self.fruitless = 0  # attempts given up since the last step
        self.notices, self.told = 0, -1  # notices that came; how many the active party knows were heeded

    def complete(self) -> bool:
        """Nothing of the epoch is left to do, as far as this party knows."""
        return len(self.finished) == len(self.rows) and not self.queue and not any(self.held.values()) and not any(self.task.values())

    def patience(self) -> float | None:
        """Seconds until the next deadline."""
        end = self.gradients.deadline()
        return None if end is None else max(0.0, end - self.me.clock)

    async def serve(self) -> None:
        """Give every idle worker something to do: a gradient that is there first, then a new batch. Say when all is done."""
        for worker in [self.idle.popleft() for _ in range(len(self.idle))]:
            held, ready = self.held[worker], None
            while self.arrived[worker] and ready is None:
                ready = self.arrived[worker].popleft()
                ready = ready if ready in held and self.gradients.depth(ready) else None  # else it was abandoned
            if ready is not None:
                _, attempt, _, dz = self.gradients.next(ready)
                del held[ready]
                steps = ready not in self.finished
                self.finished.add(ready)
                self.task[worker] = (BACKWARD, ready, steps)
                await self.me.send(worker, (BACKWARD, ready, attempt, dz, steps), tag="task")
            elif len(held) < self.cfg.outstanding and (j := await self.take()) is not None:
                held[j] = None
                self.owner[j] = worker
                self.task[worker] = (FORWARD, j, False)
                await self.me.send(worker, (FORWARD, j, self.attempt[j], None, False), tag="task")
            else:
                self.idle.append(worker)
        if self.told != self.notices and self.complete():
            self.told = self.notices
            await self.me.send(ACTIVE, self.notices, tag="epoch")

    async def take(self) -> int | None:
        """The next batch that may be published; None if there is none."""
        while self.queue:
            j = self.queue.pop(0)
            if self.me.privacy is None or self.me.privacy.may_publish(self.rows[j]):
                return j
            self.skip(j)
            await self.me.send(ACTIVE, (j, SKIP), tag="notice")
        return None

    def skip(self, j: int) -> None:
        """Nobody trains batch j any more."""
        self.attempt[j] += 1
        self.skipped.add(j)
        self.finished.add(j)

    async def on_worker(self, worker: str, said: str, j: int, attempt: int, z: torch.Tensor | None) -> None:
        me, task, self.task[worker] = self.me, self.task[worker], None
        self.idle.append(worker)
        if said == STEPPED and task is not None and task[2]:
            self.fruitless = 0
        if said == FAILED and task is not None:
            await self.take_back(worker, task)
        elif said == EMBEDDED and attempt == self.attempt[j] and z is not None:
            if me.privacy is not None:
                z = me.privacy.protect(z, self.rows[j], me.torch_rng("noise"))
            me.state.published += len(self.rows[j])
            await me.send(ACTIVE, (j, attempt, me.clock, z), tag="embedding")
            if self.cfg.deadline is not None:
                self.gradients.wait(j, me.clock + self.cfg.deadline)

    async def on_loss(self, worker: str) -> None:
        """A worker's process has died: the others do its work."""
        task, self.task[worker] = self.task[worker], None
        if worker in self.idle:
            self.idle.remove(worker)
        await self.take_back(worker, task)

    async def take_back(self, worker: str, task: tuple[str, int, bool] | None) -> None:
        """What a worker had in hand, and what it waits for, goes back to the queue."""
        if task is not None and task[0] == BACKWARD and task[2] and task[1] not in self.skipped:  # a batch of FORWARD is among those held
            self.finished.discard(task[1])
            await self.abandon(task[1], tell=True)
        for lost in list(self.held[worker]):
            await self.abandon(lost, tell=True)

    def on_gradient(self, message: tuple[int, int, float, torch.Tensor]) -> None:
        j, attempt = message[:2]
        if attempt == self.attempt[j]:
            self.gradients.publish(j, message)
            self.arrived[self.owner[j]].append(j)

    async def on_notice(self, j: int, attempt: int) -> None:
        self.notices += 1
        if attempt == SKIP:
            self.skip(j)
            await self.forget(j)
            if j in self.queue:
                self.queue.remove(j)
        elif attempt >= self.attempt[j] and j not in self.skipped:
            self.attempt[j] = attempt
            await self.abandon(j, tell=False)

    async def abandon(self, j: int, tell: bool) -> None:
        """The attempt under way has failed: batch j goes back to the queue."""
        if tell:
            await self.me.send(ACTIVE, (j, self.attempt[j]), tag="notice")
        self.attempt[j] += 1
        self.fruitless += 1
        if self.fruitless > MOST_ATTEMPTS * len(self.held):
            lossy = f", or algorithm.failure_rate={self.cfg.failure_rate} too high" if self.cfg.failure_rate else ""
            raise FederationError(
                f"{self.me.name}: {self.fruitless} attempts at batches were given up one after the other, the last at batch {j}: "
                f"algorithm.deadline={self.cfg.deadline} is too short for this network and these delays{lossy}"
            )
        await self.forget(j)
        place = bisect.bisect_left(self.queue, j)
        if j not in self.queue[place : place + 1]:
            self.queue.insert(place, j)

    async def forget(self, j: int) -> None:
        self.gradients.discard(j, lambda message: True)
        if j in self.owner and self.held[self.owner[j]].pop(j, j) is None:
            await self.me.send(self.owner[j], (FORGET, j, 0, None, False), tag="task")


async def active_hub(me: Party, data: AlignedPart, public: AlignedPublic, config: RunConfig, workers: list[str]) -> None:
    """Collects embeddings, deals them to workers, and publishes their gradients."""
    cfg: Config = config.algorithm
    side = Side(me, data, public, config, me.name, no_delay)
    passive = [name for name in me.clients if "_worker_" not in name]
    me.state.model = side.model
    sources = {"worker": workers, **{tag: passive for tag in ("embedding", "notice", "epoch")}}
    me.state.counts = dict.fromkeys(("trained", "repeated", "discarded", "dropped", "skipped"), 0)

    async for t in me.rounds():
        count = math.ceil(public.samples / cfg.batch_size)
        epoch = ActiveEpoch(me, cfg, workers, passive, count)
        while not epoch.over():
            await epoch.serve()
            try:
                src, tag, message = await me.recv_any(sources, timeout=epoch.patience())
            except TimeoutError:
                for broker in epoch.embeddings.values():
                    for j in broker.expired(me.clock):
                        await epoch.abandon(j, epoch.attempt[j])
                continue
            except PartyLost as lost:
                leave(me, workers, lost.name)
                await epoch.on_loss(lost.name)
                continue
            if tag == "worker":
                await epoch.on_worker(src, *message)
            elif tag == "embedding":
                epoch.on_embedding(src, message)
            elif tag == "notice":
                await epoch.on_notice(src, *message)
            else:
                epoch.heeded[src] = message
        await me.send_many(passive, t, tag="epoch")
        for worker in workers:
            await me.send(worker, (END, 0, 0, None, False), tag="task")
        me.state.counts["trained"] += len(epoch.stepped)
        me.state.counts["dropped"] += sum(broker.dropped for broker in epoch.embeddings.values())
        await aggregate(me, workers, side, cfg, t, config)
        loss = sum(epoch.losses) / len(epoch.losses) if epoch.losses else None
        me.report(**({} if loss is None else {"train_loss": loss}), epoch=t, iterations=t * count, facts={"batches": dict(me.state.counts)})
        await score(me, side, t)


class ActiveEpoch:
    """The active hub's view of one epoch."""

    def __init__(self, me: Party, cfg: Config, workers: list[str], passive: list[str], count: int) -> None:
        self.me, self.cfg, self.count = me, cfg, count
        self.embeddings = {name: Broker(cfg.embedding_capacity) for name in passive}
        self.attempt = [0] * count
        self.ready: deque[int] = deque()  # batches whose embeddings are all there, oldest first
        self.since: dict[int, float] = {}  # when the last embedding of a batch was published
        self.young = math.inf if cfg.deadline is None else cfg.deadline / 2
        self.task: dict[str, tuple[int, int] | None] = dict.fromkeys(workers)  # batch and attempt that a worker is at
        self.idle = deque(workers)
        self.stepped: set[int] = set()
        self.skipped: set[int] = set()
        self.notices = dict.fromkeys(passive, 0)  # sent to each
        self.heeded: dict[str, int] = dict.fromkeys(passive, -1)  # how many of them each had heeded when it was done
        self.retried = False  # an attempt was given up: a batch may be ready while a worker is at an earlier attempt of it
        self.losses: list[float] = []

    def over(self) -> bool:
        return not any(self.task.values()) and self.heeded == self.notices

    def patience(self) -> float | None:
        """Seconds until the next deadline."""
        ends = [end for broker in self.embeddings.values() if (end := broker.deadline()) is not None]
        return max(0.0, min(ends) - self.me.clock) if ends else None

    async def serve(self) -> None:
        """Give every idle worker the oldest batch that no other is at; once attempts were late, the oldest young one, else the newest."""
        while self.idle and self.ready:
            at = {task[0] for task in self.task.values() if task} if self.retried else ()
            free = [j for j in self.ready if j not in at] if at else self.ready
            if not free:
                return
            j = next((j for j in free if not self.retried or self.me.clock - self.since[j] <= self.young), free[-1])
            worker = self.idle.popleft()
            self.ready.remove(j)
            zs = [broker.next(j)[3] for broker in self.embeddings.values()]
            self.task[worker] = (j, self.attempt[j])
            steps = j not in self.stepped
            await self.me.send(worker, (FORWARD, j, self.attempt[j], zs, steps), tag="task")

    async def on_worker(self, worker: str, said: str, j: int, attempt: int, result: Any) -> None:
        self.task[worker] = None
        self.idle.append(worker)
        if said == FAILED:
            await self.abandon(j, attempt)
        elif said == STEPPED:
            loss, dzs = result
            if j not in self.stepped:
                self.losses.append(loss)
            self.stepped.add(j)
            if attempt == self.attempt[j] and j not in self.skipped:
                for name, dz in zip(self.embeddings, dzs, strict=True):
                    await self.me.send(name, (j, attempt, self.me.clock, dz), tag="gradient")

    async def on_loss(self, worker: str) -> None:
        """A worker's process has died: another one does what it was at."""
        task, self.task[worker] = self.task[worker], None
        if worker in self.idle:
            self.idle.remove(worker)
        if task is not None:
            await self.abandon(*task)

    def on_embedding(self, src: str, message: tuple[int, int, float, torch.Tensor]) -> None:
        j, attempt = message[:2]
        if j in self.skipped or attempt < self.attempt[j]:
            self.me.state.counts["discarded"] += 1
            return
        self.embeddings[src].publish(j, message)
        missing = [broker for broker in self.embeddings.values() if not broker.depth(j)]
        if not missing:
            self.ready.append(j)
            self.since[j] = min(message[2], self.me.clock)
        elif self.cfg.deadline is not None:
            for broker in missing:
                if j not in broker.deadlines:
                    broker.wait(j, self.me.clock + self.cfg.deadline)

    async def on_notice(self, src: str, j: int, attempt: int) -> None:
        if attempt == SKIP:
            self.me.state.counts["skipped"] += j not in self.skipped
            self.skipped.add(j)
            await self.clear(j, SKIP, [name for name in self.embeddings if name != src])
        elif attempt >= self.attempt[j] and j not in self.skipped:
            self.attempt[j] = attempt + 1
            self.me.state.counts["repeated"] += 1
            await self.clear(j, attempt, [name for name in self.embeddings if name != src])

    async def abandon(self, j: int, attempt: int) -> None:
        """This party gives an attempt up: all passive parties embed the batch once more."""
        if attempt == self.attempt[j] and j not in self.skipped:
            self.attempt[j] += 1
            self.me.state.counts["repeated"] += 1
            await self.clear(j, attempt, list(self.embeddings))

    async def clear(self, j: int, attempt: int, tell: list[str]) -> None:
        """What is there of the attempt is of no use any more; `tell` whom."""
        self.retried = True
        for broker in self.embeddings.values():
            self.me.state.counts["discarded"] += broker.depth(j)
            broker.discard(j, lambda message: True)
        if j in self.ready:
            self.ready.remove(j)
        for name in tell:
            self.notices[name] += 1
            await self.me.send(name, (j, attempt), tag="notice")
