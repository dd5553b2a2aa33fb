"""What is wrong with a user's files, all at once; and what was matched, imputed and encoded.

Loading stops at the first problem. Only then are the files looked through for all of them, column by column, with the
functions that loading uses: a problem has one text.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from vflbench.cards.data.columns.judging import Keys
from vflbench.data.columns import judging
from vflbench.data.columns.judging import ColumnReport, Judged, Remark, Severity
from vflbench.data.divide import splits
from vflbench.data.readers import table_sources
from vflbench.data.readers.cells import Column, words
from vflbench.data.readers.table_sources import ReadTable, Source
from vflbench.types import ConfigError, DataError, Problem, VflbenchError

DIVISION = ("algorithm.parties", "dataset.columns")  # keys that are checked once all columns are known
SHOWN = 3  # lines that a message names
MOST_NAMED = 5  # columns that a message names


class Findings:
    """The problems of a user's files: of keys and columns, and of what is in the files."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.lines: list[str] = []

    def attempt(self, function: Callable[..., Any], *arguments: Any) -> Any:
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

    def messages(self) -> list[str]:
        """All problems, a line each."""
        return [*map(str, self.problems), *self.lines]

    def error(self, first: VflbenchError) -> VflbenchError:
        """All problems as one error, with the `first` one, at which loading stopped, where it was not found again."""
        if not isinstance(first, ConfigError):
            self.note(str(first))
        elif not self.lines or any(problem.key in DIVISION for problem in first.problems):
            self.problems += [problem for problem in first.problems if problem not in self.problems]
        told = self.messages()
        if not self.lines:
            return ConfigError(self.problems)
        return DataError("\n  ".join([f"{len(told)} problems in your files:", *told]) if told[1:] else told[0])


def places(source: Source, rows: Sequence[int]) -> str:
    """How a message names several rows: the first few by their lines."""
    first = [table_sources.within(source, row) for row in rows[:SHOWN]]
    more = f" and {len(rows) - SHOWN} more" if len(rows) > SHOWN else ""
    return f"{', '.join(first)}{more}"


def others(source: Source, rows: Sequence[int]) -> str:
    """The end of a message about the first of several rows: which others there are."""
    return f" (also {places(source, rows[1:])})" if len(rows) > 1 else ""


def blank(table: ReadTable, features: Sequence[str]) -> Iterator[str]:
    """Rows that have no value in any column to learn from."""
    present = [table.columns[name] for name in features if table.columns[name].kind != "empty"]
    if present and (rows := np.flatnonzero(np.all([column.null for column in present], axis=0)).tolist()):
        yield f"{table}: no value in any column to learn from in {places(table.source, rows)}"


def inspect(
    table: ReadTable, features: Sequence[str], rows: np.ndarray | slice, keys: Keys, named: Collection[str] = ()
) -> list[Judged]:
    """Each column to learn from: what it is taken for, and what becomes of it.

    Parameters
    ----------
    table : the columns that are judged are taken out.
    rows : those that are used.
    named : columns that name rows in several files: they are left out unless a key asks for them.
    """
    judged = [judging.judge(table.source, name, table.columns.pop(name), rows, keys) for name in features]
    names = {*named} - {*keys.numbers, *keys.categories}
    return [judging.names_rows(own) if own.report.column in names else own for own in judged]


def errors(table: ReadTable, judged: Iterable[Judged]) -> list[str]:
    """What must be mended before anything can be learnt from the file."""
    return [
        f"{table}, {report.name}: {remark.message}" for report, remark in _remarks(judged) if remark.severity == "error"
    ]


def _remarks(judged: Iterable[Judged]) -> Iterator[tuple[ColumnReport, Remark]]:
    return ((own.report, remark) for own in judged for remark in own.report.remarks)


def remark_lines(reports: Iterable[ColumnReport], severity: Severity) -> list[str]:
    """The remarks of a severity, each once, with the columns that have it."""
    found: dict[tuple[str, str], list[str]] = {}
    for report in reports:
        for remark in report.remarks:
            if remark.severity == severity:
                found.setdefault((report.file, remark.message), []).append(report.name)
    return [f"{file}, {_named(names)}: {message}" for (file, message), names in found.items()]


def _named(names: Sequence[str]) -> str:
    if len(names) == 1:
        return names[0]
    shown = ", ".join(name.removeprefix("column ") for name in names[:MOST_NAMED])
    return f"columns {shown}{f' and {len(names) - MOST_NAMED} more' if len(names) > MOST_NAMED else ''}"


