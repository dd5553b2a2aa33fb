"""Whether row i of several files can be the same sample: a column that two files share must be in the same order.

They share a column if its values are all different in both files, and the same ones. Names of columns need not agree.
Nearly the same values are enough where they cannot be so by chance: texts, and numbers that are far apart. A few cells
may be empty or repeated, and IDs may be written differently. Columns of one name tell more: part of the values is
enough, and an ID has no other value in the same row, even if it has several rows. Two or three of them may name the
rows together.

No evidence are rows that are merely numbered in their order, and values that several columns of a file have: ranks and
quantiles.
"""

import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations

import numpy as np

from vflbench.data.columns import judging
from vflbench.data.readers import identifiers, table_sources
from vflbench.data.readers.cells import Column, Wrong
from vflbench.data.readers.table_sources import ReadTable

DENSE = 0.25  # of all whole numbers between the least and the largest: from here on, many may be in common by chance
COMMON = 0.5  # of the values: so many are in common where two files share a column,
COMMON_DENSE = 0.9  # or so many, in columns of one name, and in several columns together;
COMMON_PART = 1 / 3  # or so many, in columns of one name, if most of them are in other rows:
FEWEST_PART = 8  # and at least so many
FLAWS = 0.05  # of the rows, but at least one: so many cells may be empty or repeated
# so many different values, of the rows, has an ID of several rows;
SEVERAL = 0.25  # of one that is there equally often in both files,
NEARLY = 0.8  # or in nearly all rows once: by chance two files then share few of them
TOGETHER = 8  # columns of one name that are tried together
# what IDs are called, as id, customer_id, patientId, Kundennummer, Pat.-Nr
_ID = re.compile(
    r"(?i:(.*[\W_])?(ids?|uuid|guid|key|nr|no|number)|.*nummer|e-?mail|mrn|ssn|iban)|.*[a-z](Id|ID|Nr|No|Key)"
    r"|(?i:(patient|customer|client|user|person|member|subject|kunden?)(id|nr|no)?)"
)


@dataclass(frozen=True)
class Pair:
    """Columns that two files share; several name the rows together."""

    files: tuple[int, int]
    columns: tuple[tuple[str, ...], tuple[str, ...]]
    row: int | None  # the first that differs; None: the order is the same
    names: bool  # whether they name rows: whole numbers, texts and dates do; other numbers are measurements
    values: str = "the same"  # alike: but for their writing; part of them, none
    said: str = ""  # how the values differ
    weak: bool = False  # it disproves nothing if another column proves the order
    counts: bool = False  # in both files it merely numbers the rows

    @property
    def proves(self) -> bool:
        """Whether it shows that the order is the same."""
        return self.row is None and not self.counts


@dataclass(frozen=True)
class _Column:
    """A column whose values are all different, or nearly so."""

    name: str
    values: np.ndarray  # floats of measurements; else the texts of IDs, None where there is none
    dense: bool
    texts: bool = False

    @property
    def measured(self) -> bool:
        return self.values.dtype.kind == "f"

    @cached_property
    def known(self) -> frozenset[str]:
        return frozenset(self.values.tolist()) - {None}

    @cached_property
    def complete(self) -> bool:
        """Whether all values are there and different."""
        return len(self.known) == len(self.values)

    @cached_property
    def signature(self) -> int:
        """Of the set of its values."""
        return hash(np.sort(self.values).tobytes() if self.measured else self.known)

    @cached_property
    def counts(self) -> bool:
        """Whether it numbers the rows in their order, from 0 or 1."""
        count = len(self.values)
        return any(list(self.values) == list(map(str, range(first, first + count))) for first in (0, 1))

    @cached_property
    def even(self) -> bool:
        """Whether measurements are in equal steps, as quantiles are."""
        steps = np.diff(np.sort(self.values))
        return bool(np.ptp(steps) < 1e-3 * steps.mean())

    @cached_property
    def plain(self) -> "_Column":
        """Its values in a writing that IDs share which are alike."""
        if not self.texts:
            return self
        plain = [value if value is None else identifiers.plainest(value) for value in self.values]
        return replace(self, values=np.array(plain, dtype=object))


