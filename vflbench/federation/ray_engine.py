"""The Ray engine: the same party programs, each in a process of its own (an actor), on one machine or a cluster. Time is real.

A party's process runs its program in one thread, as `PartyEngine`: the simulated engine with one program and everybody else elsewhere.
Messages go from actor to actor and not through the driver, in the wire form of `wire.py`. Per pair one call is in flight and carries
all that was sent since the last: async actors reorder calls, this keeps the order, is quicker and holds back a sender that is too fast.

The driver hears of round boundaries alone: reports, ledger, trace. It holds no party's data. It says when the next round may begin, asks
for the parts of a cut, and notices who has died and when all wait for each other.

What is exact: parameters, reports, messages, bytes, random streams of every method that does not depend on time. What is measured: all
times. `me.clock`, timeouts and recv_any are of the real clock here, so a method that depends on time does what time lets it do.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import logging
import os
import queue
import secrets
import shutil
import struct
import sys
import tempfile
import threading
import time
import traceback
import types
from array import array
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from vflbench.federation import links as L
from vflbench.federation import wire
from vflbench.federation.ledger import COLUMN, MARK, SEND, Ledger, ledger_row, take_traces, trace_row
from vflbench.federation.nats_broker import Channels, Courier
from vflbench.federation.party import PartyLost, PartySpec, copy_payload
from vflbench.federation.simulated import (
    NO_BOXES,
    NOTHING,
    EncodingParty,
    Mailboxes,
    Message,
    SimulatedEngine,
    SimulatedParty,
    by_tag,
)
from vflbench.federation.snapshot import Cut, thaw
from vflbench.types import EngineConfig, FederationError, Problem, RunConfig, VflbenchError

POLL = 0.5  # s without news after which the driver asks the parties how they are
LARGEST_CALL = 8_000_000  # bytes that one call carries, unless a single message is larger
SCORED = ("predictions", "partial", "parameters", "penalty")  # reports that make a row of the curve
STARTING = 600.0  # s that processes have to start in, and to load their data
AT_ONCE = 256  # processes that Ray may be starting
STARTS = 3  # times that starting Ray is tried
QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR, "configure_logging": False}  # of ray.init
OBJECT_STORE = 200_000_000  # bytes; only messages over 100 kB pass through it

log = logging.getLogger(__name__)


def check(config: RunConfig) -> list[Problem]:
    """What does not go with engine=ray, each with what to use."""
    engine, network, problems = config.engine, config.network, []
    if engine.compute_clock not in ("auto", "measured"):
        problems.append(Problem("engine.compute_clock", engine.compute_clock, "engine=ray measures: auto or measured"))
    if engine.batch_compute:
        problems.append(Problem("engine.batch_compute", "true", "every party of engine=ray computes in its own process: false"))
    if network.timing != "causal":
        problems.append(Problem("network.timing", network.timing, "times exchanges on the virtual clock: engine=simulated has one"))
    if network.server_bandwidth_gbps is not None:
        allowed = "a shared bandwidth is simulated; engine=ray has the machine's own network: null"
        problems.append(Problem("network.server_bandwidth_gbps", network.server_bandwidth_gbps, allowed))
    if getattr(config.algorithm, "planner", "none") != "none":
        allowed = "plans for the delay model and links of the simulation; here both are real: none"
        problems.append(Problem("algorithm.planner", config.algorithm.planner, allowed))
    if config.attack.name != "none":
        problems.append(Problem("attack", config.attack.name, "reads a transcript that one process writes: use engine=simulated"))
    if engine.address not in ("local", "auto"):
        problems.append(Problem("engine.address", engine.address, "must be local (a cluster of its own) or auto (the one that runs)"))
    if importlib.util.find_spec("ray") is None:
        problems.append(Problem("engine", "ray", "needs Ray, which is not installed: pip install 'vflbench[ray]'"))
    return problems


# --- in a party's process -----------------------------------------------------------------------------------------------------


class RayParty(SimulatedParty):
    """`me` in a process of its own."""

    engine: PartyEngine

    @property
    def now(self) -> float:
        """Seconds since all parties were ready, in a resumed run after the cut's."""
        return self.engine.elapsed()

    @now.setter
    def now(self, value: float) -> None:
        """Real time is not set."""

    def send(self, dst: str, payload: Any, tag: str = "message") -> Any:
        payload, nbytes, vectors = copy_payload(payload)
        link, engine = self.links.get(dst) or self.open(dst), self.engine
        if self.in_evaluation:
            engine.post(dst, (tag, 0, self.round, 0, 0, 0.0, True, payload), None)
            return NOTHING
        engine.read.clear()
        seq, now = link.seq, self.now
        link.seq += 1
        if link.charged:
            self.sent_bytes += nbytes
        self.write_trace(trace_row(SEND, link.dst, seq, 0.0, now))
        row = (self.round, link.src, link.dst, link.kind_code, engine.ledger.tag(tag), nbytes, vectors, now, seq)
        channel = payload[0] if tag in engine.published and link.kind != L.LOCAL else None
        engine.post(dst, (tag, seq, self.round, nbytes, vectors, now, False, payload), row, None if channel is None else (tag, channel))
        return NOTHING

    def _take(self, box: deque[Message]) -> Any:
        """Consume the oldest message of a mailbox, and remember it in case the program fails on it."""
        link, code = box[0][4], box[0][5]
        payload = super()._take(box)
        self.engine.read.append((self.engine.order[link.src].name, code, wire.shape_of(payload)))
        return payload

    @types.coroutine
    def recv(self, src: str, tag: str = "message", timeout: float | None = None) -> Generator[None, None, Any]:
        """As ever. Raises PartyLost where `src` has died and nothing of it is left."""
        box = self._box(src, tag)
        if timeout is not None and not self.in_evaluation:
            return (yield from self._recv_timeout(src, box, tag, timeout))
        while not box:
            if src in self.engine.lost:
                raise self.without(src)
            self.waiting, self.waiting_for = box, f"a message '{tag}' from {src}"
            yield
        return box.popleft() if self.in_evaluation else self._take(box)

    @types.coroutine
    def recv_all(self, srcs: Sequence[str], tag: str = "message") -> Generator[None, None, list[Any]]:
        received = []
        for src in srcs:
            received.append((yield from self.recv(src, tag)))
        return received

    def _recv_timeout(self, src: str, box: deque[Message], tag: str, timeout: float) -> Generator[None, None, Any]:
        deadline = self.now + timeout
        self.engine.look()
        while not box:
            if src in self.engine.lost:
                raise self.without(src)
            if self.now >= deadline:
                raise TimeoutError(f"nothing from {src} with tag {tag!r} within {timeout} s")
            self.waiting, self.waiting_for = box, f"a message '{tag}' from {src} until {deadline:.6g} s"
            yield from self.engine.until(deadline)
        return self._take(box)

    def without(self, src: str) -> PartyLost:
        """What is raised about `src`. The program then takes it out of its lists, which `any_of` must follow."""
        self.any_of.clear()
        return PartyLost(src)

    @types.coroutine
    def recv_any(
        self, srcs: Sequence[str] | Mapping[str, Sequence[str]], tag: str = "message", timeout: float | None = None
    ) -> Generator[None, None, tuple[Any, ...]]:
        """The message that arrived first here, or arrives next. Raises PartyLost of one in `srcs` that has died and has none left here."""
        if self.in_evaluation:
            raise FederationError(f"{self.name} calls recv_any within evaluating(), where no time passes: use recv_all")
        key = id(srcs) if isinstance(srcs, Mapping) else (tuple(srcs), tag)
        if key not in self.any_of:
            self.any_of[key] = Mailboxes(srcs, [(self._box(src, t), src, t) for t, of in by_tag(srcs, tag).items() for src in of])
        mail = self.any_of[key]
        deadline = None if timeout is None else self.now + timeout
        self.engine.look()
        while True:
            for src in self.engine.lost:
                boxes = [box for box, (other, _) in zip(mail.boxes, mail.names, strict=True) if other == src]
                if boxes and not any(boxes):
                    raise self.without(src)
            first = min([(box[0][0], box[0][4].src, box[0][2], place) for place, box in enumerate(mail.boxes) if box], default=None)
            if first is not None:
                src, found = mail.names[first[3]]
                payload = self._take(mail.boxes[first[3]])
                return (src, found, payload) if isinstance(srcs, Mapping) else (src, payload)
            if deadline is not None and self.now >= deadline:
                raise TimeoutError(f"{self.name}: no {mail.text} within {timeout} s")
            self.waiting_any, self.waiting_for = mail.ids, mail.text
            yield from self.engine.until(deadline)
            self.waiting_any = NO_BOXES


