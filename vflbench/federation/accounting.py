"""What a ledger costs: the sums behind every x-axis.

A rule of `accountings/` says what a message costs. `strict` charges what was sent. Another rule charges the same
ledger as the figures of a paper do, so that its numbers can be compared. Summaries and curves name their rule.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vflbench.federation.ledger import COLUMN
from vflbench.federation.links import CLIENT_SERVER, LINK_KINDS, LOCAL


@dataclass(frozen=True)
class Payload:
    """What a re-pricing must know of a run beside its ledger."""

    tags: Sequence[str]  # by the ledger's tag code
    value_bytes: int  # of one number in a prediction
    outputs: int  # numbers in one prediction (d_c)


class Totals:
    """Sums over a ledger (n, 10), whose messages cost `nbytes` (n,), by round, tag and link kind.

    Messages over `local` links count in `by_link` only.
    """

    def __init__(self, nbytes: np.ndarray, rows: np.ndarray, cost_ratio: float) -> None:
        self.by_tag: dict[int, int] = {}
        self.by_link: dict[str, int] = {}
        kind = rows[:, COLUMN["kind"]].astype(np.int64)
        for code, name in enumerate(LINK_KINDS):
            if (kind == code).any():
                self.by_link[name] = round(nbytes[kind == code].sum())
        charged = kind != LINK_KINDS.index(LOCAL)
        nbytes, kind = nbytes[charged], kind[charged]
        weight = np.where(kind == LINK_KINDS.index(CLIENT_SERVER), cost_ratio, 1.0)
        rounds, tags, vectors = (rows[charged, COLUMN[key]].astype(np.int64) for key in ("round", "tag", "vectors"))
        for tag in np.unique(tags):
            self.by_tag[int(tag)] = round(nbytes[tags == tag].sum())
        self.rounds, index = np.unique(rounds, return_inverse=True)
        columns = (nbytes, np.ones(len(nbytes)), vectors, nbytes * weight)
        sums = [np.bincount(index, weights=column, minlength=len(self.rounds)) for column in columns]
        # row i: the sums over the first i rounds
        self.sums = np.vstack([np.zeros((1, 4)), np.cumsum(np.stack(sums, axis=1), axis=0)])

    def until(self, round: int) -> np.ndarray:
        """[bytes, messages, vectors, cost] of all rounds up to `round`."""
        found: np.ndarray = self.sums[np.searchsorted(self.rounds, round, side="right")]
        return found