def shared(tables: Sequence[ReadTable], looked_at: Sequence[Sequence[str]]) -> list[Pair]:
    """The columns that pairs of files share, those in another order first.

    Parameters
    ----------
    looked_at : per file names of columns.
    """
    held = [table.columns for table in tables]
    files = [[*_distinct(columns, own)] for columns, own in zip(held, looked_at, strict=True)]
    often = [Counter(column.signature for column in own) for own in files]
    pairs = []
    for one, other in combinations(range(len(files)), 2):
        by_values: dict[int, list[_Column]] = {}
        for column in files[other]:
            by_values.setdefault(column.signature, []).append(column)
        names, found = [column for column in files[other] if not column.measured], list[Pair | None]()
        for a in files[one]:
            for b in by_values.get(a.signature, []) if a.measured else names:
                alone = often[one][a.signature] == often[other][b.signature] == 1
                found.append(_compared((one, other), a, b, alone))
        single = {column.name for column in files[one] + files[other]}
        several = [name for name in looked_at[one] if name in {*looked_at[other]} - single]
        both = (one, other), held[one], held[other]
        again = (_repeated(*both, name) for name in several if _called_id(name))
        found.append(_together(*both, several) or next(filter(None, again), None))
        own = [pair for pair in found if pair]
        proved = any(pair.proves for pair in own)
        pairs += [pair for pair in own if pair.row is None or not (proved and pair.weak)]
    return sorted(pairs, key=lambda pair: (pair.row is None, pair.weak, not pair.names))


def _distinct(held: dict[str, Column], names: Sequence[str]) -> Iterator[_Column]:
    """Of the columns `names` those whose values are all different, or nearly so; measurements must be all there."""
    import pandas as pd

    for name in names:
        column, null = held[name], held[name].null
        known = column.values[~null]
        if column.kind not in ("number", "text", "date") or len(known) < 2:
            continue
        flaws = len(null) - len(pd.unique(known))
        if known.dtype.kind == "f" and not (known == np.floor(known)).all():
            if not flaws:
                yield _Column(name, column.values, False)
            continue
        if flaws > max(1, FLAWS * len(null)):
            continue
        try:
            texts = identifiers.ids(column).values
        except Wrong:
            continue
        dense = column.kind == "date"
        if column.kind == "number":
            dense = len(known) >= DENSE * (float(known.max()) - float(known.min()) + 1)
        found = _Column(name, texts, dense, column.kind == "text")
        if len(texts) - len(found.known) <= max(1, FLAWS * len(texts)):
            yield found


def _compared(files: tuple[int, int], a: _Column, b: _Column, alone: bool) -> Pair | None:
    """What two columns show of the order; None: nothing.

    Parameters
    ----------
    alone : whether no other column of their files has the same values.
    """
    named = (a.name,), (b.name,)
    if a.measured:
        alone &= a.name == b.name or not a.even
        return Pair(files, named, _first(a, b), names=False) if alone else None
    values, said, strong = "none", "", _share(a, b, alone)
    if not strong and (a.texts or b.texts) and _share(a.plain, b.plain, alone) and (said := _alike(a, b)):
        values, strong = "alike", True
        a, b = a.plain, b.plain
    row = _first(a, b)
    if not (strong or (row is not None and _disagree(a, b))):
        return None
    if values != "alike" and (common := len(a.known & b.known)):
        said = f"{common} of {min(len(a.known), len(b.known))}"
        values = "the same" if a.known == b.known else "part"
    if values == "part" and a.name != b.name and not _moved(a, b):
        return None  # two facts of the same row, as when it was made and last changed
    names = (a.complete and b.complete) or _called_id(a.name)
    weak = not strong or (values == "part" and a.name != b.name)
    return Pair(files, named, row, names, values, said, weak, a.counts and b.counts)


def _share(a: _Column, b: _Column, alone: bool) -> bool:
    """Whether so many values are in common as in a column that both files have."""
    if not (alone or a.name == b.name):
        return False
    if a.signature == b.signature and a.complete and b.complete:
        return True
    if a.counts and b.counts:
        return False
    common = len(a.known & b.known) / min(len(a.known), len(b.known))
    if a.dense or b.dense:
        sure = a.complete and b.complete
        return a.name == b.name and common >= COMMON_DENSE and (sure or _called_id(a.name))
    return common >= COMMON


def _disagree(a: _Column, b: _Column) -> bool:
    """Whether columns of one name show that rows differ, though few of their values are in common."""
    if a.name != b.name or (a.counts and b.counts):
        return False
    if _called_id(a.name):
        return True
    common = len(a.known & b.known)
    if a.dense or b.dense or common < max(FEWEST_PART, COMMON_PART * min(len(a.known), len(b.known))):
        return False
    return _moved(a, b)


