"""Is the simulated time true? The same party programs in real processes, over real sockets, through links of real
latency and bandwidth.

    python scripts/validate_timing.py                                # GLASU, RFL-ADMM-V and MTCD between the US and the
    UK python scripts/validate_timing.py --network us_us --rounds 20 python scripts/validate_timing.py --only glasu
    model=gcn         # one of them, with other values

Every party is a process, with `PartyEngine` of the Ray engine and its own data. What it sends goes over TCP to a proxy
on the loopback interface, which holds every direction of every pair back as a link of the network would: a pipe takes
bytes up at its bandwidth, one message after the other, and gives them out one latency later. The proxy reckons by bytes
and knows nothing of messages.

Compared, at the end of a round:

communication  measured: the seconds in which every party waited for a message, by the parties' own clocks. Simulated:
               the simulated engine's communication_seconds of the same configuration, from a run of its own.
total          measured: when the last party was through. Simulated: what the real parties sent and how long they worked
               in between, put on the same network by `vflbench reprice`'s replay. So both have the same computing.
untimed        work of the parties outside `me.compute` (sampling, building models, packing messages), in no
simulation's time.

Messages, their bytes and the trained parameters are the same in both, or the script fails. It prints a Markdown table,
and ends with 1 where communication is more than 10 % off. The total is not judged: on a machine with fewer cores than
parties it has waiting for cores in it, as `proxy late` shows. Connections are made before the clock starts. The rounds
are followed by one more, not timed: a program's last round has an evaluation, whose messages cost nothing in a
simulation and real seconds here.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import multiprocessing
import os
import secrets
import select
import socket
import struct
import sys
import time
import traceback
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # parties are as many as there are cores, or more

if TYPE_CHECKING:
    import numpy as np

    from vflbench.federation.ray.party import PartyEngine
    from vflbench.types import AlgorithmInfo, LinkConfig, RunConfig

Shapes = Mapping[tuple[str, str], tuple[float, float]]  # (source, reader) -> latency in s, s per byte

TOLERANCE = 0.1
SIZE = struct.Struct("<Q")  # before a message: its bytes
LOOPBACK = "127.0.0.1"
CHUNK = 1 << 16  # bytes read at once

# What is run: a name, how, and whether every second pair of parties has the links of the other network.
RUNS = (
    ("glasu", ["algorithm=glasu", "dataset=cora"], False),
    ("rfl_admm_v", ["algorithm=rfl_admm_v", "dataset=movielens"], False),
    (
        "mtcd",
        [
            "algorithm=mtcd",
            "algorithm.parties=4",
            "algorithm.tokens=2",
            "algorithm.hops=2",
            "dataset=ridge",
            "topology=path",
        ],
        True,
    ),
)


# --- the proxy --------------------------------------------------------------------------------------------------------


@dataclass
class Pipe:
    """One direction between two parties, as `federation.links.Link`: first come, first served, then the latency."""

    latency: float  # s
    rate: float  # s per byte
    sink: socket.socket
    busy: float = 0.0  # when the last byte taken in has passed
    held: deque[tuple[float, bytes]] = field(default_factory=deque)  # (when it is to be given out, what)
    due: deque[memoryview] = field(default_factory=deque)  # on its way out
    # s, of every piece: how much later than it should the proxy came to give it out
    late: list[float] = field(default_factory=list)

    def take(self, data: bytes, now: float) -> None:
        self.busy = max(self.busy, now) + len(data) * self.rate
        self.held.append((self.busy + self.latency, data))

    def give(self, now: float) -> None:
        while self.held and self.held[0][0] <= now:
            when, data = self.held.popleft()
            self.late.append(now - when)
            self.due.append(memoryview(data))
        while self.due:
            try:
                sent = self.sink.send(self.due[0])
            except BlockingIOError:
                return
            if sent == len(self.due[0]):
                self.due.popleft()
            else:
                self.due[0] = self.due[0][sent:]


def proxy(shapes: Shapes, token: str, parent: Connection) -> None:
    """A process: connects the parties, two connections for every direction in `shapes`, (latency, s per byte); until it
    is ended."""
    with contextlib.suppress(OSError):
        os.nice(-20)  # where it may: it stands for a wire, which waits for no process
    with socket.create_server((LOOPBACK, 0), backlog=2 * len(shapes)) as server:
        parent.send(server.getsockname()[1])
        ends: dict[tuple[str, str, str], socket.socket] = {}
        while len(ends) < 2 * len(shapes):
            end, _ = server.accept()
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            said, side, src, dst = _received(end, SIZE.unpack(_received(end, SIZE.size))[0]).decode().split()
            if not secrets.compare_digest(said, token) or (src, dst) not in shapes:
                end.close()
                continue
            end.setblocking(False)
            ends[side, src, dst] = end
    pipes = {ends["in", src, dst]: Pipe(*shape, ends["out", src, dst]) for (src, dst), shape in shapes.items()}
    every = list(pipes.values())
    parent.send("connected")
    while pipes:
        now = time.perf_counter()
        for pipe in pipes.values():
            pipe.give(now)
        full = [pipe.sink for pipe in pipes.values() if pipe.due]
        next_due = min((pipe.held[0][0] for pipe in pipes.values() if pipe.held and not pipe.due), default=None)
        seconds = None if next_due is None else max(0.0, next_due - time.perf_counter())
        for source in select.select(list(pipes), full, [], seconds)[0]:
            data = source.recv(CHUNK)
            if data:
                pipes[source].take(data, time.perf_counter())
            else:
                del pipes[source]  # a party has left, which it does when all are through
    parent.send([late for pipe in every for late in pipe.late])


def _received(end: socket.socket, count: int) -> bytes:
    """Exactly so many bytes. Raises ConnectionError where the other side has closed."""
    parts = bytearray()
    while len(parts) < count:
        data = end.recv(min(count - len(parts), 1 << 20))
        if not data:
            raise ConnectionError("the connection was closed")
        parts += data
    return bytes(parts)


# --- a party ----------------------------------------------------------------------------------------------------------


class Office:
    """Posts a party's messages over sockets and takes in what comes, in place of the Ray engine's `PartyProcess`: all
    in one thread, which wakes up once for a message.
    """

    def __init__(self, name: str, peers: Sequence[str], port: int, token: str, timeout: float) -> None:
        self.timeout = timeout
        self.engine: PartyEngine
        self.traces: list[np.ndarray] = []
        self.waits: list[tuple[float, float]] = []  # on the engine's clock: in which there was nothing to do
        self.charged = self.framed = 0  # bytes of charged messages, and those that went over the wire for them
        self.out = {peer: self._connect(port, f"{token} in {name} {peer}") for peer in peers}
        self.sources = {self._connect(port, f"{token} out {peer} {name}"): peer for peer in peers}
        self.come = {peer: bytearray() for peer in peers}  # of a message that is not whole yet

    def _connect(self, port: int, words: str) -> socket.socket:
        end = socket.create_connection((LOOPBACK, port))
        # else a small message waits for an answer to the one before
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        end.sendall(SIZE.pack(len(words)) + words.encode())
        return end

    def post(self, dst: str, data: bytes, row: tuple[Any, ...] | None, topic: None = None) -> None:
        from vflbench.federation import links as L
        from vflbench.federation.ledger import ledger_row

        self.out[dst].sendall(SIZE.pack(len(data)) + data)
        if row is not None:
            *head, sent, seq = row
            self.engine.ledger.rows.frombytes(ledger_row(*head, sent, sent, seq))
            if L.LINK_KINDS[row[3]] != L.LOCAL:
                self.charged += row[5]
                self.framed += SIZE.size + len(data)

    def take_in(self, engine: PartyEngine, seconds: float | None) -> None:
        """Wait (at most `seconds`) for a message, and give the engine all that have come."""
        from vflbench.types import FederationError

        began = engine.clock.elapsed()
        deadline = time.monotonic() + (self.timeout if seconds is None else seconds)
        whole: list[tuple[str, list[bytes]]] = []
        while not whole:
            ready = select.select(list(self.sources), [], [], max(0.0, deadline - time.monotonic()))[0]
            if not ready and seconds is None:
                raise FederationError(f"nothing has come for {self.timeout} s; it waits for {engine.me.waiting_for}")
            if not ready:
                break
            whole = [(self.sources[source], found) for source in ready if (found := self._read(source))]
        self.waits.append((began, engine.clock.elapsed()))
        for peer, messages in whole:
            engine.arrive(peer, engine.arrived.get(peer, 0), messages, self.now())

    def now(self) -> float:
        """Seconds by a clock that all processes of the machine share."""
        return time.monotonic()

    def _read(self, source: socket.socket) -> list[bytes]:
        """The messages that have become whole."""
        from vflbench.types import FederationError

        data, come, found = source.recv(1 << 20), self.come[self.sources[source]], []
        if not data:
            raise FederationError(f"the connection from {self.sources[source]} is broken")
        come += data
        while len(come) >= SIZE.size and len(come) >= (end := SIZE.size + SIZE.unpack_from(come)[0]):
            found.append(bytes(come[SIZE.size : end]))
            del come[:end]
        return found

    def tell(self, event: dict[str, Any]) -> None:
        self.traces.append(event["trace"].reshape(-1, 5))


def party(
    config: RunConfig, info: AlgorithmInfo, eval_every: int, name: str, port: int, token: str, parent: Connection
) -> None:
    """A process: builds the party `name`, says so, is told when to begin, runs the program, tells what was sent and
    done."""
    try:
        import numpy as np
        import torch

        from vflbench.federation.ray.party import PartyEngine
        from vflbench.runner import distributed

        arguments = distributed.party(config, info, eval_every, None, name)
        torch.set_num_threads(arguments.pop("threads"))
        arguments.pop("broker")
        office = Office(
            name, [other for other in arguments["specs"] if other != name], port, token, config.engine.timeout
        )
        engine = office.engine = PartyEngine(name, office=office, **arguments)  # type: ignore[arg-type]
        parent.send("ready")
        engine.clock.began = began = parent.recv()
        time.sleep(max(0.0, began - office.now()))
        engine.run()
        words = engine.last_words()
        traces = np.concatenate([*office.traces, words["trace"].reshape(-1, 5)])
        parameters = {key: value.numpy() for key, value in words["parameters"].items()}
        parent.send(
            (engine.ledger.take(), list(engine.tags), traces, office.waits, parameters, office.charged, office.framed)
        )
        parent.recv()  # the others may still have something to read: the connections stay open until all are through
    except EOFError:  # the parent has left
        pass
    except Exception as error:
        parent.send((f"{name}: {error}", traceback.format_exc()))


# --- the comparison ---------------------------------------------------------------------------------------------------


def busy(trace: np.ndarray, waits: Sequence[tuple[float, float]]) -> np.ndarray:
    """A party's real trace in which all that it did between its messages is computing: what a program does outside
    `me.compute` too.

    trace, result : (events, 5) rows as of `federation.ledger`. waits : (begin, end) by the trace's clock, in order.
    """
    import numpy as np

    from vflbench.federation.ledger import COMPUTE, TRACE_COLUMN

    rows: list[Sequence[float]] = []
    now, pending = 0.0, deque(waits)

    def work(until: float) -> None:
        nonlocal now
        if until > now:
            rows.append((COMPUTE, -1.0, 0.0, until - now, until))
            now = until

    for event in trace[trace[:, TRACE_COLUMN["kind"]] != COMPUTE].tolist():
        while pending and pending[0][1] <= event[TRACE_COLUMN["time"]]:
            begin, end = pending.popleft()
            work(begin)
            now = end
        work(event[TRACE_COLUMN["time"]])
        rows.append(event)
    return np.array(rows)


class Processes:
    """Processes that are all ended in the end. One that dies, or tells of an error, ends everything."""

    def __init__(self, timeout: float) -> None:
        self.context = multiprocessing.get_context("spawn")
        self.timeout = timeout
        self.started: dict[str, tuple[Any, Connection]] = {}

    def start(self, name: str, target: Any, *args: Any) -> None:
        ours, theirs = self.context.Pipe()
        process = self.context.Process(target=target, args=(*args, theirs), name=name, daemon=True)
        process.start()
        theirs.close()
        self.started[name] = process, ours

    def heard(self, names: Sequence[str]) -> dict[str, Any]:
        """One thing from each. Errors: SystemExit."""
        found: dict[str, Any] = {}
        while missing := [name for name in names if name not in found]:
            ready = wait([self.started[name][1] for name in missing], self.timeout)
            if not ready:
                raise SystemExit(f"nothing from {', '.join(missing)} for {self.timeout} s")
            for name in (name for name in missing if self.started[name][1] in ready):
                try:
                    found[name] = self.started[name][1].recv()
                except EOFError:
                    raise SystemExit(f"the process of {name} has died") from None
                if isinstance(found[name], tuple) and isinstance(found[name][0], str):
                    raise SystemExit("\n".join(found[name]))
        return found

    def tell(self, names: Sequence[str], thing: Any) -> None:
        for name in names:
            self.started[name][1].send(thing)

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        for process, _ours in self.started.values():
            process.terminate()
        for process, _ours in self.started.values():
            process.join()


def measure(
    config: RunConfig, info: AlgorithmInfo, eval_every: int, shapes: Shapes
) -> tuple[dict[str, Any], list[float]]:
    """Run the parties for real: party -> what `party` tells, and by how many seconds the proxy was late, each time."""
    names = list(dict.fromkeys(src for src, _ in shapes))
    token = secrets.token_hex(16)
    with Processes(10 * config.engine.timeout) as processes:
        processes.start("proxy", proxy, shapes, token)
        port = processes.heard(["proxy"])["proxy"]
        for name in names:
            processes.start(name, party, config, info, eval_every, name, port, token)
        processes.heard([*names, "proxy"])
        processes.tell(names, time.monotonic() + 0.1)  # until when all have heard it
        found = processes.heard(names)
        processes.tell(names, None)
        return found, processes.heard(["proxy"])["proxy"]


def validate(words: Sequence[str], rounds: int, other: Mapping[str, LinkConfig] | None) -> Row:
    """Simulate and measure one configuration.

    Parameters
    ----------
    words : Hydra's overrides, the network's among them.
    other : kind of link -> what every second pair of parties has instead of the network's own.

    Raises
    ------
    SystemExit : a party failed, or the two differ in what was sent or trained.
    """
    import numpy as np

    from vflbench import config, registry
    from vflbench.federation import links as L
    from vflbench.federation.accounting import Payload
    from vflbench.federation.ledger import COLUMN, MARK, TRACE_COLUMN, sort_ledger
    from vflbench.federation.links import link_kind
    from vflbench.federation.replay import Program
    from vflbench.runner.costs import Costs
    from vflbench.runner.run import Federation

    with config.session(words) as hydra:
        run_config = config.plan(hydra, [*words, f"rounds={rounds + 1}"]).config
    assert run_config is not None
    info = registry.algorithms()[run_config.algorithm.name]
    if info.time_dependent:
        raise SystemExit(f"{info.name} depends on time: what it sends in a simulation and for real differs")
    # Nobody waits for others at a round's boundary: they would here, for real.
    real = dataclasses.replace(
        run_config.engine, compute_clock="measured", batch_compute=False, threads=1, window=rounds + 1
    )
    virtual = dataclasses.replace(real, compute_clock="none")
    never = rounds + 2

    federation = Federation(dataclasses.replace(run_config, engine=virtual), info)
    engine = federation.engine(eval_every=never)
    pairs = [(a, b) for a in engine.order for b in engine.order if a is not b]
    kinds = {(a.name, b.name): link_kind(a, b) for a, b in pairs}
    if other is not None:
        links = {
            f"{a}->{b}": other[kind]
            for at, ((a, b), kind) in enumerate(kinds.items())
            if at % 2 and kind != L.LOCAL and federation.topology.connected(a, b)
        }
        run_config = dataclasses.replace(run_config, network=dataclasses.replace(run_config.network, links=links))
        engine.runtime.network = run_config.network  # a link is made for its first message
    network = run_config.network
    if network.timing != "causal" or network.server_bandwidth_gbps is not None:
        raise SystemExit(
            "the proxy knows links of their own alone: network.timing=causal, network.server_bandwidth_gbps=null"
        )
    engine.run()
    ledger, traces = sort_ledger(engine.ledger.take()), engine.take_trace()

    def shape(pair: tuple[str, str]) -> tuple[float, float]:
        link = L.link_config(network, kinds[pair], "->".join(pair))
        return link.latency_ms / 1e3, L.seconds_per_byte(link.bandwidth_gbps)

    began = time.perf_counter()
    told, late = measure(
        dataclasses.replace(run_config, engine=real), info, never, {pair: shape(pair) for pair in kinds}
    )
    wall = time.perf_counter() - began

    parts = []
    for rows, tags, *_ in told.values():
        codes = np.array([engine.ledger.tag(tag) for tag in tags], dtype=np.float64)
        rows[:, COLUMN["tag"]] = codes[rows[:, COLUMN["tag"]].astype(int)]
        parts.append(rows)
    found = sort_ledger(np.concatenate(parts))
    times = [COLUMN["sent"], COLUMN["delivered"]]
    if not np.array_equal(np.delete(found, times, axis=1), np.delete(ledger, times, axis=1)):
        raise SystemExit(f"{' '.join(words)}: other messages were sent than in the simulation")
    for name, (*_, parameters, _, _) in told.items():
        simulated = engine.parties[name].parameters()
        if simulated.keys() != parameters.keys() or not all(
            np.array_equal(simulated[k].numpy(), v) for k, v in parameters.items()
        ):
            raise SystemExit(f"{' '.join(words)}: {name} has other parameters than in the simulation")

    timed_alone = {name: one[2] for name, one in told.items()}  # what the programs do in `me.compute`
    real_traces = {name: busy(one[2], one[3]) for name, one in told.items()}
    kind, value, clock = (TRACE_COLUMN[key] for key in ("kind", "value", "time"))
    end = max(
        float(trace[(trace[:, kind] == MARK) & (trace[:, value] == rounds), clock][0]) for trace in real_traces.values()
    )
    payload = Payload(list(engine.ledger.tags), **federation.payload)
    roles = {name: standing.role for name, standing in federation.standing.items()}

    def costs(of: dict[str, np.ndarray], in_time: bool) -> Costs:
        return Costs(ledger, of, federation.standing, network, "strict", payload, in_time)

    simulated_end = Program(ledger, traces, roles).retime(network).ends[rounds]
    simulated_communication = costs(traces, False).times([rounds], [simulated_end])[0]["communication_seconds"]
    replay = Program(found, real_traces, roles)
    if replay.without_computing(network)[rounds] != simulated_communication:
        raise SystemExit(
            f"{' '.join(words)}: the replay of the real run without its computing is not the simulated run"
        )
    nbytes, messages, _, _ = costs(traces, False).totals.until(rounds)
    waiting, beside = (costs(of, True).times([rounds], [end])[0]["idle_seconds"] for of in (real_traces, timed_alone))
    return Row(
        f"`{info.name}`, {run_config.dataset.name} ({federation.task.source.kind})",
        network.name + ("" if other is None else ", every second link the other's"),
        len(told), rounds, int(messages), round(nbytes),
        sum(one[6] for one in told.values()) / sum(one[5] for one in told.values()) - 1,
        waiting, simulated_communication, end, replay.retime(network).ends[rounds], beside - waiting,
        1e3 * sum(late) / len(late), wall,
    )  # fmt: skip


@dataclass
class Row:
    """Of one configuration. Times in seconds, up to the end of the last timed round."""

    what: str
    network: str
    parties: int
    rounds: int
    messages: int
    nbytes: int
    framing: float  # bytes on the wire beyond the charged ones, as a share of these
    communication: float
    simulated_communication: float
    total: float
    simulated_total: float
    beside: float  # in which some party worked, but none in `me.compute`
    late: float  # ms, the mean over what the proxy gave out: a busy machine's, not the link's
    wall: float  # with the start of the processes and the round that is not timed

    @property
    def ratios(self) -> tuple[float, float]:
        """Measured over simulated: communication, total."""
        return self.communication / self.simulated_communication, self.total / self.simulated_total

    @property
    def off(self) -> bool:
        """Whether communication is further from the simulated one than is allowed."""
        return abs(self.ratios[0] - 1) > TOLERANCE

    def cells(self) -> list[str]:
        """The row of the table."""
        communication, total = self.ratios
        return [
            *(
                self.what,
                self.network,
                str(self.parties),
                str(self.rounds),
                f"{self.messages:,}",
                f"{self.nbytes / 1e6:.2f}",
            ),
            *(
                f"{self.framing:.2%}",
                f"{self.communication:.2f}",
                f"{self.simulated_communication:.2f}",
                f"{communication:.3f}",
            ),
            *(
                f"{self.total:.2f}",
                f"{self.simulated_total:.2f}",
                f"{total:.3f}",
                f"{self.beside:.2f}",
                f"{self.late:.1f}",
            ),
        ]


HEAD = [
    *("method, data", "network", "parties", "rounds", "messages", "MB", "framing"),
    *(
        "communication s, measured",
        "simulated",
        "ratio",
        "total s, measured",
        "simulated",
        "ratio",
        "untimed s",
        "proxy late, ms",
    ),
]


def count(text: str) -> int:
    """A whole number of at least 1, for argparse."""
    if not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError(f"{text}: must be a whole number of at least 1")
    return int(text)


def main(args: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        description="Compare the simulated engine's times with real ones over shaped links."
    )
    parser.add_argument("--network", default="us_uk", help="the network whose links are made real (us_uk)")
    parser.add_argument(
        "--other", default="us_us", help="the network that gives every second link of the uneven run (us_us)"
    )
    parser.add_argument("--rounds", type=count, default=20, help="timed rounds (20)")
    parser.add_argument("--only", choices=[name for name, _, _ in RUNS], help="one of the runs")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="for all that is run, as vflbench takes them")
    flags = parser.parse_intermixed_args(args)

    from vflbench import config
    from vflbench.federation import links as L
    from vflbench.types import VflbenchError

    off = False
    print("| " + " | ".join(HEAD) + " |\n|" + " --- |" * len(HEAD), flush=True)
    try:
        with config.session([f"network={flags.other}"]) as hydra:
            plan = config.plan(hydra, [f"network={flags.other}"])
        assert plan.config is not None
        other = {L.CLIENT_SERVER: plan.config.network.client_server, L.CLIENT_CLIENT: plan.config.network.client_client}
        for name, words, uneven in RUNS:
            if flags.only in (None, name):
                row = validate(
                    [*words, f"network={flags.network}", *flags.overrides], flags.rounds, other if uneven else None
                )
                print("| " + " | ".join(row.cells()) + " |", flush=True)
                off |= row.off
    except VflbenchError as error:
        print(error, file=sys.stderr)
        return 1
    verdict = (
        f"communication: {'a ratio is more than' if off else 'all ratios are within'} {TOLERANCE:.0%} "
        f"{'off' if off else 'of 1'}"
    )
    print(f"\n{verdict}; load of the machine at the end {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    return int(off)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
