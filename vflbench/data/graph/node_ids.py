"""Which node a row of the user's tables belongs to: by a column of IDs, else by its number.

A column of IDs has `dataset.id` as its name. Without that key it is one whose name says so (id, userid, nr, ...) or a
text, if its values are all different; else the only column that numbers the rows, from 0 or 1. It is no feature.

Nothing is guessed where rows and IDs are in another order: such files are refused until a key says what is meant.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from vflbench.data.graph.node_tables import Files, Table, counts, is_counter
from vflbench.data.readers import identifiers
from vflbench.data.readers.cells import Column
from vflbench.types import ConfigError, DataError, Problem, closest

_WHO = "(?:node|vertex|user|person|patient|paper|author|customer|member|subject|student|employee)"
_NAME = re.compile(
    rf"(?:.*[\W_])?(?:id|index|node)|idx|key|uuid|{_WHO}|(?:{_WHO}|row|item|record|client|[up])_?(?:id|nr|no)|nr|no"
    r"|.*(?-i:[a-z]I[dD])",
    re.IGNORECASE,
)
_ARRAYS = ("id", "ids", "node_id", "node_ids", "nodes", "n_id")  # of an archive, or tensors
FEWEST = 6  # rows: fewer numbers may be all numbers of rows by chance
NUMBER = re.compile(r"[+-]?[\d.,]+(?:[eE][+-]?\d+)?")
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Nodes:
    """The nodes of a graph, in the order of the features' rows."""

    file: str
    count: int
    column: str | None = None  # of their IDs
    rows: Mapping[str, int] | None = None  # ID -> row; None: nodes are named by their rows, from 0

    def rows_of(self, table: Table) -> np.ndarray:
        """The rows of the nodes that the cells of a table name, (rows, columns) int64.

        Raises
        ------
        DataError : naming the line of a cell that names no node.
        """
        if self.rows is None:
            return table.whole("node", 0, self.count)
        found = np.empty((table.rows, len(table.columns)), np.int64)
        for column in range(len(table.columns)):
            ids = table.ids(column)
            found[:, column] = [self.rows.get(name, -1) for name in ids.values]
            if (missing := np.flatnonzero(found[:, column] < 0)).size:
                row = int(missing[0])
                more = f" (and {missing.size - 1} more such cells)" if missing.size > 1 else ""
                raise DataError(f"{table.at(row)}: node {ids.raw[row]!r}{more}; {self._lacks(ids.values[row])}.")
        return found

    def _lacks(self, name: str | None) -> str:
        """Why there is no such node."""
        pairs = identifiers.near([name], self.rows or ()) if name else []
        told = f"{self.file} has no such ID in column {self.column}"
        if name is not None and name.isdecimal() and int(name) < self.count:
            told += f" (type dataset.leave_out=[{self.column}] if edges and labels mean row numbers)"
        return told + "".join(
            f", but {identifiers.quoted_pair(*pair[0])[1]}, which differs in {kind}" for kind, pair in pairs
        )


def column_of(table: Table, given: str | None, numbers: Collection[str] = ()) -> int | None:
    """The column of the IDs.

    Parameters
    ----------
    given : its name.
    numbers : the names of columns that are none.

    Raises
    ------
    ConfigError : there is no such column.
    """
    if given is not None:
        if given in table.names:
            return list(table.names).index(given)
        allowed = f"{table.file} has no such column (of {len(table.names)})"
        raise ConfigError([Problem("dataset.id", given, allowed, closest(given, table.names))])
    free = [i for i, name in enumerate(table.names) if name not in numbers]
    named = [i for i in free if _named(table, i)]
    texts = [i for i in free if table.columns[i].kind == "text" and not _mistyped(table.columns[i])]
    found = next((i for i in [*named, *(texts if table.named else [])] if _distinct(table, i)), None)
    if found is None and 0 in free and is_counter(table, 0, in_order=not table.named):
        return 0
    return _numbering(table, free) if found is None else found


def _named(table: Table, column: int) -> bool:
    """Whether the name says that the column has IDs."""
    return not table.nameless(column) and _NAME.fullmatch(table.names[column].strip()) is not None


def _numbering(table: Table, columns: Collection[int]) -> int | None:
    """The column that numbers the rows in their order, else the only one that does in any; several are ranks."""
    found = [i for i in columns if counts(table.columns[i], in_order=False)] if table.rows >= FEWEST else []
    ordered = [i for i in found if counts(table.columns[i])]
    return ordered[0] if ordered else found[0] if len(found) == 1 else None


def _distinct(table: Table, column: int) -> bool:
    """Whether all cells are there, all different, and may be IDs."""
    cells = table.columns[column]
    if cells.kind not in ("number", "text") or cells.null.any() or not len(cells.values):
        return False
    if cells.values.dtype.kind == "f" and (cells.values != np.floor(cells.values)).any():
        return False
    return len(set(cells.values.tolist())) == len(cells.values)


def _mistyped(column: Column) -> bool:
    """Whether a column of texts has numbers in most cells, but not in all."""
    numbers = sum(NUMBER.fullmatch(cell.strip()) is not None for cell in column.values if cell)
    return len(column.values) < 2 * numbers < 2 * len(column.values)


def with_array(table: Table, files: Files, file: str, given: str | None) -> Table:
    """The features with their IDs, where these are an array beside them; an array that is not used is named."""
    columns = dict[str, Column]()
    for name, values in _arrays(files, file, given):
        if values.shape != (table.rows,) or values.dtype.kind not in "iufU":
            continue
        cells = Column("text", values.astype(object)) if values.dtype.kind == "U" else Column("number", values)
        if name == given or counts(cells, in_order=False):
            columns[name] = cells
        else:
            told = "nodes are named by their row numbers, unless you type"
            log.warning("%s: %s is not used: %s dataset.id=%s", table.file, name, told, name)
    return replace(table, names=[*table.names, *columns], columns=[*table.columns, *columns.values()])


