"""What a party makes of its columns before it sends them: the columns themselves, bin numbers, or projections.

A form is fitted on the party's own training rows, without labels. Its message is made of arrays, a column each, so that
a codec scales every column by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vflbench.cards.algorithms.oneshot.send_once import Config
from vflbench.models.bins import Bins, table, unpack


@dataclass(frozen=True)
class Raw:
    """The columns as they are."""

    def encode(self, x: np.ndarray) -> tuple[np.ndarray, ...]:
        """The message for rows (n, d): d arrays of n numbers; images (n, ...) are one array."""
        return (x,) if x.ndim != 2 else columns(x)


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


def fit(config: Config, x: np.ndarray) -> Form:
    """The form that `algorithm.form` names, fitted on training rows."""
    if config.form == "raw":
        return Raw()
    return Bins.fit(table(x), config.bins) if config.form == "bins" else Projection.fit(table(x), config.components)


def encode(form: Form, x: np.ndarray) -> tuple[np.ndarray, ...]:
    """The message for rows (n, ...)."""
    return form.encode(x if isinstance(form, Raw) else table(x))


def decode(config: Config, message: Sequence[np.ndarray], rows: int) -> np.ndarray:
    """The receiver's columns: (rows, d) numbers, or images (rows, ...)."""
    if config.form == "bins":
        last, packed = message
        return unpack(packed, last, rows).astype(np.float32)
    return message[0] if message and message[0].ndim > 1 else np.stack(list(message), axis=1)


def columns(x: np.ndarray) -> tuple[np.ndarray, ...]:
    """The columns of (n, d) as arrays of their own."""
    return tuple(np.ascontiguousarray(column) for column in x.T)