class RayEncodingParty(EncodingParty, RayParty):
    """`me` of a run with a codec."""


def elsewhere(*_: Any) -> Any:
    """The program of a party that another process runs."""


class PartyEngine(SimulatedEngine):
    """Runs one party's program in this thread; the other parties are names with a role.

    Parameters
    ----------
    name : whose program.
    specs, public, config, options : as of `SimulatedEngine`; of the specs only this party's has a program and data.
    office : what posts messages and tells the driver.
    """

    kinds = (RayParty, RayEncodingParty)

    def __init__(self, name: str, specs: Mapping[str, PartySpec], public: Any, config: Any, office: PartyProcess, **options: Any) -> None:
        self.name, self.office = name, office
        self.began: float | None = None  # when all parties were ready, by the wall clock, which processes share
        cut: Cut | None = options.get("resume_from")
        self.before = cut.totals["boundary_clock"] if cut else 0.0  # s
        self.incoming: dict[str, L.Link] = {}
        self.arrived: dict[str, int] = {}  # source -> messages so far
        self.read: deque[tuple[str, int, str]] = deque(maxlen=32)  # since the last send: (source, tag code, shape)
        self.reports: list[tuple[int, dict[str, Any]]] = []
        self.deadline: float | None = None
        self.lost: set[str] = set()  # parties whose process has died
        self.published: frozenset[str] = frozenset(office.courier.channels.streams if office.courier else ())  # tags of the broker's
        super().__init__(specs, public, config, on_report=lambda _, round, values: self.reports.append((round, values)), **options)
        self.me = self.parties[name]
        self.ready = deque([self.me])

    def elapsed(self) -> float:
        return self.before if self.began is None else self.before + time.time() - self.began

    def run(self) -> None:
        """Run to the end. Raises what the program raises."""
        try:
            while True:
                while self.ready:
                    self._step(self.ready.popleft())
                if self.me.finished:
                    return
                self.wait()
        finally:
            assert self.me.coroutine is not None
            self.me.coroutine.close()

    # --- waiting ------------------------------------------------------------------------------------------------------------

    def wait(self) -> None:
        """Wait for something to arrive, or until `deadline`; then take in all that has."""
        seconds = None if self.deadline is None else max(0.0, self.deadline - self.elapsed())
        self.office.take_in(self, seconds)
        if self.deadline is not None and not self.ready and self.elapsed() >= self.deadline:
            self.me.waiting = None
            self.ready.append(self.me)

    def look(self) -> None:
        """Take in what has arrived, without waiting."""
        self.office.take_in(self, 0.0)

    def lose(self, name: str) -> None:
        """The process of another party has died: who waits looks whether it waits for that. There are no cuts without it."""
        self.lost.add(name)
        self.cuts.clear()
        if self.me.waiting is not None or self.me.waiting_any:
            self.me.waiting, self.me.waiting_any = None, NO_BOXES
            self.ready.append(self.me)

    def until(self, deadline: float | None) -> Generator[None, None, None]:
        self.deadline = deadline
        yield
        self.deadline = None

    def push(self, when: float, kind: int, src: int, seq: int, party: SimulatedParty) -> None:
        """A message has come that a recv_any waits for."""
        party.waiting_any = NO_BOXES
        self.ready.append(party)

    # --- messages -----------------------------------------------------------------------------------------------------------

    def post(self, dst: str, message: tuple[Any, ...], row: tuple[Any, ...] | None, topic: tuple[str, int] | None = None) -> None:
        self.office.post(dst, wire.pack(message, self.device), row, topic)

    def arrive(self, src: str, first: int | None, parts: Sequence[bytes | memoryview], when: float) -> None:
        """Lay messages from `src` into their mailboxes.

        `first` is the number of the first since the start, None of what a broker passed on; `when` the wall clock's.
        """
        if src not in self.parties or first not in (None, self.arrived.get(src, 0)):
            raise FederationError(f"{self.name} received message {first} of {src}, but {self.arrived.get(src, 0)} came before: one is lost")
        if first is not None:
            self.arrived[src] = first + len(parts)
        link = self._incoming(src)
        now = self.before + when - (self.began or when)
        for data in parts:
            try:
                tag, seq, round, nbytes, vectors, sent, evaluation, payload = wire.unpack(data, self.device)
                if not isinstance(tag, str) or not all(isinstance(count, int) for count in (seq, round, nbytes, vectors)):
                    raise FederationError("not a message: its head has other fields")
            except (FederationError, TypeError, ValueError) as error:
                raise FederationError(f"{src} sent {self.name} something malformed: {error}") from None
            if evaluation:
                self.me.accept_evaluation(src, tag, payload)
                continue
            self.deliver(self.me, tag, (now, payload, seq, round, link, self.ledger.tag(tag), nbytes, vectors, sent))

    def _incoming(self, src: str) -> L.Link:
        if src not in self.incoming:
            me, other = self.parties[self.name], self.parties[src]
            kind = self.link_kind(other, me)
            self.incoming[src] = link = L.Link(other.index, me.index, kind, L.link_config(self.network, kind, f"{src}->{self.name}"))
            link.boxes = me.boxes.setdefault(src, {})
        return self.incoming[src]

    # --- rounds and cuts ------------------------------------------------------------------------------------------------------

    def passed(self, party: SimulatedParty) -> None:
        """This party has finished its round: record it in that round's cut, tell the driver."""
        round = party.round
        party.write_trace(trace_row(MARK, party.index, 0.0, round, party.now))
        if self.checkpoint_every and round % self.checkpoint_every == 0 and round < self.rounds and not self.lost:
            party.capture(self.cuts.setdefault(round, Cut(round)))
        scored = party.evaluates(round) or any(key in values for _, values in self.reports for key in SCORED)
        news = {"kind": "boundary", "round": round, "now": party.now, "sent": party.sent_bytes, **self.news()}
        if scored:  # what the observer asks of a party where it makes a row
            news |= {"nonfinite": party.nonfinite(), "spent": party.privacy.spent() if party.privacy is not None else None}
        party.sent_bytes = 0
        self.office.tell(news)

    def news(self) -> dict[str, Any]:
        """Reports and trace since the last time."""
        reports, self.reports = self.reports, []
        trace = np.frombuffer(self.me.trace.tobytes())
        del self.me.trace[:]
        return {"reports": reports, "trace": trace}

    def go(self, finished: int, stopping: bool, released: bool) -> None:
        """All parties have finished a round; `released`: go on although some have not."""
        self.finished_round, self.stopping = max(self.finished_round, finished), self.stopping or stopping
        self._unpark([p for p in self.parked if released or self.stopping or not self.too_far(p.round)])

    def own_cut(self, round: int) -> dict[str, Any]:
        """This party's part of the cut, once all messages that cross it are here."""
        cut = self.cuts.pop(round)
        return {"party": cut.parties[self.name], "inflight": cut.inflight}

    def last_words(self) -> dict[str, Any]:
        """What the run folder needs of the party at its end."""
        secret = self.me.privacy
        return {"parameters": self.me.parameters(), "spent": secret.spent() if secret is not None else None, **self.news()}

    def _restore(self, cut: Cut) -> None:
        self.tags.update(cut.totals["tags"])
        self.parties[self.name].rewind(cut.parties[self.name], cut.round)
        for m in sorted(cut.inflight, key=lambda m: (m["src"], m["seq"])):
            link, code = self._incoming(m["src"]), self.ledger.tag(m["tag"])
            message = (m["delivered"], thaw(m["payload"]), m["seq"], m["round"], link, code, m["bytes"], m["vectors"], m["sent"])
            link.boxes.setdefault(m["tag"], deque()).append(message)

    def explain(self, error: Exception) -> str:
        """What failed, and what the program had read since it last sent: a message of the wrong shape is in there, with its sender."""
        if isinstance(error, FederationError):
            return str(error)
        text = f"the program of {self.name} failed in round {self.me.round}: {type(error).__name__}: {error}"
        tags = list(self.tags)
        read = [f"'{tags[code]}' from {src}, {shape}" for src, code, shape in self.read]
        return text + (f". It had just read {'; '.join(read)}" if read else "")


