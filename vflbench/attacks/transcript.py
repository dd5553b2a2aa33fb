"""What one party saw of a run: the messages that it received, and those that it sent, in their order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

RELEASED = "released"  # tag of parameters that are public by assumption: no message carried them


@dataclass(frozen=True)
class Message:
    """One message, when it was read."""

    round: int  # of the reader
    src: str
    dst: str
    tag: str
    arrays: tuple[np.ndarray, ...]  # the payload's arrays and numbers, in order


def flatten(payload: Any) -> list[np.ndarray]:
    """Copies of the arrays, numbers and texts in a payload, in order."""
    if isinstance(payload, dict):
        payload = list(payload.values())
    if isinstance(payload, (tuple, list)):
        return [array for part in payload for array in flatten(part)]
    if payload is None:
        return []
    return [payload.detach().cpu().numpy().copy() if hasattr(payload, "detach") else np.array(payload)]


def file_name(round: int) -> str:
    """A round's file in `transcript/`."""
    return f"round_{round:08d}.npz"


def pack(messages: list[Message]) -> dict[str, np.ndarray]:
    """The arrays of a round's messages by number/source/destination/tag/part, as they stand in its file."""
    return {f"{n:08d}/{m.src}/{m.dst}/{m.tag}/{i}": array for n, m in enumerate(messages) for i, array in enumerate(m.arrays)}


def read(folder: Path) -> Iterator[Message]:
    """The messages of a `transcript/`, in their order."""
    for path in sorted(folder.glob("round_*.npz")):
        round = int(path.stem.split("_")[1])
        with np.load(path) as file:
            names = sorted(file.files, key=lambda name: (name.rpartition("/")[0], int(name.rpartition("/")[2])))
            for start, name in enumerate(names):
                head, _, part = name.rpartition("/")
                if part != "0":
                    continue
                same = 1
                while start + same < len(names) and names[start + same].rpartition("/")[0] == head:
                    same += 1
                _, src, dst, tag = head.split("/")
                yield Message(round, src, dst, tag, tuple(file[f"{head}/{i}"] for i in range(same)))
