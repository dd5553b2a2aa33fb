"""Publish/subscribe: channels by batch ID that hold a few messages and drop the oldest, and subscribers' deadlines.

The broker is embedded: an organisation's hub owns one for each sender, in virtual time (PubSub-VFL, arXiv 2510.12494,
section 4.1).
"""

import itertools
from collections import deque
from typing import Any

ROUNDING = 1e-9  # seconds: a clock that has waited until a deadline may be short of it by a rounding error


class Broker:
    """Channels, each a FIFO of at most `capacity` messages; a new message replaces the oldest of a full channel."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.channels: dict[int, deque[Any]] = {}
        self.deadlines: dict[int, float] = {}  # channel -> until when its subscriber waits, earliest first
        self.dropped = 0  # messages that a newer one replaced

    def publish(self, channel: int, message: Any) -> None:
        """Add a message, and end the wait for one of this channel."""
        box = self.channels.setdefault(channel, deque())
        if len(box) == self.capacity:
            box.popleft()
            self.dropped += 1
        box.append(message)
        self.deadlines.pop(channel, None)

    def next(self, channel: int) -> Any:
        """Remove and return the oldest message of a channel; None where it has none."""
        box = self.channels.get(channel)
        if not box:
            return None
        message = box.popleft()
        if not box:
            del self.channels[channel]
        return message

    def depth(self, channel: int) -> int:
        """How many messages a channel holds."""
        return len(self.channels.get(channel, ()))

    def discard(self, channel: int) -> None:
        """Remove a channel's messages and its deadline."""
        self.channels.pop(channel, None)
        self.deadlines.pop(channel, None)

    def wait(self, channel: int, until: float) -> None:
        """Set the time until which a subscriber waits for the next message of a channel.

        It must not be earlier than any that was set before.
        """
        self.deadlines.pop(channel, None)
        self.deadlines[channel] = until

    def deadline(self) -> float | None:
        """The earliest deadline; None where nobody waits."""
        return next(iter(self.deadlines.values()), None)

    def expired(self, now: float) -> list[int]:
        """Remove the deadlines that have come by `now`, and return their channels, earliest first."""
        over = list(itertools.takewhile(lambda channel: self.deadlines[channel] <= now + ROUNDING, self.deadlines))
        for channel in over:
            del self.deadlines[channel]
        return over