@dataclass
class Outbox:
    """What goes to one party: at most one call in flight, or one message to the broker. In all, the order is kept."""

    dst: str
    actor: Any
    waiting: deque[tuple[bytes, tuple[Any, ...] | None, tuple[str, int] | None]] = field(default_factory=deque)  # the last: tag, channel
    busy: bool = False
    posted: int = 0
    numbered: int = 0  # handed to a call
    acknowledged: int = 0
    published: dict[str, int] = field(default_factory=dict)  # messages to the broker, by tag
    after: dict[str, int] = field(default_factory=dict)  # those that the next call must not overtake
    unseen: bool = False  # the last posted went to the broker: that the party has it is not known
    gone: bool = False  # the party's process has died
    calls_alone: int = 0  # of `posted` those that are no messages, but calls that ask for what was published before


Build = Callable[[str], dict[str, Any]]  # a party's name -> arguments of PartyEngine, without `office`


class PartyProcess:
    """The actor: an event loop that takes messages in and hands them out, and a thread that runs the party."""

    def __init__(self) -> None:
        self.thread: threading.Thread | None = None
        self.courier: Courier | None = None

    def _begin(self, name: str, actors: Mapping[str, Any]) -> None:
        """Nothing has happened yet; `actors` are the other parties'."""
        self.name = name
        self.inbox: queue.SimpleQueue[Callable[[PartyEngine], None]] = queue.SimpleQueue()
        self.lock = threading.Lock()  # of outboxes and the ledger, which both threads write
        self.out = {other: Outbox(other, actor) for other, actor in actors.items()}
        self.arrived = self.handled = 0  # things for the inbox, and of those the ones that the thread has seen to
        self.idle = False  # the thread waits
        self.received = dict.fromkeys(actors, 0)  # source -> messages, and what the broker dropped
        self.taken: dict[tuple[str, str], int] = {}  # source, tag -> messages that the broker has passed on, and dropped
        self.passed_on = asyncio.Event()  # set by each
        self.dropped: dict[str, int] = {}  # tag -> messages to this party that the broker replaced by newer ones
        self.engine: PartyEngine | None = None
        self.events: list[dict[str, Any]] = []
        self.news = asyncio.Event()
        self.marks: deque[tuple[dict[str, Any], dict[str, int]]] = deque()  # events that wait for acknowledgements
        self.logs: list[tuple[str, int, str]] = []
        logging.getLogger("vflbench").handlers = [_Notes(self.logs)]

    # Calls of the driver and of other parties: but for the first, all arguments and results are bytes in wire form.

    async def prepare(self, name: str, build: Build, actors: dict[str, Any], cut: bytes) -> bytes:
        """Become party `name`, built in a thread of its own: `problem`, null where there is none; the process' `pid`; its machine's `node`
        and `cores`."""
        self.loop = asyncio.get_running_loop()
        if self.thread is not None:  # it was another run's party
            self._put(_leave)
            await self.loop.run_in_executor(None, self.thread.join)
        if self.courier is not None:
            await self.courier.close()
            self.courier = None
        self._begin(name, actors)
        done: asyncio.Future[str | None] = self.loop.create_future()
        self.thread = threading.Thread(target=self._work, args=(build, cut, done), daemon=True, name=name)
        self.thread.start()
        import ray

        where = {"node": ray.get_runtime_context().get_node_id(), "cores": len(os.sched_getaffinity(0))}
        return wire.pack({"problem": await done, "pid": os.getpid(), **where})

    async def proceed(self, order: bytes) -> bytes:
        """Do as the driver says; the result is what has happened since the last call, at least one thing."""
        said = wire.unpack(order)

        def obey(engine: PartyEngine) -> None:
            engine.began = said["began"]
            engine.go(said["finished"], said["stopping"], said["released"])

        self._put(obey)
        while not self.events:
            self.news.clear()
            await self.news.wait()
        events, self.events = self.events, []
        return wire.pack(events)

    async def deliver(self, src: bytes, data: bytes, after: bytes | None = None) -> float:
        """Messages of another party, which come `after` what it has published; the result is when they came, by the wall clock."""
        now, name = time.time(), src.decode()
        try:
            first, parts = _split(data)
            if after is not None:
                await self._published(name, wire.unpack(after))
                now = time.time()
        except (ValueError, FederationError) as error:
            self._fail(FederationError(f"{name} sent {self.name} something malformed: {error}"))
            return now
        self.received[name] += len(parts)
        self._put(lambda engine: engine.arrive(name, first, parts, now))
        return now

    async def status(self) -> bytes:
        """Whether the party waits, for what, and how many messages it has sent to each other one, and received."""
        waits = self.idle and self.handled == self.arrived
        engine = self.engine
        if engine is None:  # it is being built
            return wire.pack({"waits": False})
        me = engine.me
        facts = {
            "round": me.round,
            "for": me.waiting_for,
            "parked": bool(engine.parked),
            "finished": me.finished,
            "news": bool(self.events),
        }
        with self.lock:
            for out in self.out.values():  # nothing has happened for a while: has the broker passed everything on?
                self._follow(out)
        sent = {dst: out.posted - out.calls_alone for dst, out in self.out.items() if not out.gone}
        received = {src: self.received[src] for src, out in self.out.items() if not out.gone}
        return wire.pack({"waits": waits and engine.deadline is None, "sent": sent, "received": received, **facts})

    async def lose(self, name: bytes) -> None:
        """The process of another party has died, and the run goes on without it: nothing that goes to it is waited for."""
        other = name.decode()
        with self.lock:
            out = self.out[other]
            out.gone, out.acknowledged = True, out.posted
            out.waiting.clear()
        self._put(lambda engine: engine.lose(other))
        self._offer()

    async def ask(self, what: str, *values: int) -> bytes:
        """The result of a method of the party's engine, called in its thread at its next wait."""
        answer: asyncio.Future[bytes] = self.loop.create_future()

        def reply(engine: PartyEngine) -> None:
            try:
                result = wire.pack(getattr(engine, what)(*values), engine.device)
            except Exception as error:  # who asks is told
                self.loop.call_soon_threadsafe(answer.set_exception, error)
            else:
                self.loop.call_soon_threadsafe(answer.set_result, result)

        self._put(reply)
        return await answer

    async def live(self) -> None:
        """Never returns: who waits for this learns at once that the process has died."""
        await asyncio.Event().wait()

    # The thread.

    def _work(self, build: Build, cut: bytes, done: asyncio.Future[str | None]) -> None:
        def say(problem: str | None) -> None:
            self.loop.call_soon_threadsafe(done.set_result, problem)

        try:
            options = build(self.name)
            threads = options.pop("threads")
            if threads is not None:
                torch.set_num_threads(threads)  # of this thread
            channels: Channels | None = options.pop("broker", None)
            if channels is not None:
                self.courier = Courier(self.name, channels, self._take, self._fail)
                asyncio.run_coroutine_threadsafe(self.courier.open(), self.loop).result()
            saved = wire.unpack(cut)
            engine = self.engine = PartyEngine(self.name, office=self, resume_from=saved and Cut(**saved), **options)
        except VflbenchError as error:
            return say(str(error))
        except BaseException:
            return say(traceback.format_exc())
        say(None)
        try:
            while engine.began is None:
                self.take_in(engine, None)
            engine.run()
            self.tell({"kind": "finished", **engine.news()})
        except Exception as error:
            self.tell({"kind": "failed", "error": engine.explain(error), "traceback": traceback.format_exc(), **engine.news()})
        while True:  # the driver may still ask, and what the program sent last may still fail to arrive
            try:
                self.take_in(engine, None)
            except FederationError as error:
                if not self.marks:  # all of it has arrived
                    continue
                self.tell({"kind": "failed", "error": str(error), "traceback": traceback.format_exc(), **engine.news()})

    def _put(self, thing: Callable[[PartyEngine], None]) -> None:
        self.arrived += 1
        self.inbox.put(thing)

    def take_in(self, engine: PartyEngine, seconds: float | None) -> None:
        """Wait (at most `seconds`) for the inbox, and see to all that is in it."""
        self.idle = True
        try:
            thing = self.inbox.get(timeout=seconds) if seconds is None or seconds > 0 else self.inbox.get_nowait()
        except queue.Empty:
            return
        finally:
            self.idle = False
        while True:
            try:
                thing(engine)
            finally:
                self.handled += 1
            try:
                thing = self.inbox.get_nowait()
            except queue.Empty:
                return

    # Sending, from either thread.

    def post(self, dst: str, data: bytes, row: tuple[Any, ...] | None, topic: tuple[str, int] | None = None) -> None:
        """Send a message; `topic`, tag and channel, of one that is published at the broker."""
        out = self.out[dst]
        with self.lock:
            if out.gone:
                return
            out.posted += 1
            out.unseen = topic is not None
            out.waiting.append((data, row, topic))
            if not out.busy:
                self._call(out)

    def _follow(self, out: Outbox) -> None:
        """Where what was posted last went to the broker, let a call without messages follow it: it returns when that has come."""
        if out.unseen and not out.gone:
            out.unseen = False
            out.posted += 1
            out.calls_alone += 1
            out.waiting.append((b"", None, None))
            if not out.busy:
                self._call(out)

    def _call(self, out: Outbox) -> None:
        """Hand over what waits, as one call, or the one message to the broker that is next."""
        out.busy = True
        topic = out.waiting[0][2]
        if topic is not None:
            (data, row, _), (tag, channel) = out.waiting.popleft(), topic
            out.published[tag] = out.after[tag] = out.published.get(tag, 0) + 1
            assert self.courier is not None
            told: Any = self.courier.publish(out.dst, tag, channel, out.published[tag], data)
            return self._await(out, told, [row])
        parts: list[bytes] = []
        rows: list[tuple[Any, ...] | None] = []
        size = 0
        while out.waiting and out.waiting[0][2] is None and (not rows or size + len(out.waiting[0][0]) <= LARGEST_CALL):
            data, row, _ = out.waiting.popleft()
            rows.append(row)
            if data:
                parts.append(data)
            size += len(data)
        after = (wire.pack(out.after),) if out.after else ()
        out.after = {}
        told = out.actor.deliver.remote(self.name.encode(), _join(out.numbered, parts), *after)
        out.numbered += len(parts)
        self._await(out, told, rows)

    def _await(self, out: Outbox, told: Any, rows: list[tuple[Any, ...] | None]) -> None:
        self.loop.call_soon_threadsafe(lambda: asyncio.ensure_future(self._acknowledge(out, told, rows)))

    async def _acknowledge(self, out: Outbox, told: Any, rows: list[tuple[Any, ...] | None]) -> None:
        """The other end has them: write their ledger rows, hand over what has come since."""
        try:
            when = await told
        except FederationError as error:  # the broker does not take it
            return self._fail(error)
        except Exception as error:
            if isinstance(error, deaths()):  # the driver notices, and says who goes on
                return
            return self._fail(FederationError(f"{self.name} could not hand a message over to {out.dst}: {type(error).__name__}: {error}"))
        engine = self.engine
        assert engine is not None and engine.began is not None
        with self.lock:
            delivered = engine.before + when - engine.began
            for row in rows:
                if row is not None:
                    *head, sent, seq = row
                    engine.ledger.rows.frombytes(ledger_row(*head, sent, max(delivered, sent), seq))
            out.acknowledged += len(rows)
            out.busy = False
            try:
                if out.waiting:
                    self._call(out)
            except Exception as error:  # Ray does not take the call: its store is full, say
                return self._fail(FederationError(f"{self.name} could not send a message to {out.dst}: {type(error).__name__}: {error}"))
        self._offer()

    # What comes from the broker, in the loop.

    def _take(self, src: str, tag: str, number: int, data: bytes) -> None:
        """A message that `src` published as its `number`-th with that tag; those between it and the one before were dropped."""
        before = self.taken.get((src, tag), 0)
        if number <= before or src not in self.out:  # it came already, and the broker has not heard that it did
            return
        self.taken[src, tag] = number
        self.received[src] += number - before
        self._miss(tag, number - before - 1)
        now = time.time()
        self._put(lambda engine: engine.arrive(src, None, [data], now))
        self.passed_on.set()

    async def _published(self, src: str, counts: Mapping[str, int]) -> None:
        """Wait until all that `src` has published, by tag, has come or was dropped."""
        assert self.courier is not None
        deadline = time.monotonic() + self.courier.channels.timeout
        for tag, count in counts.items():
            while self.taken.get((src, tag), 0) < count:
                self.passed_on.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.passed_on.wait(), 0.2)
                    continue
                if await self.courier.drained(tag):
                    missing = count - self.taken.get((src, tag), 0)
                    if missing > 0:
                        self._miss(tag, missing)
                        self.received[src] += missing
                        self.taken[src, tag] = count
                elif time.monotonic() > deadline:
                    limit = f"{self.courier.channels.timeout:g} s (engine.timeout)"
                    return self._fail(FederationError(f"the broker has not passed message '{tag}' of {src} on to {self.name} for {limit}"))

    def _miss(self, tag: str, count: int) -> None:
        if count:
            self.dropped[tag] = self.dropped.get(tag, 0) + count

    def _fail(self, problem: FederationError) -> None:
        """Let the party's program fail."""
        self._put(lambda _: _raise(problem))

    # Telling the driver.

    def tell(self, event: dict[str, Any]) -> None:
        """An event for the driver, once everything sent before it has arrived: then its ledger rows are complete, and so is a cut."""
        with self.lock:
            for out in self.out.values():
                self._follow(out)
            targets = {dst: out.posted for dst, out in self.out.items()}
        self.marks.append((event, targets))
        self.loop.call_soon_threadsafe(self._offer)

    def _offer(self) -> None:
        """In the loop: hand over the events whose time has come."""
        engine = self.engine
        assert engine is not None
        failed = next((at for at, (event, _) in enumerate(self.marks) if event["kind"] == "failed"), 0)
        for _ in range(failed):  # what boundaries before it wait for may never come
            self.marks.popleft()
        while self.marks:
            event, targets = self.marks[0]
            if event["kind"] != "failed" and any(self.out[dst].acknowledged < count for dst, count in targets.items()):
                return
            self.marks.popleft()
            with self.lock:
                rows = np.frombuffer(engine.ledger.rows.tobytes())
                del engine.ledger.rows[:]
            logs, self.logs[:] = self.logs[:], []
            self.events.append({**event, "ledger": rows, "tags": list(engine.tags), "logs": logs, "dropped": self.dropped})
            self.news.set()


