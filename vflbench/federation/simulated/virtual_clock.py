"""Virtual time: every party has its own clock, and one heap holds what depends on all of them."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from vflbench.federation.runtime.mail import NO_BOXES, Mailboxes, Message
from vflbench.federation.runtime.protocols import Clock

if TYPE_CHECKING:
    from vflbench.federation.runtime.member import Member

INGRESS_EVENT, ANY_EVENT, TIMEOUT_EVENT, CORE_EVENT = 0, 1, 2, 3


class VirtualClock(Clock):
    """Moves a party's clock to the time of what it has waited for."""

    on_ingress: Callable[[float, int, int, Any], None]  # set by the transport

    def __init__(self) -> None:
        # (when, kind, source, seq, receiver, number, event). The event of a wait is (party, token); that of a shared
        # bandwidth is for `on_ingress`.
        self.heap: list[tuple[float, int, int, int, int, int, Any]] = []
        self._events = 0

    def now(self, party: Member) -> float:
        """As `Clock.now`."""
        return party.now

    def reach(self, party: Member, time: float) -> float:
        """As `Clock.reach`."""
        if time > party.now:  # for every message; max() costs more than the rest of the line
            party.now = time
        return party.now

    def advance(self, party: Member, seconds: float) -> float:
        """As `Clock.advance`."""
        party.now += seconds
        return party.now

    def rewind(self, party: Member, time: float) -> None:
        """As `Clock.rewind`."""
        party.now = time

    # --- waits that depend on time ------------------------------------------------------------------------------------

    def arrived(self, party: Member, message: Message) -> None:
        """As `Clock.arrived`."""
        self._push(message[0], ANY_EVENT, message[4].src, message[2], party)

    def until(
        self, party: Member, src: str, box: deque[Message], tag: str, timeout: float
    ) -> Generator[None, None, None]:
        """As `Clock.until`."""
        deadline = party.now + timeout
        if not box:
            party.token += 1
            self._push(deadline, TIMEOUT_EVENT, party.index, party.token, party)
            party.waiting = box
            party.waiting_for = f"a message '{tag}' from {src} until {deadline:.6g} s"
            yield
            party.token += 1
        if not box or box[0][0] > deadline:
            party.now = max(party.now, deadline)
            raise TimeoutError(f"nothing from {src} with tag {tag!r} within {timeout} s of virtual time")

    def first(self, party: Member, mail: Mailboxes, timeout: float | None) -> Generator[None, None, int]:
        """As `Clock.first`."""
        party.waiting_any, party.waiting_for = mail.ids, mail.text
        party.token += 1
        first = mail.first()
        if first is not None:
            delivered, sender, seq, _ = first
            self._push(delivered, ANY_EVENT, sender, seq, party)
        deadline = None if timeout is None else party.now + timeout
        if deadline is not None:
            self._push(deadline, TIMEOUT_EVENT, party.index, party.token, party)
        yield
        party.token += 1
        party.waiting_any = NO_BOXES
        first = mail.first()
        if first is None or (deadline is not None and first[0] > deadline):
            assert deadline is not None
            party.now = max(party.now, deadline)
            raise TimeoutError(f"{party.name}: no {mail.text} within {timeout} s of virtual time")
        return first[3]

    # --- the heap -----------------------------------------------------------------------------------------------------

    def _push(self, when: float, kind: int, src: int, seq: int, party: Member) -> None:
        self.push(when, kind, src, seq, party.index, (party, party.token))

    def push(self, when: float, kind: int, src: int, seq: int, dst: int, event: Any) -> None:
        """Add an event to the heap."""
        self._events += 1  # of events with equal keys, the number keeps the rest from being compared
        heapq.heappush(self.heap, (when, kind, src, seq, dst, self._events, event))

    def next(self) -> float | None:
        """When the earliest event is to happen; those of waits that are over are dropped on the way."""
        heap = self.heap
        while heap and heap[0][1] != INGRESS_EVENT and heap[0][6][1] != heap[0][6][0].token:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def pop(self) -> bool:
        """Let the earliest event happen. False if there is none."""
        if self.next() is None:
            return False
        when, kind, src, seq, _, _, event = heapq.heappop(self.heap)
        if kind == INGRESS_EVENT:
            self.on_ingress(when, src, seq, event)
            return True
        party, _ = event
        party.token += 1
        party.waiting = None
        self.runtime.ready.append(party)
        return True
