"""Messages, the mailboxes that they wait in, and awaitables for where nobody has to wait."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vflbench.federation import links as L
from vflbench.federation.ledger import RECV, ledger_row, trace_row

if TYPE_CHECKING:
    from vflbench.federation.runtime.member import Member

# A message: (delivered, payload, seq, round of the sender, link, tag code, bytes, vectors, sent). `delivered` is None
# until a server's shared medium has served it.
Message = tuple[Any, Any, int, int, L.Link, int, int, int, float]
First = tuple[float, int, int, int]  # delivered, source, seq, place among the mailboxes


class Done:
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
    """The mailboxes that a `recv_any` looks into.

    `srcs` is kept, since they are found by its id.
    """

    def __init__(self, srcs: Any, found: list[tuple[deque[Message], str, str]]) -> None:
        self.srcs = srcs
        self.boxes = [box for box, _, _ in found]
        self.names = [(src, tag) for _, src, tag in found]  # of each box
        self.ids = {id(box) for box in self.boxes}
        tags, sources = dict.fromkeys(tag for _, _, tag in found), dict.fromkeys(src for _, src, _ in found)
        self.text = f"a message {' or '.join(map(repr, tags))} from any of {', '.join(sources)}"

    def first(self) -> First | None:
        """Where the message that was delivered first is (ties: by party order)."""
        return min(
            [(box[0][0], box[0][4].src, box[0][2], place) for place, box in enumerate(self.boxes) if box], default=None
        )


def by_tag(srcs: Sequence[str] | Mapping[str, Sequence[str]], tag: str) -> Mapping[str, Sequence[str]]:
    """The sources by tag."""
    return srcs if isinstance(srcs, Mapping) else {tag: srcs}


def as_ledger_row(message: Message, delivered: float) -> bytes:
    """The ledger row of a message."""
    _, _, seq, round, link, code, nbytes, vectors, sent = message
    return ledger_row(round, link.src, link.dst, link.kind_code, code, nbytes, vectors, sent, delivered, seq)


def taking(party: Member) -> Callable[[deque[Message]], Any]:
    """The function that consumes the oldest message of a mailbox: the party's clock moves to its delivery."""
    runtime, reach, write_trace = party.runtime, party.runtime.time.reach, party.write_trace
    recorded = bool(runtime.checkpoint_every)

    def take(box: deque[Message]) -> Any:
        delivered, payload, seq, round, link, _, _, _, _ = message = box.popleft()
        if delivered is None:
            delivered = runtime.transport.settle(party, message)
        if recorded and round > party.round:
            party.orphans.append((link.src, seq, round, delivered))
        write_trace(trace_row(RECV, link.src, seq, 0.0, reach(party, delivered)))
        return payload

    return take


def watching(party: Member, on_read: Callable[[str, str, str, int, Any], None]) -> Callable[[deque[Message]], Any]:
    """`party.take`, which also shows every message to `on_read`; no cost where nobody watches."""
    take, runtime = party.take, party.runtime

    def watched(box: deque[Message]) -> Any:
        link, code = box[0][4], box[0][5]
        payload = take(box)
        on_read(runtime.order[link.src].name, party.name, list(runtime.tags)[code], party.round, payload)
        return payload

    return watched