class _Notes(logging.Handler):
    """Warnings of this process, for the driver to log."""

    def __init__(self, kept: list[tuple[str, int, str]]) -> None:
        super().__init__(logging.WARNING)
        self.kept = kept

    def emit(self, record: logging.LogRecord) -> None:
        self.kept.append((record.name, record.levelno, record.getMessage()))


def _raise(error: Exception) -> None:
    raise error


def _leave(_: PartyEngine) -> None:
    """Ends the party's thread."""
    raise SystemExit


CALL = struct.Struct("<QI")  # number of the first message, how many there are; then 8 bytes length and the message, for each
SIZE = struct.Struct("<Q")


def _join(first: int, parts: Sequence[bytes]) -> bytes:
    return b"".join((CALL.pack(first, len(parts)), *(piece for part in parts for piece in (SIZE.pack(len(part)), part))))


def _split(data: bytes) -> tuple[int, list[memoryview]]:
    """The inverse of `_join`, without a copy. Errors: ValueError."""
    try:
        first, count = CALL.unpack_from(data)
        parts, at, whole = [], CALL.size, memoryview(data)
        for _ in range(count):
            (size,) = SIZE.unpack_from(data, at)
            parts.append(whole[at + SIZE.size : at + SIZE.size + size])
            at += SIZE.size + size
    except struct.error as error:
        raise ValueError(f"not a message: {error}") from None
    if at != len(data):
        raise ValueError("not a message: it has another length than it says")
    return first, parts


