"""`me`: what a party program sees of its party.

It has what `Party` says and nothing behind it: no attribute leads to the engine, to another party or to guarded data.
Its methods are plain functions, not bound ones. This guards against mistakes, not against a program that means harm:
that one belongs in a process of its own. Python has no walls: `__closure__`, `__globals__`, frames and `gc` lead
anywhere.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vflbench.federation.party import Party

if TYPE_CHECKING:
    from vflbench.federation.runtime.member import Member
    from vflbench.federation.runtime.protocols import Send

FACTS = ("name", "index", "role", "servers", "clients", "neighbours", "device", "state", "fresh", "privacy", "secret")
STREAMS = ("rng", "torch_rng", "secret_rng", "secret_torch_rng")
CLOSED = ("evaluates", "report", "about")
OPEN = ("send", "send_many", "recv", "recv_all", "recv_any", "compute", "rounds", "evaluating")


class Me(Party):
    """The `me` of a party program."""

    __slots__ = (*FACTS, *STREAMS, *CLOSED, *OPEN, "_clock")

    _clock: Callable[[], float]

    @property
    def clock(self) -> float:
        """The party's virtual time in seconds."""
        return self._clock()


class _Rounds:
    """The iterator of `me.rounds()`; a class, so that `break` leaves no unfinished generator."""

    __slots__ = ("_next",)

    def __init__(self, following: Callable[[], Awaitable[int]]) -> None:
        self._next = following

    def __aiter__(self) -> _Rounds:
        return self

    def __anext__(self) -> Awaitable[int]:
        return self._next()


class _Evaluation:
    """The context of `async with me.evaluating():`."""

    __slots__ = ("_priced", "_turn")

    def __init__(self, turn: Callable[[bool, bool], None], priced: bool) -> None:
        self._turn, self._priced = turn, priced

    async def __aenter__(self) -> None:
        self._turn(True, self._priced)

    async def __aexit__(self, *_: object) -> None:
        self._turn(False, True)


def narrow(party: Member, send: Send, send_many: Callable[..., Any]) -> Me:
    """The `me` of a party.

    Functions that run for every message are written out, which costs the least.
    """

    def closed(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            return method(*args, **kwargs)

        return call

    receive, receive_all = type(party).recv, type(party).recv_all

    def recv(src: str, tag: str = "message", timeout: float | None = None) -> Any:
        return receive(party, src, tag, timeout)

    def recv_all(srcs: Sequence[str], tag: str = "message") -> Any:
        return receive_all(party, srcs, tag)

    def recv_any(
        srcs: Sequence[str] | Mapping[str, Sequence[str]], tag: str = "message", timeout: float | None = None
    ) -> Any:
        return party.recv_any(srcs, tag, timeout)

    def compute(
        function: Callable[..., Any], *args: Any, cost: float = 0.0, seconds: float | None = None, latency: float = 0.0
    ) -> Any:
        return party.compute(function, args, cost, seconds, latency)

    def evaluation(on: bool, priced: bool) -> None:
        party.in_evaluation, party.tape.priced = on, priced

    me, following = Me(), closed(party.following)  # type: ignore[abstract]  # its slots are the methods
    values = {name: getattr(party, name) for name in FACTS} | {name: closed(getattr(party, name)) for name in CLOSED}
    values |= {name: closed(getattr(party.streams, name)) for name in STREAMS}
    functions = (
        send,
        send_many,
        recv,
        recv_all,
        recv_any,
        compute,
        lambda: _Rounds(following),
        lambda priced=True: _Evaluation(evaluation, priced),
    )
    values |= dict(zip(OPEN, functions, strict=True)) | {"_clock": closed(party.read_clock)}
    for name, value in values.items():
        setattr(me, name, value)
    return me
