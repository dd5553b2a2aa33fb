"""A graph of the user's own: features, edges and labels as CSV, parquet, .npy or .npz, or torch_geometric's `Data`.

Node ids are row numbers of the feature file, from 0. A CSV of features has a header with the columns' names. CSVs of
edges, labels and splits may have one; a first line of numbers only is data. Edges are two columns of node ids. Labels
are one column of class ids from 0, and -1 or empty for a node without a label. Of an .npz the array `features`, `edges`
or `labels` is read, else the only one. Edges may be (E, 2) or (2, E), features a scipy sparse matrix.

A `Data` has x, edge_index and y. Its train_mask, val_mask and test_mask are the splits, where it has them; of several
columns the run's seed takes its own, in turn. Edge weights and features are not used.
"""

from __future__ import annotations

import hashlib
import io
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np

from vflbench.data import partition
from vflbench.data.graph import pyg_file
from vflbench.data.partition import RawGraph
from vflbench.data.readers import load_npy, load_npz, load_sparse, npz_names
from vflbench.data.tasks import GraphTask
from vflbench.data.tasks.base import replace_at
from vflbench.types import DataError, DatasetInfo, DataSource, Problem, Range, closest, refuse

DATASETS = (
    DatasetInfo(
        name="graph_files",
        summary="your own graph: features, edges and labels as CSV, parquet, npy or npz, or a torch_geometric Data",
        layouts=("graph",),
        sources=("real",),
    ),
)


@dataclass
class Config(partition.Division):
    """Keys of the data set."""

    name: str = "graph_files"
    source: Literal["auto", "real"] = "auto"  # your files are never replaced by made-up data
    variant: Literal["auto"] = "auto"
    # file of features, a row per node; paths below data_root, or relative to where vflbench is started
    features: str | None = None
    edges: str | None = None  # file of edges, two node ids a row; direction does not matter
    labels: str | None = None  # file of labels, a row per node; -1 or empty: none
    pyg: str | None = None  # in place of these three: a saved torch_geometric Data, or the folder of a data set
    masks: bool = True  # pyg: take its train_mask, val_mask and test_mask, if it has them
    # per client a list of its columns: names, numbers or ranges "0:10"; null: random equal blocks
    blocks: list[Any] | None = None
    client_edges: list[str] | None = None  # per client its own file of edges; null: every client has part of `edges`
    # file with columns node,split (train, val, test), or npz with arrays train, val, test; null: drawn
    split: str | None = None
    classes: Annotated[int, Range(at_least=2)] | None = None  # number of classes; null: the largest label + 1
    train: float = 0.2  # fraction of each class for training
    test: float = 0.5  # fraction for testing; the rest is for validation


log = logging.getLogger(__name__)
_SPLITS = ("train", "val", "test")
_TENSORS = ("x", "edge_index", "y")  # of a Data: features, edges and labels


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
    reader = _Reader(root, config.pyg)
    features = reader.features(config.features or "x")
    nodes = len(features.values)
    labels, classes = reader.labels(config.labels or "y", nodes, config.classes)
    own = tuple(reader.edges(path, nodes) for path in config.client_edges) if config.client_edges else None
    file = "edge_index" if config.pyg and not (own and "edge_index" not in reader.tensors) else config.edges
    every = [reader.edges(file, nodes)] if file else []
    edges = partition.undirected(np.concatenate([*every, *(own or ())], axis=1), nodes)
    if not edges.size:
        files = ", ".join([given] if (given := config.pyg or config.edges) else config.client_edges or [])
        advice = "without edges dataset=tabular_files is the one to use"
        raise DataError(f"{files}: no edge between two different nodes; {advice}.")
    blocks = None if config.blocks is None else _blocks(config.blocks, features)
    masked = config.masks and reader.masked()
    if config.split:
        splits = reader.split(config.split, labels)
    elif masked:
        splits = reader.masks(labels, seed)
    else:
        splits = partition.fraction_split(labels, classes, config.train, config.test, seed)
        for name, rows in splits.items():
            if not len(rows) and name != "val":
                keys = f"dataset.train={config.train}, dataset.test={config.test}"
                raise DataError(f"{config.pyg or config.labels}: too few labelled nodes for a {name} split ({keys}).")
    graph = RawGraph(features.values, edges, labels, classes)
    source = DataSource(kind="real", note="the user's own files", files=tuple(reader.files))
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
    reader = _Reader(root, config.pyg)
    block = np.ascontiguousarray(
        reader.features(config.features or "x").values[:, task.columns[index]], dtype=np.float32
    )
    if config.normalize_features:
        block = partition.row_normalized(block)
    own = reader.edges(config.client_edges[index], len(task.labels))
    for stamp in reader.files:
        if stamp not in task.source.files:
            raise DataError(f"{stamp[0]} has changed since the run was begun; start again once it is left alone")
    return replace(task, features=replace_at(task.features, index, block), edges=replace_at(task.edges, index, own))


