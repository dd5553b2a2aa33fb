"""Cora, CiteSeer and PubMed from the original Planetoid files (Yang, Cohen, Salakhutdinov 2016).

A data set has eight files, all but the last one Python-2 pickles:

- `x`, `y`: features and one-hot labels of the public training nodes
- `allx`, `ally`: those of all nodes but the test nodes
- `tx`, `ty`: those of the test nodes, in the order of `test.index`
- `graph`: node -> neighbours
- `test.index`
"""

from pathlib import Path
from typing import Any

import numpy as np

from vflbench.cards.data.graph.planetoid import Config
from vflbench.data import sources, twins
from vflbench.data.divide import partition
from vflbench.data.divide.partition import RawGraph
from vflbench.data.published_files import Pickled, Rows
from vflbench.data.readers import csv_files
from vflbench.data.readers.untrusted import load_pickle
from vflbench.data.sources import FileSet, Found, Part, RawFile
from vflbench.data.tasks import GraphTask
from vflbench.types import DataError

TRAIN_PER_CLASS = {"cora": 60, "citeseer": 84, "pubmed": 320}  # of GLASU's code


_ADDRESS = "https://raw.githubusercontent.com/kimiyoung/planetoid/af6abf468a772cc055bec88c52e4d6f51b7c37e3/data"
_SUFFIXES = ("x", "y", "tx", "ty", "allx", "ally", "graph", "test.index")
_FOLDERS = {"cora": "Cora", "citeseer": "CiteSeer", "pubmed": "PubMed"}
# sha256, in the order of _SUFFIXES, computed from the files at _ADDRESS. But those of CiteSeer's and PubMed's allx are
# as several public projects pin them; for all other files their sums equal ours.
_SHA256 = {
    "cora": (
        "23cfa55d91c6f624233f5eb7b6e3f141f1bd2b2ae39608a63cf5d084bb27baab",
        "94465c14eb53e04ca262198dcbb2521ee8af60fb3f3d546cd6ca24a511b0e7d1",
        "b9afbaa4a400df991f6f02ef677e1e44da55ffc04801fd02f9e673987829226a",
        "41f5ac76596a1699cc33f53084a2419e92961c42bb75f36fc38e616d348532ad",
        "9419ba2f26f5c35243db64aba110e0f35a04851609e0dc5433450676ca6b8543",
        "2b998f5cc7fedc86e7f97ca2498f47a1ffc1462c29e2d578b23bf3f62b6e7d71",
        "58f13302f39dde8852dad6fe6d15b89b077b6d7f837626bce671ef80344b383d",
        "297ce89af2b51a6a194181c7dbe1796c6a1cf9cd9349a88383b1b1e227867875",
    ),
    "citeseer": (
        "d20de19150741e555de0ed037195630fc194114ebc7fd72ced62810148aa22f6",
        "8ba87e515d8e3ee3cf52f6d2c5b86aa73f11ecad825a808455209ec26cd54924",
        "539a8906a2da97628d212f2fdd668c109a8b3f0d36574b59e5d3fd5b5303da21",
        "55e5bd1ba1e733a04598753ad1a8d57957f4b8f89e74519f41f4f4938767e4ce",
        "2ac30345d95c9ec933a817ee0bdd6a5f077f8c184a20e696910192d534414668",
        "f704b2d986dde6c2669934de1f3ae5696a6cf9455c0f6b2646a2d135ea0a1c95",
        "d79a4ef9d3e7169aee8946145f6b7306e35bc79bffad26346cfb94e10e9912a7",
        "2af990671580b6b2df5d158d1038f8292e30c9cd821b5453f399659b25b723d4",
    ),
    "pubmed": (
        "fbe9cb5c47200d1b7769a26e579be3b7130b556831f9d850e77c4c74f2599b33",
        "e6c807633307a07ed659249006536a147c7999c797f11a2560752990181b41b3",
        "4eb5f5d0f30f26497eb0ac6ac9719d09c67e284f1ed0385c93f3ef27a671da3d",
        "ee2e0d4819d9fbcc403689c3bf2e49face401b605932f093bc58ab6461130fdd",
        "508e538e2abdccdd54c4d3e9f49d638b4af7107d85845f66ddea5a5152658b7e",
        "0c37bbe3b5014ec365e9d393cf4791925e5ed94fb194305d74f064a8d7b50f0e",
        "5b89f0036ca22909471f1e6558eb42fa06e0c730a577bde5b058b40638f81dc9",
        "b101d421688bbaecbd82e8a18f1e282378d6830f3a37666f28ebc47f844341b5",
    ),
}


