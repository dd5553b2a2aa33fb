"""The columns of `dataset=sql`: how the parts of a table become features, and which columns determine the label."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from vflbench.cards.data.relational.sql import Config
from vflbench.data.columns import dates, extremes, leaks
from vflbench.data.columns.judging import (
    IN_ORDER,
    MOST_CATEGORIES,
    ROW_NUMBERS,
    ColumnReport,
    Judged,
    Kind,
    constant,
    counts_rows,
    days,
    numbers_rows,
)
from vflbench.data.divide.raw_tables import RawTable, RawTables, joining
from vflbench.data.readers.cells import Column, Wrong, as_type, concatenate, refuse_rounded, words
from vflbench.data.readers.table_sources import ReadTable
from vflbench.data.relational.sql_config import called, deciding, keys_of, roles_of
from vflbench.data.tasks.join import hand_over, join
from vflbench.types import DataError

log = logging.getLogger(__name__)


def place_of(parts: Sequence[ReadTable], row: int) -> str:
    """How a message names a row that is counted through all parts."""
    ends = np.cumsum([part.rows for part in parts])
    which = int(np.searchsorted(ends, row, side="right"))
    return parts[which].place(row - int(ends[which]) + parts[which].rows)


def raw_table(config: Config, name: str, parts: Sequence[ReadTable]) -> tuple[RawTable, list[Judged]]:
    """The parts as one table, its features as numbers; and what was made of each column."""
    table, keys = config.tables[name], keys_of(config, name)
    columns = {column: concatenate([part.columns[column] for part in parts]) for column in parts[0].columns}
    for column in keys:
        try:
            refuse_rounded(columns[column])  # whole numbers of one part beside fractions of another
        except Wrong as error:
            where = f"{called(config, name)}: {place_of(parts, error.row)}, column {column}"
            raise DataError(f"{where}: {error.reason}") from None
    taken = {column for role in roles_of(config, name).values() for column in role} | {*deciding(config, name).values()}
    wanted = table.features if table.features is not None else [column for column in columns if column not in taken]
    read = {column: found for column in wanted if (found := _dates(columns[column])) is not None}
    columns |= {column: Column("number", found.days) for column, found in read.items()}
    if table.features is None:
        wanted = _numeric(config, name, {column: columns[column] for column in wanted}, parts)
    judged = [_feature(config, name, column, columns[column], parts, read.get(column)) for column in wanted]
    if table.features is None:
        judged = _informative(judged, name, bool(table.categories))
    judged += [_category(config, name, column, columns[column]) for column in table.categories]
    blocks = [_block(own) for own in judged if own.values is not None]
    if not blocks:
        advice = "list some under categories, or add a constant in a query"
        raise DataError(f"{called(config, name)}: no column of numbers to learn from; {advice}")
    features = tuple(feature for own in judged if own.values is not None for feature in _names(own))
    return RawTable(name, {key: columns[key].values for key in keys}, np.concatenate(blocks, axis=1), features), judged


def _dates(column: Column) -> dates.Dates | None:
    """The dates of a text column; None where some cell is none."""
    found = dates.read(column.values) if column.kind == "text" else None
    return found if found is not None and found.all_of(~column.null) else None


def _numeric(config: Config, name: str, columns: Mapping[str, Column], parts: Sequence[ReadTable]) -> list[str]:
    """The columns of numbers and dates; a warning names other columns."""
    left_out = [column for column, cells in columns.items() if cells.kind not in ("number", "date")]
    for column in left_out:
        for part in parts:
            if (row := misspelt(part.columns[column])) is not None:
                cell = f"{part.columns[column].values[row]!r} where nearly all cells are numbers"
                where = f"{called(config, name)}: {part.place(row)}, column {column}"
                log.warning("%s: %s, so the column is left out. Correct it to keep the column", where, cell)
    if left_out:
        log.warning(
            "%s: left out, being no numbers: %s (dataset.tables.%s.categories would take them in)",
            called(config, name),
            ", ".join(left_out),
            name,
        )
    return [column for column in columns if column not in left_out]


def _feature(
    config: Config, name: str, column: str, cells: Column, parts: Sequence[ReadTable], read: dates.Dates | None
) -> Judged:
    """A column of numbers or dates; `read` says how it was written, if its cells were texts."""
    where = called(config, name)
    if cells.kind not in ("number", "date", "empty"):
        raise DataError(f"{where}, column {column}: {_not_numeric(cells, column, parts)}")
    values = _values(cells)
    if (wrong := extremes.beyond(values)) is not None:
        row, size = wrong
        raise DataError(f"{where}: {place_of(parts, row)}, column {column}: a value is {size}")
    kind: Kind = "date" if read or cells.kind == "date" else "number"
    own = Judged(ColumnReport(where, column, kind, "its cells are numbers or dates", features=1), values)
    if read is None:
        return own
    if read.ambiguous:
        return own.remark("warning", f"{read.doubt}. If that is wrong, write years first, as 2020-12-31")
    return own.remark("note", f"read as {read.writing}")


def _informative(judged: Sequence[Judged], name: str, others: bool) -> list[Judged]:
    """The columns, those that say nothing left out, unless none would remain; `others`: there are categories, too."""
    key, found = f"dataset.tables.{name}.features", []
    for own in judged:
        assert own.values is not None
        column, values, known = own.report.column, own.values, own.values[~np.isnan(own.values)]
        out = Judged(replace(own.report, features=0))
        if not len(known) or known.min() == known.max():
            out = Judged(replace(out.report, taken_for="constant"))
            own = out.remark("note", constant(complete=False))
        elif numbers_rows(column, values):
            out = Judged(replace(out.report, taken_for="row number"))
            own = out.remark("warning", f"{ROW_NUMBERS}. {key} can list it to keep it", key)
        elif counts_rows(values):
            own = own.remark("warning", f"{IN_ORDER} only the others in {key}", key)
        found.append(own)
    return found if others or any(own.values is not None for own in found) else list(judged)


def misspelt(column: Column) -> int | None:
    """The first row of a text column that is no number, if more than nine of ten cells are numbers."""
    if column.kind != "text":
        return None
    wrong = words(column)
    return int(wrong.argmax()) if 0 < 10 * wrong.sum() < (~column.null).sum() else None


def _not_numeric(column: Column, name: str, parts: Sequence[ReadTable]) -> str:
    """Why a column that is listed as a feature cannot be one."""
    for part in parts:
        own = part.columns[name]
        if (row := misspelt(own)) is not None:
            return f"{part.place(row)}: {own.values[row]!r} is not a number"
    if len({part.columns[name].kind for part in parts} - {"empty"}) > 1:
        return "its parts are unlike: " + ", ".join(f"{part.columns[name].kind} in {part.source}" for part in parts)
    return f"is {column.kind}, not a number ({parts[0].source}); text is listed under categories"


def _values(column: Column) -> np.ndarray:
    """The column as (n,) float32; dates as days since 1970, which float32 holds to a few minutes."""
    if column.kind == "date":
        return days(column).astype(np.float32)
    with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite, which is an error
        return column.values.astype(np.float64).astype(np.float32)


def _category(config: Config, name: str, column: str, cells: Column) -> Judged:
    """The column as codes of the values of all parts, in order; NaN where NULL."""
    import pandas as pd

    codes, values = pd.factorize(as_text(cells), sort=True)
    if not 0 < len(values) <= MOST_CATEGORIES:
        many = f"{len(values)} different values, more than {MOST_CATEGORIES}: rather a key"
        found = many if len(values) else "no value at all"
        raise DataError(f"{called(config, name)}, column {column}: {found}; take it out of the categories")
    why = f"dataset.tables.{name}.categories names it"
    report = ColumnReport(called(config, name), column, "category", why, features=len(values))
    return Judged(report, np.where(codes < 0, np.nan, codes), tuple(map(str, values)))


def _block(own: Judged) -> np.ndarray:
    """The features of a column, (n, d) float32: of a category 0 and 1, NaN where it is missing."""
    assert own.values is not None
    if own.levels is None:
        return own.values[:, None]
    null = np.isnan(own.values)
    block = np.eye(len(own.levels), dtype=np.float32)[np.where(null, 0, own.values).astype(np.int64)]
    block[null] = np.nan
    return block


def _names(own: Judged) -> list[str]:
    """The features' names."""
    column = own.report.column
    return [column] if own.levels is None else [f"{column}={value}" for value in own.levels]


