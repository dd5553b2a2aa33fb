"""A party's process: an event loop that takes messages in and hands them out, and a thread that runs the party."""

import asyncio
import contextlib
import logging.handlers
import os
import queue
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from vflbench import compiler
from vflbench.federation import wire
from vflbench.federation.ledger import ledger_row
from vflbench.federation.ray.calls import clock_offset, deaths, join, split
from vflbench.federation.ray.nats_broker import Channels, Courier
from vflbench.federation.ray.party import PartyEngine
from vflbench.federation.snapshot import Cut
from vflbench.types import FederationError, VflbenchError

LARGEST_CALL = 8_000_000  # bytes that one call carries, unless a single message is larger


@dataclass
class Outbox:
    """What goes to one party, in order: at most one call is in flight, or one message to the broker."""

    dst: str
    actor: Any
    # (message, ledger row, (tag, channel) of one for the broker)
    waiting: deque[tuple[bytes, tuple[Any, ...] | None, tuple[str, int] | None]] = field(default_factory=deque)
    busy: bool = False
    posted: int = 0
    numbered: int = 0  # messages handed to a call
    acknowledged: int = 0
    published: dict[str, int] = field(default_factory=dict)  # messages to the broker, by tag
    after: dict[str, int] = field(default_factory=dict)  # those of `published` that the next call must not overtake
    unseen: bool = False  # the last message went to the broker: whether the party has it is not known
    gone: bool = False  # the party's process has died
    empty_calls: int = 0  # of `posted`: calls without messages, which wait for what was published before


Build = Callable[[str], dict[str, Any]]  # a party's name -> arguments of PartyEngine, without `office`


