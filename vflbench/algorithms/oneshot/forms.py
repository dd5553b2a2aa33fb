"""What a party makes of its columns before it sends them: the columns themselves, bin numbers, or projections.

A form is fitted on the party's own training rows, without labels. Its message is made of arrays, a column each, so that
a codec scales every column by itself.

References
----------
Bins: Tian et al., "FederBoost: Private Federated Learning for GBDT", arXiv 2011.02796. Boosted trees need only the
order of a column's values, so the numbers of bins do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

MOST_BINS = 256  # a bin number is a byte before it is packed


def table(x: np.ndarray) -> np.ndarray:
    """Features as (n, d) numbers; pixels of images are columns from 0 to 1."""
    rows = x.reshape(len(x), -1)
    return rows.astype(np.float32) / 255 if rows.dtype == np.uint8 else rows


@dataclass(frozen=True)
class Raw:
    """The columns as they are."""

    def encode(self, x: np.ndarray) -> tuple[np.ndarray, ...]:
        """The message for rows (n, d): d arrays of n numbers; images (n, ...) are one array."""
        return (x,) if x.ndim != 2 else columns(x)


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


@dataclass(frozen=True)
class Projection:
    """Principal components: the mean and the directions stay with the party."""

    mean: np.ndarray  # (d,)
    directions: np.ndarray  # (d, r): unit vectors of falling variance

    @classmethod
    def fit(cls, x: np.ndarray, components: int) -> Projection:
        """The first principal components of the training rows (n, d); at most d."""
        mean = x.mean(axis=0, dtype=np.float64)
        centred = x - mean
        values, vectors = np.linalg.eigh(centred.T @ centred)
        directions = vectors[:, np.argsort(-values, kind="stable")[:components]]
        # of the two signs the one whose largest entry is positive: a solver may choose either
        largest = directions[np.abs(directions).argmax(axis=0), np.arange(directions.shape[1])]
        return cls(mean, directions * np.where(largest < 0, -1.0, 1.0))

    def encode(self, x: np.ndarray) -> tuple[np.ndarray, ...]:
        """The message for rows (n, d): r arrays of n numbers, of the type of `x`."""
        return columns(((x - self.mean) @ self.directions).astype(x.dtype))


Form = Raw | Bins | Projection


def fit(config: Any, x: np.ndarray) -> Form:
    """The form that `algorithm.form` names, fitted on training rows."""
    if config.form == "raw":
        return Raw()
    return Bins.fit(table(x), config.bins) if config.form == "bins" else Projection.fit(table(x), config.components)


def encode(form: Form, x: np.ndarray) -> tuple[np.ndarray, ...]:
    """The message for rows (n, ...)."""
    return form.encode(x if isinstance(form, Raw) else table(x))


def decode(config: Any, message: Sequence[np.ndarray], rows: int) -> np.ndarray:
    """The receiver's columns: (rows, d) numbers, or images (rows, ...)."""
    if config.form == "bins":
        last, packed = message
        return unpack(packed, last, rows).astype(np.float32)
    return message[0] if message and message[0].ndim > 1 else np.stack(list(message), axis=1)


def columns(x: np.ndarray) -> tuple[np.ndarray, ...]:
    """The columns of (n, d) as arrays of their own."""
    return tuple(np.ascontiguousarray(column) for column in x.T)


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


def packed_bytes(last: np.ndarray, rows: int) -> int:
    """Bytes of `rows` packed rows."""
    return -(-rows * sum(widths(last)) // 8)


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
