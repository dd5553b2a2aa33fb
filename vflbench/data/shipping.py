"""What it takes to send data themselves, once: bytes of the smallest plain form in which nothing is lost.

Forms of a matrix are: its numbers as they are stored; a byte each, with a table of its at most 256 values; a bit each
in columns of two values; sparse, as rows of column numbers with their values. Nothing is compressed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

BYTE = 256  #: values that a byte tells apart
SEARCHED = 2 * 10**7  #: numbers up to which a smaller form is looked for
LOOKED_AT = 500  #: rows that show at once where there are too many values


@dataclass(frozen=True)
class Size:
    """The bytes of one thing to send, and its form in words."""

    bytes: int
    form: str
    stored: int  #: bytes as it is stored


def rows(values: np.ndarray) -> Size:
    """The smallest form of rows, (n, ...)."""
    stored, kind = int(values.nbytes), str(values.dtype)
    if not 0 < values.size <= SEARCHED:
        return Size(stored, kind, stored)
    matrix = values.reshape(len(values), -1)
    forms = [(stored, kind), *filter(None, [_as_bytes(matrix), _by_columns(matrix), _sparse(matrix)])]
    return Size(*min(forms, key=lambda form: form[0]), stored)


def ids(count: int, below: int) -> Size:
    """So many numbers from 0 to `below` - 1."""
    kind = np.dtype(np.uint16 if below <= 2**16 else np.int32)
    return Size(count * kind.itemsize, f"{kind} numbers", count * kind.itemsize)


def keys(values: np.ndarray) -> Size:
    """A key column, (n,): integers in their smallest type; texts with four bytes for where each ends."""
    if values.dtype.kind in "iu" and len(values):
        kind = np.result_type(np.min_scalar_type(values.min()), np.min_scalar_type(values.max()))
        return Size(len(values) * kind.itemsize, "keys", len(values) * kind.itemsize)
    if values.dtype.kind in "OU":
        size = sum(len(str(value).encode(errors="replace")) for value in values) + 4 * len(values)
        return Size(size, "keys", size)
    return Size(int(values.nbytes), "keys", int(values.nbytes))


def together(sizes: Sequence[Size]) -> Size:
    """All of them as one."""
    forms = list(dict.fromkeys(size.form for size in sizes if size.bytes))
    return Size(sum(size.bytes for size in sizes), ", ".join(forms), sum(size.stored for size in sizes))


def _as_bytes(matrix: np.ndarray) -> tuple[int, str] | None:
    """One byte for each number, and a table of the values; None where there are too many."""
    if len(np.unique(matrix[:LOOKED_AT])) > BYTE:
        return None
    values = len(np.unique(matrix))
    return None if values > BYTE else (matrix.size + values * matrix.itemsize, "bytes")


def _by_columns(matrix: np.ndarray) -> tuple[int, str]:
    """A bit for each number of a column with two values, which are sent too; one number for a constant column."""
    count = len(matrix)
    low, high = matrix.min(axis=0), matrix.max(axis=0)
    one = low == high
    two = ~one & ((matrix == low) | (matrix == high)).all(axis=0)  # NaN equals nothing
    ones, twos, others = int(one.sum()), int(two.sum()), int((~one & ~two).sum())
    total = matrix.itemsize * (ones + 2 * twos + others * count) + twos * -(-count // 8)
    kinds = {"constant": ones, "as bits": twos, f"as {matrix.dtype}": others}
    return total, " and ".join(f"{number} columns {kind}" for kind, number in kinds.items() if number)


def _sparse(matrix: np.ndarray) -> tuple[int, str]:
    """Column numbers of what is not 0, where each row ends, and the values unless all are 1."""
    known = matrix[matrix != 0]
    number = 2 if matrix.shape[1] <= 2**16 else 4
    values = 0 if (known == 1).all() else len(known) * matrix.itemsize
    return len(known) * number + 4 * (len(matrix) + 1) + values, "sparse rows"
