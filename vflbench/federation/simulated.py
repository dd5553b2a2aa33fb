"""The simulated engine: all parties in one process, in virtual time. Nobody sleeps.

A trampoline runs the party programs; every party has its own clock, and a message carries the time at which it is delivered. What
does not depend on time (send, recv, recv_all) runs in any order with equal results. What does (recv_any, timeouts, a shared server
bandwidth) is an event in one global heap, popped only when nobody can run: then every later consequence has a later time.
"""

from __future__ import annotations

import gc
import heapq
import time
import types
from array import array
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from torch.utils import _pytree as pytree

from vflbench.federation import codec as codecs
from vflbench.federation import links as L
from vflbench.federation.clock import ComputeClock
from vflbench.federation.ledger import COMPUTE, MARK, RECV, SEND, Ledger, ledger_row, take_traces, trace_row
from vflbench.federation.party import RUNNING, Guarded, Party, PartySpec, Sized, copy_payload
from vflbench.federation.snapshot import Cut, freeze, optimised, thaw
from vflbench.types import CodecConfig, ComputeConfig, FederationError, NetworkConfig, closest

INGRESS_EVENT, ANY_EVENT, TIMEOUT_EVENT = 0, 1, 2

BEFORE_ROUNDS = ("send", "recv", "recv_all", "recv_any")  # what a resumed program may not call before rounds()

# A message: (delivered, payload, seq, round of the sender, link, tag code, bytes, vectors, sent). `delivered` is None while a
# server's shared medium has not served it.
Message = tuple[Any, Any, int, int, L.Link, int, int, int, float]


class _Done:
    """An awaitable that is already done (async methods that never wait)."""

    __slots__ = ("value",)

    def __init__(self, value: Any = None) -> None:
        self.value = value

    def __await__(self) -> Generator[None, None, Any]:
        return self.value
        yield


class _Nothing:
    """An awaitable that is already done; one exhausted iterator serves every `await me.send(...)`."""

    __slots__ = ()
    __await__ = iter(()).__iter__


NOTHING = _Nothing()
NO_BOXES: set[int] = set()


class Mailboxes:
    """Those that a `recv_any` looks into; `srcs` is kept, as its id is what they are found by."""

    def __init__(self, srcs: Any, found: list[tuple[deque[Message], str, str]]) -> None:
        self.srcs = srcs
        self.boxes = [box for box, _, _ in found]
        self.names = [(src, tag) for _, src, tag in found]  # whose, and of what
        self.ids = {id(box) for box in self.boxes}
        tags, sources = dict.fromkeys(tag for _, _, tag in found), dict.fromkeys(src for _, src, _ in found)
        self.text = f"a message {' or '.join(map(repr, tags))} from any of {', '.join(sources)}"


def by_tag(srcs: Sequence[str] | Mapping[str, Sequence[str]], tag: str) -> Mapping[str, Sequence[str]]:
    return srcs if isinstance(srcs, Mapping) else {tag: srcs}


class _Evaluation:
    """`async with me.evaluating():`"""

    def __init__(self, party: SimulatedParty) -> None:
        self.party = party

    async def __aenter__(self) -> None:
        self.party.in_evaluation = True

    async def __aexit__(self, *_: object) -> None:
        self.party.in_evaluation = False


class _Rounds:
    """The iterator of `me.rounds()`; a class, so that `break` leaves no unfinished generator."""

    def __init__(self, party: SimulatedParty) -> None:
        self.party = party

    def __aiter__(self) -> _Rounds:
        return self

    async def __anext__(self) -> int:
        party, engine = self.party, self.party.engine
        if party.done:
            raise StopAsyncIteration
        if not party.started:
            party.started = True
            if engine.resume_from is not None:
                party.restore(engine.resume_from.parties[party.name])
        else:
            engine.passed(party)
        if party.round < engine.rounds and not engine.stopping and engine.too_far(party.round):
            await engine.park(party)
        if engine.stopping or party.round >= engine.rounds:
            party.done = True
            raise StopAsyncIteration
        party.round += 1
        return party.round


