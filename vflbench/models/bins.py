"""Bin numbers of columns, as boosted trees see them, and their bits.

References
----------
Tian et al., "FederBoost: Private Federated Learning for GBDT", arXiv 2011.02796: boosted trees need only the order of a
column's values, so the numbers of bins do.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


def table(x: np.ndarray) -> np.ndarray:
    """Features as (n, d) numbers; pixels of images are columns from 0 to 1."""
    rows = x.reshape(len(x), -1)
    return rows.astype(np.float32) / 255 if rows.dtype == np.uint8 else rows


@dataclass(frozen=True)
class Bins:
    """Bin numbers. A value is in the first bin whose edge is not below it, or in the last one."""

    edges: tuple[np.ndarray, ...]  # per column, ascending: the largest training value of every bin but the last

    @classmethod
    def fit(cls, x: np.ndarray, bins: int) -> Bins:
        """Quantiles of each column of the training rows (n, d); columns of at most `bins` values have a bin for each.

        Edges are values of the column, so that any increasing function of a column leaves its bin numbers as they are.
        """
        return cls(tuple(_edges(column, bins) for column in x.T))

    def codes(self, x: np.ndarray) -> np.ndarray:
        """Bin numbers of the rows (n, d), uint8."""
        numbers = [np.searchsorted(edges, column) for edges, column in zip(self.edges, x.T, strict=True)]
        return np.stack(numbers, axis=1).astype(np.uint8) if numbers else np.zeros(x.shape, np.uint8)

    @property
    def last(self) -> np.ndarray:
        """The last bin's number of each column, (d,) uint8."""
        return np.array([len(edges) for edges in self.edges], np.uint8)

    def encode(self, x: np.ndarray) -> tuple[np.ndarray, ...]:
        """The message for rows (n, d): each column's last bin, a byte each, and the packed bin numbers."""
        return self.last, pack(self.codes(x), self.last)


def _edges(column: np.ndarray, bins: int) -> np.ndarray:
    values = np.unique(column)
    if len(values) > bins:
        quantiles = np.linspace(0, 100, bins + 1)[1:-1]
        values = np.unique([*np.percentile(column, quantiles, method="lower"), values[-1]])
    return values[:-1]


# --- bits -------------------------------------------------------------------------------------------------------------


def widths(last: np.ndarray) -> list[int]:
    """Bits of a bin number in each column, given its largest; 0 for a column of one bin."""
    return [int(number).bit_length() for number in last]


def pack(codes: np.ndarray, last: np.ndarray) -> np.ndarray:
    """Bin numbers (n, d) in as many bits as each column needs, row after row, as bytes."""
    bits = [(codes[:, j] >> bit) & 1 for j, width in enumerate(widths(last)) for bit in range(width)]
    return np.packbits(np.stack(bits, axis=1)) if bits else np.zeros(0, np.uint8)


def unpack(packed: np.ndarray, last: np.ndarray, rows: int) -> np.ndarray:
    """The inverse of `pack`: (rows, d) uint8."""
    each = widths(last)
    bits = np.unpackbits(packed, count=rows * sum(each)).reshape(rows, sum(each))
    codes, at = np.zeros((rows, len(last)), np.uint8), 0
    for j, width in enumerate(each):
        for bit in range(width):
            codes[:, j] |= bits[:, at] << bit
            at += 1
    return codes
