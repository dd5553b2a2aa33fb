"""What each column of a user's own table is taken for, why, and what becomes of it.

Only the column itself decides, and the keys of the data set: a party comes to the same columns as whoever reads all
files. Rows that other parties lack do not count.
"""

import datetime
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from numbers import Real
from typing import Any, Literal

import numpy as np

from vflbench.cards.data.columns.judging import Keys
from vflbench.data.columns import dates, extremes
from vflbench.data.readers import table_sources, written_numbers
from vflbench.data.readers.cells import TYPES, Column, infer, means_missing, trimmed, without_point
from vflbench.data.readers.identifiers import plain
from vflbench.data.readers.table_sources import Source

Kind = Literal["number", "category", "date", "text", "id", "label", "row number", "constant", "empty", "unknown"]
Severity = Literal["ok", "note", "warning", "error"]
SEVERITIES: tuple[Severity, ...] = ("ok", "note", "warning", "error")  # from the mildest on
MADE_UP = "__index_level_"  # pandas writes a frame's index into a Parquet file as columns with this prefix
MOST_CATEGORIES = 1000  # of one column; with more it is probably a key
LONG = 100  # characters of a text that is no category
_NAMELESS = re.compile(r"(Unnamed: \d+([._].*)?|\.\.\.\d+)?")  # as programs write that a column has no name
_NUMBERED = re.compile(r"index|level_\d+|column\d+")  # names that pandas or we give to columns without one
LEFT_OUT = "left out"
ROW_NUMBERS = "it has no name and numbers the rows, so it is left out"
IN_ORDER = "it numbers the rows in their order. If it has no other meaning, list"
NAMES = "its texts name each row"
# what stands before the sums below a table
SUMS: tuple[str, ...] = ("sum", "sums", "total", "totals", "grand total")
SUMS += ("summe", "summen", "gesamt", "gesamtsumme", "insgesamt")
SUMS += ("somme", "total général", "suma", "totale", "totaal")


@dataclass(frozen=True)
class Remark:
    """Something that the user should know about a column."""

    severity: Severity
    message: str
    key: str = ""  #: of the configuration, which changes it


@dataclass(frozen=True)
class ColumnReport:
    """What a column was taken for, why, and what becomes of it.

    Counts are of the rows that are used: those that all files have.
    """

    file: str
    column: str
    taken_for: Kind
    why: str
    missing: int = 0  #: cells
    distinct: int = 0  #: values
    odd: int = 0  #: cells that are not what the column was taken for
    odd_at: str = ""  #: one of them, with its line
    becomes: str = LEFT_OUT
    features: int = 0  #: that it becomes, at most
    leak: str = ""  #: how well it alone determines the label, where it nearly does
    remarks: tuple[Remark, ...] = ()

    @property
    def severity(self) -> Severity:
        """Of the worst remark."""
        return max((remark.severity for remark in self.remarks), key=SEVERITIES.index, default="ok")

    @property
    def name(self) -> str:
        """How a message names the column."""
        return f"column {self.column}" if self.column.strip() else "the column without a name"

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "severity": self.severity, "remarks": [asdict(remark) for remark in self.remarks]}

    @classmethod
    def from_dict(cls, said: Mapping[str, Any]) -> "ColumnReport":
        """What `as_dict` gave."""
        remarks = tuple(Remark(**remark) for remark in said["remarks"])
        return cls(**{key: value for key, value in said.items() if key != "severity"} | {"remarks": remarks})


@dataclass(frozen=True)
class Judged:
    """A column's report, and its cells as numbers; None where it is left out."""

    report: ColumnReport
    values: np.ndarray | None = None  #: (n,) float64 of all rows, NaN: missing; of a category indexes of `levels`
    levels: tuple[str, ...] | None = None  #: of a category; the last one is for a missing value
    texts: np.ndarray | None = None  #: (n,) of a column that is left out: what else may give the label away

    def remark(self, severity: Severity, message: str, key: str = "") -> "Judged":
        """As this one, with a remark more."""
        remarks = (*self.report.remarks, Remark(severity, message, key))
        return replace(self, report=replace(self.report, remarks=remarks))


