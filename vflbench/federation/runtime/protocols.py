"""What a runtime is given: a clock, which tells the time, and a transport, which carries messages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from vflbench.federation.payload import Copied, Form

if TYPE_CHECKING:
    from vflbench.federation.runtime.core import Runtime
    from vflbench.federation.runtime.mail import Mailboxes, Message
    from vflbench.federation.runtime.member import Member

Send = Callable[[str, Any, str], Any]  # (to whom, payload, tag)
Copy = Callable[[Any, str, str], Copied]  # (payload, to whom, tag) -> what arrives, and what it costs


class Clock(ABC):
    """Virtual or real time, and the waits that depend on it."""

    def attach(self, runtime: Runtime) -> None:
        """Called once, before there are parties."""
        self.runtime = runtime

    @abstractmethod
    def now(self, party: Member) -> float:
        """The party's time in seconds."""

    @abstractmethod
    def reach(self, party: Member, time: float) -> float:
        """The party goes on no earlier than `time`; returns its time."""

    @abstractmethod
    def advance(self, party: Member, seconds: float) -> float:
        """The party has computed for `seconds`; returns its time."""

    def rewind(self, party: Member, time: float) -> None:  # noqa: B027  # real time cannot be set
        """In a resumed run: the party's time is that of the cut."""

    @abstractmethod
    def arrived(self, party: Member, message: Message) -> None:
        """A message has come that a `recv_any` waits for."""

    @abstractmethod
    def until(
        self, party: Member, src: str, box: deque[Message], tag: str, timeout: float
    ) -> Generator[None, None, None]:
        """Wait for a message in a mailbox, at most `timeout` seconds.

        Raises
        ------
        TimeoutError
            None has come.
        """

    @abstractmethod
    def first(self, party: Member, mail: Mailboxes, timeout: float | None) -> Generator[None, None, int]:
        """Wait for a message in any of several mailboxes; returns the place of the mailbox to read.

        Raises
        ------
        TimeoutError
            None has come.
        """


class Transport(ABC):
    """Carries messages: it writes their ledger rows and hands them to `Runtime.deliver`.

    The methods here are those of a transport that decides nothing after it has sent.
    """

    def attach(self, runtime: Runtime) -> None:
        """Called once, before there are parties."""
        self.runtime = runtime

    @abstractmethod
    def sender(self, party: Member, copied: Copy, lines: Mapping[int, Form]) -> Send:
        """The function that sends as `party`.

        Parameters
        ----------
        copied : makes the copy of a payload.
        lines : forms of the numpy arrays that need no `copied`, by the id of their dtype.
        """

    def settle(self, party: Member, message: Message) -> float:
        """When a message that `party` reads is delivered, where that is decided only now."""
        raise AssertionError("what has arrived here was delivered")

    def save(self, party: Member) -> dict[str, Any]:
        """What it knows of the party, for a cut."""
        return {}

    def rewind(self, party: Member, saved: Mapping[str, Any]) -> None:  # noqa: B027  # nothing was saved
        """The inverse of `save`."""

    def resend(self, receiver: Member, message: Message, entry: Mapping[str, Any]) -> None:
        """Send a message again that was on its way at the cut, as `entry` describes it."""
        raise AssertionError("there is no shared bandwidth")


class Queue(Protocol):
    """Hands out cores that parties share."""

    @property
    def machine_of(self) -> Mapping[str, Any]:
        """The parties that share some, each with its machine."""

    def compute(self, party: Member, result: Any, seconds: float) -> Generator[None, None, Any]:
        """`result`, after `seconds` on a core."""


class Batches(Protocol):
    """Runs equal computations of several parties as one."""

    def compute(
        self, party: Member, function: Callable[..., Any], args: tuple[Any, ...], cost: float
    ) -> Generator[None, None, Any]:
        """The result for `party`."""
