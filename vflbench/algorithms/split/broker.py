"""Publish/subscribe: channels by batch ID that hold the newest message, and subscribers' deadlines.

The broker is embedded: an organisation's hub owns one for each sender, in virtual time (PubSub-VFL, arXiv 2510.12494,
section 4.1).
"""

import itertools
from typing import Any

ROUNDING = 1e-9  # seconds: a clock that has waited until a deadline may be short of it by a rounding error


class Broker:
    """Channels of one message, which a newer one replaces."""

    def __init__(self) -> None:
        self.channels: dict[int, Any] = {}
        self.deadlines: dict[int, float] = {}  # channel -> until when its subscriber waits, earliest first
        self.dropped = 0  # messages that a newer one replaced

    def publish(self, channel: int, message: Any) -> None:
        """Add a message, and end the wait for one of this channel."""
        self.dropped += channel in self.channels
        self.channels[channel] = message
        self.deadlines.pop(channel, None)

    def next(self, channel: int) -> Any:
        """Remove and return a channel's message; None where it has none."""
        return self.channels.pop(channel, None)

    def holds(self, channel: int) -> bool:
        """Whether a channel has a message."""
        return channel in self.channels

    def discard(self, channel: int) -> None:
        """Remove a channel's message and its deadline."""
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
