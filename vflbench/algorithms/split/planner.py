"""The planner of PubSub-VFL (Algorithm 2): it finds each party's number of workers, and the batch size, by enumeration.

`epoch` minimises the time to a target, epoch seconds * (1 + B / B_c) * (1 + w / W_c), w the most workers of a party.
Each replica makes a w-th of an epoch's steps, so more epochs are needed (ours; the paper's times do not know it). An
epoch is what the algorithm does: batches are dealt to parallel workers. A formula gives its seconds for the whole grid,
within 5 % for most points. The formula's minimum tends to lie where it errs downwards. So the FINALISTS that it ranks
best are played event by event, and the best of those is chosen. Neither the formula nor the play knows deadlines,
failures or noise.

`paper` minimises the literal objective, equation 14: the seconds of one worker's batch, whatever the number of batches
and workers. It grows with the workers, so it always chooses the fewest. What is changed in it:
- both parties have one range of workers;
- the passive backward pass has its own scale;
- the communication stays in (equation 15 drops it);
- the memory bound divides by rho (the text says gamma);
- a number of an embedding takes 4 bytes, not one.

Where objectives are equal, the fewest workers of both parties together win, then the fewest active ones, then the
smallest batch. Times that differ by less than TIE count as equal. Where one party waits for the other anyway, its
number of workers hardly matters, and fewer are enough.
"""

import heapq
import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from vflbench.cards.algorithms.split.pubsub_vfl import Config
from vflbench.data.tasks import AlignedTask
from vflbench.federation.delays import Delays
from vflbench.federation.links import seconds_per_byte
from vflbench.models import vertical
from vflbench.types import ConfigError, LinkConfig, Problem, RunConfig, VflbenchError

Array = NDArray[Any]
ACTIVE_PARTS = ("active_forward", "top_forward", "top_backward", "active_backward")
HEADER = 24  # bytes of a batch's id, attempt and timestamp
EPOCH_END = 8  # bytes of each message that ends an epoch
FINALISTS = 16  # points of the grid that are played event by event
TIE = 0.005  # times to the target that differ by less, relatively, are equal


@dataclass(frozen=True)
class Setting:
    """What the planner may choose from, and what it plans for."""

    samples: int  # training samples
    width: int  # d_e: an embedding is `width` floats of 4 bytes
    link: LinkConfig  # between the active party and each passive one, each way
    passive: int = 1  # passive parties
    active_workers: Sequence[int] = range(2, 51)
    passive_workers: Sequence[int] = range(2, 51)  # of each passive party
    batch_sizes: Sequence[int] = (16, 32, 64, 128, 256, 512, 1024)
    outstanding: int = 5  # batches of one passive worker under way
    synchronisations: float = 1.0  # per epoch
    # of each party Mem_max, Mem_0, rho, chi (`largest_batch`); none given: unbounded
    memory: Sequence[Sequence[float]] = ()


@dataclass(frozen=True)
class Plan:
    """The chosen point; its times are those of a real epoch, whatever the planner minimised."""

    active_workers: int
    passive_workers: int  # of each passive party
    batch_size: int
    epoch_seconds: float  # of one epoch, its share of the synchronisations included
    # to the target, in units of the epochs that small batches of one replica take: epoch_seconds * `growth`
    target_seconds: float


def check_deadline(config: RunConfig[Config], delays: Delays) -> None:
    """Check that a gradient can come within the deadline.

    Raises
    ------
    ConfigError : the delay model needs longer than the deadline from a batch's embedding to its gradient.
    """
    cfg = config.algorithm
    counted = config.compute.counts_work  # what a batch takes is known when there is a model
    if cfg.deadline is None or counted or config.engine.compute_clock not in ("auto", "modelled"):
        return
    parts = [f"{part}_{way}" for part in ("active", "top") for way in ("forward", "backward")]
    step = (
        sum(delays.seconds(part, cfg.batch_size, party=0, workers=cfg.workers) for part in parts)
        + config.compute.batch_latency
    )
    needed = step + 2e-3 * config.network.client_server.latency_ms
    if cfg.deadline <= needed:
        takes = (
            f"a gradient takes {needed:.3g} s to come with compute={config.compute.name} and batches of "
            f"{cfg.batch_size}"
        )
        raise ConfigError([Problem("algorithm.deadline", cfg.deadline, f"{takes}: more, or null")])