def judge(source: Source, name: str, cells: Column, rows: np.ndarray | slice, keys: Keys) -> Judged:
    """What becomes of the column `name`, of which the `rows` are used."""
    cells = without_words(_plainer(cells), keys.missing_words, table_sources.decimal(source))
    about = _About(source, name, cells, rows, keys)
    if name.startswith(MADE_UP) and name not in (*keys.categories, *keys.numbers):
        return about.left_out("row number", "pandas wrote it", "is the index of a DataFrame, so it is left out")
    if about.null[rows].all():
        found = about.left_out("empty", "no cell has a value", "all cells are empty, so it is dropped")
    elif name in keys.categories:
        found = about.category("dataset.categories names it")
    elif cells.kind == "number":
        found = about.number(cells.values.astype(np.float64))
    elif cells.kind == "date":
        found = about.scaled("date", days(cells), "its type is date")
    elif cells.kind == "text":
        found = about.coerced() if name in keys.numbers else about.text()
    else:
        message = f"holds {cells.kind}, not numbers or texts; list it in dataset.leave_out"
        found = about.left_out("unknown", f"its type is {cells.kind}", message, "error", "dataset.leave_out")
    return found


def names_rows(judged: Judged) -> Judged:
    """A column that other files have, too, in the same order of the rows."""
    if judged.values is None:
        return judged
    why = "other files have the same values in the same order"
    report = replace(judged.report, taken_for="id", why=why, becomes=LEFT_OUT, features=0)
    message = f"{why}, so it names the rows and is left out"
    return Judged(report).remark("note", message, "dataset.categories" if judged.levels else "dataset.numbers")


def category(cells: Column) -> tuple[np.ndarray, tuple[str, ...], list[tuple[str, str]]]:
    """Codes of the values, and the values in their order; values that differ only in spaces or capitals are one.

    Returns
    -------
    codes, (n,) int64 : a missing value has the number after the last.
    values : the more frequent writing of each.
    merged : pairs of a writing and the one that it counts as.
    """
    import pandas as pd

    codes, found = pd.factorize(cells.values, sort=True)
    if cells.kind != "text":
        return np.where(codes < 0, len(found), codes), tuple(map(str, found)), []
    counts = np.bincount(codes[codes >= 0], minlength=len(found))
    names: dict[str, str] = {}
    for place in np.argsort(-counts, kind="stable").tolist():
        names.setdefault(plain(found[place]), found[place])
    chosen = [names[plain(text)] for text in found]
    kept = sorted(names.values())
    places = {name: place for place, name in enumerate(kept)}
    numbers = np.array([*(places[name] for name in chosen), len(kept)])  # the last one is for -1
    return numbers[codes], tuple(kept), [(text, name) for text, name in zip(found, chosen, strict=True) if text != name]


def days(cells: Column) -> np.ndarray:
    """A column of dates as days since 1970, (n,) float64; NaN: missing."""
    return np.where(cells.null, np.nan, cells.values.astype(np.int64) / 86.4e9)


def constant(complete: bool) -> str:
    """The sentence about a column of one value, which every cell has if it is `complete`."""
    same = "all cells have the same value" if complete else "all cells with a value have the same one"
    return f"{same}, so it is dropped"


def differ(merged: Sequence[tuple[str, str]], what: str) -> str:
    """The sentence about writings that count as one."""
    more = f" (and {len(merged) - 1} more)" if merged[1:] else ""
    first, other = merged[0]
    if unicodedata.normalize("NFC", first) == unicodedata.normalize("NFC", other):  # they look the same
        return f"{first!a} and {other!a} differ only in their form of Unicode, and count as one {what}{more}"
    how = "spaces or capitals" if _lower(first) == _lower(other) else "how letters are written (as ß and ss)"
    return f"{first!r} and {other!r} differ only in {how}, and count as one {what}{more}"