def _arrays(files: Files, file: str, given: str | None) -> Iterator[tuple[str, np.ndarray]]:
    """The arrays beside the features that may have the IDs."""
    for name in sorted(files.archives.get(file, files.tensors)):
        if name == given or (given is None and name.lower() in _ARRAYS):
            yield name, np.squeeze(files.array(file, name) if file in files.archives else files.tensors[name])


def without_ids(table: Table, given: str | None, numbers: Collection[str] = ()) -> tuple[Table, Nodes]:
    """The features without their column of IDs, and the nodes.

    Parameters
    ----------
    given, numbers : as of `column_of`.

    Raises
    ------
    ConfigError : as `column_of`.
    DataError : a node has no ID, or two have one; the column numbers the nodes in another order than that of the rows.
    """
    column = column_of(table, given, numbers)
    if column is None:
        return table, Nodes(table.file, table.rows)
    none = {column} | {i for i, name in enumerate(table.names) if name not in numbers and is_counter(table, i)}
    rest = table.only([i for i in range(len(table.names)) if i not in none])
    rows, name = _rows(table, column), table.names[column]
    if given is None:
        _refuse_shuffled(table, column, rows)
    what = "is the node number" if table.nameless(column) else "has the IDs of the nodes"
    log.info("%s: %s %s: it is no feature", table.file, table.called(column), what)
    if all(node == str(row) for node, row in rows.items()):
        return rest, Nodes(table.file, table.rows, name)
    return rest, Nodes(table.file, table.rows, name, rows)


def _refuse_shuffled(table: Table, column: int, rows: Mapping[str, int]) -> None:
    """Refuse a column that numbers the rows in another order, unless it surely has the IDs that edges name."""
    sure = _named(table, column) or (table.named and column == 0 and table.nameless(column))
    for first in (0,) if sure else (0, 1):  # from 1 on edges cannot mean rows
        if rows.keys() == {str(row + first) for row in range(table.rows)}:
            row, node = next(((row, node) for node, row in rows.items() if str(row + first) != node), (0, ""))
            if node:
                name = table.names[column] or repr("")
                told = f"{table.at(row)}: {table.called(column)} says node {node}, but this is row {row + first}"
                advice = f"Type dataset.id={name} if edges and labels mean this column, dataset.numbers=[{name}] if it"
                raise DataError(f"{told}. {advice} is a feature, else dataset.leave_out=[{name}].")


def _rows(table: Table, column: int) -> dict[str, int]:
    """ID -> row."""
    ids, rows = table.ids(column), dict[str, int]()
    for row, name in enumerate(ids.values):
        where = f"{table.at(row)}, {table.called(column)}"
        if name is None:
            raise DataError(f"{where}: no ID.")
        if (before := rows.setdefault(name, row)) != row:
            pair = " and ".join(identifiers.quoted_pair(str(ids.raw[before]), str(ids.raw[row])))
            raise DataError(f"{where}: the ID {name!r} is there twice ({pair}, also {table.place(before)}).")
    return rows


def of_labels(table: Table, nodes: Nodes, given: str | None) -> tuple[Table, np.ndarray]:
    """The labels alone, (rows, 1), and per row its node.

    Raises
    ------
    DataError : there are several columns of labels; rows of another number or order than the features.
    """
    column, rest = None, table
    if len(table.names) > 1:
        name = given if given is not None else nodes.column
        column = column_of(table, name if name in table.names else None)
        rest = table.only([i for i in range(len(table.names)) if i != column and not is_counter(table, i)])
    if len(rest.names) != 1:
        advice = "" if given or table.header is None else "; dataset.id names the column of the IDs, if there is one"
        raise DataError(f"{table.file}: {len(rest.names)} columns; labels are one column{advice}.")
    if column is None or (nodes.column is None and counts(table.columns[column])):
        if table.rows != nodes.count:
            raise DataError(f"{table.file}: {table.rows} labels, but the features have {nodes.count} rows.")
        return rest, np.arange(nodes.count)
    ids = _rows(table, column)
    rows = _matched(table, column, ids, nodes)
    if nodes.column is None:
        told = f"{table.called(column)} is the row number in {nodes.file}"
        log.info("%s: %s: labels are matched by it", table.file, told)
    first = next((row for row, node in enumerate(rows) if row != node), None)
    if given is None and nodes.column is not None and first is not None and len(rows) == nodes.count:
        told = f"{nodes.file} and {table.file} have the same IDs in {table.called(column)}, but in another order"
        raise DataError(f"{told} ({table.at(first)}). Type dataset.id={nodes.column or repr('')} to match them by it.")
    if len(rows) < nodes.count:
        log.warning("%s: %d nodes of %d have a label", table.file, len(rows), nodes.count)
    return rest, rows


def _matched(table: Table, column: int, ids: Mapping[str, int], nodes: Nodes) -> np.ndarray:
    """Per row of the labels its node."""
    if nodes.column is None and ids.keys() != {str(row) for row in range(nodes.count)}:
        told = f"{table.file} names the nodes in {table.called(column)}, but {nodes.file} has no column of IDs"
        raise DataError(f"{told}: add it there, too, or remove it.")
    return nodes.rows_of(table.only([column]))[:, 0]