def decide(
    task: AlignedTask, config: RunConfig[Config], synchronisations: float
) -> tuple[RunConfig[Config], dict[str, Any]]:
    """The configuration with the chosen workers and batch size, and the `Plan` for the summary.

    With planner=none the configuration stays as it is, and there is no plan. The planner knows nothing of deadlines
    and failures.

    Parameters
    ----------
    synchronisations : mean number per epoch.

    Raises
    ------
    VflbenchError : nothing can be chosen.
    """
    cfg = config.algorithm
    if cfg.planner == "none":
        return config, {}
    sizes = [size for size in sorted(cfg.batch_sizes) if size <= task.public.samples]
    if not sizes:
        allowed = f"there are {task.public.samples} training rows: none fits"
        raise ConfigError([Problem("algorithm.batch_sizes", cfg.batch_sizes, allowed)])
    setting = Setting(
        samples=task.public.samples,
        width=vertical.embedding(config.model, task.public.outputs),
        link=config.network.client_server,
        passive=task.parties - 1,
        batch_sizes=sizes,
        outstanding=cfg.outstanding,
        synchronisations=synchronisations,
        memory=cfg.memory,
    )
    chosen = plan(Delays(config.compute), setting, cfg.planner)
    keys = replace(
        cfg,
        workers=chosen.active_workers,
        passive_workers=chosen.passive_workers,
        batch_size=chosen.batch_size,
    )
    return replace(config, algorithm=keys), {"plan": asdict(chosen)}


