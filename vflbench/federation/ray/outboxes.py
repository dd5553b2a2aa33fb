"""What a party's process hands over to the others: in order, by their actors' calls or through the broker."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from vflbench.federation import wire
from vflbench.federation.ledger import ledger_row
from vflbench.federation.ray.calls import deaths, join
from vflbench.types import FederationError

if TYPE_CHECKING:
    from vflbench.federation.ray.process import PartyProcess

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


class Outboxes:
    """The outboxes of a party's process, by receiver; either of its threads may send."""

    def __init__(self, process: PartyProcess, actors: Mapping[str, Any]) -> None:
        self.process = process
        self.boxes = {other: Outbox(other, actor) for other, actor in actors.items()}
        self.lock = threading.Lock()  # of these and of the ledger, which both threads write

    def post(self, dst: str, data: bytes, row: tuple[Any, ...] | None, topic: tuple[str, int] | None = None) -> None:
        """Send a message, whose ledger row is written when it has arrived.

        `topic` is the tag and channel of one that a broker passes on.
        """
        out = self.boxes[dst]
        with self.lock:
            if out.gone:
                return
            out.posted += 1
            out.unseen = topic is not None
            out.waiting.append((data, row, topic))
            if not out.busy:
                self._call(out)

    def follow(self) -> dict[str, int]:
        """Let a call without messages follow each message to the broker.

        It returns when that message has come.

        Returns
        -------
        How many messages and such calls were handed to each outbox so far.
        """
        with self.lock:
            for out in self.boxes.values():
                self._follow(out)
            return {dst: out.posted for dst, out in self.boxes.items()}

    def arrived(self, posted: Mapping[str, int]) -> bool:
        """Whether all have come that were handed to the outboxes when `follow` returned `posted`."""
        return all(self.boxes[dst].acknowledged >= count for dst, count in posted.items())

    def sent(self) -> dict[str, int]:
        """How many messages went to each party that is alive."""
        return {dst: out.posted - out.empty_calls for dst, out in self.boxes.items() if not out.gone}

    def lose(self, dst: str) -> None:
        """The process of `dst` has died: nothing that goes to it is waited for."""
        with self.lock:
            out = self.boxes[dst]
            out.gone, out.acknowledged = True, out.posted
            out.waiting.clear()

    def _follow(self, out: Outbox) -> None:
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
            assert self.process.courier is not None
            receipt: Any = self.process.courier.publish(out.dst, tag, channel, out.published[tag], data)
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
        receipt = out.actor.deliver.remote(self.process.name.encode(), join(out.numbered, parts), *after)
        out.numbered += len(parts)
        self._await(out, receipt, rows)

    def _await(self, out: Outbox, receipt: Any, rows: list[tuple[Any, ...] | None]) -> None:
        self.process.loop.call_soon_threadsafe(lambda: asyncio.ensure_future(self._acknowledge(out, receipt, rows)))

    async def _acknowledge(self, out: Outbox, receipt: Any, rows: list[tuple[Any, ...] | None]) -> None:
        """The other end has them: write their ledger rows, hand over what has come since."""
        try:
            when = await receipt
            if when is None:  # the broker has it
                when = self.process.now()
        except FederationError as error:  # the broker does not take it
            return self.process.fail(error)
        except Exception as error:
            if isinstance(error, deaths()):  # the driver notices, and says who goes on
                return
            return self.process.fail(
                FederationError(
                    f"{self.process.name} could not hand a message over to {out.dst}: {type(error).__name__}: {error}"
                )
            )
        engine = self.process.engine
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
                return self.process.fail(
                    FederationError(
                        f"{self.process.name} could not send a message to {out.dst}: {type(error).__name__}: {error}"
                    )
                )
        self.process.offer()
