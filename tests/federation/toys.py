"""Small federations that the engine's tests run, kill, resume and shuffle."""

from __future__ import annotations

import inspect
import io
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from vflbench.federation.clock import ComputeClock
from vflbench.federation.ledger import COLUMN, sort_ledger
from vflbench.federation.party import Party, PartySpec, party_names
from vflbench.federation.simulated import SimulatedEngine
from vflbench.federation.snapshot import Cut, freeze
from vflbench.types import ComputeConfig, LinkConfig, NetworkConfig


def gbps(bytes_per_second: float) -> float:
    return bytes_per_second * 8 / 1e9


def network(latency: float = 0.0, rate: float | None = None, **options: Any) -> NetworkConfig:
    """Every link with `latency` seconds and `rate` bytes per second."""
    link = LinkConfig(latency * 1e3, None if rate is None else gbps(rate))
    return NetworkConfig("test", link, link, **options)


def rows_of(engine: SimulatedEngine) -> list[dict[str, Any]]:
    """The ledger as dictionaries with names, sorted."""
    names, tags = list(engine.parties), list(engine.tags)
    rows = []
    for row in sort_ledger(engine.ledger.take()):
        entry = {name: row[i] for name, i in COLUMN.items()}
        entry |= {"src": names[int(entry["src"])], "dst": names[int(entry["dst"])], "tag": tags[int(entry["tag"])]}
        rows.append(entry)
    return rows


def run_programs(programs: dict[str, Callable[..., Any]], **options: Any) -> SimulatedEngine:
    """Run one program per party; a party called server... is one."""
    roles = {name: "server" if name.startswith("server") else "client" for name in programs}
    engine = SimulatedEngine(
        {name: PartySpec(program, role=roles[name]) for name, program in programs.items()}, **options
    )
    engine.run()
    return engine


def behind(me: Party) -> Any:
    """The `Member` behind `me`: who takes its functions apart finds it."""
    return inspect.getclosurevars(me.recv).nonlocals["party"]


def once(body: Callable[[Party], Any]) -> Callable[..., Any]:
    """A program whose rounds are `body(me)` each."""

    async def program(me: Party, data: Any, public: Any, config: Any) -> None:
        async for _ in me.rounds():
            await body(me)

    return program


# --- running, killing, resuming ---------------------------------------------------------------------------------------


class Killed(Exception):
    pass


class RandomReady(deque):
    """A ready queue that hands out a random party instead of the first."""

    random: random.Random

    def popleft(self) -> Any:
        self.rotate(-self.random.randrange(len(self)))
        return super().popleft()


@dataclass
class Toy:
    specs: Callable[[], dict[str, PartySpec]]
    options: dict[str, Any]
    rounds: int = 12


@dataclass
class Outcome:
    """All that a run leaves behind."""

    ledger: list[tuple[Any, ...]]
    trace: dict[str, bytes]
    clocks: dict[str, float]
    state: bytes
    reports: list[tuple[Any, ...]]
    bytes_sent: int
    schedule: list[str]  # who was stepped, one after the other

    @property
    def steps(self) -> int:
        return len(self.schedule)


@dataclass
class Disk:
    """What a runner would have written by the last checkpoint."""

    cut: Cut | None = None
    ledger: list[np.ndarray] = field(default_factory=list)
    traces: list[dict[str, np.ndarray]] = field(default_factory=list)
    reports: list[tuple[Any, ...]] = field(default_factory=list)


