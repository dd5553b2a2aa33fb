"""What processes hand each other: the form of a call that carries messages, one clock for all, and the words for who
does not answer."""

import struct
import time
from collections.abc import Sequence

STARTING = 600.0  # s that processes have to start in, and to load their data

# number of the first message, how many there are; then 8 bytes length and the message, for each
CALL = struct.Struct("<QI")
SIZE = struct.Struct("<Q")


def join(first: int, parts: Sequence[bytes]) -> bytes:
    return b"".join(
        (CALL.pack(first, len(parts)), *(piece for part in parts for piece in (SIZE.pack(len(part)), part)))
    )


def split(data: bytes) -> tuple[int, list[memoryview]]:
    """The inverse of `join`, without a copy. Errors: ValueError."""
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
        raise ValueError("not a message: it has another length than it says")
    return first, parts


def deaths() -> tuple[type[Exception], ...]:
    """What Ray raises about a call of a process that has died, or that cannot be reached any more."""
    import ray  # not before there is a cluster, whose environment it reads

    return ray.exceptions.RayActorError, ray.exceptions.OutOfMemoryError, ray.exceptions.NodeDiedError


def clock_offset() -> float:
    """What makes seconds of the wall clock of the monotonic one's, which all processes of a machine share."""
    return time.time() - time.monotonic()


def no_answer(who: str, seconds: float, starting: bool = False) -> str:
    """What to say where nobody answers in time."""
    limit = f"engine.timeout, but {STARTING:g} to start in" if starting else "engine.timeout"
    return f"no answer from {who} within {seconds:g} s ({limit})"
