"""Everything that `vflbench data check` says of a user's files: forms, columns, matching, problems; nothing is trained.

A run with the same keys is loaded. Where it would be refused, each file is judged by itself, as far as it can be read.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from vflbench.cards.data.tabular.tabular_files import Config
from vflbench.data import sanity
from vflbench.data.columns import inspection, judging
from vflbench.data.columns.judging import ColumnReport
from vflbench.data.readers import table_sources
from vflbench.data.readers.table_sources import Form, ReadTable
from vflbench.data.tabular import alignment, entries, tabular_files
from vflbench.data.tabular.alignment import Rows
from vflbench.data.tasks import AlignedTask
from vflbench.types import ConfigError, DataError, VflbenchError, refuse


@dataclass(frozen=True)
class File:
    """One file."""

    path: str
    rows: int
    form: Form | None  # None for Parquet
    columns: list[ColumnReport]

    @property
    def name(self) -> str:
        """Without its folder."""
        return Path(self.path).name

    def remarks(self) -> Iterator[tuple[str, str]]:
        """What there is to say, the gravest first: severity, sentence."""
        for severity in reversed(judging.SEVERITIES):
            for line in inspection.remark_lines(self.columns, severity):
                yield severity, line.removeprefix(f"{self.name}, ")


@dataclass
class Checked:
    """What is known of all files."""

    files: list[File]
    problems: list[str] = field(default_factory=list)  # for which a run would be refused
    matching: list[str] = field(default_factory=list)  # how rows of several files belong together
    advice: list[str] = field(default_factory=list)  # what to type next

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        files = [
            {
                "file": file.path,
                "rows": file.rows,
                "form": file.form and dataclasses.asdict(file.form),
                "columns": [column.as_dict() for column in file.columns],
            }
            for file in self.files
        ]
        said = {"problems": self.problems, "matching": self.matching, "advice": self.advice}
        return {"refused": bool(self.problems), "files": files, **said}


def check(config: Config, root: Path | None) -> Checked:
    """Look at the files of `config`, whose label and IDs may be missing."""
    problems, task = _tried(config, root)
    checked = Checked([], problems)
    rows: Sequence[np.ndarray | slice] = (task and task.rows) or [slice(None)] * len(config.files)
    read = [found for i, own in enumerate(rows) if (found := _file(config, i, root, own)) is not None]
    checked.files = [file for file, *_ in read]
    for file, about in zip(checked.files, task.source.tables if task else (), strict=False):
        known = {said["column"]: ColumnReport.from_dict(said) for said in about["columns"]}  # of the rows that are used
        file.columns[:] = [known.get(report.column, report) for report in file.columns]
    if len(read) == len(config.files) > 1:
        checked.matching = _matching(config, *zip(*read, strict=True))
    if config.label is None:
        checked.advice = ["Name the column to predict, which is in the first file: dataset.label=COLUMN"]
    return checked


def _tried(config: Config, root: Path | None) -> tuple[list[str], AlignedTask | None]:
    """The problems of a run, or what it loads; without a label only the problems of the files."""
    layout, parties = "aligned", max(1, len(config.files))
    if config.label is None:
        named = [p for p in tabular_files.check(config, layout, parties) if p.key != "dataset.label"]
        found = tabular_files.problems(config, root) if not named else inspection.Findings()
        return [*map(str, named), *found.messages()], None
    try:
        with alignment.quiet():
            task = tabular_files.load(config, layout, parties, 0, root)
            sanity.check(task, config)
            assert isinstance(task, AlignedTask)
            return [], task
    except ConfigError as error:
        return [*map(str, error.problems)], None
    except DataError as error:
        first, *others = str(error).splitlines()
        return [line.strip() for line in others] or [first], None


def _file(
    config: Config, index: int, root: Path | None, rows: np.ndarray | slice
) -> tuple[File, Rows | None, ReadTable] | None:
    """A file by itself, its IDs, and its columns; None where it cannot be read. Cells of `rows` count."""
    try:
        refuse(entries.check([config.files[index]]))
        (source,) = entries.find([config.files[index]], root)
        names = table_sources.columns(source)
        ids = [name for name in tabular_files.ids_of(config)[index] if name in names]
        table = table_sources.read_table(source, names, dict.fromkeys(ids, "id"))
        judged = (judging.judge(source, name, table.columns[name], rows, config) for name in names)
        reports = [_report(config, own.report, ids, index) for own in judged]
        known = alignment.rows_of(table, ids) if ids else None
        return File(str(source), table.rows, table_sources.form(source), reports), known, table
    except VflbenchError:
        return None


def _report(config: Config, about: ColumnReport, ids: Sequence[str], index: int) -> ColumnReport:
    name = about.column
    if name in ids:
        return dataclasses.replace(about, taken_for="id", why="dataset.id names it", becomes="matches rows", remarks=())
    if name == config.label and index == 0:
        kind = f"{about.distinct} classes" if config.task == "classes" else "the target"
        return dataclasses.replace(about, taken_for="label", why="dataset.label names it", becomes=kind, remarks=())
    if name in (config.time, config.entity):
        why = f"dataset.{'time' if name == config.time else 'entity'} names it"
        return dataclasses.replace(about, why=why, becomes="divides the rows", remarks=())
    if name in config.leave_out:
        return dataclasses.replace(about, why="dataset.leave_out names it", becomes=judging.LEFT_OUT, remarks=())
    return about


def _matching(
    config: Config, files: Sequence[File], ids: Sequence[Rows | None], tables: Sequence[ReadTable]
) -> list[str]:
    """How the rows of several files belong together, and which IDs differ only in how they are written."""
    named = tabular_files.ids_of(config)
    if any(named):
        rows = [own for own in ids if own is not None]
        if len(rows) < len(ids):  # a file has no such column, which is a problem
            return []
        common = len(set(rows[0].of).intersection(*(own.of for own in rows[1:])))
        counts = [f"{len(own.of)} of {file.name}" for file, own in zip(files, rows, strict=True)]
        told = f"Rows are matched by their IDs: {common} are in all files, of {' and '.join(counts)}."
        others = zip(tables[1:], rows[1:], strict=True)
        return [told, *(f"{line}." for own in others for line in alignment.near(tables[0], rows[0], *own))]
    try:
        evidence = tabular_files.looked_at(config, [table.columns for table in tables])
        found = alignment.align(named, config.alignment, tables, evidence)
    except DataError:
        return ["No ID is named, and rows cannot be matched by their order: dataset.id=COLUMN matches them by an ID."]
    advice = "" if any(found.named) else " dataset.id=COLUMN matches them by an ID."
    return [f"No ID is named, so rows are {found.note}.{advice}"]