def _blocks(blocks: Sequence[Any], features: _Table) -> tuple[np.ndarray, ...]:
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


def _columns(column: object, features: _Table) -> list[int]:
    """Column ids of a name, a number or a range "a:b"; a name wins over a number."""
    width, text = len(features.names), str(column)
    if text in features.names:
        return [features.names.index(text)]
    first, colon, last = text.partition(":")
    if not first.isdigit() or (colon and not last.isdigit()):
        return []
    start, stop = int(first), int(last) if colon else int(first) + 1
    return list(range(start, stop)) if stop <= width else []


# --- reading ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Table:
    """Columns of one file."""

    file: str
    names: list[str]
    values: np.ndarray  # (rows, columns): float, or objects where a cell is no number
    first: int | None  # line of row 0 in a CSV; None for files without lines

    def at(self, row: int) -> str:
        """How a message names a row."""
        return f"{self.file}, row {row}" if self.first is None else f"{self.file}, line {row + self.first}"

    def whole(self, what: str, low: int, end: int | None) -> np.ndarray:
        """The cells as int64.

        Raises
        ------
        DataError : naming the first cell that is no whole number of at least `low` and below `end`.
        """
        numbers = _numbers(self)
        others = np.argwhere(~((numbers >= low) & (numbers < (end or np.inf)) & (numbers == np.floor(numbers))))
        if len(others):
            row, column = others[0]
            most = "" if end is None else f" to {end - 1}"
            allowed = f"{what}s are whole numbers from {low}{most}"
            raise DataError(f"{self.at(row)}: {what} {_shown(self.values[row, column])}; {allowed}.")
        return numbers.astype(np.int64)


