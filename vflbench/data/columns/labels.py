"""The label of a user's own table: classes or targets, and what is odd about them."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from vflbench.cards.data.columns.judging import Keys
from vflbench.data.columns import extremes, inspection, judging
from vflbench.data.columns.judging import ColumnReport, Judged
from vflbench.data.readers.cells import Column, means_missing
from vflbench.data.readers.table_sources import ReadTable
from vflbench.types import DataError


@dataclass(frozen=True)
class Labels:
    """What the column to predict holds."""

    values: np.ndarray  #: (n,) int64 classes, or float64 targets; of a missing one the number after the last, or NaN
    null: np.ndarray  #: (n,) bool: there is none
    classes: int  #: 0: regression
    note: str
    judged: Judged


def read(table: ReadTable, column: str, task: Literal["classes", "regression"], keys: Keys) -> Labels:
    """The labels in a column, as classes in the order of their names, or as targets.

    Raises
    ------
    DataError : there is nothing to learn, or there are no classes or numbers.
    """
    cells = judging.without_words(table.columns[column], keys.missing_words, table.decimal)
    if cells.null.all():
        refuse_missing(cells.null, column, table)
    return (_classes if task == "classes" else _targets)(cells, column, table)


def _classes(cells: Column, column: str, table: ReadTable) -> Labels:
    codes, names, merged = judging.category(cells)
    if len(names) < 2:
        raise DataError(f"{table}, column {column}: all labels are {names[0]!r}; there is nothing to learn")
    if 2 * len(names) > (count := int((~cells.null).sum())):
        many = f"{len(names)} different labels in {count} rows are no classes"
        raise DataError(f"{table}, column {column}: {many}; numbers can be learnt with dataset.task=regression")
    note = f"class 1 is {names[1]}, class 0 {names[0]}" if len(names) == 2 else f"{len(names)} classes"
    report = _report(cells, column, table, len(names), f"{len(names)} classes")
    judged = Judged(report)
    if merged:
        judged = judged.remark("warning", judging.differ(merged, "class"))
    for name in names if cells.kind == "text" else ():
        if means_missing(name):
            advice = "if it means that there is no label, empty the cells, or list it in dataset.missing_words"
            judged = judged.remark("warning", f"{name!r} is a class; {advice}", "dataset.missing_words")
    return Labels(codes.astype(np.int64), cells.null, len(names), note, judged)


def _targets(cells: Column, column: str, table: ReadTable) -> Labels:
    if cells.kind != "number":
        where = inspection.not_numbers(table.source, cells)
        told = f"holds {cells.kind}, not numbers{where}; use dataset.task=classes"
        raise DataError(f"{table}, column {column}: {told}")
    values = cells.values.astype(np.float64)
    if message := extremes.too_large(values, table.source):
        raise DataError(f"{table}, column {column}: {message}")
    report = _report(cells, column, table, len(np.unique(values[~cells.null])), "the target")
    return Labels(values, cells.null, 0, "", Judged(report))


def _report(cells: Column, column: str, table: ReadTable, distinct: int, becomes: str) -> ColumnReport:
    file, missing = judging.file_of(table.source), int(cells.null.sum())
    return ColumnReport(file, column, "label", "dataset.label names it", missing, distinct, becomes=becomes)


def refuse_missing(null: np.ndarray, column: str, table: ReadTable, used: np.ndarray | slice = slice(None)) -> None:
    """Refuse a row without a label, of those that are `used`."""
    if rows := np.sort(np.arange(len(null))[used][null[used]]).tolist():
        where = f"{table.place(rows[0])}, column {column}"
        raise DataError(f"{where}: no label; remove the row{inspection.others(table.source, rows)}")