def deaths() -> tuple[type[Exception], ...]:
    """What Ray raises about a call of a process that has died, or that cannot be reached any more."""
    import ray  # not before there is a cluster, whose environment it reads

    return ray.exceptions.RayActorError, ray.exceptions.OutOfMemoryError, ray.exceptions.NodeDiedError


# --- the driver -----------------------------------------------------------------------------------------------------------------


def own_environment() -> dict[str, str]:
    """What Ray must find in the environment when it is imported by a process that starts a cluster of its own."""
    return {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # the node's address is 127.0.0.1, on Linux too: nothing listens elsewhere
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # actors that reserve no GPU see the GPUs all the same
        "RAY_AUTH_MODE": "token",  # another user of the machine, who does not know the token, cannot connect
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        # Parties reserve no cores, so Ray would start one process after the other and warn of every few.
        "RAY_worker_maximum_startup_concurrency": str(AT_ONCE),
        "RAY_worker_register_timeout_seconds": f"{STARTING:.0f}",
    }


class Cluster:
    """Ray for one run: a cluster of its own on the loopback interface (address=local), or the one that runs already (auto).

    Raises
    ------
    VflbenchError : on entering, where there is none, or no own one can be started.
    """

    def __init__(self, config: EngineConfig) -> None:
        self.own = config.address == "local"
        self.actors: list[Any] = []
        self.folder: str | None = None  # of Ray's sockets and logs, where the cluster is our own

    def __enter__(self) -> Cluster:
        if self.own and "ray" not in sys.modules:  # it reads its environment when it is imported
            os.environ.update(own_environment())
        import ray

        if ray.is_initialized():
            if self.own:
                raise VflbenchError("this process is connected to a Ray cluster already: engine.address=auto uses it")
            return self
        if not self.own:
            try:
                ray.init(address="auto", **QUIET)
            except ConnectionError as error:
                raise VflbenchError("no Ray cluster runs here: start one with `ray start --head`, or use engine.address=local") from error
            except Exception as error:  # another version of Ray, another token
                raise VflbenchError(f"the Ray cluster that runs here cannot be used: {error}") from error
            return self
        try:
            self._start()
        except BaseException:
            ray.shutdown()
            self._tidy()
            raise
        return self

    def _start(self) -> None:
        import ray

        self.folder = private_folder()  # Ray lets everybody write to the one it is given, so that is below it
        options: dict[str, Any] = {"include_dashboard": False, "num_cpus": 0, "num_gpus": 0, "object_store_memory": OBJECT_STORE}
        for attempt in range(STARTS):
            try:
                ray.init(address="local", _node_ip_address="127.0.0.1", _temp_dir=f"{self.folder}/ray", **options, **QUIET)
                break
            except Exception as error:  # Ray raises just that where it does not come up in 30 s, as on a busy machine
                ray.shutdown()
                if attempt == STARTS - 1:
                    raise VflbenchError(f"Ray does not start: {error}") from error
        if ray.util.get_node_ip_address() != "127.0.0.1":  # imported before, with another environment
            raise VflbenchError("Ray was imported before vflbench could keep it on the loopback interface: use engine.address=auto")

    def hire(self, kind: type) -> Any:
        """An actor of class `kind`. It reserves no cores: parties may outnumber them."""
        import ray

        actor: Any = ray.remote(num_cpus=0, max_restarts=0)(kind).remote()
        self.actors.append(actor)
        return actor

    def dismiss(self, actors: Sequence[Any]) -> None:
        """End these processes."""
        import ray

        for actor in list(actors):
            self.actors.remove(actor)
            with contextlib.suppress(Exception):  # dead already
                ray.kill(actor)

    def __exit__(self, *_: object) -> None:
        import ray

        self.dismiss(self.actors)
        if self.own:
            ray.shutdown()
            self._tidy()

    def _tidy(self) -> None:
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder = None