def as_text(column: Column) -> np.ndarray:
    """The cells as texts, None where NULL."""
    return as_type(column, "text").values


# --- what there is to say of the columns ------------------------------------------------------------------------------


def marked(
    config: Config, raw: RawTables, judged: Sequence[Sequence[Judged]], entities: np.ndarray | None
) -> list[list[Judged]]:
    """The columns per table, with a warning for each that nearly determines the label of the rows that it joins.

    Parameters
    ----------
    entities : of the label table's rows, where whole entities are held out.
    """
    plain = [list(own) for own in judged]
    sample = leaks.sampled(raw.labels, raw.classes, entities)
    if sample is None:
        return plain
    chosen = np.sort(sample.rows)
    keys = {}
    for table in raw.tables:
        rows = chosen if table.name == raw.label_table else np.arange(len(table.features))
        own = {column: values[rows] for column, values in joining(table, raw.joins).items()}
        keys[table.name] = hand_over(own, len(rows), "none", table.name)
    try:
        joined = join(keys, raw.joins, raw.label_table)
    except DataError:  # whoever joins all rows says so
        return plain
    joined[raw.label_table] = of = chosen[joined[raw.label_table]]
    who = of if entities is None else entities[of]  # a label's rows are held out together
    label = str(config.tables[raw.label_table].label)
    found = leaks.mark(plain, [joined[table.name] for table in raw.tables], raw.labels[of], raw.classes, label, who)
    return [[_advised(one, table.name) for one in own] for own, table in zip(found, raw.tables, strict=True)]


def _advised(judged: Judged, table: str) -> Judged:
    """The column, whose warning of a leak names the key of `dataset=sql`."""
    if not judged.report.leak:
        return judged
    *others, leak = judged.report.remarks
    key = f"dataset.tables.{table}.features"
    leak = replace(
        leak, message=leak.message.replace("list it in dataset.leave_out", f"list only others in {key}"), key=key
    )
    return replace(judged, report=replace(judged.report, remarks=(*others, leak)))


def summary(judged: Iterable[Sequence[Judged]]) -> tuple[dict[str, Any], ...]:
    """Per table what there is to say about its columns, for `DataSource.tables`."""
    said = [[one.report.as_dict() for one in own if one.report.remarks] for own in judged]
    return tuple({"file": own[0]["file"], "columns": own} for own in said if own)
