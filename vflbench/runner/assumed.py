"""What a method assumes to be there for nothing (`AlgorithmInfo.assumes`), as the messages that would bring it there.

They are charged by accounting=everything, each once, before the first round, over a link between the two parties:

aligned_rows  private set intersection of all samples, training and held-out, between the owner of the labels and each
              other party, in which all parties have the same samples; and the samples' IDs as SHA-256, which tell the
              others the order. Not where the data set has matched the rows itself.
join          for each row of the join, its place in the party's table, int64.
labels        the training labels, in their own type.
seed          8 bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from vflbench.data.matching import DIGEST, PLACE, psi_bytes
from vflbench.federation.phases import Exchange, Sized, Tapes, one_by_one
from vflbench.types import AlgorithmInfo

if TYPE_CHECKING:
    from vflbench.data.tasks import Task

SEED = 8  # bytes


def assumes(info: AlgorithmInfo, task: Task) -> list[str]:
    """What the method assumes, without what these data did on the ledger."""
    done = {"aligned_rows", "join"} if task.source.alignment else set()
    return [what for what in info.assumes if what not in done]


def aligned(task: Task, holders: Sequence[str]) -> list[Sized]:
    """The messages of the data set's own alignment; `holders` are the parties with data, in the order of its parts."""
    return [(holders[src], holders[dst], tag, nbytes) for src, dst, tag, nbytes in task.source.alignment]


def messages(info: AlgorithmInfo, task: Task, holders: Sequence[str]) -> list[tuple[str, Sized]]:
    """(phase, message) of all that is assumed and can be sent."""
    owner = getattr(task.public, "owner", 0)
    first = holders[owner if owner < len(holders) else 0] if holders else ""  # one holder may have all tables
    others = [name for name in holders if name != first]
    return [found for what in assumes(info, task) for found in _sent(what, task, first, others)]


def exchanges(found: Iterable[tuple[str, Sequence[Any]]], made: Callable[[Tapes], Exchange]) -> dict[str, Exchange]:
    """The exchange of each phase with messages of `messages`; `made` makes one of tapes."""
    by_phase: dict[str, list[Sized]] = {}
    for phase, (src, dst, tag, nbytes) in found:
        by_phase.setdefault(phase, []).append((src, dst, tag, nbytes))
    return {phase: made(one_by_one(sized)) for phase, sized in by_phase.items()}


def _sent(what: str, task: Task, first: str, others: Sequence[str]) -> Iterator[tuple[str, Sized]]:
    if what == "aligned_rows":
        rows = samples(task)
        setup, request, response = psi_bytes(rows, rows)
        for tag, nbytes in (("psi_setup", setup), ("psi_request", request), ("psi_response", response)):
            for other in others:
                yield "align", ((first, other, tag, nbytes) if tag == "psi_request" else (other, first, tag, nbytes))
        for other in others:
            yield "align", (first, other, "kept", rows * DIGEST)
    size = 0
    if what == "join":
        size = samples(task) * PLACE
    elif what == "labels":
        size = task.training_labels().nbytes
    elif what == "seed":
        size = SEED
    for other in others if size else ():
        yield "setup", (first, other, what, size)


def samples(task: Task) -> int:
    """How many samples there are in all splits."""
    held_out = [truth for split in ("val", "test") if (truth := task.truth(split)) is not None]
    return int(np.sum([len(task.training_labels()), *map(len, held_out)]))