def plain_bytes(value: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def read_back(data: bytes) -> Any:
    return torch.load(io.BytesIO(data), weights_only=True)


def run_toy(
    toy: Toy,
    kills: tuple[int, ...] = (),
    harm: Callable[[Cut], None] | None = None,
    shuffle: int | None = None,
    checkpoint_every: int | None = 1,
    **options: Any,
) -> Outcome:
    """Run a toy to its end; after each number of engine steps in `kills` it dies and goes on from its last cut.

    `harm` may damage a cut on its way back; `shuffle` seeds a random schedule.
    """
    disk = Disk()
    for kill in (*kills, None):
        reports = list(disk.reports)
        cut = None
        if disk.cut is not None:
            cut = Cut(**read_back(plain_bytes(vars(disk.cut))))
            if harm is not None:
                harm(cut)
        engine = SimulatedEngine(
            toy.specs(),
            rounds=toy.rounds,
            config=toy.rounds,
            checkpoint_every=checkpoint_every,
            resume_from=cut,
            on_report=lambda name, round, values, reports=reports: reports.append((round, name, repr(values))),
            **(toy.options | options),
        )

        def on_cut(cut: Cut, engine: SimulatedEngine = engine, reports: list[Any] = reports) -> None:
            disk.cut = cut
            disk.ledger.append(engine.ledger.take(cut.round))
            disk.traces.append(engine.take_trace(cut.round))
            disk.reports = [report for report in reports if report[0] <= cut.round]

        engine.on_cut = on_cut
        schedule = _record_steps(engine, kill)
        if shuffle is not None:
            engine.runtime.ready = RandomReady(engine.runtime.ready)
            engine.runtime.ready.random = random.Random(shuffle)
        try:
            engine.run()
        except Killed:
            continue
        break
    return _outcome(engine, disk, reports, schedule)


def _record_steps(engine: SimulatedEngine, kill: int | None) -> list[str]:
    schedule: list[str] = []
    step = engine.runtime.step

    def recording(party: Any) -> None:
        schedule.append(party.name)
        if len(schedule) == kill:
            raise Killed
        step(party)

    engine.runtime.step = recording  # type: ignore[method-assign]
    return schedule


def _outcome(engine: SimulatedEngine, disk: Disk, reports: list[Any], schedule: list[str]) -> Outcome:
    tags = {code: name for name, code in engine.tags.items()}
    rows = sort_ledger(np.concatenate([*disk.ledger, engine.ledger.take()]))
    traces = [*disk.traces, engine.take_trace()]
    return Outcome(
        ledger=[
            (*row[: COLUMN["tag"]], tags[int(row[COLUMN["tag"]])], *row[COLUMN["tag"] + 1 :]) for row in rows.tolist()
        ],
        trace={name: np.concatenate([t[name] for t in traces]).tobytes() for name in engine.parties},
        clocks={name: party.now for name, party in engine.parties.items()},
        state=repr([(n, to_plain(freeze(dict(p.state)))) for n, p in engine.parties.items()]).encode(),
        reports=sorted(reports),
        bytes_sent=engine.bytes_sent,
        schedule=schedule,
    )


def to_plain(value: Any) -> Any:
    """Tensors as (type, shape, raw numbers), to compare bit for bit."""
    if isinstance(value, torch.Tensor):
        return str(value.dtype), tuple(value.shape), value.contiguous().numpy().tobytes()
    if isinstance(value, dict):
        return {k: to_plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_plain(v) for v in value]
    return value


def difference(a: Outcome, b: Outcome) -> str | None:
    """The first thing in which two outcomes differ (the schedule aside)."""
    for name in ("ledger", "trace", "clocks", "state", "reports", "bytes_sent"):
        if getattr(a, name) != getattr(b, name):
            return name
    return None


# --- a star: optimisers, random streams, evaluation -------------------------------------------------------------------


async def star_server(me: Party, data: Any, public: Any, config: Any) -> None:
    me.state.mean = torch.zeros(3)
    me.state.weight = np.float32(0.1)
    me.state.seen = {"rounds": 0, "norms": []}
    async for t in me.rounds():
        parts = await me.recv_all(me.clients, "up")
        me.state.mean = me.state.mean * float(me.state.weight) + torch.stack(parts).mean(0)
        me.state.weight = me.state.weight * np.float32(1.1)
        me.state.seen["rounds"] += 1
        me.state.seen["norms"].append(np.float64(me.state.mean.norm().item()))
        await me.send_many(me.clients, (me.state.mean, me.state.weight), "down")
        if me.evaluates(t):
            async with me.evaluating():
                sums = await me.recv_all(me.clients, "score")
            me.report(train_loss=float(sum(sums)))


async def star_client(me: Party, data: Any, public: Any, config: Any) -> None:
    me.state.model = torch.nn.Linear(3, 3)
    with torch.no_grad():
        for i, parameter in enumerate(me.state.model.parameters()):
            parameter.fill_(0.1 * (i + me.index))
    me.state.optimizer = torch.optim.SGD(me.state.model.parameters(), lr=0.05, momentum=0.9)
    batches = me.rng("batches")  # held before rounds(): a resume must restore it in place
    dropout = me.torch_rng("dropout")
    await me.compute(lambda: None, cost=1e4)  # counts once, also after a resume
    async for t in me.rounds():
        x = torch.from_numpy(batches.normal(size=(4, 3)).astype(np.float32))
        x = x * (torch.rand(x.shape, generator=dropout) < 0.8)
        loss = me.state.model(x).square().mean()
        me.state.optimizer.zero_grad()
        loss.backward()
        me.state.optimizer.step()
        await me.send("server", me.state.model.weight.sum(0), "up")
        mean, weight = await me.recv("server", "down")
        with torch.no_grad():
            me.state.model.bias += mean * float(weight) * 0.01
        if me.evaluates(t):
            async with me.evaluating():
                await me.send("server", float(me.rng("test").normal()), "score")


def star_specs(clients: int = 3) -> dict[str, PartySpec]:
    names = party_names("client", clients)
    return {"server": PartySpec(star_server, role="server")} | {name: PartySpec(star_client) for name in names}


# --- a star that reads ahead and behind, for timing=round -------------------------------------------------------------


async def ahead_server(me: Party, data: Any, public: Any, rounds: int) -> None:
    me.state.sum = 0.0
    me.state.ahead = None
    async for t in me.rounds():
        first = me.state.ahead if me.state.ahead is not None else await me.recv(me.clients[0], "up")
        others = await me.recv_all(me.clients[1:], "up")
        me.state.sum += float(first.sum()) + sum(float(x.sum()) for x in others)
        if t > 2:
            me.state.sum += sum(await me.recv_all(me.clients, "late"))  # of two rounds ago: two are never read
        await me.send_many(me.clients, np.full(10, me.state.sum), "down")
        me.state.ahead = await me.recv(me.clients[0], "up") if t < rounds else None  # client_0's next round


async def ahead_client(me: Party, data: Any, public: Any, rounds: int) -> None:
    me.state.x = np.full(20, float(me.index))
    async for t in me.rounds():
        await me.send("server", me.state.x * t, "up")
        await me.send("server", t, "late")
        me.state.x = me.state.x + (await me.recv("server", "down")).mean()


def ahead_specs() -> dict[str, PartySpec]:
    names = party_names("client", 3)
    return {"server": PartySpec(ahead_server, role="server")} | {name: PartySpec(ahead_client) for name in names}


# --- a ring with a slow one-way link ----------------------------------------------------------------------------------


async def ring_worker(me: Party, data: Any, public: Any, rounds: int) -> None:
    n = len(me.clients)
    following, previous = me.clients[(me.index + 1) % n], me.clients[(me.index - 1) % n]
    me.state.x = np.arange(50.0) + me.index
    me.state.ahead = None
    async for t in me.rounds():
        await me.send(following, me.state.x, "value")
        await me.send(following, float(t), "note")
        # reads one round ahead: its predecessor's later messages are consumed before its own boundary
        if me.index == 1:
            value = me.state.ahead if me.state.ahead is not None else await me.recv(previous, "value")
            me.state.ahead = await me.recv(previous, "value") if t < rounds else None
        else:
            value = await me.recv(previous, "value")
        note = await me.recv(previous, "note") if t > 1 else 0.0  # of the round before: in flight at every boundary
        me.state.x = 0.5 * me.state.x + 0.5 * value + note
        await me.compute(lambda: None, cost=float(me.index))
        me.report(train_loss=float(me.state.x.sum()))


def ring_specs() -> dict[str, PartySpec]:
    return {name: PartySpec(ring_worker) for name in party_names("worker", 5)}


# --- a congested asynchronous star ------------------------------------------------------------------------------------


async def async_server(me: Party, data: Any, public: Any, rounds: int) -> None:
    me.state.model = np.zeros(40)
    me.state.log = []
    async for _ in me.rounds():
        for _ in range(len(me.clients)):
            try:
                src, gradient = await me.recv_any(me.clients, "gradient", timeout=0.05)
            except TimeoutError:
                me.state.log.append(("nobody", me.clock))
                continue
            me.state.model = 0.9 * me.state.model - 0.1 * gradient
            me.state.log.append((src, me.clock))
            await me.compute(lambda: None, cost=5.0)
            await me.send(src, me.state.model, "model")
        await me.send(me.clients[0], np.zeros(300), "bulk")  # keeps the outbound line busy beyond the boundary


async def async_client(me: Party, data: Any, public: Any, rounds: int) -> None:
    me.state.model = np.full(40, float(me.index))
    me.state.late = 0
    async for _ in me.rounds():
        noise = me.rng("noise").normal(size=40)
        await me.compute(lambda: None, cost=10.0 * (1 + me.index // 2))  # two by two as fast: ties
        await me.send("server", me.state.model + 0.01 * noise, "gradient")
        try:
            me.state.model = await me.recv("server", "model", timeout=0.08)
        except TimeoutError:
            me.state.late += 1
        await me.send("server", np.zeros(100 * me.index), "bulk")  # nobody reads it, but the inbound line carries it
        me.report(train_loss=float(me.state.model.sum()))


def async_specs() -> dict[str, PartySpec]:
    names = party_names("client", 5)
    return {"server": PartySpec(async_server, role="server")} | {name: PartySpec(async_client) for name in names}


# --- random federations -----------------------------------------------------------------------------------------------


async def random_party(me: Party, data: Any, public: Any, rounds: int) -> None:
    """Sends, computes and waits with timeouts as its own random stream says."""
    me.state.log = []
    others = [name for name in (*me.servers, *me.clients) if name != me.name]
    plan = me.rng("plan")
    for other in others if me.fresh else ():
        await me.send(other, np.zeros(5), "a")
    async for t in me.rounds():
        for _ in range(plan.integers(1, 5)):
            what, size, tag = plan.integers(5), int(plan.choice([0, 10, 100, 1000])), "ab"[plan.integers(2)]
            other = others[plan.integers(len(others))]
            pause = float(plan.choice([0.0, 0.01, 0.02, 0.1]))
            if what == 0:
                await me.compute(lambda: None, cost=float(plan.choice([1.0, 10.0, 50.0])))
            elif what == 1:
                await me.send_many(others, np.full(size, float(t)), tag)
            elif what == 2:
                await me.send(other, np.full(size, float(t)), tag)
            else:
                try:
                    got = await (
                        me.recv(other, tag, timeout=pause) if what == 3 else me.recv_any(others, tag, timeout=pause)
                    )
                    me.state.log.append((str(got), me.clock))
                except TimeoutError:
                    me.state.log.append(me.clock)


def random_toy(seed: int) -> Toy:
    """Few distinct numbers, so that many things happen at one instant.

    Every link has a latency: where messages take no time at all, events of one instant can cause each other, and a
    resumed run may order those of a shared bandwidth or a recv_any otherwise.
    """
    rng = random.Random(seed)
    servers = [f"server_{i}" for i in range(rng.choice([1, 1, 2]))]
    clients = party_names("client", rng.randrange(1, 5))
    links = {
        f"{a}->{b}": LinkConfig(rng.choice([10.0, 10.0, 200.0]), rng.choice([None, gbps(1e4), gbps(1e5)]))
        for a in servers + clients
        for b in servers + clients
        if a != b and rng.random() < 0.3
    }
    profile = network(rng.choice([0.01, 0.02]), rng.choice([None, 1e5]), links=links)
    profile.server_bandwidth_gbps = rng.choice([None, gbps(1e4), gbps(1e5)])

    def specs() -> dict[str, PartySpec]:
        return {n: PartySpec(random_party, role="server") for n in servers} | {
            n: PartySpec(random_party) for n in clients
        }

    return Toy(specs, {"network": profile, "clock": modelled(), "window": rng.randrange(1, 6), "seed": seed}, rounds=8)


def modelled() -> ComputeClock:
    return ComputeClock("modelled", ComputeConfig(seconds_per_unit=1e-3))


SLOW_RING = network(0.01, 1e5, links={"worker_0->worker_1": LinkConfig(500.0, gbps(2000.0))})
TOYS = {
    "star": Toy(star_specs, {"network": network(0.05, 1e4), "clock": modelled(), "eval_every": 3}, rounds=8),
    "nic_star": Toy(
        star_specs, {"network": network(0.05, 1e4, server_bandwidth_gbps=gbps(5e3)), "eval_every": 3}, rounds=6
    ),
    "ring": Toy(ring_specs, {"network": SLOW_RING, "clock": modelled(), "window": 4}),
    "async": Toy(
        async_specs,
        {"network": network(0.002, 1e5, server_bandwidth_gbps=gbps(2.5e4)), "clock": modelled(), "window": 3},
    ),
    "round_star": Toy(ahead_specs, {"network": network(0.05, 1e4, timing="round"), "window": 3}),
}
_CLEAN: dict[str, Outcome] = {}


def clean(name: str) -> Outcome:
    """The toy's outcome when it is never killed."""
    if name not in _CLEAN:
        _CLEAN[name] = run_toy(TOYS[name])
    return _CLEAN[name]