class SimulatedParty(Party):
    """`me` in the simulated engine."""

    def __init__(self, engine: SimulatedEngine, name: str, index: int, spec: PartySpec) -> None:
        super().__init__(engine.seed)
        self.engine = engine
        self.name = name
        self.index = index
        self.role = spec.role
        self.organisation = spec.organisation or name
        self.device = engine.device
        self.round = 0  # the round being executed; at a boundary, the round just finished
        self.started = False  # has come to its rounds()
        self.done = False  # has come to their end
        self.finished = False
        self.without_grad = False
        self.now = 0.0  # virtual seconds
        self.links: dict[str, L.Link] = {}
        self.boxes: dict[str, dict[str, deque[Message]]] = {}  # source -> tag -> messages
        self.evaluation_boxes: dict[str, dict[str, deque[Any]]] = {}
        self.waiting: Any = None  # the mailbox that a recv waits for
        self.any_of: dict[Any, Mailboxes] = {}  # of each kind of recv_any
        self.waiting_any: set[int] = NO_BOXES  # the mailboxes (their ids) that a recv_any waits for
        self.waiting_for: str = ""
        self.token = 0  # number of the current time-dependent wait; events of earlier ones are stale
        # (source, seq, round, delivered) of what was consumed though the sender's round is ahead: a resumed run sends it again
        self.orphans: list[tuple[int, int, int, float]] = []
        self.drop: dict[tuple[int, int], tuple[int, float]] = {}  # after a resume: those, (source, seq) -> (round, delivered)
        self.medium = L.Medium()
        self.egress = 0.0  # until when the shared outbound bandwidth is busy
        self.sent_bytes = 0  # charged, since the last boundary
        self.trace = array("d")
        self.write_trace = self.trace.frombytes
        self.coroutine: Coroutine[Any, Any, Any] | None = None
        self.batch: tuple[Any, Callable[..., Any], tuple[Any, ...], float] | None = None
        self.batch_result: Any = None

    # --- messages -----------------------------------------------------------------------------------------------------

    def send(self, dst: str, payload: Any, tag: str = "message") -> Any:
        payload, nbytes, vectors = copy_payload(payload)
        if self.in_evaluation:
            return self._send_evaluation(dst, payload, tag)
        link = self.links.get(dst) or self.open(dst)
        engine = self.engine
        now = self.now
        round = self.round
        seq = link.seq
        link.seq = seq + 1
        code = engine.tags.get(tag)
        if code is None:
            code = engine.ledger.tag(tag)
        if link.charged:
            self.sent_bytes += nbytes
        self.write_trace(trace_row(SEND, link.dst, seq, 0.0, now))
        delivered: float | None
        if engine.plain or link.kind == L.LOCAL:
            start = link.busy if link.busy > now else now
            link.busy = busy = start + nbytes * link.rate
            delivered = busy + link.latency
        else:
            delivered = self._shared(link, now, nbytes)
        message: Message = (delivered, payload, seq, round, link, code, nbytes, vectors, now)
        receiver = link.receiver
        if delivered is not None:
            engine.write_ledger(ledger_row(round, link.src, link.dst, link.kind_code, code, nbytes, vectors, now, delivered, seq))
        elif engine.timing == "causal":
            engine.await_ingress(receiver, tag, message)
            return NOTHING
        if receiver.drop or engine.cuts:
            engine.deliver(receiver, tag, message)
        else:
            receiver.accept(link.boxes, tag, message)
        return NOTHING

    def accept(self, boxes: dict[str, Any], tag: str, message: Message) -> None:
        """Lay a message into its mailbox, and wake this party if it waits for it."""
        box = boxes.get(tag)
        if box is None:
            box = boxes[tag] = deque()
        box.append(message)
        if self.waiting is box:
            self.waiting = None
            self.engine.ready.append(self)
        elif self.waiting_any and id(box) in self.waiting_any:
            self.engine.push(message[0], ANY_EVENT, message[4].src, message[2], self)

    def _shared(self, link: L.Link, now: float, nbytes: int) -> float | None:
        """Delivery time where a server shares its bandwidth, or under timing=round; None if it is not decided yet."""
        engine = self.engine
        if link.kind == L.CLIENT_SERVER and engine.timing == "round":
            return self.medium.scatter(now, nbytes, link) if self.role == "server" else None
        rate = L.seconds_per_byte(engine.network.server_bandwidth_gbps)
        out = now
        if self.role == "server" and link.kind == L.CLIENT_SERVER:
            out = max(now, self.egress)
            self.egress = out + nbytes * rate
        link.start = max(out, link.busy)
        link.busy = link.start + nbytes * link.rate
        if self.role != "server" and link.kind == L.CLIENT_SERVER and engine.network.server_bandwidth_gbps is not None:
            return None
        return max(link.busy, self.egress if self.role == "server" else 0.0) + link.latency

    def _send_evaluation(self, dst: str, payload: Any, tag: str) -> Any:
        if dst not in self.links:
            self.open(dst)
        self.engine.parties[dst].accept_evaluation(self.name, tag, payload)
        return NOTHING

    def accept_evaluation(self, src: str, tag: str, payload: Any) -> None:
        """Lay what crosses in an evaluation into its mailbox, and wake this party if it waits for it."""
        box = self.evaluation_boxes.setdefault(src, {}).setdefault(tag, deque())
        box.append(payload)
        if self.waiting is box:
            self.waiting = None
            self.engine.ready.append(self)

    def send_many(self, dsts: Sequence[str], payload: Any, tag: str = "message") -> Any:
        for dst in dsts:
            self.send(dst, payload, tag)
        return NOTHING

    def open(self, dst: str) -> L.Link:
        """The link to `dst`; FederationError if there is no such party or no edge."""
        engine = self.engine
        if dst not in engine.parties:
            raise FederationError(f"{self.name} sends to {dst!r}: no such party. Closest: {closest(dst, engine.parties)!r}")
        other = engine.parties[dst]
        kind = engine.link_kind(self, other)
        if dst == self.name or (kind != L.LOCAL and not engine.connected(self.name, dst)):
            raise FederationError(
                f"{self.name} sends to {dst}: the topology has no edge between them. Its neighbours: {', '.join(self.neighbours) or 'none'}"
            )
        link = L.Link(self.index, other.index, kind, L.link_config(engine.network, kind, f"{self.name}->{dst}"))
        link.boxes = other.boxes.setdefault(self.name, {})
        link.receiver = other
        self.links[dst] = link
        return link

    def _box(self, src: str, tag: str) -> deque[Any]:
        if src not in self.engine.parties:
            raise FederationError(f"{self.name} waits for {src!r}: no such party. Closest: {closest(src, self.engine.parties)!r}")
        boxes: dict[str, dict[str, deque[Any]]] = self.evaluation_boxes if self.in_evaluation else self.boxes
        return boxes.setdefault(src, {}).setdefault(tag, deque())

    def _take(self, box: deque[Message]) -> Any:
        """Consume the oldest message of a mailbox: the clock moves to its delivery."""
        delivered, payload, seq, round, link, _, nbytes, _, sent = message = box.popleft()
        if delivered is None:  # timing=round, decided in this server's program order
            delivered = self.medium.gather(sent, nbytes, link, self.engine.network.latencies)
            self.engine.ledger.defer(max(round, self.round), as_ledger_row(message, delivered))
        if round > self.round and self.engine.checkpoint_every:
            self.orphans.append((link.src, seq, round, delivered))
        if delivered > self.now:  # max() costs more than the rest of the line, for every message
            self.now = delivered
        self.write_trace(trace_row(RECV, link.src, seq, 0.0, self.now))
        return payload

    def watch(self, on_read: Callable[[str, str, str, int, Any], None]) -> None:
        """Show every message that this party reads to `on_read`; no cost where nobody watches."""
        take = self._take

        def watched(box: deque[Message]) -> Any:
            link, code = box[0][4], box[0][5]
            payload = take(box)
            on_read(self.engine.order[link.src].name, self.name, list(self.engine.tags)[code], self.round, payload)
            return payload

        self._take = watched  # type: ignore[method-assign]

    @types.coroutine
    def recv(self, src: str, tag: str = "message", timeout: float | None = None) -> Generator[None, None, Any]:
        try:
            box = (self.evaluation_boxes if self.in_evaluation else self.boxes)[src][tag]
        except KeyError:
            box = self._box(src, tag)
        if timeout is not None and not self.in_evaluation:
            return (yield from self._recv_timeout(src, box, tag, timeout))
        if not box:
            self.waiting = box
            self.waiting_for = f"a message '{tag}' from {src}"
            yield
        return box.popleft() if self.in_evaluation else self._take(box)

    def _recv_timeout(self, src: str, box: deque[Message], tag: str, timeout: float) -> Generator[None, None, Any]:
        engine = self.engine
        engine.refuse_round_timing(self, "recv with a timeout")
        deadline = self.now + timeout
        if not box:
            self.token += 1
            engine.push(deadline, TIMEOUT_EVENT, self.index, self.token, self)
            self.waiting = box
            self.waiting_for = f"a message '{tag}' from {src} until {deadline:.6g} s"
            yield
            self.token += 1
        if not box or box[0][0] > deadline:
            self.now = max(self.now, deadline)
            raise TimeoutError(f"nothing from {src} with tag {tag!r} within {timeout} s of virtual time")
        return self._take(box)

    @types.coroutine
    def recv_all(self, srcs: Sequence[str], tag: str = "message") -> Generator[None, None, list[Any]]:
        received = []
        boxes = self.evaluation_boxes if self.in_evaluation else self.boxes
        for src in srcs:
            try:
                box = boxes[src][tag]
            except KeyError:
                box = self._box(src, tag)
            if not box:
                self.waiting = box
                self.waiting_for = f"a message '{tag}' from {src}"
                yield
            received.append(box.popleft() if self.in_evaluation else self._take(box))
        return received

    @types.coroutine
    def recv_any(
        self, srcs: Sequence[str] | Mapping[str, Sequence[str]], tag: str = "message", timeout: float | None = None
    ) -> Generator[None, None, tuple[Any, ...]]:
        engine = self.engine
        engine.refuse_round_timing(self, "recv_any")
        if self.in_evaluation:
            raise FederationError(
                f"{self.name} calls recv_any within evaluating(): no time passes there, so nothing is first; use recv_all"
            )
        several = isinstance(srcs, Mapping)
        key = id(srcs) if several else (tuple(srcs), tag)
        if key not in self.any_of:  # mailboxes stay what they are: a hub asks for the same ones for every message
            self.any_of[key] = Mailboxes(srcs, [(self._box(src, t), src, t) for t, of in by_tag(srcs, tag).items() for src in of])
        mail = self.any_of[key]
        self.waiting_any, self.waiting_for = mail.ids, mail.text
        self.token += 1
        heads = [(box[0][0], box[0][4].src, box[0][2]) for box in mail.boxes if box]
        if heads:
            delivered, sender, seq = min(heads)
            engine.push(delivered, ANY_EVENT, sender, seq, self)
        deadline = None if timeout is None else self.now + timeout
        if deadline is not None:
            engine.push(deadline, TIMEOUT_EVENT, self.index, self.token, self)
        yield
        self.token += 1
        self.waiting_any = NO_BOXES
        first = min([(box[0][0], box[0][4].src, box[0][2], place) for place, box in enumerate(mail.boxes) if box], default=None)
        if first is None or (deadline is not None and first[0] > deadline):
            assert deadline is not None
            self.now = max(self.now, deadline)
            raise TimeoutError(f"{self.name}: no {mail.text} within {timeout} s of virtual time")
        src, found = mail.names[first[3]]
        payload = self._take(mail.boxes[first[3]])
        return (src, found, payload) if several else (src, payload)

    # --- computing ----------------------------------------------------------------------------------------------------

    def compute(
        self, function: Callable[..., Any], *args: Any, cost: float = 0.0, seconds: float | None = None, latency: float = 0.0
    ) -> Any:
        engine = self.engine
        if engine.batch_compute and getattr(function, "batchable", False) and not self.in_evaluation:
            return self._compute_batched(function, args, cost)
        if engine.clock.mode == "none" or self.in_evaluation:
            return _Done(function(*args))
        start = time.perf_counter()
        result = function(*args)
        elapsed = time.perf_counter() - start
        if engine.clock.mode == "modelled" and seconds is not None:
            self.advance(latency, idle=True)
            self.advance(seconds)
        else:
            self.advance(engine.clock.seconds(cost, elapsed))
        return _Done(result)

    @types.coroutine
    def _compute_batched(self, function: Callable[..., Any], args: tuple[Any, ...], cost: float) -> Generator[None, None, Any]:
        leaves, structure = flatten(args)
        key: Any = self  # alone, unless it can run with others
        if all(isinstance(leaf, LEAVES) and not getattr(leaf, "requires_grad", False) for leaf in leaves):
            key = (function, structure, *(batch_key(leaf) for leaf in leaves))
        self.batch = (key, function, args, cost)
        self.engine.cohort.append(self)
        yield
        result, self.batch_result = self.batch_result, None
        return result

    def advance(self, seconds: float, idle: bool = False) -> None:
        """Let `seconds` of computing pass on this party's clock; `idle`: no core is busy."""
        if seconds > 0:
            self.now += seconds
            self.write_trace(trace_row(COMPUTE, self.index, float(idle), seconds, self.now))

    # --- rounds and reports -------------------------------------------------------------------------------------------

    def rounds(self) -> _Rounds:
        return _Rounds(self)

    def evaluating(self) -> _Evaluation:
        return _Evaluation(self)

    def evaluates(self, round: int) -> bool:
        return round % self.engine.eval_every == 0 or round == self.engine.rounds

    def report(self, **values: Any) -> None:
        if self.engine.on_report is not None:
            self.engine.on_report(self.name, self.round, observed(values))

    @property
    def clock(self) -> float:
        self.engine.refuse_round_timing(self, "reading me.clock")
        return self.now

    def parameters(self) -> dict[str, torch.Tensor]:
        """Of the modules in the state, copies on the CPU by name. Other tensors of a state are no parameters: ADMM's z and lambda."""
        modules = [(name, value) for name, value in self.state if isinstance(value, torch.nn.Module)]
        tensors = {f"{name}.{key}": tensor for name, module in modules for key, tensor in module.state_dict().items()}
        return {key: tensor.detach().cpu().contiguous().clone() for key, tensor in tensors.items()}

    def nonfinite(self) -> str | None:
        """The first parameter or tensor in the state that holds a NaN or an infinity."""
        for name, value in self.state:
            tensors = value.state_dict() if isinstance(value, torch.nn.Module) else {"": value}
            for key, tensor in tensors.items():
                if isinstance(tensor, torch.Tensor) and tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
                    return f"{self.name}'s {name}{'.' if key else ''}{key}"
        return None

    # --- checkpoints --------------------------------------------------------------------------------------------------

    def capture(self, cut: Cut) -> None:
        """Record this party in `cut`, at its boundary: state, clock, streams, links, and what waits unread for it."""
        self.orphans = [orphan for orphan in self.orphans if orphan[2] > cut.round]
        cut.parties[self.name] = {
            "state": {name: freeze(value, f"{self.name}'s state.{name}") for name, value in self.state},
            "privacy": freeze(self.privacy) if hasattr(self.privacy, "state_dict") else None,
            "now": self.now,
            "generators": {k: freeze(g.bit_generator.state) for k, g in self._generators.items()},
            "torch_generators": {k: g.get_state() for k, g in self._torch_generators.items()},
            "links": {dst: (link.busy, link.seq) for dst, link in self.links.items()},
            "orphans": self.orphans + [(*key, *value) for key, value in self.drop.items()],
            "medium": (self.medium.free, self.medium.scattered, self.medium.gathering),
            "egress": self.egress,
        }
        for boxes in self.boxes.values():
            for tag, box in boxes.items():
                for message in box:
                    if message[3] <= cut.round:
                        cut.inflight.append(self.engine.describe(self.name, tag, message))

    def rewind(self, saved: dict[str, Any], round: int) -> None:
        """Set clock, links and what is to be dropped as `capture` recorded them, before the program starts."""
        self.round = round
        self.now = saved["now"]
        self.egress = saved["egress"]
        self.medium = L.Medium(*saved["medium"])
        self.drop = {(src, seq): (of, delivered) for src, seq, of, delivered in saved["orphans"]}
        self.refuse_before_rounds()
        for dst, (busy, seq) in saved["links"].items():
            link = self.open(dst)
            link.busy, link.seq = busy, seq

    def refuse_before_rounds(self) -> None:
        """Messages of a resumed run are those of its rounds: what the first start sent before them is not sent a second time."""
        for method in BEFORE_ROUNDS:
            setattr(self, method, partial(self._before_rounds, method, getattr(self, method)))

    def _before_rounds(self, name: str, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self.in_evaluation:
            return method(*args, **kwargs)
        raise FederationError(
            f"{self.name} calls {name} before rounds() in a resumed run, which has that behind it: put it under `if me.fresh`"
        )

    def restore(self, saved: dict[str, Any]) -> None:
        """Become what `capture` recorded. Mailboxes were filled before any party started."""
        for method in BEFORE_ROUNDS:
            delattr(self, method)
        self.now = saved["now"]  # what was computed before rounds() is in it already
        del self.trace[:]
        kept = optimised(self.state)
        for name, value in saved["state"].items():
            where = f"{self.name}'s state.{name}"
            setattr(self.state, name, thaw(value, getattr(self.state, name, None), where, kept))
        if saved["privacy"] is not None:
            thaw(saved["privacy"], self.privacy, f"{self.name}'s privacy")
        for key, state in saved["generators"].items():  # in place: the program may hold the generator already
            self._generators.setdefault(key, np.random.Generator(np.random.PCG64())).bit_generator.state = thaw(state)
        for key, state in saved["torch_generators"].items():
            self._torch_generators.setdefault(key, torch.Generator(device=self.device)).set_state(state)


class EncodingParty(SimulatedParty):
    """`me` of a run with a codec. A class of its own: without a codec it costs nothing."""

    def __init__(self, engine: SimulatedEngine, name: str, index: int, spec: PartySpec) -> None:
        super().__init__(engine, name, index, spec)
        assert engine.codec is not None
        self.encoder = codecs.Encoder(engine.codec, self.rng("codec"), engine.remembered)

    def encodes(self, dst: str) -> bool:
        """Whether what is sent to `dst` now goes through the codec."""
        return self.round > 0 and not self.in_evaluation and (self.links.get(dst) or self.open(dst)).kind != L.LOCAL

    def send(self, dst: str, payload: Any, tag: str = "message") -> Any:
        return super().send(dst, self.encoder.encode(payload, dst, tag) if self.encodes(dst) else payload, tag)

    def send_many(self, dsts: Sequence[str], payload: Any, tag: str = "message") -> Any:
        """Encoded once, so that all receive the same; where receivers are remembered, for each of them."""
        if tag in self.encoder.remembered:
            return super().send_many(dsts, payload, tag)
        encoded: Sized | None = None
        for dst in dsts:
            if not self.encodes(dst):
                super().send(dst, payload, tag)
                continue
            encoded = encoded or self.encoder.encode(payload)
            super().send(dst, Sized(encoded.nbytes, encoded.vectors, copy_payload(encoded.value)[0]), tag)
        return NOTHING

    def capture(self, cut: Cut) -> None:
        super().capture(cut)
        cut.parties[self.name]["codec"] = freeze(self.encoder.memory)

    def restore(self, saved: dict[str, Any]) -> None:
        super().restore(saved)
        self.encoder.memory = thaw(saved["codec"])


def as_ledger_row(message: Message, delivered: float) -> bytes:
    _, _, seq, round, link, code, nbytes, vectors, sent = message
    return ledger_row(round, link.src, link.dst, link.kind_code, code, nbytes, vectors, sent, delivered, seq)


def observed(value: Any) -> Any:
    """A detached copy of what a party reports: the observer looks at it later, when the party has gone on."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, np.ndarray):
        return value.copy()
    return {k: observed(v) for k, v in value.items()} if isinstance(value, dict) else value


class SimulatedEngine:
    """Drives party programs in virtual time.

    Parameters
    ----------
    specs : the parties, in order (servers first).
    public, config : handed to every program, with its own guarded data.
    network : links and timing rule.
    connected, neighbours : the topology.
    rounds, eval_every, seed, device : as in the run's configuration.
    clock : the compute clock.
    batch_compute : run equal computations of a cohort as one vmap call.
    window : how many rounds a party may run ahead of the slowest; it costs no virtual time.
    on_report : called with (party, round, values).
    on_round : called with (round, engine) when all have finished it; True stops the run there.
    checkpoint_every, on_cut : a cut every so many rounds; called with the complete `Cut`, after `on_round`.
    resume_from : a cut to continue from.
    on_read : called with (source, reader, tag, reader's round, payload) for every message that is read.
    codec : what compresses payloads; None: nothing does.
    remembered : tags whose messages are about the same entries every time: what codec.feedback remembers.
    """

    kinds: ClassVar[tuple[type[SimulatedParty], type[SimulatedParty]]] = (SimulatedParty, EncodingParty)  # without and with a codec

    def __init__(
        self,
        specs: Mapping[str, PartySpec],
        public: Any = None,
        config: Any = None,
        *,
        network: NetworkConfig | None = None,
        connected: Callable[[str, str], bool] = lambda a, b: True,
        neighbours: Callable[[str], tuple[str, ...]] | None = None,
        rounds: int = 1,
        eval_every: int = 1,
        seed: int = 0,
        device: str = "cpu",
        clock: ComputeClock | None = None,
        batch_compute: bool = True,
        window: int = 1,
        on_report: Callable[[str, int, dict[str, Any]], None] | None = None,
        on_round: Callable[[int, SimulatedEngine], bool] | None = None,
        checkpoint_every: int | None = None,
        on_cut: Callable[[Cut], None] | None = None,
        resume_from: Cut | None = None,
        privacy: Mapping[str, Any] | None = None,
        on_read: Callable[[str, str, str, int, Any], None] | None = None,
        codec: CodecConfig | None = None,
        remembered: Sequence[str] = (),
    ) -> None:
        self.network = network or NetworkConfig("ideal")
        self.timing = self.network.timing
        self.plain = self.timing == "causal" and self.network.server_bandwidth_gbps is None
        self.connected = connected
        self.rounds = rounds
        self.eval_every = eval_every
        self.seed = seed
        self.device = device
        self.clock = clock or ComputeClock("none", ComputeConfig())
        self.batch_compute = batch_compute
        self.window = window
        self.on_report = on_report
        self.on_round = on_round
        self.checkpoint_every = checkpoint_every
        self.on_cut = on_cut
        self.resume_from = resume_from
        self.fresh = resume_from is None
        self.codec = codecs.make(codec) if codec is not None else None
        self.remembered = remembered if codec is not None and codec.feedback else ()

        self.ledger = Ledger()
        self.tags = self.ledger.tags
        self.write_ledger = self.ledger.rows.frombytes
        self.ready: deque[SimulatedParty] = deque()
        self.parked: list[SimulatedParty] = []
        self.cohort: list[SimulatedParty] = []
        self.heap: list[tuple[float, int, int, int, int, int, Any]] = []
        self.cuts: dict[int, Cut] = {}
        self.stopping = False
        self.finished_round = resume_from.round if resume_from else 0  # the last round that all parties have finished
        self.bytes_sent = 0  # charged, in finished rounds
        self.boundary_clock = 0.0  # latest clock at a boundary of a finished round
        self._open_rounds: dict[int, list[float]] = {}  # round -> [parties that finished it, bytes, latest clock, earliest clock]
        self._events = 0

        self.parties: dict[str, SimulatedParty] = {}
        kind = self.kinds[self.codec is not None]
        for index, (name, spec) in enumerate(specs.items()):
            self.parties[name] = kind(self, name, index, spec)
        self.order = list(self.parties.values())
        servers = tuple(p.name for p in self.order if p.role == "server")
        clients = tuple(p.name for p in self.order if p.role != "server")
        self.ingress: dict[str, L.Ingress] = {}
        if self.timing == "causal" and self.network.server_bandwidth_gbps is not None:
            rate = L.seconds_per_byte(self.network.server_bandwidth_gbps)
            self.ingress = {name: L.Ingress(rate, keep=checkpoint_every is not None) for name in servers}
        for name, party in self.parties.items():
            party.servers, party.clients = servers, clients
            party.neighbours = neighbours(name) if neighbours else tuple(n for n in self.parties if n != name and connected(name, n))
            party.fresh = self.fresh
            party.privacy = (privacy or {}).get(name)
            if on_read is not None:
                party.watch(on_read)
            data = specs[name].data
            guarded = Guarded(name, data) if data is not None else None
            party.coroutine = specs[name].program(party, guarded, public, config)
            self.ready.append(party)
        if resume_from is not None:
            self._restore(resume_from)

    def link_kind(self, a: SimulatedParty, b: SimulatedParty) -> str:
        """`local` inside one organisation, else by whether a server is at one end."""
        if a.organisation == b.organisation:
            return L.LOCAL
        return L.CLIENT_SERVER if "server" in (a.role, b.role) else L.CLIENT_CLIENT

    # --- driving --------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Run to the end. Raises FederationError for a deadlock, naming who waits for what, and whatever a program raises."""
        gc.freeze()  # what exists lives as long as the run: do not look at it again
        try:
            self._loop()
        finally:
            gc.unfreeze()
            for party in self.order:
                if party.coroutine is not None:
                    party.coroutine.close()

    def _loop(self) -> None:
        ready = self.ready
        while True:
            while ready:
                self._step(ready.popleft())
            if self.cohort:
                self._run_cohort()
            elif not self._release() and not self._pop_event():
                break
        if self.timing == "round":
            self._settle()
        waiting = [p for p in self.order if not p.finished]
        if waiting and not self.stopping:
            lines = "; ".join(f"{p.name} (round {p.round}) waits for {p.waiting_for}" for p in waiting)
            raise FederationError(f"deadlock: nobody can run and nothing is in flight. {lines}")

    def _step(self, party: SimulatedParty) -> None:
        RUNNING.name = party.name
        if party.without_grad:
            torch.set_grad_enabled(False)
        try:
            party.coroutine.send(None)  # type: ignore[union-attr]
        except StopIteration:
            party.finished = True
            if not self.stopping and not party.done:
                raise FederationError(f"{party.name}'s program ended in round {party.round}, before the end of its {self.rounds}") from None
        except Exception as error:
            error.add_note(f"in the program of {party.name}, round {party.round}")
            raise
        finally:
            RUNNING.name = None
            # `with torch.no_grad():` around an await is this party's alone: the switch belongs to the thread, and others run in between.
            party.without_grad = not torch.is_grad_enabled()
            if party.without_grad:
                torch.set_grad_enabled(True)

    def _run_cohort(self) -> None:
        """Run all pending batchable computations, equal ones as one vmap call, in the parties' order."""
        cohort, self.cohort = self.cohort, []
        groups: dict[Any, list[SimulatedParty]] = {}
        for party in sorted(cohort, key=lambda p: p.index):
            groups.setdefault(party.batch[0], []).append(party)  # type: ignore[index]
        for members in groups.values():
            function = members[0].batch[1]  # type: ignore[index]
            start = time.perf_counter()
            results = run_batch(function, [member.batch[2] for member in members])  # type: ignore[index]
            elapsed = (time.perf_counter() - start) / len(members)
            for member, result in zip(members, results, strict=True):
                member.batch_result = result
                member.advance(self.clock.seconds(member.batch[3], elapsed))  # type: ignore[index]
                member.batch = None
        self.ready.extend(sorted(cohort, key=lambda p: p.index))

    # --- events that depend on time -------------------------------------------------------------------------------------

    def push(self, when: float, kind: int, src: int, seq: int, party: SimulatedParty) -> None:
        self._event(when, kind, src, seq, party.index, (party, party.token))

    def _event(self, when: float, kind: int, src: int, seq: int, dst: int, event: Any) -> None:
        self._events += 1  # equal keys are the same thing twice; the number only keeps them from being compared further
        heapq.heappush(self.heap, (when, kind, src, seq, dst, self._events, event))

    def await_ingress(self, receiver: SimulatedParty, tag: str, message: Message) -> None:
        """Queue a message at the receiver's shared bandwidth, by the arrival of its first byte."""
        link = message[4]
        self._event(link.start + link.latency, INGRESS_EVENT, link.src, message[2], receiver.index, (receiver, tag, message, link.busy))

    def _drop_stale(self) -> None:
        """Remove events of waits that are over from the head of the heap, so that the head is what happens next."""
        heap = self.heap
        while heap and heap[0][1] != INGRESS_EVENT and heap[0][6][1] != heap[0][6][0].token:
            heapq.heappop(heap)

    def _pop_event(self) -> bool:
        """Let the earliest event happen. False if there is none."""
        self._drop_stale()
        if not self.heap:
            return False
        when, kind, src, seq, _, _, event = heapq.heappop(self.heap)
        if kind == INGRESS_EVENT:
            receiver, tag, message, left = event
            _, _, _, round, link, _, nbytes, _, _ = message
            delivered = max(left + link.latency, self.ingress[receiver.name].serve(when, src, seq, nbytes, round))
            self.write_ledger(as_ledger_row(message, delivered))
            self.deliver(receiver, tag, (delivered, *message[1:]))
            return True
        party, _ = event
        party.token += 1
        party.waiting = None
        self.ready.append(party)
        return True

    def deliver(self, receiver: SimulatedParty, tag: str, message: Message) -> None:
        """Hand over a message whose delivery time is known (or is decided when it is read), minding resumes and open cuts."""
        link = message[4]
        consumed = receiver.drop.pop((link.src, message[2]), None)
        if consumed is not None:  # before the cut
            if message[0] is None:
                self.write_ledger(as_ledger_row(message, consumed[1]))
            receiver.orphans.append((link.src, message[2], *consumed))  # a cut before its round sends it yet again
            return
        for cut in self.cuts.values():  # sent before the sender's boundary, and after the receiver's: it crosses the cut
            if message[3] <= cut.round and receiver.name in cut.parties:
                cut.inflight.append(self.describe(receiver.name, tag, message))
        receiver.accept(link.boxes, tag, message)

    def _settle(self) -> None:
        """timing=round, at the end: messages that no server has read passed its medium all the same."""
        for party in self.order:
            for src in self.order:
                unread = [m for box in party.boxes.get(src.name, {}).values() for m in box if m[0] is None]
                for message in sorted(unread, key=lambda m: m[2]):
                    link, nbytes, sent = message[4], message[6], message[8]
                    delivered = party.medium.gather(sent, nbytes, link, self.network.latencies)
                    self.write_ledger(as_ledger_row(message, delivered))

    def refuse_round_timing(self, party: SimulatedParty, what: str) -> None:
        if self.timing == "round":
            raise FederationError(f"{party.name}: {what} depends on time; network.timing=round times exchanges, not messages: use causal")

    # --- round boundaries -----------------------------------------------------------------------------------------------

    def too_far(self, round: int) -> bool:
        """Whether a party that has finished `round` must wait for slower ones."""
        return round >= self.finished_round + self.window

    @types.coroutine
    def park(self, party: SimulatedParty) -> Generator[None, None, None]:
        self.parked.append(party)
        party.waiting_for = "slower parties, at a round boundary"
        yield

    def _unpark(self, parties: list[SimulatedParty]) -> None:
        if len(parties) == len(self.parked):
            self.parked.clear()
        else:
            released = set(parties)
            self.parked = [p for p in self.parked if p not in released]
        self.ready.extend(parties)

    def _release(self) -> bool:
        """Nobody can run: let the parked party of the lowest round go on, unless the next event comes before all they could do."""
        self._drop_stale()
        if not self.parked or (self.heap and self.heap[0][0] < min(p.now for p in self.parked)):
            return False
        lowest = min(p.round for p in self.parked)
        self._unpark([p for p in self.parked if p.round == lowest])
        return True

    def passed(self, party: SimulatedParty) -> None:
        """A party has finished its round: stamp it, record it in that round's cut, close the round if it was the last."""
        round = party.round
        party.write_trace(trace_row(MARK, party.index, 0.0, round, party.now))
        total = self._open_rounds.get(round)
        if total is None:
            total = self._open_rounds[round] = [0, 0, party.now, party.now]
        total[0] += 1
        total[1] += party.sent_bytes
        if party.now > total[2]:
            total[2] = party.now
        elif party.now < total[3]:
            total[3] = party.now
        party.sent_bytes = 0
        if self.checkpoint_every and round % self.checkpoint_every == 0 and round < self.rounds:
            party.capture(self.cuts.setdefault(round, Cut(round)))
        if total[0] == len(self.order):
            self._close_round(round)

    def _close_round(self, round: int) -> None:
        """All parties have finished `round`: the observer looks at it, its cut is complete, those who waited may go on."""
        _, nbytes, latest, earliest = self._open_rounds.pop(round)
        self.finished_round = round
        self.bytes_sent += int(nbytes)
        self.boundary_clock = max(self.boundary_clock, latest)
        running, RUNNING.name = RUNNING.name, None  # the observer is no party
        if self.on_round is not None and self.on_round(round, self):
            self.stopping = True
        cut = self.cuts.pop(round, None)
        if cut is not None and self.on_cut is not None and not self.stopping:
            self._complete(cut, earliest)
            self.on_cut(cut)
        RUNNING.name = running
        self._unpark([p for p in self.parked if self.stopping or not self.too_far(p.round)])

    # --- cuts -----------------------------------------------------------------------------------------------------------

    def _complete(self, cut: Cut, earliest: float) -> None:
        """All parties are in the cut: add the totals, and the shared bandwidths as they are now."""
        cut.totals = {"bytes_sent": self.bytes_sent, "boundary_clock": self.boundary_clock, "tags": dict(self.tags)}
        if not self.ingress:
            return
        horizon = dict.fromkeys(self.ingress, earliest)  # nothing still to be served arrives before it
        for when, kind, _, _, _, _, event in self.heap:
            if kind == INGRESS_EVENT:
                receiver, tag, message, left = event
                horizon[receiver.name] = min(horizon[receiver.name], when)
                if message[3] <= cut.round:
                    cut.inflight.append(self.describe(receiver.name, tag, message, when, left))
        for name, ingress in self.ingress.items():
            ingress.forget(horizon[name])
            cut.ingress[name] = ingress.served(cut.round)

    def describe(self, dst: str, tag: str, message: Message, arrival: float | None = None, left: float | None = None) -> dict[str, Any]:
        delivered, payload, seq, round, link, _, nbytes, vectors, sent = message
        return {
            "src": self.order[link.src].name,
            "dst": dst,
            "tag": tag,
            "payload": freeze(payload, f"a message '{tag}'"),
            "seq": seq,
            "round": round,
            "bytes": nbytes,
            "vectors": vectors,
            "sent": sent,
            "delivered": delivered,
            "arrival": arrival,
            "left": left,
        }

    def _restore(self, cut: Cut) -> None:
        """Set clocks, links and mailboxes as they were at the cut, before any party starts. State follows at `rounds()`."""
        self.bytes_sent = cut.totals["bytes_sent"]
        self.boundary_clock = cut.totals["boundary_clock"]
        self.tags.update(cut.totals["tags"])
        for name, party in self.parties.items():
            party.rewind(cut.parties[name], cut.round)
        for name, history in cut.ingress.items():
            self.ingress[name].history = sorted((arrival, src, seq, end) for arrival, src, seq, end in history)
        for m in sorted(cut.inflight, key=lambda m: (m["src"], m["dst"], m["seq"])):
            link = self.parties[m["src"]].links[m["dst"]]
            receiver = self.parties[m["dst"]]
            code = self.ledger.tag(m["tag"])
            message: Message = (m["delivered"], thaw(m["payload"]), m["seq"], m["round"], link, code, m["bytes"], m["vectors"], m["sent"])
            if m["arrival"] is None:
                link.boxes.setdefault(m["tag"], deque()).append(message)
            else:
                self._event(m["arrival"], INGRESS_EVENT, link.src, m["seq"], receiver.index, (receiver, m["tag"], message, m["left"]))

    def take_trace(self, last_round: int | None = None) -> dict[str, np.ndarray]:
        """Remove and return each party's trace rows, (n, 5) float64; with `last_round`, those up to its boundary."""
        return take_traces({party.name: party.trace for party in self.order}, last_round)


CONSTANTS = (bool, int, float, str, type(None))  # arguments that a batch shares, where they are equal


LEAVES = (torch.Tensor, *CONSTANTS)


def flatten(args: tuple[Any, ...]) -> tuple[Sequence[Any], Any]:
    """`pytree.tree_flatten`, quicker for arguments that hold no containers, whose structure is None here."""
    return (args, None) if all(isinstance(arg, LEAVES) for arg in args) else pytree.tree_flatten(args)


def batch_key(leaf: Any) -> Any:
    """Arguments with equal keys can be stacked, or are the same constant."""
    return (leaf.shape, leaf.dtype, leaf.device) if isinstance(leaf, torch.Tensor) else (type(leaf), leaf)


def stack(leaves: Sequence[torch.Tensor]) -> torch.Tensor:
    """`torch.stack`; where the tensors are one another's neighbours in memory, as an earlier batch left them, without a copy."""
    first, size = leaves[0], leaves[0].numel()
    storage, start = first.untyped_storage().data_ptr(), first.storage_offset()
    for place, leaf in enumerate(leaves):
        if (
            leaf.requires_grad
            or not leaf.is_contiguous()
            or leaf.untyped_storage().data_ptr() != storage
            or leaf.storage_offset() != start + place * size
        ):
            return torch.stack(tuple(leaves))
    return first.as_strided((len(leaves), *first.shape), (size, *first.stride()))


def run_batch(function: Callable[..., Any], calls: list[tuple[Any, ...]]) -> list[Any]:
    """The results of `function` on each call's arguments, as one call over their stacked tensors: of `function.together`, else of vmap."""
    if len(calls) == 1 or not any(isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves(calls[0])):
        return [function(*call) for call in calls]
    flat = [flatten(call) for call in calls]
    structure = flat[0][1]
    stacked, dims = [], []
    for leaves in zip(*(leaves for leaves, _ in flat), strict=True):
        tensor = isinstance(leaves[0], torch.Tensor)
        stacked.append(stack(leaves) if tensor else leaves[0])
        dims.append(0 if tensor else None)

    def call(*leaves: Any) -> Any:
        return function(*(leaves if structure is None else pytree.tree_unflatten(list(leaves), structure)))

    if structure is None and hasattr(function, "together"):
        result = function.together(*stacked)
    else:
        result = torch.func.vmap(call, in_dims=tuple(dims))(*stacked)
    if isinstance(result, tuple) and all(isinstance(leaf, torch.Tensor) for leaf in result):
        return list(zip(*(leaf.unbind() for leaf in result), strict=True))
    out, out_structure = pytree.tree_flatten(result)
    return [pytree.tree_unflatten([leaf[i] for leaf in out], out_structure) for i in range(len(calls))]
