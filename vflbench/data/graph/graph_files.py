"""A graph of the user's own: features, edges and labels as CSV, parquet, .npy or .npz, or torch_geometric's `Data`.

Node ids are row numbers of the feature file, from 0, or the values of a column of IDs: see `node_ids.py`. Whether the
first line of a text file is a header is inferred and reported. Edges are two columns of node ids. Labels are one column
of class ids from 0, and -1 or empty for a node without a label. Of an .npz the array `features`, `edges` or `labels` is
read, or `x`, `edge_index` or `y`, else the only one. Edges may be (E, 2) or (2, E), features a scipy sparse matrix.

A `Data` has x, edge_index and y. Its train_mask, val_mask and test_mask, or train_idx, val_idx and test_idx, are the
splits, where it or an archive has them; of several columns the run's seed takes its own, in turn. Edge weights and
features are not used.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from vflbench.cards.data.graph.graph_files import Config
from vflbench.data.columns import inspection, judging, leaks
from vflbench.data.columns.judging import ColumnReport, Judged, Remark
from vflbench.data.divide import partition
from vflbench.data.divide.partition import RawGraph
from vflbench.data.graph import node_ids, node_splits
from vflbench.data.graph.node_ids import Nodes
from vflbench.data.graph.node_tables import Files, Table, as_written, counts, of_array
from vflbench.data.readers.cells import Column
from vflbench.data.tasks import GraphTask
from vflbench.data.tasks.base import replace_at
from vflbench.types import DataError, DataSource, Problem, closest, refuse

log = logging.getLogger(__name__)


def check(config: Config, layout: str, parties: int) -> list[Problem]:
    """What is wrong with the configuration, before anything is read."""
    problems = partition.check_fractions(config.train, config.test)
    for key in ("features", "labels", "edges"):
        file = getattr(config, key)
        if config.pyg:
            if file is not None:
                problems.append(Problem(f"dataset.{key}", file, "dataset.pyg has it already: give one of the two"))
        elif not file and not (key == "edges" and config.client_edges):
            problems.append(Problem(f"dataset.{key}", "null" if file is None else file, "must name a file"))
    for key, per_client in (("blocks", config.blocks), ("client_edges", config.client_edges)):
        if per_client is not None and len(per_client) != parties:
            allowed = f"must have one for each of the {parties} clients"
            problems.append(Problem(f"dataset.{key}", f"({len(per_client)} entries)", allowed))
    if config.blocks is not None and not all(isinstance(block, (list, tuple)) and block for block in config.blocks):
        allowed = 'must be a list of lists of columns, e.g. [[age,income],["2:10"]]'
        problems.append(Problem("dataset.blocks", config.blocks, allowed))
    return problems


def load(config: Config, layout: str, parties: int, seed: int, root: Path | None) -> GraphTask:
    """The user's graph, divided between `parties` clients: by `blocks` and `client_edges`, else as GLASU does."""
    refuse(check(config, layout, parties))
    reader = Files(root, config.pyg)
    given, answers = _headed(reader, config.features or "x", config.labels or "y")
    features, nodes = _nodes(config, reader, given)
    features, reports = _features(features, config.blocks is None)
    labels, classes = _labels(answers, nodes, config.id, config.classes)
    reports += _leaks(features, labels, classes, answers)
    for line in inspection.remark_lines(reports, "warning"):
        log.warning("%s", line)
    own = tuple(_edges(reader, path, nodes) for path in config.client_edges) if config.client_edges else None
    file = "edge_index" if config.pyg and not (own and "edge_index" not in reader.tensors) else config.edges
    every = [_edges(reader, file, nodes)] if file else []
    edges = partition.undirected(np.concatenate([*every, *(own or ())], axis=1), nodes.count)
    if not edges.size:
        files = ", ".join([one] if (one := config.pyg or config.edges) else config.client_edges or [])
        advice = "without edges dataset=tabular_files is the one to use"
        raise DataError(f"{files}: no edge between two different nodes; {advice}.")
    blocks = None if config.blocks is None else _blocks(config.blocks, features)
    splits = node_splits.own(reader, config.split, config.masks, nodes, labels, seed)
    if splits is None:
        splits = partition.fraction_split(labels, classes, config.train, config.test, seed)
        for name, rows in splits.items():
            if not len(rows) and name != "val":
                keys = f"dataset.train={config.train}, dataset.test={config.test}"
                raise DataError(f"{config.pyg or config.labels}: too few labelled nodes for a {name} split ({keys}).")
    graph = RawGraph(features.numbers().astype(np.float32), edges, labels, classes)
    said = ({"file": features.file, "columns": [report.as_dict() for report in reports]},) if reports else ()
    source = DataSource(kind="real", note="the user's own files", files=tuple(reader.stamps), tables=said)
    return partition.divide(
        config.name, graph, splits, source, config, parties=parties, seed=seed, blocks=blocks, edges=own
    )