def not_numbers(source: Source, cells: Column) -> str:
    """Which cells are no numbers: the first one, and the lines of a few others."""
    rows = np.flatnonzero(words(cells)).tolist() if cells.kind == "text" else []
    return f", as {cells.values[rows[0]]!r} in {places(source, rows)}" if rows else ""


# --- what was made of the files ---------------------------------------------------------------------------------------


def summary(
    tables: Sequence[ReadTable],
    rows: Sequence[np.ndarray | slice],
    reports: Sequence[Sequence[ColumnReport]],
    blanks: Sequence[Sequence[str]],
    labelled: int,
    named: Sequence[Collection[str]],
) -> tuple[dict[str, Any], ...]:
    """Per file what was matched, imputed and encoded, and what there is to say about its columns.

    Parameters
    ----------
    rows : per file those that are used.
    blanks : per file, what `blank` found.
    labelled : of the first file's rows that not all have, those with a label.
    named : per file, the columns that name its rows.
    """
    found = []
    for i, (table, chosen, own) in enumerate(zip(tables, rows, reports, strict=True)):
        source, alone = table.source, take(chosen, table.rows).tolist()
        kept = [report for report in own if report.features]
        missing = {report.column: report.missing for report in kept if report.taken_for != "category"}
        levels = {report.column: report.features for report in kept if report.taken_for == "category"}
        about = {"file": judging.file_of(source), "rows": table.rows, "matched": table.rows - len(alone)}
        about |= {"not_in_all": len(alone), "labelled_not_in_all": 0 if i else labelled}
        about |= {"not_in_all_at": places(source, alone)}
        about |= {"imputed": {name: gaps for name, gaps in missing.items() if gaps}, "encoded": levels}
        said = [report.as_dict() for report in own if report.remarks]
        form = table_sources.form(source)
        about |= {"blank": list(blanks[i]), "columns": said, "names_rows": sorted(named[i])}
        found.append({**about, "written": form and asdict(form)})
    return tuple(found)


def leaks(tables: Sequence[Mapping[str, Any]]) -> list[str]:
    """Of the summary, the columns that alone nearly determine the label."""
    reports = [ColumnReport.from_dict(said) for about in tables for said in about.get("columns", ())]
    return [f"{report.file}, {report.name}: {report.leak}" for report in reports if report.leak]


def in_words(tables: Sequence[Mapping[str, Any]], own_rows: str = "ignore", trains: bool | None = None) -> list[str]:
    """The summary for a reader, a line for each file.

    Parameters
    ----------
    own_rows : the data set's key.
    trains : whether the method can use rows that only the labels' owner has; None: it is not known yet.
    """
    use = "are dropped (own_rows=ignore)" if own_rows == "ignore" else "count for means and scales of its own columns"
    whose = {True: " and this method", False: ", but not this method", None: " and methods that can use them"}
    lines = []
    for about in tables:
        if "rows" not in about:  # of graphs and joined tables
            lines += remark_lines((ColumnReport.from_dict(said) for said in about["columns"]), "note")
            continue
        parts = [f"{about['rows']} rows"]
        if len(tables) > 1:
            parts.append(f"{about['matched']} of them in all files")
        if alone := about["not_in_all"]:
            labelled = about["labelled_not_in_all"]
            used = f", and train the local-only baseline{whose[trains]}" if labelled and own_rows == "train" else ""
            parts.append(f"{alone} rows have no match in the other files and {use}")
            parts.append(f"{labelled} of them have labels{used}; first: {about['not_in_all_at']}")
        if about["imputed"]:
            named = ", ".join(f"{name} ({count})" for name, count in about["imputed"].items())
            parts.append(f"missing, replaced by the mean: {named}")
        if about["encoded"]:
            named = ", ".join(f"{name} ({count})" for name, count in about["encoded"].items())
            parts.append(f"one 0/1 column for each value: {named}")
        written = about.get("written") or {"plain": True}
        lines += [] if written["plain"] else [f"{about['file']}: {written['words']}"]
        lines += ["; ".join([f"{about['file']}: {parts[0]}", *parts[1:]]), *about["blank"]]
        lines += remark_lines((ColumnReport.from_dict(said) for said in about.get("columns", ())), "note")
    return lines + [line for about in tables if "splits" in about for line in splits.in_words(about["splits"])]


def take(rows: np.ndarray | slice, count: int) -> np.ndarray:
    """Of `count` rows those that are not in `rows`."""
    return np.setdiff1d(np.arange(count), np.arange(count)[rows])