def private_folder() -> str:
    """A new folder that nobody else can enter, with a name that is short enough for Ray's sockets below it (107 characters in all)."""
    folder = tempfile.mkdtemp(prefix="vfl-ray-")
    if len(folder) > 36:
        os.rmdir(folder)
        folder = tempfile.mkdtemp(prefix="vfl-ray-", dir="/tmp")
    return folder


class _Spent:
    """What stands for a party's privacy mechanism at the driver."""

    def __init__(self, spent: dict[str, Any]) -> None:
        self._spent = spent

    def spent(self) -> dict[str, Any]:
        return self._spent


class RemoteParty:
    """What the driver knows of a party."""

    def __init__(self, name: str, index: int) -> None:
        self.name, self.index = name, index
        self.trace = array("d")
        self.privacy: _Spent | None = None
        self.dropped: dict[str, int] = {}  # tag -> messages to it that a real broker replaced by newer ones
        self.round = 0
        self.finished = False
        self._parameters: dict[str, torch.Tensor] = {}
        self._nonfinite: str | None = None

    def parameters(self) -> dict[str, torch.Tensor]:
        """At the end of the run; empty before."""
        return self._parameters

    def nonfinite(self) -> str | None:
        """As the party found at its last scored boundary."""
        return self._nonfinite


