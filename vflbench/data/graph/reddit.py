"""Reddit posts of September 2014 (Hamilton, Ying, Leskovec 2017) in the `.npz` format that DGL and PyG use.

`reddit_data.npz` holds `feature` (232,965 x 602), `label` (41 communities) and `node_types` (1 training, 2 validation,
3 test, by day); `reddit_graph.npz` is a scipy sparse adjacency matrix.
"""

from pathlib import Path

import numpy as np

from vflbench.cards.data.graph.reddit import CLASSES, Config
from vflbench.data import sources, twins
from vflbench.data.divide import partition
from vflbench.data.divide.partition import RawGraph
from vflbench.data.published_files import Arrays, Rows
from vflbench.data.readers.untrusted import load_npz, load_sparse
from vflbench.data.sources import FileSet, Found, Part, RawFile
from vflbench.data.tasks import GraphTask
from vflbench.seeding import stream
from vflbench.types import DataError

FEATURES = 602


# 1.4 GB. No checksums of its members are known, so their format is checked.
_ADDRESS = "https://data.dgl.ai/dataset/reddit.zip"
_DATA = RawFile("reddit/reddit_data.npz", _ADDRESS, member="reddit_data.npz")
_GRAPH = RawFile("reddit/reddit_graph.npz", _ADDRESS, member="reddit_graph.npz")
_PART = Part("Reddit files", ((_DATA, _GRAPH),))
_ROWS = (
    Rows("posts", (232_965,), FEATURES, (_DATA.path,), Arrays(("feature",))),
    Rows("ends of edges", (114_615_892,), 0, (_GRAPH.path,), Arrays(("data",))),
)
FILE_SETS = (FileSet("reddit", "reddit", (_PART,), ("Reddit/raw", "reddit/raw", "Reddit"), _ROWS),)

_HOMOPHILY = 0.76  # about that of the real graph
_MEAN_DEGREE = 50  # of the twin; the real graph has 492, which takes long
_SIGNAL = 3.2  # of the twin's features


def load(config: Config, layout: str, parties: int, seed: int, root: Path | None) -> GraphTask:
    """Reddit, or its twin of `nodes` posts, divided between `parties` clients."""
    found = sources.locate(FILE_SETS[0], root, config.source, config.verify)
    if found is not None:
        graph, types = read(found)
        source = found.source()
    else:
        graph, types = _twin(config.nodes)
        note = "synthetic twin at a chosen size; class sizes and features are made up"
        source = twins.twin_source(f"{config.nodes} nodes", note)
    if config.split == "public":
        splits = {name: np.flatnonzero(types == kind) for name, kind in (("train", 1), ("val", 2), ("test", 3))}
    else:
        splits = random_split(graph.labels, config.train, seed)
    return partition.divide(config.name, graph, splits, source, config, parties=parties, seed=seed)


def random_split(labels: np.ndarray, train: float, seed: int) -> dict[str, np.ndarray]:
    """GLASU's split, with two changes.

    Training gets int(train * N / 41) nodes of each class, and testing min(max(1200, 41 * 150), train * N) of the rest.
    We differ in two points. No class gives more than `train` of its nodes for training; in the released code small
    classes give all, and are never tested. As many nodes as for testing are for validation, which the released code
    lacks. Where too few are left, both get half.
    """
    rng = stream(seed, "split")
    quota = int(train * len(labels) / CLASSES)
    rows = [rng.permutation(np.flatnonzero(labels == c)) for c in range(CLASSES)]
    chosen = np.concatenate([ids[: min(quota, int(train * len(ids)))] for ids in rows])
    rest = rng.permutation(np.setdiff1d(np.arange(len(labels)), chosen))
    size = min(max(1200, CLASSES * 150), int(train * len(labels)), len(rest) // 2)
    return {"train": np.sort(chosen), "val": np.sort(rest[size : 2 * size]), "test": np.sort(rest[:size])}


def read(found: Found) -> tuple[RawGraph, np.ndarray]:
    """The graph in the files, and the type of each node (1 training, 2 validation, 3 test).

    Raises
    ------
    DataError : naming the file and the row.
    """
    label = found.label(_DATA)
    held = load_npz(found.read(_DATA), label, ("feature", "label", "node_types"))
    features, labels, types = held["feature"], held["label"], held["node_types"]
    if features.ndim != 2 or features.dtype.kind != "f":
        raise DataError(f"{label}: `feature` is not a matrix of numbers.")
    nodes = len(features)
    if labels.shape != (nodes,) or types.shape != (nodes,):
        raise DataError(f"{label}: {nodes} rows of features, but labels {labels.shape} and node_types {types.shape}.")
    rows = np.flatnonzero(~np.isfinite(features).all(axis=1))
    if len(rows):
        raise DataError(f"{label}: row {rows[0]} of `feature` holds a number that is not finite.")
    rows = np.flatnonzero((labels < 0) | (labels >= CLASSES) | (labels != np.floor(labels)))
    if len(rows):
        raise DataError(f"{label}: label {labels[rows[0]]} of row {rows[0]}; labels are 0 to {CLASSES - 1}.")
    matrix = load_sparse(found.read(_GRAPH), found.label(_GRAPH))
    if matrix.shape != (nodes, nodes):
        raise DataError(f"{found.label(_GRAPH)}: a {matrix.shape} matrix, but {label} has {nodes} nodes.")
    edges = partition.undirected(np.stack([matrix.row, matrix.col]), nodes)
    return RawGraph(features.astype(np.float32), edges, labels.astype(np.int64), CLASSES), types


def _twin(nodes: int) -> tuple[RawGraph, np.ndarray]:
    rng = stream(0, f"twin/reddit/{nodes}")
    share = 1 / (np.arange(CLASSES) + 5)  # communities of very different sizes
    counts = np.maximum(5, np.floor(share / share.sum() * nodes).astype(np.int64))
    counts[0] += nodes - counts.sum()
    labels = rng.permutation(np.repeat(np.arange(CLASSES), counts))
    pairs = twins.homophilous_pairs(labels, round(nodes * _MEAN_DEGREE / 2), _HOMOPHILY, rng)
    features = twins.dense_block(labels, FEATURES, _SIGNAL, rng)
    types = rng.choice([1, 2, 3], nodes, p=[0.66, 0.10, 0.24])  # the real shares
    return RawGraph(features, partition.undirected(pairs, nodes), labels, CLASSES), types
