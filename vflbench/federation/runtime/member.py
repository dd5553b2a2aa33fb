"""A party in its engine: all that lies behind its `me`."""

from __future__ import annotations

import types
from array import array
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import torch

from vflbench import seeding
from vflbench.federation.codec import Encoder
from vflbench.federation.ledger import COMPUTE, trace_row
from vflbench.federation.party import PartyLost, PartySpec, Report, State
from vflbench.federation.payload import LINES
from vflbench.federation.phases import Served
from vflbench.federation.runtime.encoding import Encoding, copying, observed, sending
from vflbench.federation.runtime.mail import NO_BOXES, Done, Mailboxes, Message, by_tag, taking
from vflbench.federation.runtime.me import narrow
from vflbench.federation.runtime.party_cut import restore
from vflbench.federation.runtime.party_links import PartyLinks
from vflbench.federation.runtime.party_streams import PartyStreams
from vflbench.federation.runtime.reports import check_report
from vflbench.federation.runtime.tape import Tape
from vflbench.types import FederationError, closest

if TYPE_CHECKING:
    from vflbench.federation.runtime.core import Runtime


class Member:
    """A party of a `Runtime`. Its methods with the names of `Party`'s do what `Party` says."""

    __slots__ = (  # read for every message: the fastest
        "any_of",
        "begin",
        "boxes",
        "clients",
        "coroutine",
        "device",
        "done",
        "drop",
        "encoder",
        "finished",
        "fresh",
        "in_evaluation",
        "index",
        "kept_back",
        "links",
        "me",
        "name",
        "neighbours",
        "now",
        "organisation",
        "orphans",
        "privacy",
        "role",
        "round",
        "runtime",
        "secret",
        "sent_bytes",
        "servers",
        "started",
        "state",
        "streams",
        "take",
        "tape",
        "token",
        "trace",
        "waiting",
        "waiting_any",
        "waiting_for",
        "without_grad",
        "write_trace",
    )

    def __init__(
        self,
        runtime: Runtime,
        name: str,
        index: int,
        spec: PartySpec,
        privacy: Any,
        secret: seeding.Secret | None,
        peers: dict[str, Any],
    ) -> None:
        self.runtime = runtime
        self.name = name
        self.index = index
        self.role = spec.role
        self.organisation = spec.organisation or name
        self.servers: tuple[str, ...] = peers["servers"]
        self.clients: tuple[str, ...] = peers["clients"]
        self.neighbours: tuple[str, ...] = peers["neighbours"]
        self.device = runtime.device
        self.fresh = runtime.resume_from is None
        self.privacy, self.secret = privacy, secret
        self.state = State()
        self.streams = PartyStreams(self)
        self.round = 0  # the round being executed; at a boundary, the round just finished
        self.in_evaluation = False
        self.started = False  # has come to its rounds()
        self.done = False  # has come to their end
        self.finished = False
        self.without_grad = False
        self.now = 0.0  # s; only a clock of virtual time sets and reads it
        self.links = PartyLinks(self)
        self.boxes: dict[str, dict[str, deque[Message]]] = {}  # source -> tag -> messages
        self.waiting: Any = None  # the mailbox that a recv waits for
        self.any_of: dict[Any, Mailboxes] = {}  # by the arguments of recv_any
        self.waiting_any: set[int] = NO_BOXES  # the mailboxes (their ids) that a recv_any waits for
        self.waiting_for: str = ""
        self.token = 0  # number of the current time-dependent wait; events of earlier ones are stale
        # (source, seq, round, delivered) of what was consumed from a sender that is rounds ahead: a resumed run sends
        # it again
        self.orphans: list[tuple[int, int, int, float]] = []
        # after a resume: the orphans of the cut, (source, seq) -> (round, delivered)
        self.drop: dict[tuple[int, int], tuple[int, float]] = {}
        self.sent_bytes = 0  # charged, since the last boundary
        self.trace = array("d")
        self.write_trace = self.trace.frombytes
        self.take = taking(self)
        self.begin: Callable[[], Coroutine[Any, Any, Any]]  # its program, which its first step begins
        self.coroutine: Coroutine[Any, Any, Any] | None = None
        self.tape = Tape(self)
        self.encoder = (
            None if runtime.codec is None else Encoder(runtime.codec, self.streams.rng("codec"), runtime.remembered)
        )
        encoding = None if self.encoder is None else Encoding(self, self.encoder)
        send = runtime.transport.sender(
            self, copying(self) if encoding is None else encoding.copied, LINES if encoding is None else {}
        )
        self.me = narrow(self, send, (sending if encoding is None else encoding.sending)(send))
        self.kept_back: dict[str, Any] = {}  # methods of `me`, until rounds() of a resumed run

    # --- messages -----------------------------------------------------------------------------------------------------

    def accept(self, boxes: dict[str, Any], tag: str, message: Message) -> None:
        """Lay a message into its mailbox, and wake this party if it waits for it."""
        box = boxes.get(tag)
        if box is None:
            box = boxes[tag] = deque()
        box.append(message)
        if self.waiting is box:
            self.waiting = None
            self.runtime.ready.append(self)
        elif self.waiting_any and id(box) in self.waiting_any:
            self.runtime.time.arrived(self, message)

    def box(self, src: str, tag: str) -> deque[Any]:
        """The mailbox for what comes from `src` with `tag`.

        Raises
        ------
        FederationError : there is no such party.
        """
        if src not in self.runtime.parties:
            raise FederationError(
                f"{self.name} waits for {src!r}: no such party. Closest: {closest(src, self.runtime.parties)!r}"
            )
        boxes: dict[str, dict[str, deque[Any]]] = self.tape.boxes if self.in_evaluation else self.boxes
        return boxes.setdefault(src, {}).setdefault(tag, deque())

    def without(self, src: str) -> PartyLost:
        """The error about `src`, whose process has died; the program drops `src`, which `any_of` must follow."""
        self.any_of.clear()
        return PartyLost(src)

    @types.coroutine
    def recv(self, src: str, tag: str = "message", timeout: float | None = None) -> Generator[None, None, Any]:
        """As `Party.recv`.

        Raises
        ------
        PartyLost : the process of `src` has died, and nothing of it is left to read.
        """
        try:
            box = (self.tape.boxes if self.in_evaluation else self.boxes)[src][tag]
        except KeyError:
            box = self.box(src, tag)
        if timeout is not None and not self.in_evaluation:
            self.runtime.refuse_round_timing(self, "recv with a timeout")
            yield from self.runtime.time.until(self, src, box, tag, timeout)
        while not box:
            if src in self.runtime.lost:
                raise self.without(src)
            self.waiting = box
            self.waiting_for = f"a message '{tag}' from {src}"
            yield
        return self.tape.take(box, src, tag) if self.in_evaluation else self.take(box)

    @types.coroutine
    def recv_all(self, srcs: Sequence[str], tag: str = "message") -> Generator[None, None, list[Any]]:
        """As `Party.recv_all`."""
        received = []
        boxes = self.tape.boxes if self.in_evaluation else self.boxes
        for src in srcs:
            try:
                box = boxes[src][tag]
            except KeyError:
                box = self.box(src, tag)
            while not box:
                if src in self.runtime.lost:
                    raise self.without(src)
                self.waiting = box
                self.waiting_for = f"a message '{tag}' from {src}"
                yield
            received.append(self.tape.take(box, src, tag) if self.in_evaluation else self.take(box))
        return received

    @types.coroutine
    def recv_any(
        self, srcs: Sequence[str] | Mapping[str, Sequence[str]], tag: str = "message", timeout: float | None = None
    ) -> Generator[None, None, tuple[Any, ...]]:
        """As `Party.recv_any`; in real time, the message that arrived first.

        Raises
        ------
        PartyLost : the process of one in `srcs` has died, and nothing of it is left to read.
        """
        self.runtime.refuse_round_timing(self, "recv_any")
        if self.in_evaluation:
            raise FederationError(
                f"{self.name} calls recv_any within evaluating(): no time passes there, so no message is first. Use "
                "recv_all"
            )
        several = isinstance(srcs, Mapping)
        key = id(srcs) if several else (tuple(srcs), tag)
        if key not in self.any_of:  # mailboxes stay what they are: a hub asks for the same ones for every message
            self.any_of[key] = Mailboxes(
                srcs, [(self.box(src, t), src, t) for t, of in by_tag(srcs, tag).items() for src in of]
            )
        mail = self.any_of[key]
        place = yield from self.runtime.time.first(self, mail, timeout)
        src, found = mail.names[place]
        payload = self.take(mail.boxes[place])
        return (src, found, payload) if several else (src, payload)

    # --- computing ----------------------------------------------------------------------------------------------------

    def compute(
        self, function: Callable[..., Any], args: tuple[Any, ...], cost: float, seconds: float | None, latency: float
    ) -> Any:
        """As `Party.compute`."""
        runtime = self.runtime
        clock, batches = runtime.clock, runtime.batches
        if batches is not None and getattr(function, "batchable", False) and not self.in_evaluation:
            return batches.compute(self, function, args, cost)
        if clock.mode == "none" or self.in_evaluation:
            return Done(function(*args))
        if clock.mode == "modelled" and seconds is not None:
            result = function(*args)
            self.advance(latency, idle=True)
        else:
            result, seconds = clock.timed(function, args, cost)
        if runtime.cores is not None and self.name in runtime.cores.machine_of:
            return runtime.cores.compute(self, result, seconds)
        self.advance(seconds)
        return Done(result)

    def advance(self, seconds: float, idle: bool = False) -> None:
        """Let `seconds` of computing pass on this party's clock; `idle`: no core is busy."""
        if seconds > 0:
            now = self.runtime.time.advance(self, seconds)
            self.write_trace(trace_row(COMPUTE, self.index, float(idle), seconds, now))

    # --- rounds and reports -------------------------------------------------------------------------------------------

    async def following(self) -> int:
        """The next round of `me.rounds()`."""
        runtime = self.runtime
        if self.done:
            raise StopAsyncIteration
        if not self.started:
            self.started = True
            if runtime.resume_from is not None:
                restore(self, runtime.resume_from.parties[self.name])
            elif runtime.checkpoint_every and self.secret is not None:
                self.secret.keep()
        else:
            runtime.passed(self)
        if self.round < runtime.rounds and not runtime.stopping and runtime.too_far(self.round):
            await runtime.park(self)
        if runtime.stopping or self.round >= runtime.rounds:
            self.done = True
            raise StopAsyncIteration
        self.round += 1
        return self.round

    def evaluates(self, round: int) -> bool:
        """As `Party.evaluates`."""
        return round % self.runtime.eval_every == 0 or round == self.runtime.rounds

    def report(self, **values: Unpack[Report]) -> None:
        """As `Party.report`."""
        check_report(self.name, self.round, values, self.runtime.reports)
        if self.runtime.on_report is not None:
            self.runtime.on_report(self.name, self.round, observed(values))

    def about(self, rows: np.ndarray | None) -> None:
        """As `Party.about`."""
        if self.encoder is not None:
            self.encoder.rows = None if rows is None else torch.as_tensor(rows)

    def read_clock(self) -> float:
        """As `Party.clock`."""
        self.runtime.refuse_round_timing(self, "reading me.clock")
        return self.runtime.time.now(self)

    # --- what an observer asks ----------------------------------------------------------------------------------------

    def parameters(self) -> dict[str, torch.Tensor]:
        """Copies of the tensors of the modules in the state, on the CPU, by name.

        Other tensors of a state are no parameters: ADMM's z and lambda.
        """
        modules = [(name, value) for name, value in self.state if isinstance(value, torch.nn.Module)]
        tensors = {f"{name}.{key}": tensor for name, module in modules for key, tensor in module.state_dict().items()}
        return {key: tensor.detach().cpu().contiguous().clone() for key, tensor in tensors.items()}

    @property
    def kept(self) -> str | None:
        """The name under which this party keeps its secret."""
        return self.secret.kept if self.secret is not None else None

    @property
    def served(self) -> Served:
        """The round of the last evaluation, and what this party sent and read in it."""
        return self.tape.round, self.tape.events

    def spent(self) -> dict[str, Any] | None:
        """What the privacy mechanism has spent; its `organisation`; and `counts`, each row's releases, or None."""
        counts = self.privacy.counts if self.privacy is not None and hasattr(self.privacy, "counts") else None
        more = {"organisation": self.organisation, "counts": counts}
        return None if self.privacy is None else {**self.privacy.spent(), **more}

    def nonfinite(self) -> str | None:
        """The first parameter or tensor in the state that holds a NaN or an infinity."""
        for name, value in self.state:
            tensors = value.state_dict() if isinstance(value, torch.nn.Module) else {"": value}
            for key, tensor in tensors.items():
                if isinstance(tensor, torch.Tensor) and tensor.is_floating_point() and not tensor.isfinite().all():
                    return f"{self.name}'s {name}{'.' if key else ''}{key}"
        return None
