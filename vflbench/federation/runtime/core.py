"""`Runtime`: the parties whose programs run in this process, and what they have in common."""

import copy
import types
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Any

import torch

from vflbench.defaults import filled
from vflbench.federation.clock import ComputeClock
from vflbench.federation.ledger import MARK, Ledger, trace_row
from vflbench.federation.links import Link
from vflbench.federation.party import RUNNING, Guarded, PartySpec, role_of
from vflbench.federation.runtime.mail import Message, as_ledger_row, watching
from vflbench.federation.runtime.member import Member
from vflbench.federation.runtime.party_cut import capture, rewind
from vflbench.federation.runtime.protocols import Batches, Clock, Queue, Transport
from vflbench.federation.sealed import sealed
from vflbench.federation.snapshot import Cut, freeze, thaw
from vflbench.seeding import Secret
from vflbench.types import SCORED, ComputeConfig, FederationError, NetworkConfig, Sent, closest


@dataclass(eq=False, repr=False)
class Runtime:
    """The parties of a process, given a clock and a transport.

    An engine drives it: it calls `step` as long as some parties are `ready`.
    """

    specs: Mapping[str, PartySpec]  # the parties, in order (servers first)
    public: Any  # this and `config` are handed to every program, with its own guarded data
    config: Any
    time: Clock  # this, `transport` and `batches` are the engine's
    transport: Transport
    batches: Batches | None
    # called with (party, its time, bytes since its last boundary) when a party has finished a round
    on_boundary: Callable[[Member, float, int], None]
    _: KW_ONLY
    network: NetworkConfig = field(default_factory=lambda: filled(NetworkConfig, name="ideal"))  # links and timing rule
    connected: Callable[[str, str], bool] = lambda a, b: True  # the topology, as `neighbours`
    neighbours: Callable[[str], tuple[str, ...]] | None = None
    rounds: int = 1  # this, `eval_every`, `seed` and `device` as in the run's configuration
    eval_every: int = 1
    seed: int = 0
    device: str = "cpu"
    clock: ComputeClock = field(default_factory=lambda: ComputeClock("none", filled(ComputeConfig)))
    window: int = 1  # how many rounds a party may run ahead of the slowest; it costs no virtual time
    on_report: Callable[[str, int, dict[str, Any]], None] | None = None  # called with (party, round, values)
    checkpoint_every: int | None = None  # parties record themselves in a cut every so many rounds
    resume_from: Cut | None = None  # a cut to continue from
    privacy: Mapping[str, Any] | None = None  # mechanisms, by party
    secure: bool = False  # parties draw what privacy rests on from secrets of their own
    # called with (source, reader, tag, the reader's round, payload) for every message that is read
    on_read: Callable[[str, str, str, int, Any], None] | None = None
    codec: Any = None  # the keys of the codec that compresses payloads; None, or codec=none: no codec
    # tags whose messages are about the same entries every time, or about rows; codec.feedback remembers them
    remembered: Sequence[str] = ()
    exposes: Sequence[Sent] | None = None  # what parties may send; None: anything
    reports: Sequence[str] = SCORED  # what they may report to be scored by

    def __post_init__(self) -> None:
        if self.codec is not None and self.codec.name == "none":
            self.codec = None
        if self.codec is None or not self.codec.feedback:
            self.remembered = ()
        self.ways: dict[tuple[str, str, str], set[str]] = {}  # (tag, sender, receiver) -> keys that are free
        for entry in self.exposes or ():
            self.ways.setdefault((entry.tag, entry.sender, entry.receiver), set()).update(entry.keys)
        self.public = sealed(self.public, copy=True)  # one for all parties of this process
        self.ledger = Ledger()
        self.tags = self.ledger.tags
        self.write_ledger = self.ledger.rows.frombytes
        self.ready: deque[Member] = deque()
        self.parked: list[Member] = []
        self.cuts: dict[int, Cut] = {}
        self.lost: set[str] = set()  # parties whose processes have died
        self.cores: Queue | None = None  # the engine's, where parties share cores
        self.stopping = False  # no party begins another round
        # the last round that all parties have finished
        self.finished_round = self.resume_from.round if self.resume_from else 0

        self.time.attach(self)
        self.transport.attach(self)
        self.parties: dict[str, Member] = {}
        self.servers = tuple(name for name, spec in self.specs.items() if spec.role == "server")
        clients = tuple(name for name, spec in self.specs.items() if spec.role != "server")
        for index, (name, spec) in enumerate(self.specs.items()):
            near = (
                self.neighbours(name)
                if self.neighbours
                else tuple(n for n in self.specs if n != name and self.connected(name, n))
            )
            peers = {"servers": self.servers, "clients": clients, "neighbours": near}
            party = Member(
                self, name, index, spec, (self.privacy or {}).get(name), Secret() if self.secure else None, peers
            )
            if self.on_read is not None:
                party.take = watching(party, self.on_read)
            self.parties[name] = party
        self.order = list(self.parties.values())
        for party in self.order:
            spec = self.specs[party.name]
            guarded = Guarded(party.name, sealed(spec.data)) if spec.data is not None else None
            own = copy.deepcopy(self.config)  # no other party reads what this one writes into it
            # not begun here: a run that is refused before its first step would leave it never awaited, with a warning
            party.begin = partial(spec.program, party.me, guarded, self.public, own)
            self.ready.append(party)
        if self.resume_from is not None:
            self._resume(self.resume_from)

    def step(self, party: Member) -> None:
        """Let a party's program run until it has to wait; what it raises is raised here."""
        RUNNING.name = party.name
        if party.without_grad:
            torch.set_grad_enabled(False)
        try:
            if (coroutine := party.coroutine) is None:
                coroutine = party.coroutine = party.begin()
            coroutine.send(None)
        except StopIteration:
            party.finished = True
            if not self.stopping and not party.done:
                raise FederationError(
                    f"{party.name}'s program ended in round {party.round}, before the end of its {self.rounds}"
                ) from None
        except Exception as error:
            error.add_note(f"in the program of {party.name}, round {party.round}")
            raise
        finally:
            RUNNING.name = None
            # `with torch.no_grad():` around an await must not reach the others: the switch belongs to the thread, and
            # they run in between.
            party.without_grad = not torch.is_grad_enabled()
            if party.without_grad:
                torch.set_grad_enabled(True)

    def close(self) -> None:
        """End the programs."""
        for party in self.order:
            if party.coroutine is not None:
                party.coroutine.close()

    # --- messages -----------------------------------------------------------------------------------------------------

    def check_declared(self, src: str, dst: str, tag: str) -> None:
        """Refuse a message that the algorithm's EXPOSES does not declare.

        Raises
        ------
        FederationError
            The tag is not declared, or not for these two roles.
        """
        if self.exposes is None or (way := (tag, role_of(src), role_of(dst))) in self.ways:
            return
        tags = sorted({entry.tag for entry in self.exposes})
        if tag in tags:
            allowed = ", ".join(
                sorted(f"{entry.sender} -> {entry.receiver}" for entry in self.exposes if entry.tag == tag)
            )
            raise FederationError(f"{src} sends {tag!r} to {dst}, and EXPOSES declares {way[0]} as {allowed}")
        near = closest(tag, tags)
        hint = f". Did you mean {near!r}?" if near else ""
        raise FederationError(
            f"{src} sends {tag!r}, which its algorithm's EXPOSES does not declare; there are: {', '.join(tags)}{hint}"
        )

    def deliver(self, receiver: Member, tag: str, message: Message) -> None:
        """Hand over a message whose delivery time is known, or is decided when it is read.

        In a resumed run, what was consumed before the cut is dropped. While a cut is open, what crosses it is recorded.
        """
        link = message[4]
        consumed = receiver.drop.pop((link.src, message[2]), None)
        if consumed is not None:  # before the cut
            if message[0] is None:
                self.write_ledger(as_ledger_row(message, consumed[1]))
            receiver.orphans.append((link.src, message[2], *consumed))  # after a cut before its round it comes again
            return
        # sent before the sender's boundary, and after the receiver's: it crosses the cut
        for cut in self.cuts.values():
            if message[3] <= cut.round and receiver.name in cut.parties:
                cut.inflight.append(self.describe(receiver.name, tag, message))
        receiver.accept(link.boxes, tag, message)

    def refuse_round_timing(self, party: Member, what: str) -> None:
        """Refuse `what` under network.timing=round.

        Raises
        ------
        FederationError
            The timing rule is `round`.
        """
        if self.network.timing == "round":
            raise FederationError(
                f"{party.name}: {what} depends on time; network.timing=round times exchanges, not messages: use causal"
            )

    # --- round boundaries ---------------------------------------------------------------------------------------------

    def passed(self, party: Member) -> None:
        """A party has finished its round: stamp it, record it in that round's cut, tell the engine."""
        round, now, sent = party.round, self.time.now(party), party.sent_bytes
        party.write_trace(trace_row(MARK, party.index, 0.0, round, now))
        party.sent_bytes = 0
        if self.checkpoint_every and round % self.checkpoint_every == 0 and round < self.rounds and not self.lost:
            capture(party, self.cuts.setdefault(round, Cut(round)))
        self.on_boundary(party, now, sent)

    def too_far(self, round: int) -> bool:
        """Whether a party that has finished `round` must wait for slower ones."""
        return round >= self.finished_round + self.window

    @types.coroutine
    def park(self, party: Member) -> Generator[None, None, None]:
        """Let a party wait at its boundary."""
        self.parked.append(party)
        party.waiting_for = "slower parties, at a round boundary"
        yield

    def unpark(self, every: bool = False) -> None:
        """Let those that wait at a boundary go on where they may, or `every` one."""
        self.release([p for p in self.parked if every or self.stopping or not self.too_far(p.round)])

    def release(self, parties: list[Member]) -> None:
        """Let these parties go on, which wait at a boundary."""
        if len(parties) == len(self.parked):
            self.parked.clear()
        else:
            released = set(parties)
            self.parked = [p for p in self.parked if p not in released]
        self.ready.extend(parties)

    # --- cuts ---------------------------------------------------------------------------------------------------------

    def describe(
        self, dst: str, tag: str, message: Message, arrival: float | None = None, left: float | None = None
    ) -> dict[str, Any]:
        """The entry of a message that crosses a cut.

        `arrival` and `left` belong to one that has not passed a shared bandwidth yet.
        """
        delivered, payload, seq, round, link, _, nbytes, vectors, sent = message
        return {
            "src": self.order[link.src].name,
            "dst": dst,
            "tag": tag,
            "payload": freeze(payload, f"a message '{tag}'", self.device),
            "seq": seq,
            "round": round,
            "bytes": nbytes,
            "vectors": vectors,
            "sent": sent,
            "delivered": delivered,
            "arrival": arrival,
            "left": left,
        }

    def _resume(self, cut: Cut) -> None:
        """Set clocks, links and mailboxes as they were at the cut, before any party starts.

        The parties' states follow at `rounds()`.
        """
        self.tags.update(cut.totals["tags"])
        for name, saved in cut.parties.items():
            rewind(self.parties[name], saved, cut.round)
        for m in sorted(cut.inflight, key=lambda m: (m["src"], m["dst"], m["seq"])):
            link, code = self.link(m["src"], m["dst"]), self.ledger.tag(m["tag"])
            message: Message = (
                m["delivered"],
                thaw(m["payload"], home=self.device),
                m["seq"],
                m["round"],
                link,
                code,
                m["bytes"],
                m["vectors"],
                m["sent"],
            )
            if m["arrival"] is None:
                link.boxes.setdefault(m["tag"], deque()).append(message)
            else:
                self.transport.resend(link.receiver, message, m)

    def link(self, src: str, dst: str) -> Link:
        """The link from `src` to `dst`."""
        return self.parties[src].links[dst]