def load_own(
    config: Config, layout: str, parties: int, seed: int, root: Path | None, task: GraphTask, index: int
) -> GraphTask:
    """`task`, whose labels and splits come from elsewhere, with the features and edges of client `index`.

    Its features are columns of the file that all share. Its edges are in its own file, which `config.client_edges`
    names. No other client's edges are read.

    Raises
    ------
    DataError : as `load`; a file has changed since.
    """
    assert config.client_edges and task.columns is not None
    reader = Files(root, config.pyg)
    given = reader.table(config.features or "x", "features")
    if given.header is False and given.rows == len(task.labels) + 1:  # as `_headed` has found
        given = reader.table(config.features or "x", "features", header=True)
    features, nodes = _nodes(config, reader, given)
    features, _ = _features(features, config.blocks is None)
    block = np.ascontiguousarray(features.numbers()[:, task.columns[index]], dtype=np.float32)
    own = _edges(reader, config.client_edges[index], nodes)
    for stamp in reader.stamps:
        if stamp not in task.source.files:
            raise DataError(f"{stamp[0]} has changed since the run was begun; start again once it is left alone")
    return replace(task, features=replace_at(task.features, index, block), edges=replace_at(task.edges, index, own))


def _blocks(blocks: Sequence[Any], features: Table) -> tuple[np.ndarray, ...]:
    """Column ids of each client; columns that are in no block stay unused."""
    owner: dict[int, int] = {}
    problems = []
    for client, block in enumerate(blocks):
        for column in block:
            ids = _columns(column, features)
            if not ids:
                allowed = f"{features.file} has no such column (of {len(features.names)})"
                problems.append(Problem("dataset.blocks", column, allowed, closest(str(column), features.names)))
            for i in ids:
                if i in owner:
                    taken = f"client {owner[i]} has column {features.names[i]!r} already, client {client} cannot"
                    problems.append(Problem("dataset.blocks", column, f"{taken}: blocks are disjoint"))
                owner[i] = client
    refuse(problems)
    own = [sorted(i for i, holder in owner.items() if holder == client) for client in range(len(blocks))]
    return tuple(np.array(ids, np.int64) for ids in own)


def _columns(column: object, features: Table) -> list[int]:
    """Column ids of a name, a number or a range "a:b"; a name wins over a number."""
    width, text = len(features.names), str(column)
    if text in features.names:
        return [features.names.index(text)]
    first, colon, last = text.partition(":")
    if not first.isdigit() or (colon and not last.isdigit()):
        return []
    start, stop = int(first), int(last) if colon else int(first) + 1
    return list(range(start, stop)) if stop <= width else []


def _edges(files: Files, file: str, nodes: Nodes) -> np.ndarray:
    """The edges, (2, E), in both directions."""
    table = files.table(file, "edges")
    if not table.named and table.header is None and table.rows == 2 != len(table.names):
        table = of_array(table.file, table.values.T)
    if table.header is False and nodes.rows and [*table.values[0]] == ["0", "1"] and "0" not in nodes.rows:
        table = files.table(file, "edges", header=True)  # as pandas names columns
    ends = [i for i in range(len(table.names)) if not _numbers_edges(table, i)]
    if len(table.names) == 3 and len(ends) == 2:
        table = table.only(ends)
    if len(table.names) != 2:
        raise DataError(f"{table.file}: {len(table.names)} columns; edges are two columns of node ids.")
    if table.header is False and [*table.values[0]] in ([0, 1], ["0", "1"]):
        told = "its first line, 0 and 1, is read as an edge; remove it if it is a header"
        log.info("%s: %s", table.file, told)
    return partition.undirected(nodes.rows_of(table).T, nodes.count)


def _numbers_edges(table: Table, column: int) -> bool:
    """Whether a column is the number of the edge, from 0 or 1, in any order."""
    named = table.nameless(column) or re.fullmatch(r"(edge_?)?(id|index|nr|no|key)", table.names[column], re.IGNORECASE)
    return table.rows >= 3 and bool(named) and counts(table.columns[column], in_order=False)