class PartyProcess:
    """The actor: an event loop that takes messages in and hands them out, and a thread that runs the party."""

    def __init__(self) -> None:
        compiler.put_off()
        self.courier: Courier | None = None
        self.offset = clock_offset()

    def now(self) -> float:
        """Seconds by a clock that all parties share, and that nobody sets while they run."""
        return time.monotonic() + self.offset

    def _begin(self, name: str, actors: Mapping[str, Any]) -> None:
        """Set up an empty process; `actors` are the other parties'."""
        self.name = name
        self.inbox: queue.SimpleQueue[Callable[[PartyEngine], None]] = queue.SimpleQueue()
        self.lock = threading.Lock()  # of outboxes and the ledger, which both threads write
        self.out = {other: Outbox(other, actor) for other, actor in actors.items()}
        self.arrived = self.handled = 0  # things for the inbox, and those of them that the thread has done
        self.idle = False  # the thread waits
        self.received = dict.fromkeys(actors, 0)  # source -> messages, and what the broker dropped
        # (source, tag) -> messages that the broker has passed on or dropped
        self.taken: dict[tuple[str, str], int] = {}
        self.passed_on = asyncio.Event()  # set by each that is passed on
        self.dropped: dict[str, int] = {}  # tag -> messages to this party that the broker replaced by newer ones
        self.engine: PartyEngine | None = None
        self.events: list[dict[str, Any]] = []
        self.news = asyncio.Event()
        self.marks: deque[tuple[dict[str, Any], dict[str, int]]] = deque()  # events that wait for acknowledgements
        self.warnings = logging.handlers.BufferingHandler(sys.maxsize)  # for the driver to log
        self.warnings.setLevel(logging.WARNING)
        logging.getLogger("vflbench").handlers = [self.warnings]

    # Calls of the driver and of other parties. But for the first, all arguments and results are bytes in wire form.

    async def prepare(self, name: str, build: Build, actors: dict[str, Any], cut: bytes, clock: bytes) -> bytes:
        """Become party `name`, built in a thread of its own.

        Parameters
        ----------
        clock : the driver's `node`, and the `offset` that all processes on it have.

        Returns
        -------
        `problem`, null where there is none; the process' `pid`; its machine's `node` and `cores`.
        """
        self.loop = asyncio.get_running_loop()
        self._begin(name, actors)
        import ray

        node, drivers = ray.get_runtime_context().get_node_id(), wire.unpack(clock)
        # different machines share only their wall clocks
        self.offset = drivers["offset"] if node == drivers["node"] else clock_offset()
        done: asyncio.Future[str | None] = self.loop.create_future()
        self.thread = threading.Thread(target=self._work, args=(build, cut, done), daemon=True, name=name)
        self.thread.start()
        where = {"node": node, "cores": len(os.sched_getaffinity(0))}
        return wire.pack({"problem": await done, "pid": os.getpid(), **where})

    async def proceed(self, order: bytes) -> bytes:
        """Do as the driver says; returns what has happened since the last call, at least one event."""
        command = wire.unpack(order)

        def obey(engine: PartyEngine) -> None:
            engine.clock.began = command["began"]
            engine.go(command["finished"], command["stopping"], command["released"])

        self._put(obey)
        while not self.events:
            self.news.clear()
            await self.news.wait()
        events, self.events = self.events, []
        return wire.pack(events)

    async def deliver(self, src: bytes, data: bytes, after: bytes | None = None) -> float:
        """Take messages of another party, which come `after` what it has published; returns when they came."""
        now, name = self.now(), src.decode()
        try:
            first, parts = split(data)
            if after is not None:
                await self._published(name, wire.unpack(after))
                now = self.now()
        except (ValueError, FederationError) as error:
            self._fail(FederationError(f"{name} sent {self.name} something malformed: {error}"))
            return now
        self.received[name] += len(parts)
        self._put(lambda engine: engine.arrive(name, first, parts, now))
        return now

    async def status(self) -> bytes:
        """Whether the party waits, for what, and how many messages it has sent to each other party, and received."""
        waits = self.idle and self.handled == self.arrived
        engine = self.engine
        if engine is None:  # it is being built
            return wire.pack({"waits": False})
        facts = {**engine.facts(), "news": bool(self.events)}
        with self.lock:
            for out in self.out.values():  # nothing has happened for a while: perhaps the broker still has messages
                self._follow(out)
        sent = {dst: out.posted - out.empty_calls for dst, out in self.out.items() if not out.gone}
        received = {src: self.received[src] for src, out in self.out.items() if not out.gone}
        return wire.pack(
            {"waits": waits and engine.clock.deadline is None, "sent": sent, "received": received, **facts}
        )

    async def lose(self, name: bytes) -> None:
        """The process of another party has died, and the run goes on: nothing that goes to it is waited for."""
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
            except Exception as error:  # it is raised where the result is awaited
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
            published = tuple(channels.streams) if channels is not None else ()
            engine = self.engine = PartyEngine(
                self.name, office=self, published=published, resume_from=saved and Cut(**saved), **options
            )
        except VflbenchError as error:
            return say(str(error))
        except BaseException:
            return say(traceback.format_exc())
        say(None)
        try:
            while engine.clock.began is None:
                self.take_in(engine, None)
            engine.run()
            self.tell({"kind": "finished", **engine.news()})
        except Exception as error:
            self.tell(
                {"kind": "failed", "error": engine.explain(error), "traceback": traceback.format_exc(), **engine.news()}
            )
        while True:  # the driver may still ask, and what the program sent last may still fail to arrive
            try:
                self.take_in(engine, None)
            except FederationError as error:
                if not self.marks:  # all that it sent has arrived
                    continue
                self.tell({"kind": "failed", "error": str(error), "traceback": traceback.format_exc(), **engine.news()})

    def _put(self, thing: Callable[[PartyEngine], None]) -> None:
        self.arrived += 1
        self.inbox.put(thing)

    def take_in(self, engine: PartyEngine, seconds: float | None) -> None:
        """Wait (at most `seconds`) for the inbox, and do all that is in it."""
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
        """Send a message, whose ledger row is written when it has arrived.

        `topic` is the tag and channel of one that a broker passes on.
        """
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
        """Where the last message went to the broker, let a call without messages follow it.

        It returns when that message has come.
        """
        if out.unseen and not out.gone:
            out.unseen = False
            out.posted += 1
            out.empty_calls += 1
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
            receipt: Any = self.courier.publish(out.dst, tag, channel, out.published[tag], data)
            return self._await(out, receipt, [row])
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
        receipt = out.actor.deliver.remote(self.name.encode(), join(out.numbered, parts), *after)
        out.numbered += len(parts)
        self._await(out, receipt, rows)

    def _await(self, out: Outbox, receipt: Any, rows: list[tuple[Any, ...] | None]) -> None:
        self.loop.call_soon_threadsafe(lambda: asyncio.ensure_future(self._acknowledge(out, receipt, rows)))

    async def _acknowledge(self, out: Outbox, receipt: Any, rows: list[tuple[Any, ...] | None]) -> None:
        """The other end has them: write their ledger rows, hand over what has come since."""
        try:
            when = await receipt
            if when is None:  # the broker has it
                when = self.now()
        except FederationError as error:  # the broker does not take it
            return self._fail(error)
        except Exception as error:
            if isinstance(error, deaths()):  # the driver notices, and says who goes on
                return
            return self._fail(
                FederationError(
                    f"{self.name} could not hand a message over to {out.dst}: {type(error).__name__}: {error}"
                )
            )
        engine = self.engine
        assert engine is not None
        with self.lock:
            delivered = engine.clock.at(when)
            for row in rows:
                if row is not None:
                    *head, sent, seq = row
                    engine.ledger.rows.frombytes(ledger_row(*head, sent, max(delivered, sent), seq))
            out.acknowledged += len(rows)
            out.busy = False
            try:
                if out.waiting:
                    self._call(out)
            except Exception as error:  # Ray refuses the call, for example because its store is full
                return self._fail(
                    FederationError(
                        f"{self.name} could not send a message to {out.dst}: {type(error).__name__}: {error}"
                    )
                )
        self._offer()

    # What comes from the broker, in the loop.

    def _take(self, src: str, tag: str, number: int, data: bytes) -> None:
        """Take a message that `src` published as its `number`-th with that tag.

        Those between it and the last were dropped.
        """
        before = self.taken.get((src, tag), 0)
        if number <= before or src not in self.out:  # it came already, but the acknowledgement was lost
            return
        self.taken[src, tag] = number
        self.received[src] += number - before
        self._miss(tag, number - before - 1)
        now = self.now()
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
                    return self._fail(
                        FederationError(
                            f"the broker has not passed message '{tag}' of {src} on to {self.name} for {limit}"
                        )
                    )

    def _miss(self, tag: str, count: int) -> None:
        if count:
            self.dropped[tag] = self.dropped.get(tag, 0) + count

    def _fail(self, problem: FederationError) -> None:
        """Let the party's program fail."""
        self._put(lambda _: _raise(problem))

    # Telling the driver.

    def tell(self, event: dict[str, Any]) -> None:
        """Tell the driver of an event, once everything sent before it has arrived.

        Then its ledger rows are complete, and so is a cut.
        """
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
        for _ in range(failed):  # boundaries before a failure may wait for what never comes
            self.marks.popleft()
        while self.marks:
            event, targets = self.marks[0]
            if event["kind"] != "failed" and any(self.out[dst].acknowledged < count for dst, count in targets.items()):
                return
            self.marks.popleft()
            with self.lock:
                rows = np.frombuffer(engine.ledger.rows.tobytes())
                del engine.ledger.rows[:]
            logs = [(record.name, record.levelno, record.getMessage()) for record in self.warnings.buffer]
            self.warnings.flush()
            self.events.append(
                {**event, "ledger": rows, "tags": list(engine.tags), "logs": logs, "dropped": self.dropped}
            )
            self.news.set()


def _raise(error: Exception) -> None:
    raise error
