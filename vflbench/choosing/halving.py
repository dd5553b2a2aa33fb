"""Asynchronous successive halving (Li et al., 2020) at equal cost of the federation.

Trials of one method meet at rungs: shares of what the shipped setting cost. A trial whose validation metric at a rung
is not among the best third of those that were there is ended. The others simply go on: nothing starts anew. It is
decided from the rows of a run and from earlier trials alone. So a run that is continued decides as one that never
stopped. What sends all at once is not halved: its progress costs nothing.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vflbench.results.folder import splits

FACTOR = 3  # of those at a rung, one in so many goes on
RUNGS = 2  # at a ninth and at a third of the shipped setting's cost
ROUNDING = 1 + 1e-9  # of costs that are sums
PRUNED = "pruned"
LATE = "the time of the search has ended"
SLOW = "it took a quarter of the time that was left for trials"
Path = list[tuple[float, float]]  # (cost, best value so far) at the evaluations of a run


@dataclass
class Halving:
    """Ends a trial after an evaluation. It may be sent to another process."""

    metric: str
    goal: str
    axis: str  #: of a row: `bytes` or `virtual_seconds`
    whole: float | None  #: the cost of the shipped setting; None: nothing is pruned
    earlier: list[Path] = field(default_factory=list)
    deadline: float | None = None  #: of the search, as time.time()
    slow: float | None = None  #: from this time.time() on, the run has taken its share

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> str | None:
        """Why the run ends here; None where it goes on."""
        if self.deadline is not None and time.time() > self.deadline:
            return LATE
        if self.slow is not None and time.time() > self.slow:
            return SLOW
        if not self.whole:
            return None
        path = path_of(rows, self.metric, self.goal, self.axis)
        rung = self._pruned_at(path)
        return None if rung is None else f"behind other configurations of its method at {rung:.3g} {self._unit}"

    @property
    def _unit(self) -> str:
        return "bytes" if self.axis == "bytes" else "s"

    def _pruned_at(self, path: Path) -> float | None:
        """The cost at which the last trial ends; None where it goes on.

        Trials are not all evaluated at the same costs. At the first evaluation from a rung on, the others count with
        what they had at that cost.
        """
        assert self.whole
        for number in range(RUNGS, 0, -1):
            rung = self.whole / FACTOR**number
            # beyond the shipped setting's cost the bound decides
            looks = [one for one in path if rung <= one[0] * ROUNDING and one[0] <= self.whole * ROUNDING]
            if not looks:
                return None
            at, value = looks[0]
            there = [other for other in self.earlier if other and other[-1][0] * ROUNDING >= rung]
            seen = [[best for cost, best in other if cost <= at * ROUNDING] for other in there]
            if self._is_behind(value, [bests[-1] for bests in seen if bests]):
                return at
        return None

    def _is_behind(self, value: float, others: Sequence[float]) -> bool:
        """Whether `value` is not among the best third of a rung that trials with the values of `others` came to."""
        there = sorted([*others, value], reverse=self.goal == "max")
        if len(there) < FACTOR:
            return False
        last = there[len(there) // FACTOR - 1]  # that goes on
        return value < last if self.goal == "max" else value > last


def path_of(rows: Sequence[Mapping[str, Any]], metric: str, goal: str, axis: str) -> Path:
    """Costs at which there was an evaluation, and the best value so far."""
    key = validation(rows, metric)
    found: Path = []
    best: float | None = None
    for row in rows:
        value = row.get(key)
        if value is None or value != value:
            continue
        best = value if best is None else max(best, value) if goal == "max" else min(best, value)
        if not found or row[axis] > found[-1][0]:  # of evaluations at one cost the first counts
            found.append((float(row[axis]), float(best)))
    return found


def validation(rows: Sequence[Mapping[str, Any]], metric: str) -> str:
    """The column by which runs are chosen: of validation rows, or of the rows that there are."""
    names = [f"{split}_{metric}" for split in ("val", *splits(metric))]
    for name in names:
        if any(row.get(name) is not None and row[name] == row[name] for row in rows):
            return name
    return names[0]