def _nodes(config: Config, files: Files, table: Table) -> tuple[Table, Nodes]:
    """The features without columns that are none, and the nodes."""
    table = node_ids.with_array(table, files, config.features or "x", config.id)
    problems = []
    for key in ("leave_out", "numbers"):
        for column in getattr(config, key):
            if column not in table.names:
                allowed = f"{table.file} has no such column (of {len(table.names)})"
                problems.append(Problem(f"dataset.{key}", column, allowed, closest(column, table.names)))
    refuse(problems)
    kept = table.only([i for i, name in enumerate(table.names) if name not in config.leave_out])
    return node_ids.without_ids(kept, config.id, config.numbers)


def _features(table: Table, drop: bool) -> tuple[Table, list[ColumnReport]]:
    """The features, which are finite numbers, and those that say nothing: without them if `drop`, unless none remains.

    Raises
    ------
    DataError : some are none.
    """
    values = table.numbers()
    with np.errstate(over="ignore"):
        others = np.argwhere(~np.isfinite(values.astype(np.float32)))  # as they are learnt from
    if len(others):
        row, column = others[0]
        where, cell = f"{table.at(row)}, column {table.names[column]!r}", as_written(table.values[row, column])
        count = f"({len(others)} such cells in all)"
        far = np.isfinite(values[row, column])
        advice = "Numbers are at most 3.4e38: correct them" if far else "Fill or remove them"
        raise DataError(f"{where}: {cell} where a finite number belongs {count}. {advice}.")
    if not values.size:
        raise DataError(f"{table.file}: holds no features.")
    constant = {*np.flatnonzero(values.min(axis=0) == values.max(axis=0)).tolist()} if drop else set()
    if len(constant) == len(table.names):
        return table, []
    message = Remark("note", judging.constant(complete=True))
    reports = [ColumnReport(table.file, table.names[i], "constant", "", remarks=(message,)) for i in sorted(constant)]
    return table.only([i for i in range(len(table.names)) if i not in constant]) if constant else table, reports


def _leaks(features: Table, labels: np.ndarray, classes: int, answers: Table) -> list[ColumnReport]:
    """The features that alone nearly determine the label."""
    known = np.flatnonzero(labels >= 0)
    values = features.numbers()
    judged = [
        Judged(ColumnReport(features.file, name, "number", "", features=1), values[:, i])
        for i, name in enumerate(features.names)
    ]
    (found,) = leaks.mark([judged], [known], labels[known], classes, f"in {answers.file}")
    return [own.report for own in found if own.report.leak]


def _labels(table: Table, nodes: Nodes, given: str | None, classes: int | None) -> tuple[np.ndarray, int]:
    """Class ids of the nodes, -1 for none, and the number of classes."""
    table, rows = node_ids.of_labels(table, nodes, given)
    table = _numbered(table)
    known = table.numbers()
    filled = of_array(table.file, np.where(np.isnan(known), -1, known))
    own = replace(filled, place=table.place).whole("label", -1, classes)[:, 0]
    present = np.unique(own[own >= 0])
    count = classes or (int(present.max()) + 1 if len(present) else 0)
    if len(present) < 2:
        raise DataError(f"{table.file}: {len(present)} class(es); at least two are needed.")
    if classes is None and len(present) < count:
        absent = next(c for c in range(count) if c not in present)
        found = f"{table.at(int(own.argmax()))}: label {count - 1}, but class {absent} has no node"
        raise DataError(f"{found}. If so meant, set dataset.classes={count}.")
    labels = np.full(nodes.count, -1)
    labels[rows] = own
    return labels, count


def _numbered(table: Table) -> Table:
    """Labels that are words as the numbers of their classes, in alphabetical order; others as they are."""
    cells = judging.without_words(table.columns[0], (), ".")
    if cells.kind != "text" or any(node_ids.NUMBER.fullmatch(text.strip()) for text in cells.values if text):
        return replace(table, columns=(cells,))
    codes, names, merged = judging.category(cells)
    if merged:
        log.warning("%s: %s", table.file, judging.differ(merged, "class"))
    log.info("%s: the classes are, from 0 on, %s", table.file, ", ".join(names[:10]) + ", ..." * (len(names) > 10))
    return replace(table, columns=(Column("number", np.where(cells.null, np.nan, codes)),))


def _headed(files: Files, features: str, labels: str) -> tuple[Table, Table]:
    """Features and labels. Where one has a row too many, its first line of numbers is a header."""
    x, y = files.table(features, "features"), files.table(labels, "labels")
    if x.header is False and x.rows == y.rows + 1:
        x = files.table(features, "features", header=True)
    elif y.header is False and y.rows == x.rows + 1:
        y = files.table(labels, "labels", header=True)
    return x, y
