"""Party programs in real processes, over real sockets, through links of real latency and bandwidth.

What goes over the wire is explained in validate_timing.py.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import secrets
import select
import socket
import struct
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

    from vflbench.federation.ray.party_thread import PartyEngine
    from vflbench.types import AlgorithmInfo, RunConfig

Shapes = Mapping[tuple[str, str], tuple[float, float]]  # (source, reader) -> latency in s, s per byte

SIZE = struct.Struct("<Q")  # before a message: its bytes
LOOPBACK = "127.0.0.1"
CHUNK = 1 << 16  # bytes read at once


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

        from vflbench.federation.ray.party_thread import PartyEngine
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


# --- the processes ---------------------------------------------------------------------------------------------------


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