class RayEngine:
    """Drives the parties' processes; to the observer and the run folder it is what `SimulatedEngine` is.

    Parameters
    ----------
    cluster : where the processes are started; they end with `run`.
    names : of the parties, in order.
    build : makes a party's engine in its process; where they differ, one for each name.
    timeout : s after which a party that does not answer, or a message that does not arrive, fails the run.
    expendable : the parties without which the run goes on where their process dies.
    rounds, on_report, on_round, checkpoint_every, on_cut, resume_from : as of `SimulatedEngine`.

    Attributes
    ----------
    lost : party whose process has died -> in which round.
    """

    codec = None

    def __init__(
        self,
        cluster: Cluster,
        names: Sequence[str],
        build: Build | Mapping[str, Build],
        *,
        timeout: float,
        rounds: int,
        expendable: Iterable[str] = (),
        on_report: Callable[[str, int, dict[str, Any]], None] | None = None,
        on_round: Callable[[int, RayEngine], bool] | None = None,
        checkpoint_every: int | None = None,
        on_cut: Callable[[Cut], None] | None = None,
        resume_from: Cut | None = None,
    ) -> None:
        self.cluster, self.build, self.timeout, self.rounds = cluster, build, timeout, rounds
        self.on_report, self.on_round, self.on_cut = on_report, on_round, on_cut
        self.checkpoint_every, self.resume_from = checkpoint_every, resume_from
        self.expendable, self.lost = frozenset(expendable), dict[str, int]()
        self.parties = {name: RemoteParty(name, index) for index, name in enumerate(names)}
        self.order = list(self.parties.values())
        self.ledger = Ledger()
        self.finished_round, self.bytes_sent, self.boundary_clock = 0, 0, 0.0
        if resume_from is not None:
            self.finished_round = resume_from.round
            self.bytes_sent, self.boundary_clock = resume_from.totals["bytes_sent"], resume_from.totals["boundary_clock"]
            self.ledger.tags.update(resume_from.totals["tags"])
        self.stopping = False
        self.pids: dict[str, int] = {}
        self.told: set[tuple[str, str]] = set()  # logger and text of what parties have logged
        self.cores = 1  # of the machines that parties are on
        self.started_seconds = 0.0  # that starting the processes took
        self.began = 0.0
        self._open: dict[int, dict[str, dict[str, Any]]] = {}  # round -> boundaries that parties have passed
        self._calls: dict[Any, str] = {}  # outstanding `proceed` -> party
        self._lives: dict[Any, str] = {}
        self._actors: dict[str, Any] = {}
        self._before: Any = None  # how the parties were at the last look, if all of them waited
        self._since = 0.0  # when they were first seen so

    def run(self) -> None:
        """Run to the end.

        Raises
        ------
        FederationError : a process has died or does not answer, a program has failed, a message does not arrive, all parties wait for
            each other.
        """
        try:
            self._start()
            while not (self.stopping or all(party.finished for party in self.order)):
                self._listen()
            self._heard_last(self._gather({name: actor.ask.remote("last_words") for name, actor in self._living.items()}))
        except BaseException:
            self._last_words()
            raise
        finally:
            self.cluster.dismiss(list(self._actors.values()))

    def _start(self) -> None:
        start = time.perf_counter()
        self._actors = {name: self.cluster.hire(PartyProcess) for name in self.parties}
        self._lives = {actor.live.remote(): name for name, actor in self._actors.items()}
        calls: dict[str, Any] = {}
        machines: dict[str, int] = {}
        for name, actor in self._actors.items():
            peers = {other: handle for other, handle in self._actors.items() if other != name}
            build = self.build[name] if isinstance(self.build, Mapping) else self.build
            calls[name] = actor.prepare.remote(name, build, peers, wire.pack(self._part(name)))
        for name, answer in self._gather(calls, max(self.timeout, STARTING)).items():
            if answer["problem"] is not None:
                raise FederationError(f"{name} could not start: {answer['problem']}")
            self.pids[name] = answer["pid"]
            machines[answer["node"]] = answer["cores"]
        self.cores = sum(machines.values())
        self.started_seconds = time.perf_counter() - start
        self.began = time.time()
        self._proceed(self.parties)

    def _part(self, name: str) -> dict[str, Any] | None:
        """A party's own part of the cut that the run goes on from."""
        cut = self.resume_from
        if cut is None:
            return None
        inflight = [message for message in cut.inflight if message["dst"] == name]
        return {"round": cut.round, "parties": {name: cut.parties[name]}, "inflight": inflight, "totals": cut.totals}

    def _proceed(self, names: Iterable[str], released: bool = False) -> None:
        order = {"finished": self.finished_round, "stopping": self.stopping, "released": released, "began": self.began}
        for name in names:
            if not self.parties[name].finished:
                self._calls[self._actors[name].proceed.remote(wire.pack(order))] = name

    # --- listening ----------------------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        """Hear what has happened; where nothing has for a while, look how the parties are."""
        import ray

        ready, _ = ray.wait([*self._calls, *self._lives], num_returns=1, timeout=POLL)
        if not ready:
            return self._look()
        self._before = None
        for reference in ready:
            name = self._calls.pop(reference, None) or self._lives.get(reference)
            if name is None:  # it has died, as was seen just now
                continue
            for event in self._get(name, reference) or ():
                self._hear(name, event)

    def _get(self, name: str, reference: Any) -> Any:
        """The result of a call of `name`; None where its process has died and the run goes on.

        Errors: FederationError where it does not go on, and where the call has failed otherwise.
        """
        import ray

        try:
            return wire.unpack(ray.get(reference))
        except deaths() as error:
            where = f"in round {self.parties[name].round + 1}" if self._calls or self.began else "while it started"
            problem = FederationError(f"the process of {name} has died {where} (killed, or out of memory)")
            if name not in self.expendable or not self.began:
                raise problem from error
            if name not in self.lost:
                self._lose(name, str(problem))
            return None
        except ray.exceptions.RayError as error:
            reason = error.cause if isinstance(error, ray.exceptions.RayTaskError) else error
            raise FederationError(f"{name} could not do what it was asked: {type(reason).__name__}: {reason}") from error

    def _lose(self, name: str, what: str) -> None:
        """Go on without a party."""
        kept = ": there are no more checkpoints, resume=true goes on with all from the last one" if self.checkpoint_every else ""
        log.warning("%s. The run goes on without it%s", what, kept)
        self.lost[name] = self.parties[name].round + 1
        self.parties[name].finished = True
        for references in (self._calls, self._lives):
            for reference in [reference for reference, whose in references.items() if whose == name]:
                del references[reference]
        for actor in self._living.values():
            actor.lose.remote(name.encode())
        for round in sorted(self._open):
            self._close(round)

    @property
    def _living(self) -> dict[str, Any]:
        return {name: actor for name, actor in self._actors.items() if name not in self.lost}

    def _gather(self, calls: Mapping[str, Any], timeout: float | None = None) -> dict[str, Any]:
        """The results of one call per party that lives. Raises FederationError for who has died, and who does not answer in time."""
        import ray

        waiting, found = {reference: name for name, reference in calls.items()}, {}
        timeout = self.timeout if timeout is None else timeout
        deadline = time.monotonic() + timeout
        while waiting:
            seconds = max(0.0, deadline - time.monotonic())
            ready, _ = ray.wait([*waiting, *self._lives], num_returns=1, timeout=seconds)
            if not ready:
                raise FederationError(silent(", ".join(sorted(waiting.values())), timeout, timeout != self.timeout))
            for reference in ready:
                name = waiting.pop(reference, None) or self._lives.get(reference)
                if name is not None:
                    found[name] = self._get(name, reference)
            waiting = {reference: name for reference, name in waiting.items() if name not in self.lost}
        return {name: found[name] for name in calls if name not in self.lost}

    def _hear(self, name: str, event: dict[str, Any]) -> None:
        party = self.parties[name]
        rows = event["ledger"].reshape(-1, len(COLUMN)).copy()
        codes = np.array([self.ledger.tag(tag) for tag in event["tags"]], dtype=np.float64)
        rows[:, COLUMN["tag"]] = codes[rows[:, COLUMN["tag"]].astype(int)] if len(rows) else 0.0
        self.ledger.rows.frombytes(rows.tobytes())
        party.trace.frombytes(event["trace"].tobytes())
        for logger, level, text in event["logs"]:
            if (logger, text) not in self.told:  # of the data set that each of them loads, say
                self.told.add((logger, text))
                logging.getLogger(logger).log(level, "%s: %s", name, text)
        for round, values in event["reports"]:
            if self.on_report is not None:
                self.on_report(name, round, values)
        party.dropped = event["dropped"]
        if event.get("spent") is not None:
            party.privacy = _Spent(event["spent"])
        if event["kind"] == "failed":
            error = FederationError(event["error"])
            error.add_note(event["traceback"])
            raise error
        if event["kind"] == "finished":
            party.finished = True
        else:
            self._passed(party, event)

    def _passed(self, party: RemoteParty, event: dict[str, Any]) -> None:
        round = party.round = event["round"]
        party._nonfinite = event.get("nonfinite")
        self._open.setdefault(round, {})[party.name] = event
        self._close(round)

    def _close(self, round: int) -> None:
        """Where all parties that live have finished `round`: let the observer look at it, and the parties go on."""
        if not self._open.get(round, {}).keys() >= self._living.keys():
            return
        passed = self._open.pop(round).values()
        self.finished_round = round
        self.bytes_sent += sum(one["sent"] for one in passed)
        self.boundary_clock = max(self.boundary_clock, *(one["now"] for one in passed))
        if self.on_round is not None and self.on_round(round, self):
            self.stopping = True
        elif self.checkpoint_every and self.on_cut is not None and round % self.checkpoint_every == 0 and round < self.rounds:
            cut = None if self.lost else self._cut(round)
            if cut is not None and not self.lost:  # nobody has died meanwhile
                self.on_cut(cut)
        self._proceed(self.parties)

    def _cut(self, round: int) -> Cut:
        """The parties' parts, put together. All messages of the round have arrived: parties tell of a boundary only after that."""
        cut = Cut(round, totals={"bytes_sent": self.bytes_sent, "boundary_clock": self.boundary_clock, "tags": dict(self.ledger.tags)})
        for name, part in self._gather({name: actor.ask.remote("own_cut", round) for name, actor in self._living.items()}).items():
            cut.parties[name] = part["party"]
            cut.inflight += part["inflight"]
        return cut

    def _look(self) -> None:
        """Nobody has told anything for a while: who waits for what? Twice the same, and everything sent has arrived: nobody can run."""
        found = self._gather({name: actor.status.remote() for name, actor in self._living.items()})
        self._proceed([name for name, one in found.items() if one["news"] and name not in self._calls.values()])
        news = [name for name, one in found.items() if one["news"] and not self.parties[name].finished]
        stuck = all(one["waits"] for one in found.values()) and not news
        if not stuck or self._before != found:
            self._before, self._since = found if stuck else None, time.monotonic()
            return
        on_their_way = {
            (a, b): n - found[b]["received"].get(a, n) for a, one in found.items() for b, n in one["sent"].items() if b in found
        }
        if any(on_their_way.values()) and time.monotonic() - self._since < self.timeout:
            return
        if any(on_their_way.values()):
            which = ", ".join(f"{n} of {a} to {b}" for (a, b), n in on_their_way.items() if n)
            raise FederationError(f"messages have not arrived within {self.timeout:g} s (engine.timeout): {which}. {_waiting(found)}")
        self._before = None
        parked = {name: one["round"] for name, one in found.items() if one["parked"]}
        if parked:  # they wait for slower ones, who wait for them
            self._proceed([name for name, round in parked.items() if round == min(parked.values())], released=True)
            return
        raise FederationError(f"deadlock: nobody can run and nothing is in flight. {_waiting(found)}")

    def _heard_last(self, words: Mapping[str, Mapping[str, Any]]) -> None:
        """Parameters and what privacy has cost, by party."""
        for name, one in words.items():
            party = self.parties[name]
            party._parameters = one["parameters"]
            party.privacy = _Spent(one["spent"]) if one["spent"] is not None else party.privacy

    def _last_words(self) -> None:
        """Of a run that has failed: from those that still answer, soon."""
        import ray

        calls = {actor.ask.remote("last_words"): name for name, actor in self._living.items() if name in self.pids}
        ready, _ = ray.wait(list(calls), num_returns=max(len(calls), 1), timeout=min(self.timeout, 10.0)) if calls else ([], [])
        for reference in ready:
            with contextlib.suppress(ray.exceptions.RayError):
                self._heard_last({calls[reference]: wire.unpack(ray.get(reference))})

    def take_trace(self, last_round: int | None = None) -> dict[str, np.ndarray]:
        """As of `SimulatedEngine`."""
        return take_traces({party.name: party.trace for party in self.order}, last_round)


def silent(who: str, seconds: float, starting: bool = False) -> str:
    """What to say where nobody answers in time."""
    limit = f"engine.timeout, but {STARTING:g} to start in" if starting else "engine.timeout"
    return f"no answer from {who} within {seconds:g} s ({limit})"


def _waiting(found: Mapping[str, Mapping[str, Any]]) -> str:
    """Who waits for what, by the parties' states."""
    return "; ".join(f"{name} (round {one['round']}) waits for {one['for']}" for name, one in found.items() if not one["finished"])


Engine = SimulatedEngine | RayEngine
