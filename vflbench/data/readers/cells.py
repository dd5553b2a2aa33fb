"""Columns of a CSV file, an Arrow table or a database, converted to the few forms that join.py takes."""

import contextlib
import datetime
import decimal
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vflbench.data.readers import written_numbers

TYPES = ("number", "text", "date")  # what a column may be; where no cell has a value it is "empty"
# words for a missing value among numbers or dates, in small letters
MISSING: tuple[str, ...] = ("", "?", "-", "--", "\u2013", "\u2014", ".", "..", "na", "n/a", "n.a.", "#n/a", "#na")
MISSING += ("#nv", "<na>", "nan", "nat", "null", "none", "nil", "missing", "unknown", "unbekannt", "k.a.", "k. a.")
MISSING += ("n. a.", "n.d.", "n. d.", "\\n", "(null)", "(none)", "(leer)", "(blank)", "(empty)")
# what spreadsheets, C and R write in place of a result
MISSING += ("#div/0!", "#value!", "#wert!", "#ref!", "#bezug!", "#num!", "#zahl!", "#name?", "#null!", "#n/v")
MISSING += ("1.#qnan", "-1.#ind", "1.#ind", "#valeur!", "#nombre!")
_INFINITE = r"^([+-]?)(?:∞|1\.#(?i:inf)\d*)$"  # as people and C write that a number is not finite
EXACT = 2**53  # integers below it are exact as float64


@dataclass(frozen=True)
class Column:
    """The cells of one column in one of few forms, as join.py takes them.

    number  int64; float64 with NaN; or objects, where there are both NULL and integers above 2**53
    text    objects, with None
    date    datetime64[us] in UTC
    empty   NaN

    Any other kind is the name of the types that were found, and the values are the objects themselves.
    """

    kind: str
    values: np.ndarray
    #: of numbers that were texts: words for a missing one, each with the number of its cells, and the first row
    words: tuple[tuple[str, int, int], ...] = ()
    exact: int = EXACT  # of floats: whole numbers below it are exact, as they were stored

    @property
    def null(self) -> np.ndarray:
        """Which cells are missing, (n,) bool."""
        import pandas as pd

        missing: np.ndarray = pd.isna(self.values)
        return missing


def _integers(values: np.ndarray, null: np.ndarray) -> Column:
    """A column of int64 `values`, of which those at `null` are missing."""
    if null.any():
        known = values[~null]
        if known.max() < EXACT and known.min() > -EXACT:
            values = np.where(null, np.nan, values)
        else:
            values = values.astype(object)
            values[null] = None
    return Column("number", values)


def of_objects(cells: Sequence[Any]) -> Column:
    """A column of what a database's driver returned."""
    import pandas as pd

    values = np.empty(len(cells), dtype=object)
    values[:] = cells
    null = pd.isna(values)
    present = values[~null]
    kinds = set(map(type, present))
    if not kinds:
        return Column("empty", np.full(len(values), np.nan))
    if kinds == {decimal.Decimal} and all(cell.is_finite() and cell == cell.to_integral_value() for cell in present):
        present, kinds = np.array([int(cell) for cell in present], dtype=object), {int}
    if all(issubclass(kind, int | np.integer) for kind in kinds):
        whole = np.zeros(len(values), dtype=np.int64)
        try:
            whole[~null] = present.astype(np.int64)
        except OverflowError:
            return Column("integers beyond 64 bits", values)
        return _integers(whole, null)
    if all(issubclass(kind, int | float | decimal.Decimal | np.number) for kind in kinds):
        values[null] = np.nan
        return Column("number", values.astype(np.float64))
    if kinds <= {str, uuid.UUID}:
        values[~null] = [str(cell) for cell in present]
        values[null] = None
        return Column("text", values)
    if kinds <= {datetime.date, datetime.datetime, pd.Timestamp}:
        dates = np.full(len(values), np.datetime64("NaT"), dtype="datetime64[us]")
        dates[~null] = [_utc(cell) for cell in present]
        return Column("date", dates)
    return Column(" and ".join(sorted(kind.__name__ for kind in kinds)), values)


