"""What is wrong with a user's files, all at once; and what was matched, imputed and encoded.

Loading stops at the first problem. Only then are the files looked through for all of them, column by column, with the
functions that loading uses: a problem has one text.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from vflbench.data.relational import sql_sources
from vflbench.data.relational.cells import MISSING, Column
from vflbench.data.relational.sql_sources import Source
from vflbench.data.tabular.table import Table
from vflbench.types import ConfigError, DataError, Problem, VflbenchError

DIVISION = ("algorithm.parties", "dataset.columns")  # keys that are checked once all columns are known
SHOWN = 3  # lines that a message names


class Findings:
    """The problems of a user's files: of keys and columns, and of what is in the files."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.lines: list[str] = []

    def of(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """What the function returns, () for nothing; None, with its problems noted, where it refuses."""
        try:
            result = function(*arguments)
            return () if result is None else result
        except ConfigError as error:
            self.problems += [problem for problem in error.problems if problem not in self.problems]
        except (DataError, OSError) as error:
            self.note(str(error))
        return None

    def note(self, line: str) -> None:
        """Add a problem that is not there yet."""
        if line not in self.lines:
            self.lines.append(line)

    def error(self, first: VflbenchError) -> VflbenchError:
        """All problems as one error, with the `first` one, at which loading stopped, where it was not found again."""
        if not isinstance(first, ConfigError):
            self.note(str(first))
        elif not self.lines or any(problem.key in DIVISION for problem in first.problems):
            self.problems += [problem for problem in first.problems if problem not in self.problems]
        told = [*map(str, self.problems), *self.lines]
        if not self.lines:
            return ConfigError(self.problems)
        return DataError("\n  ".join([f"{len(told)} problems in your files:", *told]) if told[1:] else told[0])


def places(source: Source, rows: Sequence[int]) -> str:
    """How a message names several rows: the first few by their lines."""
    first = [sql_sources.place(source, row).removeprefix(f"{source}, ") for row in rows[:SHOWN]]
    more = f" and {len(rows) - SHOWN} more" if len(rows) > SHOWN else ""
    return f"{', '.join(first)}{more}"


def others(source: Source, rows: Sequence[int]) -> str:
    """The end of a message about the first of several rows: which others there are."""
    return f" (also {places(source, rows[1:])})" if len(rows) > 1 else ""


def blank(source: Source, held: Mapping[str, Column], features: Sequence[str]) -> Iterator[str]:
    """Columns without any value, and rows that have none in any column to learn from."""
    present = {name: held[name] for name in features if name in held}
    for name, column in present.items():
        if len(column.values) and column.null.all():
            yield f"{source}, column {name}: all {len(column.values)} cells are empty; name it in dataset.leave_out"
    if present:
        rows = np.flatnonzero(np.all([column.null for column in present.values()], axis=0)).tolist()
        if rows:
            yield f"{source}: no value in any column to learn from in {places(source, rows)}"


def copies(
    label: Column,
    name: str,
    sources: Sequence[Source],
    held: Sequence[dict[str, Column]],
    features: Sequence[Sequence[str]],
) -> Iterator[str]:
    """Features that equal the label."""
    for source, columns, own in zip(sources, held, features, strict=True):
        for column in own:
            if columns[column].kind == label.kind and np.array_equal(columns[column].values, label.values):
                yield f"{source}, column {column}: the same values as the label {name}; name it in dataset.leave_out"


def odd_classes(source: Source, name: str, label: Column) -> Iterator[str]:
    """Classes that may be none: words for a missing value, and classes that differ in blanks or capitals alone."""
    plain: dict[str, str] = {}
    for value in sorted({*label.values[~label.null]}) if label.kind == "text" else ():
        if value.strip() in MISSING:
            yield f"{source}, column {name}: {value!r} is a class; empty the cells of rows without a label"
        if (other := plain.setdefault(value.strip().casefold(), value)) != value:
            yield f"{source}, column {name}: {other!r} and {value!r} are two classes, apart by blanks or capitals alone"


def mostly_numbers(source: Source, held: Mapping[str, Column], features: Sequence[str]) -> Iterator[str]:
    """Columns of texts whose cells are mostly numbers: one typing error makes a category of each number."""
    import pandas as pd

    for name in features:
        cells = held[name]
        if cells.kind != "text":
            continue
        known = pd.Series(cells.values).dropna()
        numbers = pd.to_numeric(known.str.replace(",", ""), errors="coerce")  # 6,1 and 1,000 are meant as numbers
        if 2 * numbers.notna().sum() > len(known) and (where := not_numbers(source, cells)):
            advice = "correct them, or name the column in dataset.categories"
            yield f"{source}, column {name}: its texts are mostly numbers, but not all{where}: {advice}"


def not_numbers(source: Source, cells: Column) -> str:
    """Which cells are no numbers: the first one, and the lines of a few others."""
    import pandas as pd

    rows = np.flatnonzero(pd.to_numeric(pd.Series(cells.values), errors="coerce").isna() & ~cells.null).tolist()
    return f", as {cells.values[rows[0]]!r} in {places(source, rows)}" if rows and cells.kind == "text" else ""


# --- what was made of the files ---------------------------------------------------------------------------------------


def summary(
    sources: Sequence[Source],
    counts: Sequence[int],
    rows: Sequence[np.ndarray | slice],
    features: Sequence[Sequence[str]],
    table: Table,
    blanks: Sequence[Sequence[str]],
    labelled: int,
) -> tuple[dict[str, Any], ...]:
    """Per file what was matched, imputed and encoded.

    Parameters
    ----------
    counts : per file, of its rows.
    rows : per file those that are used; table : these side by side.
    blanks : per file, what `blank` found.
    labelled : of the first file's rows that not all have, those with a label.
    """
    found, ends = [], np.cumsum([0, *map(len, features)])
    for i, (source, count, chosen, own) in enumerate(zip(sources, counts, rows, features, strict=True)):
        alone = take(chosen, count).tolist()
        missing: dict[str, int] = {}
        levels: dict[str, int] = {}
        for name, place in zip(own, range(ends[i], ends[i + 1]), strict=True):
            if (known := table.levels.get(table.columns[place])) is not None:
                levels[name] = len(np.unique(table.values[:, place])) if len(table.values) else len(known)
            elif gaps := int(np.isnan(table.values[:, place]).sum()):
                missing[name] = gaps
        about = {"file": source.url.rpartition("/")[2], "rows": count, "matched": count - len(alone)}
        about |= {"not_in_all": len(alone), "labelled_not_in_all": 0 if i else labelled}
        about |= {"not_in_all_at": places(source, alone), "imputed": missing, "encoded": levels}
        found.append({**about, "blank": list(blanks[i])})
    return tuple(found)


def in_words(tables: Sequence[Mapping[str, Any]], own_rows: str = "ignore", trains: bool | None = None) -> list[str]:
    """The summary for a reader, a line for each file.

    Parameters
    ----------
    own_rows : the data set's key.
    trains : whether the method can use rows that only the labels' owner has; None: it is not known yet.
    """
    use = "not used (own_rows=ignore)" if own_rows == "ignore" else "used for means and scales of its own columns"
    whose = {True: " and of this method", False: "; this method cannot use them", None: " and of methods that can"}
    lines = []
    for about in tables:
        parts = [f"{about['rows']} rows"]
        if len(tables) > 1:
            parts.append(f"{about['matched']} of them in all files")
        if alone := about["not_in_all"]:
            labelled = about["labelled_not_in_all"]
            more = ", the labelled ones as training rows of the label owner alone" + whose[trains]
            used = use + (more if labelled and own_rows == "train" else "")
            parts.append(f"{alone} that not all have ({labelled} labelled), {used}, in {about['not_in_all_at']}")
        if about["imputed"]:
            named = ", ".join(f"{name} ({count})" for name, count in about["imputed"].items())
            parts.append(f"missing, replaced by the mean: {named}")
        if about["encoded"]:
            named = ", ".join(f"{name} ({count})" for name, count in about["encoded"].items())
            parts.append(f"one 0/1 column for each value: {named}")
        written = about.get("written") or {"plain": True}
        lines += [] if written["plain"] else [f"{about['file']}: {written['words']}"]
        lines += ["; ".join([f"{about['file']}: {parts[0]}", *parts[1:]]), *about["blank"]]
    return lines


def take(rows: np.ndarray | slice, count: int) -> np.ndarray:
    """Of `count` rows those that are not in `rows`."""
    return np.setdiff1d(np.arange(count), np.arange(count)[rows])