def _moved(a: _Column, b: _Column) -> bool:
    """Whether most values that both have are in other rows; if they are in the same ones, they confirm the order."""
    same = a.values[: len(b.values)] == b.values[: len(a.values)]
    return 2 * int(same.sum()) < len(a.known & b.known)


def _called_id(name: str) -> bool:
    return _ID.fullmatch(name.strip(" .:#")) is not None


def _first(a: _Column, b: _Column) -> int | None:
    """The first row that has different values; what one of the two lacks is not compared."""
    one, other = a.values[: len(b.values)], b.values[: len(a.values)]
    differ = one != other
    if not a.measured:
        differ &= np.array([x is not None and y is not None for x, y in zip(one, other, strict=True)])
    return int(differ.argmax()) if differ.any() else None


def _alike(a: _Column, b: _Column) -> str:
    """How values that are alike differ, with an example; empty: none are, but those of one file among themselves."""
    found = identifiers.near(a.known, b.known)
    return f"{found[0][0]}, as {' and '.join(identifiers.quoted_pair(*found[0][1][0]))}" if found else ""


def _repeated(files: tuple[int, int], one: dict[str, Column], other: dict[str, Column], name: str) -> Pair | None:
    """An ID of several rows that is in another order, in columns of one name."""
    if not (may_identify(one[name]) and may_identify(other[name])):
        return None
    try:
        a, b = (_Column(name, identifiers.ids(held[name]).values, True) for held in (one, other))
    except Wrong:
        return None
    least, most = sorted((len(a.known), len(b.known)))
    rows = max(len(a.values), len(b.values))
    if least < max(FEWEST_PART, SEVERAL * rows) or (row := _first(a, b)) is None:
        return None
    nearly = least >= NEARLY * rows and len(a.known & b.known) >= COMMON_DENSE * most
    same = nearly or Counter(a.values.tolist()) == Counter(b.values.tolist())
    return Pair(files, ((name,), (name,)), row, names=False, values="the same", weak=True) if same else None


# --- several columns together -----------------------------------------------------------------------------------------


def coded(a: Column, b: Column) -> np.ndarray | None:
    """A number for each value of two files' columns, of the rows of the first and then of the second; None: no IDs."""
    import pandas as pd

    try:
        both = (
            (a.values, b.values)
            if a.kind == b.kind == "number"
            else (identifiers.ids(a).values, identifiers.ids(b).values)
        )
    except Wrong:
        return None
    codes: np.ndarray = pd.factorize(np.concatenate(both), use_na_sentinel=False)[0]
    return codes


def together(parts: Sequence[np.ndarray], count: int, least: float) -> tuple[np.ndarray, np.ndarray] | None:
    """Per row of two files a number for its values in several columns; None where these do not name the rows.

    Parameters
    ----------
    parts : per column what `coded` gave.
    count : of the first file's rows.
    least : the part of the rows, of the shorter file, that must be in both, and at least one row.
    """
    import pandas as pd

    rows = len(parts[0])
    if math.prod(int(part.max()) + 1 for part in parts) < max(count, rows - count):
        return None
    codes = parts[0]
    for part in parts[1:]:
        codes = pd.factorize(codes * (int(part.max()) + 1) + part)[0]
    first, second = codes[:count], codes[count:]
    if any(len(pd.unique(part)) < len(part) for part in (first, second)):
        return None
    common = len(np.intersect1d(first, second))
    return (first, second) if common >= max(1, least * min(len(first), len(second))) else None


def may_identify(column: Column) -> bool:
    """Whether it holds texts, dates or whole numbers, which with others may say whose row it is."""
    known = column.values[~column.null]
    if column.kind == "number" and known.dtype.kind == "f":
        return bool((known == np.floor(known)).all())
    return column.kind in ("number", "text", "date")


def _together(
    files: tuple[int, int], one: dict[str, Column], other: dict[str, Column], names: Sequence[str]
) -> Pair | None:
    """Two or three columns of `names` that name the rows together."""
    tried = [name for name in names if may_identify(one[name]) and may_identify(other[name])][:TOGETHER]
    parts = {name: own for name in tried if (own := coded(one[name], other[name])) is not None}
    for named in itertools.chain(combinations(parts, 2), combinations(parts, 3)):
        count = len(one[named[0]].values)
        if (codes := together([parts[name] for name in named], count, COMMON_DENSE)) is not None:
            size = min(map(len, codes))
            differ = codes[0][:size] != codes[1][:size]
            row = int(differ.argmax()) if differ.any() else None
            return Pair(files, (named, named), row, names=False, weak=True)
    return None


# --- a number of the rows in one file ---------------------------------------------------------------------------------


