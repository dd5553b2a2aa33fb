"""What one party saw of a run: the messages that it received, and those that it sent, in their order."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from vflbench.seeding import stream

Batches = Callable[[int], list[np.ndarray]]  # epoch -> the rows of each batch
RELEASED = "released"  # tag of parameters that are public by assumption: no message carried them
# tag of a model's answer to the adversary's question after a round: black-box access, which no message carried either
ANSWER = "answer"


@dataclass(frozen=True)
class Message:
    """One message, as it was read."""

    round: int  # of the reader
    src: str
    dst: str
    tag: str
    arrays: tuple[np.ndarray, ...]  # the payload's arrays and numbers, in order


@dataclass(frozen=True)
class Watch:
    """What an attack needs of a run: messages that `party` read or sent, and answers to its questions."""

    party: str
    received: frozenset[str] | None = None  # tags of messages that it read; None: all
    sent: frozenset[str] = frozenset()  # tags of messages that it sent
    released: bool = False  # with every prediction also the parameters behind it, which are public by assumption
    # per party the rows that its model embeds after every round
    questions: Mapping[str, np.ndarray] = field(default_factory=dict)
    also: tuple[str, ...] = ()  # parties of which the same messages are kept, where each attacks with its own


def some(rows: int, most: int, seed: int, name: str) -> np.ndarray:
    """The rows that are attacked: at most `most` of `rows` rows, drawn at random, ascending."""
    return np.sort(stream(seed, name).choice(rows, min(most, rows), replace=False, shuffle=False))


def by_round(view: Iterable[Message]) -> Iterator[tuple[int, list[Message]]]:
    """The messages of each round that has any."""
    for round, messages in groupby(view, key=lambda message: message.round):
        yield round, list(messages)


def last_published(messages: Iterable[Message], tag: str) -> dict[str, dict[int, np.ndarray]]:
    """By source and batch id, the tensor (rows, d) that was last published in a round under `tag`.

    Messages are (batch id, attempt, timestamp, tensor). Of several attempts at a batch the latest timestamp counts, and
    of equal ones the last read. (A message of an earlier round that is read late is older than every attempt of this
    round.)
    """
    published: dict[str, dict[int, tuple[float, np.ndarray]]] = {}
    for message in messages:
        if message.tag == tag:
            batch, _, timestamp, tensor = message.arrays
            kept = published.setdefault(message.src, {})
            if int(batch) not in kept or float(timestamp) >= kept[int(batch)][0]:
                kept[int(batch)] = float(timestamp), tensor
    return {src: {batch: tensor for batch, (_, tensor) in kept.items()} for src, kept in published.items()}


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
    """The name of a round's file in `transcript/`."""
    return f"round_{round:08d}.npz"


def pack(messages: list[Message]) -> dict[str, np.ndarray]:
    """The arrays of a round's messages by number/source/destination/tag/part, as its file has them."""
    return {
        f"{n:08d}/{m.src}/{m.dst}/{m.tag}/{i}": array
        for n, m in enumerate(messages)
        for i, array in enumerate(m.arrays)
    }


def read(folder: Path, names: Iterable[str] | None = None) -> Iterator[Message]:
    """The messages of a `transcript/`, in their order; `names` are its files, None: all files."""
    for path in sorted(folder.glob("round_*.npz") if names is None else (folder / name for name in names)):
        round = int(path.stem.split("_")[1])
        with np.load(path) as file:
            parts = sorted(file.files, key=lambda name: (name.rpartition("/")[0], int(name.rpartition("/")[2])))
            for head, own in groupby(parts, key=lambda name: name.rpartition("/")[0]):
                _, src, dst, tag = head.split("/")
                yield Message(round, src, dst, tag, tuple(file[name] for name in own))
