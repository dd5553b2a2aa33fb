"""What processes hand each other: the form of a call that carries messages, and one clock for all.

Also the words for a process that does not answer.
"""

import struct
import time
from collections.abc import Sequence

STARTING = 600.0  # s that processes have to start in, and to load their data

# number of the first message, number of messages; then for each message 8 bytes length and the message
CALL = struct.Struct("<QI")
SIZE = struct.Struct("<Q")


def join(first: int, parts: Sequence[bytes]) -> bytes:
    """The bytes of a call that carries `parts`, the first of which has the number `first`."""
    return b"".join(
        (CALL.pack(first, len(parts)), *(piece for part in parts for piece in (SIZE.pack(len(part)), part)))
    )


def split(data: bytes) -> tuple[int, list[memoryview]]:
    """The inverse of `join`, without a copy.

    Raises
    ------
    ValueError
        The bytes are not of this form.
    """
    try:
        first, count = CALL.unpack_from(data)
        parts, at, whole = [], CALL.size, memoryview(data)
        for _ in range(count):
            (size,) = SIZE.unpack_from(data, at)
            parts.append(whole[at + SIZE.size : at + SIZE.size + size])
            at += SIZE.size + size
    except struct.error as error:
        raise ValueError(f"not a message: {error}") from None
    if at != len(data):
        raise ValueError("not a message: it is not as long as it says")
    return first, parts


def deaths() -> tuple[type[Exception], ...]:
    """What Ray raises about a call of a process that has died, or that cannot be reached any more."""
    import ray  # not before there is a cluster, whose environment it reads

    return ray.exceptions.RayActorError, ray.exceptions.OutOfMemoryError, ray.exceptions.NodeDiedError


def clock_offset() -> float:
    """What turns seconds of the monotonic clock, which a machine's processes share, into those of the wall clock."""
    return time.time() - time.monotonic()


def no_answer(who: str, seconds: float, starting: bool = False) -> str:
    """The error text where nobody answers in time."""
    limit = f"engine.timeout, but {STARTING:g} to start in" if starting else "engine.timeout"
    return f"no answer from {who} within {seconds:g} s ({limit})"
