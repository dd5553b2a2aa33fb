"""Which node a row of the user's tables belongs to: by a column of IDs, else by its number.

A column of IDs has `dataset.id` as its name. Without that key it is one whose name says so (id, node_id, index, ...) or
a text, if its values are all different, or a nameless first column that counts the rows. It is no feature.

Nothing is guessed where rows and IDs are in another order: such files are refused until `dataset.id` names the column.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from vflbench.data import keys
from vflbench.data.graph.node_tables import Table, counts, is_counter
from vflbench.data.relational.cells import Column
from vflbench.types import ConfigError, DataError, Problem, closest

_NAME = re.compile(r"(?:(?:.*[\W_])?(?:id|index|node)|node_?id)", re.IGNORECASE)
_NUMBER = re.compile(r"[+-]?[\d.,]+(?:[eE][+-]?\d+)?")
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Nodes:
    """The nodes of a graph, in the order of the features' rows."""

    file: str
    count: int
    column: str | None = None  # of their IDs
    rows: Mapping[str, int] | None = None  # ID -> row; None: nodes are named by their rows, from 0

    def of(self, table: Table) -> np.ndarray:
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
        pairs = keys.near([name], self.rows or ()) if name else []
        told = f"{self.file} has no such ID in column {self.column}"
        return told + "".join(f", but {keys.shown(*pair[0])[1]}, which differs in {kind}" for kind, pair in pairs)


def column_of(table: Table, given: str | None) -> int | None:
    """The column of the IDs.

    Parameters
    ----------
    given : its name.

    Raises
    ------
    ConfigError : there is no such column.
    """
    if given is not None:
        if given in table.names:
            return list(table.names).index(given)
        allowed = f"{table.file} has no such column (of {len(table.names)})"
        raise ConfigError([Problem("dataset.id", given, allowed, closest(given, table.names))])
    if table.header is None and not table.named:
        return 0 if table.columns and is_counter(table, 0) else None
    every = range(len(table.names))
    named = [i for i in every if not table.nameless(i) and _NAME.fullmatch(table.names[i].strip())]
    texts = [i for i in every if table.columns[i].kind == "text" and not _mistyped(table.columns[i])]
    found = next((i for i in [*named, *texts] if _distinct(table, i)), None)
    if found is None and table.columns and is_counter(table, 0, in_order=False):
        return 0
    return found


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
    numbers = sum(_NUMBER.fullmatch(cell.strip()) is not None for cell in column.values if cell)
    return len(column.values) < 2 * numbers < 2 * len(column.values)


def without_ids(table: Table, given: str | None) -> tuple[Table, Nodes]:
    """The features without their column of IDs, and the nodes.

    Raises
    ------
    ConfigError : as `column_of`.
    DataError : a node has no ID, or two have one; the column numbers the nodes in another order than that of the rows.
    """
    column = column_of(table, given)
    if column is None:
        return table, Nodes(table.file, table.rows)
    rest = table.only([i for i in range(len(table.names)) if i != column and not is_counter(table, i)])
    what = "is the node number" if table.nameless(column) else "has the IDs of the nodes"
    log.info("%s: %s %s: it is no feature", table.file, table.called(column), what)
    rows, name = _rows(table, column), table.names[column]
    numbers = {str(row): row for row in range(table.rows)}
    if rows == numbers:
        return rest, Nodes(table.file, table.rows, name)
    if given is None and rows.keys() == numbers.keys():
        row, node = next((row, node) for node, row in rows.items() if str(row) != node)
        told = f"{table.at(row)}: {table.called(column)} says node {node}, but this is row {row}"
        advice = f"Type dataset.id={name or repr('')} if edges and labels mean this column, else remove it"
        raise DataError(f"{told}. {advice}.")
    return rest, Nodes(table.file, table.rows, name, rows)


def _rows(table: Table, column: int) -> dict[str, int]:
    """ID -> row."""
    ids, rows = table.ids(column), dict[str, int]()
    for row, name in enumerate(ids.values):
        where = f"{table.at(row)}, {table.called(column)}"
        if name is None:
            raise DataError(f"{where}: no ID.")
        if (before := rows.setdefault(name, row)) != row:
            pair = " and ".join(keys.shown(str(ids.raw[before]), str(ids.raw[row])))
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
    return nodes.of(table.only([column]))[:, 0]
