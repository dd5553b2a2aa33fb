"""What runs in a party's thread: a `Runtime` in real time with one program, whose messages go to other processes."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from vflbench.federation import links as L
from vflbench.federation import wire
from vflbench.federation.ledger import SEND, trace_row
from vflbench.federation.party import PartySpec
from vflbench.federation.payload import SMALL, Form, with_tag
from vflbench.federation.runtime.core import Runtime
from vflbench.federation.runtime.mail import NO_BOXES, NOTHING, Mailboxes, Message
from vflbench.federation.runtime.member import Member
from vflbench.federation.runtime.protocols import Clock, Copy, Send, Transport
from vflbench.federation.snapshot import Cut
from vflbench.types import SCORED, FederationError

if TYPE_CHECKING:
    from vflbench.federation.ray.process import PartyProcess


def remote_program(*_: Any) -> Any:
    """The program of a party that another process runs."""


class WallClock(Clock):
    """Real time, in seconds since all parties were ready.

    In a resumed run it continues the cut's. Nobody can set it.
    """

    def __init__(self, engine: PartyEngine, office: PartyProcess, before: float) -> None:
        self.engine, self.office, self.before = engine, office, before
        self.began: float | None = None  # when all parties were ready, by the office's clock
        self.deadline: float | None = None  # until when the party waits

    def elapsed(self) -> float:
        """The time in seconds."""
        return self.before if self.began is None else self.before + self.office.now() - self.began

    def at(self, when: float) -> float:
        """The clock's time at the office's time `when`."""
        return self.before + when - (self.began or when)

    def now(self, party: Member) -> float:
        """As `Clock.now`."""
        return self.elapsed()

    def reach(self, party: Member, time: float) -> float:
        """As `Clock.reach`."""
        return self.elapsed()

    def advance(self, party: Member, seconds: float) -> float:
        """As `Clock.advance`."""
        return self.elapsed()

    def arrived(self, party: Member, message: Message) -> None:
        """As `Clock.arrived`."""
        party.waiting_any = NO_BOXES
        self.runtime.ready.append(party)

    def until(
        self, party: Member, src: str, box: deque[Message], tag: str, timeout: float
    ) -> Generator[None, None, None]:
        """As `Clock.until`."""
        deadline = self.elapsed() + timeout
        self._look()
        while not box:
            if src in self.runtime.lost:
                raise party.without(src)
            if self.elapsed() >= deadline:
                raise TimeoutError(f"nothing from {src} with tag {tag!r} within {timeout} s")
            party.waiting, party.waiting_for = box, f"a message '{tag}' from {src} until {deadline:.6g} s"
            yield from self._wait(deadline)

    def first(self, party: Member, mail: Mailboxes, timeout: float | None) -> Generator[None, None, int]:
        """As `Clock.first`."""
        deadline = None if timeout is None else self.elapsed() + timeout
        self._look()
        while True:
            for src in self.runtime.lost:
                boxes = [box for box, (other, _) in zip(mail.boxes, mail.names, strict=True) if other == src]
                if boxes and not any(boxes):
                    raise party.without(src)
            first = mail.first()
            if first is not None:
                return first[3]
            if deadline is not None and self.elapsed() >= deadline:
                raise TimeoutError(f"{party.name}: no {mail.text} within {timeout} s")
            party.waiting_any, party.waiting_for = mail.ids, mail.text
            yield from self._wait(deadline)
            party.waiting_any = NO_BOXES

    def _look(self) -> None:
        """Take in what has arrived, without waiting."""
        self.office.take_in(self.engine, 0.0)

    def _wait(self, deadline: float | None) -> Generator[None, None, None]:
        self.deadline = deadline
        yield
        self.deadline = None


class Outgoing(Transport):
    """Sends messages to other processes, in wire form; the office writes their ledger rows."""

    def __init__(self, office: PartyProcess, clock: WallClock, published: frozenset[str]) -> None:
        self.office, self.clock = office, clock
        self.published = published  # tags that pass a broker
        self.read: deque[tuple[str, str, str]] = deque(maxlen=32)  # since the last send: (source, tag, shape)

    def sender(self, party: Member, copied: Copy, lines: Mapping[int, Form]) -> Send:
        """As `Transport.sender`."""
        runtime, name, elapsed = self.runtime, party.name, self.clock.elapsed

        def send(dst: str, payload: Any, tag: str = "message") -> Any:
            payload, nbytes, vectors, form = copied(payload, dst, tag)
            link = party.links[dst]
            if party.in_evaluation:
                runtime.check_declared(name, dst, tag)
                party.tape.send(link, dst, tag, payload, nbytes, vectors, form)
                self._post(dst, (tag, 0, party.round, 0, 0, 0.0, True, payload), None)
                return NOTHING
            self.read.clear()
            code, more = link.forms[tag].get(form) or party.links.look_up(link, dst, tag, form, nbytes)
            nbytes += more
            if nbytes < SMALL:
                nbytes = with_tag(nbytes, link.tag_bytes)
            seq, now = link.seq, elapsed()
            link.seq += 1
            if link.charged:
                party.sent_bytes += nbytes
            party.write_trace(trace_row(SEND, link.dst, seq, 0.0, now))
            row = (party.round, link.src, link.dst, link.kind_code, code, nbytes, vectors, now, seq)
            channel = payload[0] if tag in self.published and link.kind != L.LOCAL else None
            topic = None if channel is None else (tag, channel)
            self._post(dst, (tag, seq, party.round, nbytes, vectors, now, False, payload), row, topic)
            return NOTHING

        return send

    def _post(
        self, dst: str, message: tuple[Any, ...], row: tuple[Any, ...] | None, topic: tuple[str, int] | None = None
    ) -> None:
        self.office.post(dst, wire.pack(message, self.runtime.device), row, topic)

    def on_read(self, src: str, _reader: str, tag: str, _round: int, payload: Any) -> None:
        """Remember what the program reads, in case it fails on it."""
        self.read.append((src, tag, wire.shape_of(payload)))


class PartyEngine:
    """Runs one party's program in this thread; the other parties are names with a role."""

    def __init__(
        self,
        name: str,  # whose program
        specs: Mapping[str, PartySpec],  # only this party's has a program and data; the rest is as in `Runtime`
        public: Any,
        config: Any,
        office: PartyProcess,  # posts messages and tells the driver
        published: Sequence[str] = (),  # tags that pass a broker
        resume_from: Cut | None = None,
        **options: Any,
    ) -> None:
        self.name, self.office = name, office
        self.arrived: dict[str, int] = {}  # source -> messages so far
        self.reports: list[tuple[int, dict[str, Any]]] = []
        self.clock = WallClock(self, office, resume_from.totals["boundary_clock"] if resume_from else 0.0)
        self.transport = Outgoing(office, self.clock, frozenset(published))
        self.runtime = Runtime(
            specs,
            public,
            config,
            self.clock,
            self.transport,
            None,
            self._passed,
            resume_from=resume_from,
            on_report=lambda _, round, values: self.reports.append((round, values)),
            on_read=self.transport.on_read,
            **options,
        )
        self.device, self.ledger, self.tags = self.runtime.device, self.runtime.ledger, self.runtime.tags
        self.me = self.runtime.parties[name]
        self.runtime.ready = deque([self.me])

    def run(self) -> None:
        """Run to the end; what the program raises is raised here."""
        runtime = self.runtime
        try:
            while True:
                while runtime.ready:
                    runtime.step(runtime.ready.popleft())
                if self.me.finished:
                    return
                self._wait()
        finally:
            runtime.close()

    def _wait(self) -> None:
        """Wait for something to arrive, or until the deadline; then take in all that has."""
        clock, ready = self.clock, self.runtime.ready
        seconds = None if clock.deadline is None else max(0.0, clock.deadline - clock.elapsed())
        self.office.take_in(self, seconds)
        if clock.deadline is not None and not ready and clock.elapsed() >= clock.deadline:
            self.me.waiting = None
            ready.append(self.me)

    # --- what the office calls ----------------------------------------------------------------------------------------

    def arrive(self, src: str, first: int | None, parts: Sequence[bytes | memoryview], when: float) -> None:
        """Lay messages from `src` into their mailboxes.

        Parameters
        ----------
        first : the number of the first message since the start; None for what a broker passed on.
        when : when they came, by the office's clock.

        Raises
        ------
        FederationError
            A message is lost or malformed.
        """
        runtime, me = self.runtime, self.me
        if src not in runtime.parties or first not in (None, self.arrived.get(src, 0)):
            raise FederationError(
                f"{self.name} received message {first} of {src}, but {self.arrived.get(src, 0)} came before: one is "
                "lost"
            )
        if first is not None:
            self.arrived[src] = first + len(parts)
        link, now = runtime.link(src, self.name), self.clock.at(when)
        for data in parts:
            try:
                tag, seq, round, nbytes, vectors, sent, evaluation, payload = wire.unpack(data, self.device)
                if not isinstance(tag, str) or not all(
                    isinstance(count, int) for count in (seq, round, nbytes, vectors)
                ):
                    raise FederationError("not a message: its head has other fields")
            except (FederationError, TypeError, ValueError) as error:
                raise FederationError(f"{src} sent {self.name} something malformed: {error}") from None
            if evaluation:
                me.tape.accept(src, tag, payload)
                continue
            runtime.deliver(me, tag, (now, payload, seq, round, link, self.ledger.tag(tag), nbytes, vectors, sent))

    def lose(self, name: str) -> None:
        """The process of another party has died: wake this one, which may be waiting for it.

        There are no more cuts.
        """
        self.runtime.lost.add(name)
        self.runtime.cuts.clear()
        if self.me.waiting is not None or self.me.waiting_any:
            self.me.waiting, self.me.waiting_any = None, NO_BOXES
            self.runtime.ready.append(self.me)

    def go(self, finished: int, stopping: bool, released: bool) -> None:
        """All parties have finished a round; `released`: go on although some have not."""
        runtime = self.runtime
        runtime.finished_round, runtime.stopping = max(runtime.finished_round, finished), runtime.stopping or stopping
        runtime.unpark(every=released)

    # --- what the driver is told --------------------------------------------------------------------------------------

    def _passed(self, party: Member, now: float, sent: int) -> None:
        round = party.round
        scored = party.evaluates(round) or any(key in values for _, values in self.reports for key in SCORED)
        news = {"kind": "boundary", "round": round, "now": now, "sent": sent, **self.news()}
        if scored:  # what the observer asks of a party where it makes a row
            news |= {"nonfinite": party.nonfinite(), "spent": party.spent()}
        self.office.tell(news)

    def news(self) -> dict[str, Any]:
        """Reports and trace since the last time."""
        reports, self.reports = self.reports, []
        trace = np.frombuffer(self.me.trace.tobytes())
        del self.me.trace[:]
        return {"reports": reports, "trace": trace}

    def facts(self) -> dict[str, Any]:
        """How the party is, for the driver's search for a deadlock."""
        me = self.me
        return {"round": me.round, "for": me.waiting_for, "parked": bool(self.runtime.parked), "finished": me.finished}

    def own_cut(self, round: int) -> dict[str, Any]:
        """The party's part of the cut, once all messages that cross it are here."""
        cut = self.runtime.cuts.pop(round)
        return {"party": cut.parties[self.name], "inflight": cut.inflight}

    def last_words(self) -> dict[str, Any]:
        """What the run folder needs of the party at its end."""
        me = self.me
        return {"parameters": me.parameters(), "spent": me.spent(), "kept": me.kept, "tape": me.served, **self.news()}

    def explain(self, error: Exception) -> str:
        """What failed, and what the program had read since it last sent.

        A message of the wrong shape is among that, with its sender.
        """
        if isinstance(error, FederationError):
            return str(error)
        text = f"the program of {self.name} failed in round {self.me.round}: {type(error).__name__}: {error}"
        read = [f"'{tag}' from {src}, {shape}" for src, tag, shape in self.transport.read]
        return text + (f". It had just read {'; '.join(read)}" if read else "")