def plan(delays: Delays, setting: Setting, planner: Literal["epoch", "paper"] = "epoch") -> Plan:
    """The best point of the grid.

    Raises
    ------
    VflbenchError : memory allows no batch size of the list, or every choice has more workers than batches.
    """
    epochs = epoch_seconds(delays, setting)
    sizes = np.array(setting.batch_sizes, dtype=np.float64)
    grown = growth(delays, *_grid(setting), sizes)
    targets = epochs * grown
    objective = np.where(np.isfinite(targets), literal_cost(delays, setting), np.inf) if planner == "paper" else targets
    bound = min((largest_batch(*numbers) for numbers in setting.memory), default=np.inf)
    objective = np.where(sizes <= bound, objective, np.inf)
    if not np.isfinite(objective).any():
        if not (sizes <= bound).any():
            raise VflbenchError(
                f"the planner finds no batch size: memory allows {bound:.4g} samples, the smallest is {min(sizes):g}"
            )
        fewest = max(min(setting.active_workers), min(setting.passive_workers))
        most = -(-setting.samples // min(setting.batch_sizes))
        raise VflbenchError(
            f"the planner finds no number of workers: the fewest, {fewest}, are more than the {most} batches of an "
            "epoch"
        )
    points = [point for point in np.ndindex(objective.shape) if np.isfinite(objective[point])]
    played: dict[tuple[int, ...], float] = {}

    def choice(point: tuple[int, ...]) -> tuple[int, int, int]:
        return setting.active_workers[point[0]], setting.passive_workers[point[1]], setting.batch_sizes[point[2]]

    def play(point: tuple[int, ...]) -> float:
        """The exact objective at one point."""
        if point not in played:
            played[point] = played_epoch_seconds(delays, setting, *choice(point))
        return float(objective[point] if planner == "paper" else played[point] * grown[point])

    best = min(float(objective[point]) for point in points)
    if planner == "epoch":
        best = math.inf
        for point in sorted(points, key=objective.__getitem__)[:FINALISTS]:
            if objective[point] >= best:
                break  # the formula rarely errs upwards, so no later point is better
            best = min(best, play(point))
    limit = best * (1 + (TIE if planner == "epoch" else 1e-9))

    def small(point: tuple[int, ...]) -> tuple[int, int, int]:
        active, passive, size = choice(point)
        return active + passive, active, size

    # The smallest of the equal points wins. The formula may call many equal: the first FINALISTS of those are played.
    # The best point is always among the played ones.
    tied = sorted((point for point in points if objective[point] <= limit), key=small)[:FINALISTS]
    tied += sorted((point for point in played if play(point) <= limit), key=small)
    point = next(point for point in tied if play(point) <= limit)
    return Plan(*choice(point), played[point], float(played[point] * grown[point]))


def growth(delays: Delays, active: Any, passive: Any, sizes: Any) -> Array:
    """How many times as many epochs a target takes: with larger batches, and with more replicas that share them."""
    batch, workers = delays.config.penalty_batch, delays.config.penalty_workers
    larger = 1.0 if batch is None else 1 + sizes / batch
    more = 1.0 if workers is None else 1 + np.maximum(active, passive) / workers
    return np.ones(np.broadcast_shapes(*(np.shape(each) for each in (active, passive, sizes)))) * larger * more


def largest_batch(maximum: float, base: float, per_sample: float, exponent: float) -> float:
    """B_max, equation 13; 0 where not even the base fits.

    A worker with batches of B samples needs base + per_sample * B**exponent.
    """
    return float((max(maximum - base, 0.0) / per_sample) ** (1 / exponent))


def epoch_seconds(delays: Delays, setting: Setting) -> Array:
    """Seconds of an epoch, synchronisations included, by a formula.

    An epoch of N batches is a pipeline: passive forward, link, active, link, passive backward. Its last batch leaves
    after the longest chain of waits. It goes through the stages once, and N - 1 times it waits in line for a busy
    stage; each wait passes as many batches as the stage serves at once.

    Returns
    -------
    Array (active workers, passive workers, batch sizes); inf where there are more workers than batches.
    """
    sizes = np.array(setting.batch_sizes)
    batches = -(-setting.samples // sizes)  # N
    full, short = _stages(delays, setting, sizes), _stages(delays, setting, setting.samples - (batches - 1) * sizes)
    seconds = _chain(full, full, batches - 2, setting)  # the last batch but one, which is never short
    seconds = np.maximum(np.where(batches > 1, seconds, 0.0), _chain(full, short, batches - 1, setting))
    active, passive = _grid(setting)
    seconds = seconds + _ending(delays, setting, active, passive)
    return np.where(np.maximum(active, passive) <= batches, seconds, np.inf)


@dataclass(frozen=True)
class _Stages:
    """Seconds of one batch in each stage, (active workers, passive workers, batch sizes) after broadcasting."""

    forward: Array
    link: Array  # until its last byte has left
    active: Array
    backward: Array


def _stages(delays: Delays, setting: Setting, sizes: Array) -> _Stages:
    fixed = delays.config.batch_latency

    def table(parts: Sequence[str], party: int, workers: Sequence[int]) -> Array:
        return np.array(
            [[sum(delays.seconds(part, int(size), party, w) for part in parts) for size in sizes] for w in workers]
        )

    def weakest(part: str) -> Array:  # a batch needs every passive party: the slowest decides
        tables = [table((part,), party, setting.passive_workers) for party in range(1, setting.passive + 1)]
        slowest: Array = np.max(tables, axis=0)[None]
        return slowest

    link = (HEADER + 4 * setting.width * sizes) * seconds_per_byte(setting.link.bandwidth_gbps)
    forward, backward = fixed + weakest("passive_forward"), weakest("passive_backward")
    return _Stages(forward, link[None, None], fixed + table(ACTIVE_PARTS, 0, setting.active_workers)[:, None], backward)


def _chain(full: _Stages, last: _Stages, before: Array, setting: Setting) -> Array:
    """The time at which a batch is done that comes after `before` full batches."""
    active, passive = _grid(setting)
    most = setting.outstanding
    # from a batch's embedding to its gradient
    away = full.link + full.active + full.link + 2 * setting.link.latency_ms / 1e3
    once = last.forward + last.link + last.active + last.link + 2 * setting.link.latency_ms / 1e3 + last.backward
    # A passive worker goes forward until the first gradient is back or `most` batches are under way. Then it takes
    # gradients first. If one takes it longer than the time between two, all of them precede its next forward pass.
    burst = full.backward >= full.forward
    loop = full.forward + away + np.where(burst, np.clip(active / passive, 1, most), 1) * full.backward
    waits = [  # (how many batches one more wait passes, its seconds)
        (active, full.active),
        (passive, full.forward + full.backward),
        (np.ones_like(active), full.link),
        (most * passive, loop),
    ]
    # the stages as they count where another one is always busy
    others = [(width, np.maximum(full.forward, full.backward) if width is passive else each) for width, each in waits]
    total: Any = 0.0
    for first in waits:  # the chain waits as often as it can at one stage, and for the rest at the others
        remaining: Any = before + 0.0
        seconds: Any = once
        for width, each in (first, *(w for w in others if w[0] is not first[0])):
            turns = np.floor(np.maximum(remaining, 0.0) / width)
            seconds, remaining = seconds + turns * each, remaining - turns * width
        if first is waits[1]:  # always busy: while its last batches are away, a passive worker goes on with others
            own = np.floor(np.maximum(before, 0) / passive) + 1
            apart = np.where(burst, full.forward, full.forward + full.backward)
            under_way = np.minimum(most, np.ceil(away / np.maximum(apart, 1e-12)) + 1)
            together = np.where(burst, (own - 1) % under_way + 1, np.minimum(under_way, own))
            seconds = seconds - np.minimum(away, (together - 1) * np.where(burst, full.forward, full.backward))
        total = np.maximum(total, seconds)
    result: Array = total
    return result


def _grid(setting: Setting) -> tuple[Array, Array]:
    """The worker numbers, to broadcast: (active, 1, 1) and (1, passive, 1)."""
    active, passive = np.array(setting.active_workers), np.array(setting.passive_workers)
    return active[:, None, None], passive[None, :, None]


def _ending(delays: Delays, setting: Setting, active: Any, passive: Any) -> Any:
    """Seconds from the last step to the end of the epoch.

    The passive parties say that they are done, and the active one says that all are. Then the parameter servers
    average side by side; each takes time per worker.
    """
    message = EPOCH_END * seconds_per_byte(setting.link.bandwidth_gbps) + setting.link.latency_ms / 1e3
    server = setting.synchronisations * delays.config.server_seconds
    return message + np.maximum(server * active, message + server * passive)


def literal_cost(delays: Delays, setting: Setting) -> Array:
    """Equation 14: seconds of a batch at the slower side, and of the embedding and the gradient on the link.

    It is literal: constants count per batch, cores are shared without a cap, and there is no latency. The slowest
    passive party counts.
    """
    active, passive = _grid(setting)
    sizes = np.array(setting.batch_sizes, dtype=np.float64)
    cores = [delays.total_cores(party + 1) - delays.total_cores(party) for party in range(setting.passive + 1)]

    def seconds(parts: Sequence[str]) -> Any:
        if not delays.config.delays:
            return len(parts) * (delays.config.base_seconds + delays.config.seconds_per_unit * sizes)
        return sum(delays.config.delays[part].scale * sizes ** delays.config.delays[part].exponent for part in parts)

    slower = np.maximum(
        seconds(ACTIVE_PARTS) * active / cores[0],
        seconds(("passive_forward", "passive_backward")) * passive / min(cores[1:]),
    )
    result: Array = slower + 2 * 4 * setting.width * sizes * seconds_per_byte(setting.link.bandwidth_gbps)
    return result


def played_epoch_seconds(delays: Delays, setting: Setting, active: int, passive: int, size: int) -> float:
    """Seconds of one epoch, synchronisations included, event by event: what `epoch_seconds` approximates.

    A passive worker takes a gradient if one is there. If none is, and it has fewer than `outstanding` batches under
    way, it takes the next id of its party; else it waits. An active worker takes the oldest batch for which every
    passive party's embedding is there.
    """
    last_step = _Playback(delays, setting, active, passive, size).play()
    return last_step + float(_ending(delays, setting, active, passive))


class _Playback:
    """One epoch, event by event, for a number of workers of each party and a batch size."""

    def __init__(self, delays: Delays, setting: Setting, active: int, passive: int, size: int) -> None:
        rows = [min(size, setting.samples - start) for start in range(0, setting.samples, size)]
        fixed = delays.config.batch_latency
        per_byte = seconds_per_byte(setting.link.bandwidth_gbps)

        def by_batch(parts: Sequence[str], party: int, workers: int, fixed: float) -> list[float]:
            seconds = {
                r: fixed + sum(delays.seconds(part, r, party, workers) for part in parts) for r in {rows[0], rows[-1]}
            }
            return [seconds[r] for r in rows]

        self.setting = setting
        self.parties = parties = range(1, setting.passive + 1)
        # seconds of each batch in each stage
        self.training = by_batch(ACTIVE_PARTS, 0, active, fixed)
        self.forward = {party: by_batch(("passive_forward",), party, passive, fixed) for party in parties}
        self.backward = {party: by_batch(("passive_backward",), party, passive, 0.0) for party in parties}
        self.sending = [(HEADER + 4 * setting.width * r) * per_byte for r in rows]
        self.latency = setting.link.latency_ms / 1e3

        self.now = 0.0
        self.events: list[tuple[float, int, Callable[[int, int], None], int, int]] = []  # time, number, what, ...
        self.number = 0  # of events so far: it orders those of one time
        self.links = {(way, party): 0.0 for way in ("up", "down") for party in parties}  # until when it is busy
        self.ids = {party: iter(range(len(rows))) for party in parties}
        self.owner: dict[tuple[int, int], int] = {}  # (party, batch) -> passive worker
        self.under_way = {(party, worker): 0 for party in parties for worker in range(passive)}
        self.gradients: dict[tuple[int, int], deque[int]] = {own: deque() for own in self.under_way}
        self.busy = dict.fromkeys(self.under_way, False)
        self.embedded = [0] * len(rows)  # how many passive parties' embeddings of a batch are there
        self.complete: deque[int] = deque()  # batches with all embeddings, oldest first
        self.idle = active  # active workers without a batch

    def play(self) -> float:
        """The time of the last step."""
        for party, worker in self.under_way:
            self._passive_turn(party, worker)
        while self.events:
            self.now, _, happen, party, batch = heapq.heappop(self.events)
            happen(party, batch)
        return self.now

    def _later(self, seconds: float, what: Callable[[int, int], None], party: int, batch: int) -> None:
        heapq.heappush(self.events, (self.now + seconds, self.number, what, party, batch))
        self.number += 1

    def _send(self, way: str, arrive: Callable[[int, int], None], party: int, batch: int) -> None:
        sent = self.links[way, party] = max(self.links[way, party], self.now) + self.sending[batch]
        self._later(sent + self.latency - self.now, arrive, party, batch)

    def _passive_turn(self, party: int, worker: int) -> None:
        own = (party, worker)
        if self.busy[own]:
            return
        if self.gradients[own]:
            batch = self.gradients[own].popleft()
            self.busy[own] = True
            self._later(self.backward[party][batch], self._stepped, party, batch)
        elif self.under_way[own] < self.setting.outstanding and (following := next(self.ids[party], None)) is not None:
            self.busy[own] = True
            self.under_way[own] += 1
            self.owner[party, following] = worker
            self._later(self.forward[party][following], self._made, party, following)

    def _active_turn(self) -> None:
        while self.idle and self.complete:
            batch = self.complete.popleft()
            self.idle -= 1
            self._later(self.training[batch], self._trained, 0, batch)

    def _made(self, party: int, batch: int) -> None:
        """A passive worker has made an embedding."""
        worker = self.owner[party, batch]
        self.busy[party, worker] = False
        self._send("up", self._embedding_arrived, party, batch)
        self._passive_turn(party, worker)

    def _embedding_arrived(self, _party: int, batch: int) -> None:
        self.embedded[batch] += 1
        if self.embedded[batch] == self.setting.passive:
            self.complete.append(batch)
            self._active_turn()

    def _trained(self, _party: int, batch: int) -> None:
        """An active worker has stepped."""
        self.idle += 1
        for party in self.parties:
            self._send("down", self._gradient_arrived, party, batch)
        self._active_turn()

    def _gradient_arrived(self, party: int, batch: int) -> None:
        worker = self.owner[party, batch]
        self.gradients[party, worker].append(batch)
        self._passive_turn(party, worker)

    def _stepped(self, party: int, batch: int) -> None:
        """A passive worker has stepped."""
        worker = self.owner[party, batch]
        self.busy[party, worker] = False
        self.under_way[party, worker] -= 1
        self._passive_turn(party, worker)