def _utc(cell: datetime.date) -> datetime.date:
    if isinstance(cell, datetime.datetime) and cell.tzinfo is not None:
        return cell.astimezone(datetime.UTC).replace(tzinfo=None)
    return cell


def of_arrow(cells: Any) -> Column:
    """A column of an Arrow table."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(cells.type):
        cells = cells.cast(cells.type.value_type)
    kind, rows = cells.type, len(cells)
    if cells.null_count == rows:
        return Column("empty", np.full(rows, np.nan))
    null = np.zeros(rows, dtype=bool) if not cells.null_count else cells.is_null().to_numpy()
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        filled = cells.fill_null(False if pa.types.is_boolean(kind) else 0)
        if pa.types.is_uint64(kind) and pc.max(filled).as_py() >= 2**63:
            beyond = filled.to_numpy().astype(object)
            beyond[null] = None
            return Column("integers beyond 64 bits", beyond)
        return _integers(filled.to_numpy().astype(np.int64), null)
    if pa.types.is_floating(kind):
        exact = {16: 2**11, 32: 2**24}.get(kind.bit_width, EXACT)
        return Column("number", cells.cast(pa.float64()).to_numpy(), exact=exact)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return Column("text", cells.to_numpy().astype(object))
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return Column("date", cells.cast(pa.timestamp("us"), safe=False).to_numpy().astype("datetime64[us]"))
    return of_objects(cells.to_pylist())


def concatenate(columns: Sequence[Column]) -> Column:
    """Blocks or parts of one column as one column; a mix of kinds becomes a kind that nothing accepts."""
    kinds = sorted({column.kind for column in columns} - {"empty"})
    if not kinds:
        return Column("empty", np.concatenate([column.values for column in columns]))
    if len(kinds) > 1:
        return Column(" and ".join(kinds), np.concatenate([column.values.astype(object) for column in columns]))
    if kinds[0] == "number":
        whole = [_whole(column) for column in columns]
        if all(part is not None for part in whole):
            values = np.concatenate([part for part in whole if part is not None])
            return _integers(values, np.concatenate([c.null for c in columns]))
        exact = min(column.exact for column in columns)
        return Column("number", np.concatenate([column.values.astype(np.float64) for column in columns]), exact=exact)
    if kinds[0] == "date":
        nat = np.datetime64("NaT", "us")
        return Column(
            "date", np.concatenate([c.values if c.kind == "date" else np.full(len(c.values), nat) for c in columns])
        )
    none = [np.full(len(c.values), None, dtype=object) if c.kind == "empty" else c.values for c in columns]
    return Column(kinds[0], np.concatenate(none))


def _whole(column: Column) -> np.ndarray | None:
    """Values of a number column as int64, 0 where NULL; None if float64 does not hold some as exact integers."""
    if column.values.dtype == np.int64:
        return column.values
    filled = np.where(column.null, 0, column.values)
    if column.values.dtype == object:
        return filled.astype(np.int64)
    exact = np.abs(filled).max(initial=0.0) < column.exact and bool((filled == np.floor(filled)).all())
    return filled.astype(np.int64) if exact else None


class Wrong(Exception):
    """Cell `row` of a column is not of the declared type."""

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(row, reason)
        self.row, self.reason = row, reason


def without_point(cell: Any) -> Any:
    """A whole number for a float that is one; a float from 2**53 on has lost digits, and its final .0 shows that."""
    return int(cell) if isinstance(cell, float) and cell.is_integer() and abs(cell) < EXACT else cell


def refuse_rounded(column: Column) -> None:
    """Refuse IDs that a float rounds: that of one person may be that of another.

    Raises
    ------
    Wrong : a cell is too large for the type of float that holds it.
    """
    if column.values.dtype.kind != "f" or column.kind != "number":
        return
    rows = np.flatnonzero(np.abs(np.nan_to_num(column.values)) >= column.exact)
    if len(rows):
        power = f"2**{column.exact.bit_length() - 1}"
        found = f"{float(column.values[rows[0]])!r} is a float from {power} on"
        advice = "save the IDs as whole numbers or as text"
        raise Wrong(int(rows[0]), f"{found}, where IDs are rounded and cannot be told apart; {advice}")


def as_type(column: Column, kind: str) -> Column:
    """The column converted to `number`, `text` or `date`, as the user declared it; an `id` stays of its own type.

    Raises
    ------
    Wrong : a cell cannot be converted, or is a rounded ID.
    """
    import pandas as pd

    if kind in ("id", "text"):
        refuse_rounded(column)
    if column.kind in ("empty", kind) or kind == "id":
        return column
    null = column.null
    present = column.values[~null]
    if kind == "text":
        text = np.full(len(null), None, dtype=object)
        if column.kind == "date":  # one by one: a time in one row does not change how the others are written
            present = np.array([np.datetime_as_string(cell, unit="auto") for cell in present], dtype=object)
        text[~null] = [
            str(int(cell)) if isinstance(cell, float) and cell.is_integer() else str(cell) for cell in present.tolist()
        ]
        return Column("text", text)
    if column.kind != "text":
        raise Wrong(int(np.flatnonzero(~null)[0]), f"{present[0]} is a {column.kind}, not a {kind}")
    known = np.flatnonzero(~null)
    cells = pd.Series(present, index=known, dtype=object)
    if kind == "number":
        parsed, wanted = pd.to_numeric(cells, errors="coerce"), "a number"
    else:
        parsed = pd.to_datetime(cells, errors="coerce", format="ISO8601", utc=True).dt.tz_localize(None)
        wanted = "a date in ISO form, as 2024-01-31 or 2024-01-31 18:30:00"
    if parsed.isna().any():
        row = int(known[parsed.isna().to_numpy().argmax()])
        raise Wrong(row, f"{column.values[row]!r} is not {wanted}")
    if parsed.dtype == np.int64:
        whole = np.zeros(len(null), np.int64)
        whole[known] = parsed
        return _integers(whole, null)
    return Column(kind, parsed.reindex(range(len(null))).to_numpy(np.float64 if kind == "number" else "datetime64[us]"))


def infer(cells: Any, decimal: str | None = ".") -> Column:
    """A column of texts in an Arrow table, read as numbers, or as true and false, or left as text.

    007 is text, not the key 7. Where half of the cells are too long for a number type, they are text, too.
    Words like NA are missing values among numbers. In a column of text they are text: NA may be Namibia.

    Parameters
    ----------
    decimal : the sign that decides where each number can be read in two ways, as 1,234; None: nothing does.

    Raises
    ------
    Undecided : nothing does, and such is the column.
    """
    known = missing_as_null(cells)
    found = _infer(cells, known, decimal)
    if found.kind == "text" or known.null_count == cells.null_count:
        return found
    return replace(found, words=_words(cells, known))


def _words(cells: Any, known: Any) -> tuple[tuple[str, int, int], ...]:
    """Which texts of `cells` are missing in `known`: each with the number of its cells, and the row of the first."""
    import pyarrow.compute as pc

    rows = np.flatnonzero(pc.and_(pc.is_null(known), pc.is_valid(cells)).to_numpy())
    texts, first, counts = np.unique(cells.take(rows).to_numpy().astype(str), return_index=True, return_counts=True)
    return tuple(zip(texts.tolist(), counts.tolist(), rows[first].tolist(), strict=True))


def _infer(cells: Any, known: Any, decimal: str | None) -> Column:
    """As `infer`; `known` are the cells without words for a missing value."""
    import pyarrow as pa
    import pyarrow.compute as pc

    known = _bare(known)
    if known.null_count == len(cells):
        return of_arrow(known)
    if pc.any(pc.match_substring_regex(known, r"^-?0[0-9xX]")).as_py():
        return of_arrow(cells)
    with contextlib.suppress(pa.ArrowInvalid):
        return of_arrow(known.cast(pa.int64()))
    numbers = as_written(known, decimal)
    with contextlib.suppress(pa.ArrowInvalid):
        return of_arrow(numbers.cast(pa.int64()))
    with contextlib.suppress(pa.ArrowInvalid):
        floats = numbers.cast(pa.float64())
        long = pc.sum(pc.match_substring_regex(numbers, r"^-?\d{16,}$")).as_py()
        return of_arrow(known if 2 * long >= len(known) - known.null_count else floats)
    lowered = pc.utf8_lower(known)
    if pc.all(pc.is_in(lowered, pa.array(["true", "false", None]))).as_py():
        return of_arrow(pc.equal(lowered, "true"))
    return of_arrow(cells)


def trimmed(cells: Any) -> Any:
    """`cells` of text that may be numbers, without blanks around them and a plus; NULL for a missing number."""
    return _bare(missing_as_null(cells))


def _bare(cells: Any) -> Any:
    import pyarrow.compute as pc

    bare = pc.utf8_trim_whitespace(cells)
    if pc.any(pc.match_substring_regex(bare, _INFINITE), min_count=0).as_py():
        bare = pc.replace_substring_regex(bare, _INFINITE, r"\1inf")
    signed = pc.any(pc.starts_with(bare, "+"), min_count=0).as_py()
    return pc.replace_substring_regex(bare, r"^\+", "") if signed else bare


def as_written(cells: Any, decimal: str | None) -> Any:
    """Trimmed cells with their numbers as a program writes them; texts as they are. See `infer`."""
    way = written_numbers.chosen(written_numbers.writings(cells), decimal)
    return cells if way is None else written_numbers.plain(cells, way)


def missing_as_null(cells: Any) -> Any:
    """`cells` of text with NULL in place of words for a missing number."""
    import pyarrow as pa
    import pyarrow.compute as pc

    plain = pc.utf8_lower(pc.utf8_trim_whitespace(cells))
    return pc.if_else(pc.is_in(plain, pa.array(MISSING)), pa.scalar(None, pa.string()), cells)


def words(column: Column) -> np.ndarray:
    """Which cells of a column of text are there but no numbers, (n,) bool."""
    import pandas as pd

    numbers = pd.to_numeric(pd.Series(column.values, dtype=object), errors="coerce")
    found: np.ndarray = numbers.isna().to_numpy() & ~column.null
    return found


def means_missing(text: str) -> bool:
    """Whether a text is a word for a missing number."""
    return text.strip().lower() in MISSING


def hashes(columns: Sequence[Column]) -> np.ndarray:
    """A hash of each row, (n,) uint64, the same on every machine."""
    from pandas.util import hash_array

    total = np.zeros(len(columns[0].values), dtype=np.uint64)
    for column in columns:
        values = (
            column.values
            if column.kind in (*TYPES, "empty")
            else np.array([repr(cell) for cell in column.values], dtype=object)
        )
        total = total * np.uint64(1_000_003) + hash_array(values)
    return total


def digest(columns: Sequence[Column]) -> tuple[int, int]:
    """The number of rows and a checksum, equal for the same rows in any order."""
    found = hashes(columns)
    return len(found), int(found.sum(dtype=np.uint64))


def stable_order(columns: Mapping[str, Column], keys: Sequence[str]) -> np.ndarray:
    """Order of the rows by keys, then by content: a database's table has no lasting order of its own."""
    import pandas as pd

    ranks = [pd.factorize(columns[key].values, sort=True)[0] for key in reversed(keys)]
    return np.lexsort([hashes(list(columns.values())), *ranks])
