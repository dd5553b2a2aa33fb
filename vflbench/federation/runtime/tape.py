"""What crosses in an evaluation: the exchange that held-out predictions take, as a party records it."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from vflbench.federation import links as L
from vflbench.federation.codec import Encoder
from vflbench.federation.party import role_of
from vflbench.federation.payload import Form, form_bytes, with_tag

if TYPE_CHECKING:
    from vflbench.federation.phases import Event
    from vflbench.federation.runtime.member import Member


class Tape:
    """What a party sent and read in the last evaluation that it took part in."""

    __slots__ = ("boxes", "events", "forms", "party", "priced", "round")

    def __init__(self, party: Member) -> None:
        self.party = party
        self.round = 0  # of that evaluation
        self.priced = True  # whether what crosses now is recorded
        self.boxes: dict[str, dict[str, deque[Any]]] = {}  # as `Member.boxes`
        self.events: list[Event] = []
        self.forms: dict[tuple[str, str], Form] = {}  # receiver, tag -> the first message's

    def _on(self) -> bool:
        """Whether the party's round is scored and priced; else an observer only looks at the state.

        A one-shot method has its only exchange in round 1, scored or not.
        """
        party = self.party
        if not self.priced or (not party.evaluates(party.round) and party.round != 1):
            return False
        if self.round != party.round:
            self.round, self.events, self.forms = party.round, [], {}
        return True

    def send(self, link: L.Link, dst: str, tag: str, payload: Any, nbytes: int, vectors: int, form: Form) -> None:
        """Record a message, with the bytes that it would be charged: the codec's and those of its form."""
        if not self._on():
            return
        party, runtime = self.party, self.party.runtime
        if party.encoder is not None and link.kind != L.LOCAL:
            # what arrives stays exact, so that a score is one of the model; nothing is remembered
            encoder = Encoder(runtime.codec, party.streams.rng("codec"))
            nbytes = encoder.encode_copy((payload, nbytes, vectors, form), dst, tag).nbytes
        first = self.forms.setdefault((dst, tag), form)
        free = runtime.ways.get((tag, role_of(party.name), role_of(dst)), ())
        more = form_bytes(form, first if nbytes else (), free)
        nbytes = with_tag(nbytes + more, link.tag_bytes)
        self.events.append((dst, tag, nbytes, vectors))

    def accept(self, src: str, tag: str, payload: Any) -> None:
        """Lay what has arrived into its mailbox, and wake the party if it waits for it."""
        party, box = self.party, self.boxes.setdefault(src, {}).setdefault(tag, deque())
        box.append(payload)
        if party.waiting is box:
            party.waiting = None
            party.runtime.ready.append(party)

    def take(self, box: deque[Any], src: str, tag: str) -> Any:
        """Read the oldest message of a mailbox, and record it."""
        if self._on():
            self.events.append((src, tag))
        return box.popleft()
