"""Whether row i of several files can be the same sample: a column that two files share must be in the same order.

They share a column if its values are all different in both files, and the same ones. Names of columns need not agree.
Nearly the same values are enough where they cannot be so by chance: texts, and numbers that are far apart.

No evidence are rows that are merely numbered in their order, and values that several columns of a file have: ranks and
quantiles.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from vflbench.data import keys
from vflbench.data.relational import sql_sources
from vflbench.data.relational.cells import Column, Wrong
from vflbench.data.relational.sql_sources import Source

DENSE = 0.25  # of all whole numbers between the least and the largest: from here on, many may be in common by chance
COMMON = 0.5  # of the values: so many are in common where two files share a column,
COMMON_DENSE = 0.9  # or so many, in columns of one name


@dataclass(frozen=True)
class Pair:
    """A column that two files share."""

    files: tuple[int, int]
    columns: tuple[str, str]
    row: int | None  # the first that differs; None: the order is the same
    names: bool  # whether it names rows: whole numbers, texts and dates do; other numbers are measurements


@dataclass(frozen=True)
class _Distinct:
    """A column whose values are all different."""

    name: str
    values: np.ndarray  # floats, or the texts of IDs
    dense: bool
    signature: int  # of the set of its values

    @property
    def measured(self) -> bool:
        return self.values.dtype.kind == "f"

    def counts(self) -> bool:
        """Whether it numbers the rows in their order, from 0 or 1."""
        count = len(self.values)
        return any(list(self.values) == list(map(str, range(first, first + count))) for first in (0, 1))


def shared(held: Sequence[dict[str, Column]], looked_at: Sequence[Sequence[str]]) -> list[Pair]:
    """The columns that pairs of files share, those in another order first.

    Parameters
    ----------
    held : per file its columns.
    looked_at : per file names of columns.
    """
    files = [[*_distinct(columns, own)] for columns, own in zip(held, looked_at, strict=True)]
    often = [Counter(column.signature for column in own) for own in files]
    pairs = []
    for one, other in combinations(range(len(files)), 2):
        by_values: dict[int, list[_Distinct]] = {}
        for column in files[other]:
            by_values.setdefault(column.signature, []).append(column)
        names = [column for column in files[other] if not column.measured]
        for a in files[one]:
            for b in by_values.get(a.signature, []) if a.measured else names:
                alone = often[one][a.signature] == often[other][b.signature] == 1
                if (alone or (a.name == b.name and not a.measured)) and _same_values(a, b):
                    differ = a.values[: len(b.values)] != b.values[: len(a.values)]
                    row = int(differ.argmax()) if differ.any() else None
                    pairs.append(Pair((one, other), (a.name, b.name), row, not a.measured))
    return sorted(pairs, key=lambda pair: (pair.row is None, not pair.names))


def _distinct(held: dict[str, Column], names: Sequence[str]) -> Iterator[_Distinct]:
    """Of the columns `names` those whose values are all there and all different."""
    for name in names:
        column = held[name]
        values, dense = column.values, column.kind == "date"
        if column.kind not in ("number", "text", "date") or len(values) < 2 or column.null.any():
            continue
        if len(np.unique(values) if values.dtype != object else set(values.tolist())) < len(values):
            continue
        whole = values.dtype.kind == "f" and bool((values == np.floor(values)).all())
        if values.dtype.kind == "f" and not whole:
            yield _Distinct(name, values, False, hash(np.sort(values).tobytes()))
            continue
        try:
            texts = keys.of(column).values
        except Wrong:
            continue
        if None not in texts and len(known := frozenset(texts.tolist())) == len(texts):
            if column.kind == "number":
                dense = len(values) >= DENSE * (float(values.max()) - float(values.min()) + 1)
            yield _Distinct(name, texts, dense, hash(known))


def _same_values(a: _Distinct, b: _Distinct) -> bool:
    if a.signature == b.signature:
        return True
    if a.measured or (a.counts() and b.counts()):
        return False
    common = len({*a.values} & {*b.values}) / min(len(a.values), len(b.values))
    if a.dense or b.dense:
        return a.name == b.name and common >= COMMON_DENSE
    return common >= COMMON


def key(pair: Pair, sources: Sequence[Source]) -> str:
    """What to type so that rows are matched by the column."""
    if len(set(pair.columns)) == 1:
        return f"dataset.id={pair.columns[0]}"
    named = zip(pair.files, pair.columns, strict=True)
    entries = ", ".join(f"{{path: {sources[file].url}, id: {column}}}" for file, column in named)
    return f"dataset.files=[{entries}]"


def disproof(pair: Pair, sources: Sequence[Source], held: Sequence[dict[str, Column]]) -> str:
    """Why row i of two files is not the same sample."""
    assert pair.row is not None
    columns = " and ".join(dict.fromkeys(pair.columns))
    cells = [
        f"{sql_sources.place(sources[file], pair.row)}: {held[file][column].values[pair.row]}"
        for file, column in zip(pair.files, pair.columns, strict=True)
    ]
    return (
        f"{' and '.join(str(sources[file]) for file in pair.files)} have the same values in column {columns}, but in "
        f"another order ({'; '.join(cells)}): row i of both is not the same sample. If the column is the ID, type "
        f"{key(pair, sources)}. If it is none, name it in dataset.leave_out"
    )