class _Reader:
    """Reads the user's files and keeps their names and checksums in `files`.

    With a file `pyg` its tensors take the place of the files of features, edges and labels: x, edge_index and y.
    """

    def __init__(self, root: Path | None, pyg: str | None = None) -> None:
        self.root = root
        self.files: list[tuple[str, str]] = []
        self.pyg = pyg
        self.tensors = pyg_file.read(self._bytes(pyg), pyg) if pyg else {}
        if unused := ", ".join(name for name in ("edge_weight", "edge_attr") if name in self.tensors):
            log.warning("%s: %s is not used: edges have no weights here", pyg, unused)

    def features(self, file: str) -> _Table:
        """The features, (nodes, d) float32."""
        table = self._table(file, "features", header=True)
        values = _numbers(table)
        others = np.argwhere(~np.isfinite(values))
        if len(others):
            row, column = others[0]
            where, cell = f"{table.at(row)}, column {table.names[column]!r}", _shown(table.values[row, column])
            count = f"({len(others)} such cells in all)"
            raise DataError(f"{where}: {cell} where a finite number belongs {count}. Fill or remove them.")
        if not values.size:
            raise DataError(f"{table.file}: holds no features.")
        return _Table(table.file, table.names, values.astype(np.float32), table.first)

    def edges(self, file: str, nodes: int) -> np.ndarray:
        """The edges, (2, E), in both directions."""
        table = self._table(file, "edges", header=None)
        values = table.values
        if table.first is None and values.shape[0] == 2 != values.shape[1]:
            values = values.T
        if values.shape[1] != 2:
            raise DataError(f"{table.file}: {values.shape[1]} columns; edges are two columns of node ids.")
        return partition.undirected(replace(table, values=values).whole("node", 0, nodes).T, nodes)

    def labels(self, file: str, nodes: int, classes: int | None) -> tuple[np.ndarray, int]:
        """Class ids of the nodes, -1 for none, and the number of classes."""
        import pandas as pd

        table = self._table(file, "labels", header=None)
        if table.values.shape[1] != 1:
            raise DataError(f"{table.file}: {table.values.shape[1]} columns; labels are one column.")
        if len(table.values) != nodes:
            raise DataError(f"{table.file}: {len(table.values)} labels, but the features have {nodes} rows.")
        filled = np.where(pd.isna(table.values), -1, table.values)
        labels = replace(table, values=filled).whole("label", -1, classes)[:, 0]
        present = np.unique(labels[labels >= 0])
        count = classes or (int(present.max()) + 1 if len(present) else 0)
        if len(present) < 2:
            raise DataError(f"{table.file}: {len(present)} class(es); at least two are needed.")
        if classes is None and len(present) < count:
            absent = next(c for c in range(count) if c not in present)
            found = f"{table.at(int(labels.argmax()))}: label {count - 1}, but class {absent} has no node"
            raise DataError(f"{found}. If so meant, set dataset.classes={count}.")
        return labels, count

    def split(self, file: str, labels: np.ndarray) -> dict[str, np.ndarray]:
        """Node ids by split; each of these nodes has a label and is in one split."""
        if file.endswith(".npz"):
            held = load_npz(self._bytes(file), file, _SPLITS)
            nodes = np.concatenate([held[name].ravel() for name in _SPLITS])
            which = np.repeat(_SPLITS, [held[name].size for name in _SPLITS])
            table = _Table(file, ["node"], nodes[:, None], None)
        else:
            table = self._table(file, "split", header=None)
            if table.values.shape[1] != 2:
                raise DataError(f"{file}: {table.values.shape[1]} columns; a split file has node,split.")
            which = table.values[:, 1].astype(str)
            table = _Table(file, ["node"], table.values[:, :1], table.first)
        return self._splits(table, which, labels)

    def masked(self) -> bool:
        """Whether the graph says which nodes are for what."""
        return any(f"{name}_mask" in self.tensors for name in _SPLITS)

    def masks(self, labels: np.ndarray, seed: int) -> dict[str, np.ndarray]:
        """The splits that masks say, (nodes,) bool each; of several columns, (nodes, k), number seed mod k."""
        own, chosen = {name: self.tensors.get(f"{name}_mask") for name in _SPLITS}, []
        for name in _SPLITS:
            mask = own[name]
            if mask is None:
                if name != "val":
                    advice = "dataset.masks=false draws the splits"
                    raise DataError(f"{self.pyg}: has masks, but no {name}_mask; {advice}.")
                mask = np.zeros(len(labels), bool)
            if mask.dtype != bool or mask.shape[:1] != labels.shape or mask.ndim > 2 or not mask.size:
                needed = f"({len(labels)},) of type bool is needed"
                raise DataError(f"{self.pyg}, {name}_mask: shape {mask.shape} and type {mask.dtype}; {needed}.")
            chosen.append(np.flatnonzero(mask if mask.ndim == 1 else mask[:, seed % mask.shape[1]]))
        table = _Table(f"{self.pyg}, masks", ["node"], np.concatenate(chosen)[:, None], None)
        return self._splits(table, np.repeat(_SPLITS, [len(nodes) for nodes in chosen]), labels)

    def _splits(self, table: _Table, which: np.ndarray, labels: np.ndarray) -> dict[str, np.ndarray]:
        """Node ids by split, of a table of nodes and what each is for."""
        chosen = table.whole("node", 0, len(labels))[:, 0]
        unknown = np.flatnonzero(~np.isin(which, _SPLITS))
        if len(unknown):
            row = unknown[0]
            raise DataError(f"{table.at(row)}: split '{which[row]}'; it is one of {', '.join(_SPLITS)}.")
        again = np.setdiff1d(np.arange(len(chosen)), np.unique(chosen, return_index=True)[1])
        if len(again):
            raise DataError(f"{table.at(again[0])}: node {chosen[again[0]]} is in the splits twice.")
        unlabelled = np.flatnonzero(labels[chosen] < 0)
        if len(unlabelled):
            raise DataError(f"{table.at(unlabelled[0])}: node {chosen[unlabelled[0]]} has no label.")
        splits = {name: np.sort(chosen[which == name]) for name in _SPLITS}
        empty = [name for name in ("train", "test") if not len(splits[name])]
        if empty:
            raise DataError(f"{table.file}: no node in split {' and '.join(empty)}.")
        return splits

    def _bytes(self, file: str) -> bytes:
        path = Path(file).expanduser()
        if self.root is not None and not path.is_absolute():
            below = self.root / path
            path = below if below.is_file() or (file == self.pyg and below.is_dir()) else path
        try:
            data = (pyg_file.find(path, file) if file == self.pyg else path).read_bytes()
        except OSError as error:
            places = "Looked below data_root and in the current folder"
            raise DataError(f"{file}: cannot be read ({error.strerror}). {places}.") from None
        self.files.append((path.name, hashlib.sha256(data).hexdigest()))
        return data

    def _table(self, file: str, key: str, header: bool | None) -> _Table:
        """The table in a file of any of the four formats.

        Parameters
        ----------
        key : name of the array in an .npz.
        header : of a CSV: True, or None: there is one unless the first line has only numbers.
        """
        if file in _TENSORS and self.pyg:
            return self._tensor(file, key)
        data = self._bytes(file)
        name = file.removesuffix(".gz")
        if name.endswith((".npz", ".npy")):
            values = _array(data, file, key)
            values = values[:, None] if values.ndim == 1 else values
            if values.ndim != 2 or values.dtype.kind not in "iufb":
                found = f"an array of shape {values.shape} and type {values.dtype}"
                raise DataError(f"{file}: {found}; a table of numbers is needed.")
            return _Table(file, [str(i) for i in range(values.shape[1])], values, None)
        if name.endswith((".parquet", ".pq")):
            frame, first = _frame("read_parquet", data, file), None
        elif name.endswith((".csv", ".tsv", ".txt")):
            options: dict[str, Any] = {"sep": "\t" if name.endswith(".tsv") else ",", "skip_blank_lines": False}
            options["compression"] = "gzip" if file.endswith(".gz") else None
            if header is None:
                top = _frame("read_csv", data, file, header=None, nrows=1, **options)
                header = not all(dtype.kind in "iuf" for dtype in top.dtypes)
            frame, first = _frame("read_csv", data, file, header=0 if header else None, **options), 2 if header else 1
        else:
            advice = "; dataset.pyg is the key of a torch_geometric Data" if name.endswith((".pt", ".pth")) else ""
            raise DataError(f"{file}: format not known; .csv, .tsv, .parquet, .npy and .npz are read{advice}.")
        numeric = all(dtype.kind in "iufb" for dtype in frame.dtypes)
        values = frame.to_numpy(dtype=np.float64) if numeric else frame.to_numpy(dtype=object, na_value=np.nan)
        return _Table(file, [str(column) for column in frame.columns], values, first)

    def _tensor(self, name: str, key: str) -> _Table:
        """The tensor `name` as the table of `key`."""
        where = f"{self.pyg}, {name}"
        if name not in self.tensors:
            held = ", ".join(self.tensors) or "no tensor"
            raise DataError(f"{self.pyg}: has no {name}, the {key} (it has {held}).")
        values = self.tensors[name]
        values = values[:, None] if values.ndim == 1 and name == "y" else values
        shape = {"x": "(nodes, features)", "edge_index": "(2, edges)", "y": "(nodes,) or (nodes, 1)"}[name]
        wrong = values.ndim != 2 or values.dtype.kind not in "iufb"
        if wrong or (name == "edge_index" and len(values) != 2) or (name == "y" and values.shape[1] != 1):
            found = f"shape {self.tensors[name].shape} and type {values.dtype}"
            raise DataError(f"{where}: {found}; numbers of shape {shape} are needed.")
        values = values.T if name == "edge_index" else values
        return _Table(where, [str(i) for i in range(values.shape[1])], values, None)