def _lower(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", text).lower().split())


def _plainer(cells: Column) -> Column:
    """Times and spans as numbers of days; a mix of texts, numbers and dates, as in spreadsheets, as texts."""
    if cells.kind in (*TYPES, "empty"):
        return cells
    null, values = cells.null, np.full(len(cells.values), np.nan)
    known = [*cells.values[~null]]
    if cells.kind == "time":
        values[~null] = [(60 * (60 * at.hour + at.minute) + at.second + at.microsecond / 1e6) / 86400 for at in known]
        return Column("number", values)
    if cells.kind in ("timedelta", "Timedelta"):
        values[~null] = [span.total_seconds() / 86400 for span in known]
        return Column("number", values)
    if not any(isinstance(cell, str) for cell in known) or (texts := as_texts(known)) is None:
        return cells
    written = np.full(len(values), None, dtype=object)
    written[~null] = texts
    return Column("text", written)


def as_texts(cells: Sequence[Any]) -> list[str] | None:
    """Texts, numbers and dates, all as texts; None where there is something else."""
    if not all(isinstance(cell, str | Real | datetime.date) and not isinstance(cell, bool) for cell in cells):
        return None
    whole = map(without_point, cells)
    return [cell.isoformat() if isinstance(cell, datetime.date) else str(cell) for cell in whole]


def without_words(cells: Column, named: Sequence[str], decimal: str) -> Column:
    """The column without the words that the user names, and without others if then all cells are numbers."""
    import pandas as pd
    import pyarrow as pa

    wanted = {plain(word) for word in named}
    if cells.kind == "number" and wanted:
        values = cells.values.astype(np.float64)
        numbers = trimmed(pa.array([*wanted], pa.string())).to_pylist()
        coded = np.isin(values, pd.to_numeric(pd.Series(numbers), errors="coerce").dropna())
        return replace(cells, values=np.where(coded, np.nan, values)) if coded.any() else cells
    if cells.kind != "text":
        return cells
    codes, found = pd.factorize(cells.values)
    bare = [plain(text) for text in found]
    gone = np.array([text == "" or text in wanted for text in bare] + [True])
    values = cells.values.copy()
    values[gone[codes]] = None
    kept = replace(cells, values=values)
    if any(text in wanted or means_missing(text) for text in bare):
        as_numbers = infer(pa.chunked_array([pa.array(kept.values, pa.string())]), decimal)
        if as_numbers.kind == "number":
            words = [(found[place], *_where(codes == place)) for place in np.flatnonzero(gone[:-1]).tolist()]
            return replace(as_numbers, words=(*as_numbers.words, *words))
    return kept


def _where(chosen: np.ndarray) -> tuple[int, int]:
    """How many are chosen, and the first of them."""
    return int(chosen.sum()), int(chosen.argmax())


@dataclass(frozen=True)
class _About:
    """A column that is being judged."""

    source: Source
    column: str
    cells: Column
    rows: np.ndarray | slice
    keys: Keys

    @property
    def null(self) -> np.ndarray:
        """Which of all cells are missing."""
        return self.cells.null

    def _report(self, kind: Kind, why: str, **more: Any) -> ColumnReport:
        import pandas as pd

        cells = self.cells.values[self.rows]
        if self.cells.kind not in (*TYPES, "empty"):  # lists and dictionaries have no hash
            cells = np.array(
                [None if lacks else repr(cell) for cell, lacks in zip(cells, self.null[self.rows], strict=True)]
            )
        codes, found = pd.factorize(cells)
        counts = {"missing": int((codes < 0).sum()), "distinct": len(found)}
        return ColumnReport(file_of(self.source), self.column, kind, why, **{**counts, **more})

    def _at(self, row: int) -> str:
        return table_sources.within(self.source, row)

    def left_out(self, kind: Kind, why: str, message: str, severity: Severity = "note", key: str = "") -> Judged:
        """A column that is no feature."""
        return Judged(self._report(kind, why)).remark(severity, message, key)

    # --- numbers and dates --------------------------------------------------------------------------------------------

    def number(self, values: np.ndarray) -> Judged:
        """A column of numbers."""
        if message := extremes.too_large(values, self.source):
            return self.left_out("number", "it holds numbers", message, "error", "dataset.missing_words")
        severity, far = extremes.far(values, self.source)
        if severity == "error":
            return self.left_out("number", "it holds numbers", far, severity, "dataset.missing_words")
        asked = self.column in self.keys.numbers
        if not asked and numbers_rows(self.column, values):
            advice = f"List {self.column!r} in dataset.numbers to keep it"
            return self.left_out("row number", "it counts", f"{ROW_NUMBERS}. {advice}", "warning", "dataset.numbers")
        read = None if asked else dates.of_integers(values)
        if read is not None:
            found = self.scaled("date", read, "its numbers are dates, as 20201231")
            return found.remark("note", "its numbers are read as dates (year, month, day)", "dataset.numbers")
        found = self.scaled("number", values, "all cells are numbers")
        if found.values is not None and not asked and counts_rows(values):
            found = found.remark("warning", f"{IN_ORDER} it in dataset.leave_out", "dataset.leave_out")
        return found.remark(severity, far, "dataset.missing_words") if far else found

    def scaled(self, kind: Kind, values: np.ndarray, why: str) -> Judged:
        """A column that becomes one number, unless it is constant."""
        known = values[self.rows]
        known = known[~np.isnan(known)]
        if known.min() == known.max():
            return self.left_out("constant", "it has one value", constant(len(known) == len(self.null[self.rows])))
        words = self.cells.words
        odd = sum(count for _, count, _ in words)
        at = f"{words[0][0]!r} in {self._at(words[0][2])}" if words else ""
        missing = int(np.isnan(values[self.rows]).sum())
        counts = {"missing": missing, "distinct": len(np.unique(known)), "odd": odd, "odd_at": at}
        report = self._report(kind, why, becomes="1 standardised number", features=1, **counts)
        if not words:
            return Judged(report, values)
        listed = ", ".join(f"{word!r} ({count})" for word, count, _ in words)
        message = f"{odd} cells count as missing, as the others are {kind}s: {listed}, first in {self._at(words[0][2])}"
        return Judged(report, values).remark("note", message, "dataset.categories")

    def _numbers(self, texts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return written_numbers.values(texts, table_sources.decimal(self.source))

    def coerced(self) -> Judged:
        """A column of texts that the user calls numbers."""
        values, _ = self._numbers(self.cells.values)
        wrong = np.isnan(values) & ~self.null
        if np.isnan(values[self.rows]).all():
            message = "dataset.numbers names it, but no cell is a number"
            return self.left_out("text", "no cell is a number", message, "error", "dataset.numbers")
        count, first = _where(wrong)
        words = ((self.cells.values[first], count, first),) if count else ()
        return replace(self, cells=Column("number", values, words)).number(values)

    def _example(self) -> str:
        return repr(self.cells.values[~self.null][0])

    # --- texts --------------------------------------------------------------------------------------------------------

    def text(self) -> Judged:
        """A column of texts, and whether its last row is a sum."""
        found, texts = self._text(), self.cells.values
        last = len(texts) - 1
        if (
            self.null[last]
            or plain(texts[last]).rstrip(" :") not in SUMS
            or last not in np.arange(len(texts))[self.rows]
        ):
            return found
        if (texts == texts[last]).sum() > 1:
            return found
        message = f"{texts[last]!r} in {self._at(last)}, the last one, seems to name a row of sums: remove that row"
        return found.remark("warning", message)

    def _text(self) -> Judged:
        """A column of texts: dates, a category, or left out."""
        import pandas as pd

        known = pd.Series(self.cells.values, dtype=object)
        known = known.mask(known.isin([text for text in known.dropna().unique() if means_missing(text)]))
        there = known.notna().to_numpy()
        read = dates.read(known.to_numpy(), self.keys.dates)
        if read is not None and read.all_of(there):
            return self._dates(read)
        numbers, meant = self._numbers(known.where(there, None).to_numpy())
        if 2 * meant.sum() > there.sum():
            return self._words(there & np.isnan(numbers), "numbers")
        return self._words(there & np.isnan(read.days) if read else ~there & False, read.writing if read else "")

    def _dates(self, read: dates.Dates) -> Judged:
        """A column of which all cells are dates."""
        gaps = np.isnan(read.days) & ~self.null
        words = tuple((word, *_where(self.cells.values == word)) for word in sorted({*self.cells.values[gaps]}))
        found = replace(self, cells=replace(self.cells, words=words)).scaled("date", read.days, f"{read.writing}")
        if found.values is None:
            return found
        key = "dataset.dates"
        if read.ambiguous:
            found = found.remark("warning", f"{read.doubt}. Set {key} to day_first or month_first", key)
        elif "first" in read.writing:
            found = found.remark("note", f"read as {read.writing}, {read.why}", key)
        elif read.writing != "dates":
            message = f"read as {read.writing}, as {self._example()}; list it in dataset.categories if they are codes"
            found = found.remark("note", message, "dataset.categories")
        if read.short:
            found = found.remark("note", "years of two digits are read as 1969 to 2068")
        return found

    def _words(self, wrong: np.ndarray, others: str) -> Judged:
        """A column of texts that are no dates; where most are `others`, some are `wrong`."""
        found = self._categories("its cells are texts")
        if (report := found.report).taken_for == "constant":
            return found
        reason = self._unlearnable(report.distinct, report.distinct > MOST_CATEGORIES)
        odd = np.flatnonzero(wrong).tolist()
        if reason:
            kind: Kind = "id" if reason == NAMES else "text"
            report = replace(report, taken_for=kind, becomes=LEFT_OUT, features=0, remarks=())
            found = Judged(report, texts=self.cells.values)
        if odd:
            at = f"{self.cells.values[odd[0]]!r} in {self._at(odd[0])}"
            found = replace(found, report=replace(found.report, odd=len(odd), odd_at=at))
            fate = "is left out" if reason else f"becomes {found.report.becomes}"
            message = (
                f"most cells are {others}, but not all ({len(odd)} of {len(wrong)}, e.g. {at}), so the column {fate}"
            )
            advice = "list them in dataset.missing_words, or the column in dataset.numbers or dataset.categories"
            return found.remark("warning", f"{message}. Correct them, or {advice}", "dataset.missing_words")
        if not reason:
            return found
        if report.distinct > MOST_CATEGORIES:
            message = f"{reason}, so it is left out. Group the values, or list it in dataset.leave_out"
            return found.remark("warning", message, "dataset.leave_out")
        message = f"{reason}, so it is left out. List it in dataset.categories to one-hot encode it"
        return found.remark("warning", message, "dataset.categories")

    def _unlearnable(self, distinct: int, many: bool) -> str:
        """Why nothing can be learnt from a column of texts; empty: it can."""
        texts = self.cells.values[self.rows][~self.null[self.rows]]
        if distinct == len(texts) and distinct > 1:
            return NAMES
        if many:
            return f"it has {distinct:,} distinct texts, and one-hot encoding is limited to {MOST_CATEGORIES:,}"
        if 2 * distinct > len(texts):
            return f"most of its {len(texts):,} texts are distinct ({distinct:,}, as {texts[0][:40]!r})"
        if 2 * sum(len(text) > LONG for text in texts) > len(texts):
            return f"most of its texts have more than {LONG} characters"
        return ""

    def category(self, why: str) -> Judged:
        """A column that the user calls a category."""
        found = self._categories(why)
        if found.report.distinct > MOST_CATEGORIES and found.values is not None:
            limit = f"one-hot encoding is limited to {MOST_CATEGORIES:,}"
            message = f"dataset.categories names it, but it has {found.report.distinct:,} distinct values; {limit}"
            return Judged(found.report).remark("error", message, "dataset.categories")
        return found

    def _categories(self, why: str) -> Judged:
        """A column that becomes a 0/1 column for each value, unless it is constant."""
        codes, names, merged = category(self.cells)
        used = np.unique(codes[self.rows])
        report = self._report("category", why, becomes=f"{len(used)} 0/1 columns", features=len(used))
        report = replace(report, distinct=int((used < len(names)).sum()))
        if len(used) == 1:
            return self.left_out("constant", "it has one value", constant(complete=True))
        found = Judged(report, codes.astype(np.float64), (*names, ""))
        if merged:
            found = found.remark("note", differ(merged, "category"))
        words = [name for name in names if means_missing(name)] if self.cells.kind == "text" else []
        if words:
            listed = ", ".join(map(repr, words))
            message = f"{listed} counts as a value, since the others are texts"
            message += "; list it in dataset.missing_words to count it as missing"
            found = found.remark("note", message, "dataset.missing_words")
        return found


# --- names and numbers of rows ----------------------------------------------------------------------------------------


def file_of(source: Source) -> str:
    """A file's name, without its folder."""
    return source.url.rpartition("/")[2]


def named(column: str) -> str:
    """How a message names a column, of which some have no name."""
    return column if column.strip() else f"{column!r} (it has no name)"


def numbers_rows(column: str, values: np.ndarray) -> bool:
    """Whether a column has no name of its own and numbers the rows: in any order, and of some rows that were kept."""
    nameless = _NAMELESS.fullmatch(column.strip())
    if nameless is None and _NUMBERED.fullmatch(column.strip()) is None:
        return False
    kept = nameless and len(values) > 1 and bool((values == np.floor(values)).all() and (np.diff(values) > 0).all())
    return bool(kept) or counts_rows(np.sort(values))


def counts_rows(values: np.ndarray) -> bool:
    """Whether the numbers count the rows: from 0 or 1 in steps of 1."""
    return len(values) > 1 and bool(values[0] in (0, 1) and (np.diff(values) == 1).all())
