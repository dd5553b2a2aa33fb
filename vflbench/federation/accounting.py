"""What the rows of a ledger cost: the sums behind every x-axis.

A rule of accounting prices each message in bytes. `strict` is what was sent; a named re-pricing by a paper's own rule is one more
function here.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from vflbench.federation.ledger import COLUMN
from vflbench.federation.links import CLIENT_SERVER, LINK_KINDS, LOCAL


def strict(rows: np.ndarray) -> np.ndarray:
    """Bytes charged per message, (n,) int64: its payload. Framing is not charged."""
    return rows[:, COLUMN["bytes"]].astype(np.int64)


RULES: dict[str, Callable[[np.ndarray], np.ndarray]] = {"strict": strict}


class Totals:
    """Sums over the ledger, by round, tag and link kind. Messages of kind `local` are counted in `by_link` alone."""

    def __init__(self, rule: str, cost_ratio: float) -> None:
        self.price = RULES[rule]
        self.cost_ratio = cost_ratio
        self.by_round: dict[int, np.ndarray] = {}  # round -> [bytes, messages, vectors, cost]
        self.by_tag: dict[int, int] = {}
        self.by_link: dict[str, int] = {}

    def add(self, rows: np.ndarray) -> None:
        """Add ledger rows, (n, 10)."""
        if not len(rows):
            return
        nbytes = self.price(rows)
        kind = rows[:, COLUMN["kind"]].astype(np.int64)
        for code, name in enumerate(LINK_KINDS):
            if (kind == code).any():
                self.by_link[name] = self.by_link.get(name, 0) + int(nbytes[kind == code].sum())
        charged = kind != LINK_KINDS.index(LOCAL)
        rows, nbytes, kind = rows[charged], nbytes[charged], kind[charged]
        weight = np.where(kind == LINK_KINDS.index(CLIENT_SERVER), self.cost_ratio, 1.0)
        tags = rows[:, COLUMN["tag"]].astype(np.int64)
        for tag in np.unique(tags):
            self.by_tag[int(tag)] = self.by_tag.get(int(tag), 0) + int(nbytes[tags == tag].sum())
        rounds, index = np.unique(rows[:, COLUMN["round"]].astype(np.int64), return_inverse=True)
        columns = (nbytes, np.ones(len(rows)), rows[:, COLUMN["vectors"]], nbytes * weight)
        sums = np.stack([np.bincount(index, weights=column, minlength=len(rounds)) for column in columns], axis=1)
        for round, row in zip(rounds, sums, strict=True):
            self.by_round[int(round)] = self.by_round.get(int(round), np.zeros(4)) + row

    def until(self, round: int) -> np.ndarray:
        """[bytes, messages, vectors, cost] of all rounds up to `round`."""
        return sum((self.by_round[r] for r in sorted(self.by_round) if r <= round), np.zeros(4))