# papers with features in the files (15 of CiteSeer's 3,327 have none), words, topics, edges
_COUNTS = {"cora": (2708, 1433, 7, 5278), "citeseer": (3312, 3703, 6, 4552), "pubmed": (19_717, 500, 3, 44_324)}


def _shape(held: Any) -> tuple[int, int]:
    return held.shape[0], held.shape[1]


def _pairs(held: Any) -> tuple[int, int]:
    """The number of edges of neighbour lists."""
    return len({(min(a, b), max(a, b)) for a, near in held.items() for b in near if a != b}), 0


def _file_set(name: str) -> FileSet:
    folder = f"planetoid/{_FOLDERS[name]}/raw"
    files = tuple(
        RawFile(f"{folder}/ind.{name}.{suffix}", f"{_ADDRESS}/ind.{name}.{suffix}", sha256)
        for suffix, sha256 in zip(_SUFFIXES, _SHA256[name], strict=True)
    )
    also = (f"planetoid_partial/{_FOLDERS[name]}/raw", f"{_FOLDERS[name]}/raw")
    papers, words, topics, edges = _COUNTS[name]
    path = {suffix: file.path for suffix, file in zip(_SUFFIXES, files, strict=True)}
    rows = (
        Rows("papers", (papers,), words, (path["allx"], path["tx"]), Pickled(_shape)),
        Rows("papers' topics", (papers,), topics, (path["ally"], path["ty"]), Pickled(_shape)),
        Rows("edges", (edges,), 0, (path["graph"],), Pickled(_pairs)),
    )
    return FileSet(name, folder, (Part("Planetoid files", (files,)),), also, rows)


FILE_SETS = tuple(_file_set(name) for name in _FOLDERS)

# Class sizes, edges, sparsity and homophily of the real graphs. With this `topic` and `misread` a graph model does
# about as well on Cora's twin as on Cora, and features without the graph do clearly worse.
_TWINS = {
    "cora": twins.WordShape((351, 217, 418, 818, 426, 298, 180), 0, 5278, 1433, 18.17, 0.81, topic=0.5, misread=0.1),
    "citeseer": twins.WordShape((249, 590, 668, 701, 596, 508), 15, 4552, 3703, 31.7, 0.74, topic=0.4, misread=0.11),
    "pubmed": twins.WordShape((4103, 7739, 7875), 0, 44324, 500, 50.1, 0.80, topic=0.27, misread=0.1, weighted=True),
}


def load(config: Config, layout: str, parties: int, seed: int, root: Path | None) -> GraphTask:
    """Cora, CiteSeer or PubMed, divided between `parties` clients."""
    name = config.name
    files = next(files for files in FILE_SETS if files.option == name)
    found = sources.locate(files, root, config.source, config.verify)
    if found is not None:
        graph, public = read(files, found)
        source = found.source()
    else:
        graph = twins.word_graph(name, _TWINS[name])
        public = partition.count_split(graph.labels, graph.classes, 20, 500, 1000, seed=0)  # the public split's sizes
        source = twins.twin_source()
    splits = public
    if config.split == "random":
        per_class = config.train_per_class or TRAIN_PER_CLASS[name]
        splits = partition.count_split(graph.labels, graph.classes, per_class, config.validation, config.test, seed)
    return partition.divide(name, graph, splits, source, config, parties=parties, seed=seed)


# --- the format -------------------------------------------------------------------------------------------------------