def shuffled(held: dict[str, Column], names: Sequence[str]) -> tuple[str, int] | None:
    """A column that numbers the rows in another order, and the first row that shows it.

    It has no name of its own, as programs write it, or an ID's. So the rows were shuffled or sorted once they were
    numbered.
    """
    for name in names:
        column = held[name]
        if column.kind != "number" or len(column.values) < 2 or column.null.any():
            continue
        values = column.values.astype(np.float64)
        falls = np.flatnonzero(np.diff(values) < 0)
        every = np.sort(values)
        own = "" if name.startswith(judging.MADE_UP) else name
        close = every[0] >= 0 and len(every) >= DENSE * (every[-1] - every[0] + 1)
        whole = _called_id(name) and any(np.array_equal(every, np.arange(len(every)) + first) for first in (0, 1))
        if len(falls) and (whole or (close and judging.numbers_rows(own, every))):
            return name, int(falls[0]) + 1
    return None


# --- messages ---------------------------------------------------------------------------------------------------------


def called(names: Sequence[str]) -> str:
    """How a message names columns."""
    names = [*map(judging.named, dict.fromkeys(names))]
    return f"column{'s' if len(names) > 1 else ''} {' and '.join(names)}"


def key(pair: Pair, tables: Sequence[ReadTable]) -> str:
    """What to type so that rows are matched by the columns."""
    one, other = pair.columns
    if one == other:
        return typed("id", one[0] if len(one) == 1 else one)
    named = zip(pair.files, pair.columns, strict=True)
    entries = ", ".join(f"{{path: {_quoted(tables[file].source.url)}, id: {_quoted(own[0])}}}" for file, own in named)
    return f"'dataset.files=[{entries}]'"


def typed(leaf: str, value: str | Sequence[str]) -> str:
    """An option of the data set as it is typed."""
    if isinstance(value, str):
        return f"dataset.{leaf}={value}" if _quoted(value) == value else f"'dataset.{leaf}={_quoted(value)}'"
    return f"'dataset.{leaf}=[{','.join(map(_quoted, value))}]'"


def _quoted(value: str) -> str:
    return value if re.fullmatch(r"[\w./-]*[^\W\d][\w./-]*", value, re.ASCII) else json.dumps(value, ensure_ascii=False)


def disproof(pair: Pair, tables: Sequence[ReadTable]) -> str:
    """Why row i of two files is not the same sample."""
    assert pair.row is not None
    where = called([name for own in pair.columns for name in own])
    cells = []
    for file, own in zip(pair.files, pair.columns, strict=True):
        values = ", ".join(str(tables[file].columns[name].values[pair.row]) for name in own)
        cells.append(f"{tables[file].place(pair.row)}: {values}")
    what = {
        "the same": f"have the same values in {where}, but in another order",
        "alike": f"have values in {where} that differ only in {pair.said}, and are in another order",
        "part": f"have {pair.said} values in {where} in common, but not all in the same rows",
        "none": f"have no value in {where} in common",
    }[pair.values]
    them = "If it is the ID" if len({*pair.columns[0]}) == 1 else "If they are the ID"
    advice = {
        "the same": f"type {key(pair, tables)}",
        "alike": f"write it alike in all files, and type {key(pair, tables)}",
        "part": f"type {key(pair, tables)} and dataset.alignment=psi or hashed, to keep the rows that all files have",
        "none": "the files have no sample in common",
    }[pair.values]
    return (
        f"{' and '.join(str(tables[file]) for file in pair.files)} {what} ({'; '.join(cells)}): row i of both is not "
        f"the same sample. {them}, {advice}. If not, {left_out(pair.columns[0] + pair.columns[1])}"
    )


def of_shuffled(table: ReadTable, name: str, row: int) -> str:
    """Why row i of a file need not be the same sample as in others."""
    cells = table.columns[name].values
    before, now = (f"{cells[i]:g} in {table_sources.within(table.source, i)}" for i in (row - 1, row))
    return (
        f"{table}, {called([name])}: it numbers the rows, but in another order ({before}, {now}), so they were "
        "shuffled or sorted, and row i need not be the same sample as in the other files. Name the column of the IDs: "
        f"dataset.id=COLUMN. If all files have this order, {left_out([name])}"
    )


def left_out(names: Sequence[str]) -> str:
    """What to type so that columns are no evidence."""
    names = list(dict.fromkeys(names))
    return f"name {'them' if names[1:] else 'it'} in dataset.leave_out, as {typed('leave_out', names)}"