def _array(data: bytes, file: str, key: str) -> np.ndarray:
    if file.endswith(".npy"):
        return load_npy(data, file)
    names = npz_names(data, file)
    if {"format", "shape", "data"} <= names:
        matrix = load_sparse(data, file)
        return np.stack([matrix.row, matrix.col], axis=1) if key == "edges" else matrix.toarray()
    if key not in names and len(names) != 1:
        held = ", ".join(sorted(names)) or "nothing"
        raise DataError(f"{file}: holds {held}; an array called {key}, or a single one, is needed.")
    key = key if key in names else names.pop()
    return load_npz(data, file, (key,))[key]


def _frame(reader: str, data: bytes, file: str, **options: Any) -> Any:
    """The result of `pandas.<reader>`, whose errors, which name the line, become a DataError."""
    import zlib

    import pandas as pd

    try:
        return getattr(pd, reader)(io.BytesIO(data), **options)
    except (ValueError, OSError, EOFError, zlib.error) as error:
        # errors of pandas and pyarrow are ValueErrors and OSErrors
        raise DataError(f"{file}: cannot be read, perhaps cut short ({' '.join(str(error).split())}).") from None


def _shown(cell: object) -> str:
    """A cell as the user wrote it: in a column with a gap 2 has become 2.0."""
    return f"{cell:g}" if isinstance(cell, float) else str(cell)


def _numbers(table: _Table) -> np.ndarray:
    """The cells as float64, NaN where empty.

    Raises
    ------
    DataError : naming the line of a cell that is no number.
    """
    try:
        return table.values.astype(np.float64)
    except (ValueError, TypeError):
        for row, cells in enumerate(table.values):
            for column, cell in enumerate(cells):
                try:
                    float(cell)
                except (ValueError, TypeError):
                    where = f"{table.at(row)}, column {table.names[column]!r}"
                    raise DataError(f"{where}: {cell!r} is not a number.") from None
        raise