def read(files: FileSet, found: Found) -> tuple[RawGraph, dict[str, np.ndarray]]:
    """The graph in the files, and Planetoid's public split.

    Test nodes that `test.index` leaves out (CiteSeer's 15 isolated ones) get zero features and no label, as is usual.

    Raises
    ------
    DataError : naming the file, and the line of test.index.
    """
    file = dict(zip(_SUFFIXES, files.parts[0].groups[0], strict=True))
    held = {suffix: load_pickle(found.read(file[suffix]), found.label(file[suffix])) for suffix in _SUFFIXES[:-1]}
    label = {suffix: found.label(file[suffix]) for suffix in _SUFFIXES}
    x, allx, tx = (_matrix(held[suffix], label[suffix]) for suffix in ("x", "allx", "tx"))
    y, ally, ty = (_one_hot(held[suffix], label[suffix]) for suffix in ("y", "ally", "ty"))
    test = _test_index(found.read(file["test.index"]), label["test.index"])

    for many, few, why in (("allx", "tx", "columns"), ("ally", "ty", "classes")):
        a, b = held[many].shape[1], held[few].shape[1]
        if a != b:
            raise DataError(f"{label[few]}: {b} {why}, but {label[many]} has {a}.")
    for features, suffix, rows in ((x, "x", len(y)), (allx, "allx", len(ally)), (tx, "tx", len(ty))):
        if len(features) != rows:
            other = label[suffix.replace("x", "y")]
            raise DataError(f"{label[suffix]}: {len(features)} rows, but {other} has {rows}.")
    if len(test) != len(tx):
        raise DataError(f"{label['test.index']}: {len(test)} lines, but {label['tx']} has {len(tx)} rows.")
    if test.min() < len(allx):
        where = f"{label['test.index']}, line {int(test.argmin()) + 1}"
        raise DataError(f"{where}: node {test.min()} is among the {len(allx)} nodes of {label['allx']} already.")

    nodes = int(test.max()) + 1
    features = np.zeros((nodes, allx.shape[1]), np.float32)
    labels = np.full(nodes, -1, np.int64)
    features[: len(allx)], features[test] = allx, tx
    labels[: len(ally)], labels[test] = ally, ty
    graph = RawGraph(features, _edges(held["graph"], nodes, label["graph"]), labels, held["ally"].shape[1])
    train, val = np.arange(len(x)), np.arange(len(x), min(len(x) + 500, len(allx)))
    public = {"train": train, "val": val, "test": np.sort(test)}
    return graph, {split: rows[labels[rows] >= 0] for split, rows in public.items()}


def _matrix(held: Any, label: str) -> np.ndarray:
    """Dense float32 features of a pickled sparse matrix.

    Its indices are checked first, as a damaged matrix must not reach compiled code.
    """
    from scipy import sparse

    try:
        if not sparse.isspmatrix_csr(held):
            raise ValueError(f"holds a {type(held).__name__}")
        matrix = sparse.csr_matrix((held.data, held.indices, held.indptr), shape=held.shape)
        matrix.check_format(full_check=True)
        features: np.ndarray = matrix.toarray().astype(np.float32)
    except (ValueError, AttributeError, TypeError, MemoryError) as error:
        raise DataError(f"{label}: not a sparse feature matrix ({error}). Get the file again.") from None
    if not np.isfinite(features).all():
        row, column = np.argwhere(~np.isfinite(features))[0]
        raise DataError(f"{label}: feature {column} of row {row} is not a finite number.")
    return features


def _one_hot(held: Any, label: str) -> np.ndarray:
    """Class ids of one-hot rows; -1 for a row of zeros."""
    if not isinstance(held, np.ndarray) or held.ndim != 2 or held.dtype.kind not in "iuf":
        raise DataError(f"{label}: not a matrix of one-hot labels. Get the file again.")
    others = np.flatnonzero(((held != 0) & (held != 1)).any(axis=1) | (held.sum(axis=1) > 1))
    if len(others):
        raise DataError(f"{label}: row {others[0]} is not a one-hot label.")
    classes: np.ndarray = np.where(held.any(axis=1), held.argmax(axis=1), -1)
    return classes


def _test_index(data: bytes, label: str) -> np.ndarray:
    # by hand, as pyarrow would import pandas: a sixth of what a first look at Cora takes
    lines = [line.strip() for line in data.decode("ascii", "replace").rstrip().split("\n")]
    wrong = np.array([not line.isdecimal() or len(line) > 18 for line in lines])
    csv_files.refuse(label, 1, lines, wrong, "is no node id")
    ids = np.array(lines, np.int64)
    first = np.unique(ids, return_index=True)[1]
    csv_files.refuse(label, 1, lines, ~np.isin(np.arange(len(ids)), first), "is there twice")
    return ids


def _edges(held: Any, nodes: int, label: str) -> np.ndarray:
    if not isinstance(held, dict) or not all(isinstance(near, list) for near in held.values()):
        raise DataError(f"{label}: not a dictionary of neighbour lists. Get the file again.")
    try:
        row = np.repeat(np.fromiter(held, np.int64, len(held)), [len(near) for near in held.values()])
        column = np.fromiter((node for near in held.values() for node in near), np.int64, len(row))
    except (TypeError, ValueError, OverflowError) as error:
        raise DataError(f"{label}: a node id is not a number ({error}).") from None
    outside = np.flatnonzero((row < 0) | (row >= nodes) | (column < 0) | (column >= nodes))
    if len(outside):
        a, b = row[outside[0]], column[outside[0]]
        raise DataError(f"{label}: node {a} lists neighbour {b}, but nodes are 0 to {nodes - 1}.")
    return partition.undirected(np.stack([row, column]), nodes)
