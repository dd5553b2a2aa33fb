"""A party's process: an event loop that takes messages in and hands them out, and a thread that runs the party."""

import asyncio
import logging.handlers
import os
import queue
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from vflbench import compiler
from vflbench.federation import wire
from vflbench.federation.ray.calls import clock_offset, split
from vflbench.federation.ray.nats_broker import Channels, Courier
from vflbench.federation.ray.outboxes import Outboxes
from vflbench.federation.ray.party_thread import PartyEngine
from vflbench.federation.ray.published_inbox import PublishedInbox
from vflbench.federation.snapshot import Cut
from vflbench.types import FederationError, VflbenchError

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
        self.outboxes = Outboxes(self, actors)
        self.post = self.outboxes.post  # called for every message
        self.published = PublishedInbox(self)
        self.arrived = self.handled = 0  # things for the inbox, and those of them that the thread has done
        self.idle = False  # the thread waits
        self.received = dict.fromkeys(actors, 0)  # source -> messages, and what the broker dropped
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

        self.put(obey)
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
                await self.published.until(name, wire.unpack(after))
                now = self.now()
        except (ValueError, FederationError) as error:
            self.fail(FederationError(f"{name} sent {self.name} something malformed: {error}"))
            return now
        self.received[name] += len(parts)
        self.put(lambda engine: engine.arrive(name, first, parts, now))
        return now

    async def status(self) -> bytes:
        """Whether the party waits, for what, and how many messages it has sent to each other party, and received."""
        waits = self.idle and self.handled == self.arrived
        engine = self.engine
        if engine is None:  # it is being built
            return wire.pack({"waits": False})
        facts = {**engine.facts(), "news": bool(self.events)}
        self.outboxes.follow()  # nothing has happened for a while: perhaps the broker still has messages
        sent = self.outboxes.sent()
        received = {src: self.received[src] for src in sent}
        return wire.pack(
            {"waits": waits and engine.clock.deadline is None, "sent": sent, "received": received, **facts}
        )

    async def lose(self, name: bytes) -> None:
        """The process of another party has died, and the run goes on: nothing that goes to it is waited for."""
        other = name.decode()
        self.outboxes.lose(other)
        self.put(lambda engine: engine.lose(other))
        self.offer()

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

        self.put(reply)
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
                self.courier = Courier(self.name, channels, self.published.take, self.fail)
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

    def put(self, thing: Callable[[PartyEngine], None]) -> None:
        """Let the thread do `thing` at its next wait."""
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

    def fail(self, problem: FederationError) -> None:
        """Let the party's program fail."""
        self.put(lambda _: _raise(problem))

    # Telling the driver.

    def tell(self, event: dict[str, Any]) -> None:
        """Tell the driver of an event, once everything sent before it has arrived.

        Then its ledger rows are complete, and so is a cut.
        """
        self.marks.append((event, self.outboxes.follow()))
        self.loop.call_soon_threadsafe(self.offer)

    def offer(self) -> None:
        """In the loop: hand over the events whose time has come."""
        engine = self.engine
        assert engine is not None
        failed = next((at for at, (event, _) in enumerate(self.marks) if event["kind"] == "failed"), 0)
        for _ in range(failed):  # boundaries before a failure may wait for what never comes
            self.marks.popleft()
        while self.marks:
            event, targets = self.marks[0]
            if event["kind"] != "failed" and not self.outboxes.arrived(targets):
                return
            self.marks.popleft()
            with self.outboxes.lock:
                rows = np.frombuffer(engine.ledger.rows.tobytes())
                del engine.ledger.rows[:]
            logs = [(record.name, record.levelno, record.getMessage()) for record in self.warnings.buffer]
            self.warnings.flush()
            self.events.append(
                {**event, "ledger": rows, "tags": list(engine.tags), "logs": logs, "dropped": self.published.dropped}
            )
            self.news.set()


def _raise(error: Exception) -> None:
    raise error
