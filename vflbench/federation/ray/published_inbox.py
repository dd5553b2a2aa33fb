"""What a broker passes on to a party: messages that newer ones may replace before they are read."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from vflbench.types import FederationError

if TYPE_CHECKING:
    from vflbench.federation.ray.process import PartyProcess


class PublishedInbox:
    """Counts what comes from the broker, and what it dropped; used in the loop of a party's process."""

    def __init__(self, process: PartyProcess) -> None:
        self.process = process
        self.taken: dict[tuple[str, str], int] = {}  # (source, tag) -> messages passed on or dropped
        self.passed_on = asyncio.Event()  # set by each that is passed on
        self.dropped: dict[str, int] = {}  # tag -> messages to this party that the broker replaced by newer ones

    def take(self, src: str, tag: str, number: int, data: bytes) -> None:
        """Take a message that `src` published as its `number`-th with that tag.

        Those between it and the last were dropped.
        """
        before = self.taken.get((src, tag), 0)
        if number <= before or src not in self.process.received:  # it came already, but the acknowledgement was lost
            return
        self.taken[src, tag] = number
        self.process.received[src] += number - before
        self._miss(tag, number - before - 1)
        now = self.process.now()
        self.process.put(lambda engine: engine.arrive(src, None, [data], now))
        self.passed_on.set()

    async def until(self, src: str, counts: Mapping[str, int]) -> None:
        """Wait until all that `src` has published, by tag, has come or was dropped."""
        assert self.process.courier is not None
        deadline = time.monotonic() + self.process.courier.channels.timeout
        for tag, count in counts.items():
            while self.taken.get((src, tag), 0) < count:
                self.passed_on.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.passed_on.wait(), 0.2)
                    continue
                if await self.process.courier.drained(tag):
                    missing = count - self.taken.get((src, tag), 0)
                    if missing > 0:
                        self._miss(tag, missing)
                        self.process.received[src] += missing
                        self.taken[src, tag] = count
                elif time.monotonic() > deadline:
                    limit = f"{self.process.courier.channels.timeout:g} s (engine.timeout)"
                    return self.process.fail(
                        FederationError(
                            f"the broker has not passed message '{tag}' of {src} on to {self.process.name} for {limit}"
                        )
                    )

    def _miss(self, tag: str, count: int) -> None:
        if count:
            self.dropped[tag] = self.dropped.get(tag, 0) + count
