"""How a graph is divided between parties and its nodes into splits, and how rows are dealt to workers.

Graphs are divided as in GLASU: feature blocks are disjoint and random, and each party loses some edges.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from vflbench.cards.data.divide import Division, Sharding
from vflbench.data.tasks import GraphTask, Shard, ShardedTask
from vflbench.seeding import stream
from vflbench.types import ConfigError, DataSource, Metric, Problem, refuse

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RawGraph:
    """A graph before it is divided."""

    features: np.ndarray  # (nodes, d) float32
    edges: np.ndarray  # (2, E) int64, as `undirected` gives them
    labels: np.ndarray  # (nodes,) int64; -1: no label, never in a split
    classes: int


def distinct(keys: np.ndarray) -> np.ndarray:
    """The distinct values, ascending, by sorting: numpy's `unique` takes five times as long for millions of edges."""
    keys = np.sort(keys)
    return keys[np.concatenate([[True], keys[1:] != keys[:-1]])] if len(keys) else keys


def undirected(pairs: np.ndarray, nodes: int) -> np.ndarray:
    """Both directions of every edge, (2, E) int64, without self-loops and duplicates, sorted by (row, column).

    Parameters
    ----------
    pairs : (2, n) node ids.
    """
    row, column = pairs.astype(np.int64)
    apart = row != column
    low, high = np.minimum(row, column)[apart], np.maximum(row, column)[apart]
    once = distinct(low * nodes + high)
    low, high = once // nodes, once % nodes
    keys = np.sort(np.concatenate([once, high * nodes + low]))
    return np.stack([keys // nodes, keys % nodes])


def drop_edges(
    edges: np.ndarray, nodes: int, keep: float, parties: int, rng: np.random.Generator
) -> tuple[np.ndarray, ...]:
    """A copy of `edges` for each party, in which every undirected edge is kept with probability `keep`.

    Parameters
    ----------
    edges : (2, E), as `undirected` gives them. Both directions of an edge are kept or lost together.
    """
    if keep >= 1:
        return (edges,) * parties
    from scipy import sparse

    forth = edges[0] < edges[1]
    count = int(forth.sum())
    which = np.empty(edges.shape[1], np.int64)  # the undirected edge that each direction belongs to
    which[forth] = np.arange(count)
    # The opposite directions are in the same order by column. Transposing a sparse matrix finds them in linear time:
    # Reddit has 57 million edges.
    which[~forth] = sparse.csr_matrix((np.arange(count), edges[:, forth]), shape=(nodes, nodes)).tocsc().data
    return tuple(edges[:, (rng.random(count) < keep)[which]] for _ in range(parties))


def feature_blocks(columns: int, parties: int, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Disjoint random blocks of ceil(columns / parties) ascending column ids; the last one may be smaller.

    Raises
    ------
    ConfigError : a party would have no column.
    """
    size = -(-columns // parties)
    if size * (parties - 1) >= columns:
        allowed = f"{columns} feature columns in blocks of {size} leave a party none"
        raise ConfigError([Problem("algorithm.parties", parties, allowed)])
    order = rng.permutation(columns)
    return tuple(np.sort(order[m * size : (m + 1) * size]) for m in range(parties))


def count_split(
    labels: np.ndarray, classes: int, per_class: int, validation: int, test: int, seed: int
) -> dict[str, np.ndarray]:
    """Splits of given sizes, drawn by the stream "split" of `seed`.

    Training has `per_class` nodes of each class; `validation` and `test` nodes are drawn from the rest.

    Raises
    ------
    ConfigError : there are not enough labelled nodes.
    """
    counts = np.bincount(labels[labels >= 0], minlength=classes)
    problems = []
    if per_class > counts.min():
        allowed = f"class {counts.argmin()} has only {counts.min()} labelled nodes"
        problems.append(Problem("dataset.train_per_class", per_class, allowed))
    rest_size = int(counts.sum()) - per_class * classes
    if validation + test > rest_size:
        allowed = f"only {max(rest_size, 0)} labelled nodes are left beside training"
        problems.append(Problem("dataset.validation + dataset.test", validation + test, allowed))
    refuse(problems)
    rng = stream(seed, "split")
    train = np.concatenate([rng.permutation(np.flatnonzero(labels == c))[:per_class] for c in range(classes)])
    rest = rng.permutation(np.setdiff1d(np.flatnonzero(labels >= 0), train))
    return _sorted(train, rest[:validation], rest[validation : validation + test])


def fraction_split(labels: np.ndarray, classes: int, train: float, test: float, seed: int) -> dict[str, np.ndarray]:
    """Splits of each class by fractions, drawn by the stream "split" of `seed`.

    Of n nodes of a class floor(train * n) are for training and floor(test * n) for testing; the rest is for validation.
    """
    rng = stream(seed, "split")
    parts = []
    for c in range(classes):
        rows = rng.permutation(np.flatnonzero(labels == c))
        # 1e-9: 0.3 * 10 is 3.0000000000000004 or 2.9999..., and must be 3 either way
        first, second = int(train * len(rows) + 1e-9), int(test * len(rows) + 1e-9)
        parts.append((rows[:first], rows[first + second :], rows[first : first + second]))
    train_rows, val_rows, test_rows = (np.concatenate(part) for part in zip(*parts, strict=True))
    return _sorted(train_rows, val_rows, test_rows)


def _sorted(train: np.ndarray, val: np.ndarray, test: np.ndarray) -> dict[str, np.ndarray]:
    return {name: np.sort(rows).astype(np.int64) for name, rows in (("train", train), ("val", val), ("test", test))}


def check_fractions(train: float, test: float) -> list[Problem]:
    """What is wrong with the fractions of `fraction_split`."""
    if train > 0 and test > 0 and train + test <= 1:
        return []
    allowed = "must be fractions above 0 that add up to at most 1"
    return [Problem("dataset.train, dataset.test", f"{train}, {test}", allowed)]


def divide(
    name: str,
    graph: RawGraph,
    splits: dict[str, np.ndarray],
    source: DataSource,
    how: Division,
    *,
    parties: int,
    seed: int,
    blocks: tuple[np.ndarray, ...] | None = None,
    edges: tuple[np.ndarray, ...] | None = None,
) -> GraphTask:
    """The task in which `parties` clients share `graph`, as GLASU divides it, by the stream "partition" of `seed`.

    Parameters
    ----------
    blocks, edges : column ids and edge sets per party, where the data set defines them. Such edges are all kept.
    """
    rng = stream(seed, "partition")
    columns = blocks if blocks is not None else feature_blocks(graph.features.shape[1], parties, rng)
    kept = edges if edges is not None else drop_edges(graph.edges, len(graph.labels), how.keep_edges, parties, rng)
    if edgeless := [str(client) for client, own in enumerate(kept) if not own.size]:
        clients = "No client has" if len(edgeless) == parties else f"Client {', '.join(edgeless)} of {parties} has not"
        log.warning("dataset %s: %s a single edge.", name, clients)
    features = tuple(np.ascontiguousarray(graph.features[:, ids], dtype=np.float32) for ids in columns)
    metric = Metric("accuracy", "max")
    return GraphTask(name, source, metric, graph.classes, graph.labels, splits, features, kept, graph.edges, columns)


# --- rows to workers --------------------------------------------------------------------------------------------------


def check_sharding(how: Sharding, regression: bool) -> list[Problem]:
    """What is wrong with the keys that `shard` takes."""
    if how.sharding == "dirichlet" and regression:
        return [Problem("dataset.sharding", how.sharding, "deals classes, and a regression has none: use iid")]
    return []


def iid_rows(rows: int, workers: int, rng: np.random.Generator) -> list[np.ndarray]:
    """All rows in random order, in `workers` parts whose sizes differ by at most one."""
    return np.array_split(rng.permutation(rows), workers)


def dirichlet_rows(labels: np.ndarray, workers: int, alpha: float, rng: np.random.Generator) -> list[np.ndarray]:
    """All rows, each class dealt to workers in proportions from Dirichlet(alpha, ..., alpha); in random order.

    The method is by Hsu, Qi, Brown, arXiv 1909.06335, in the form of Li, Diao, Chen, He, arXiv 2102.02079: class by
    class. Sizes differ, and a worker may have no rows.
    """
    dealt: list[list[np.ndarray]] = [[] for _ in range(workers)]
    for label in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == label))
        cuts = np.round(np.cumsum(rng.dirichlet(np.full(workers, alpha)))[:-1] * len(rows)).astype(np.int64)
        for own, part in zip(dealt, np.split(rows, cuts), strict=True):
            own.append(part)
    return [rng.permutation(np.concatenate(own)) for own in dealt]


def shard(
    name: str,
    train: Shard,
    held_out: Mapping[str, Shard],
    source: DataSource,
    metric: Metric,
    how: Sharding,
    *,
    classes: int,
    workers: int,
    seed: int,
) -> ShardedTask:
    """The task in which `workers` share the rows of `train`, dealt by the stream "partition" of `seed`.

    Parameters
    ----------
    held_out : val | test; a split without rows is left out.
    classes : 0 for regression, whose rows can only be dealt iid.

    Raises
    ------
    ConfigError : a worker would have no row; or rows are to be dealt by class, but there are no classes.
    """
    refuse(check_sharding(how, regression=not classes))
    iid, alpha, rng = how.sharding == "iid", how.dirichlet_alpha, stream(seed, "partition")
    dealt = iid_rows(len(train.labels), workers, rng) if iid else dirichlet_rows(train.labels, workers, alpha, rng)
    if empty := [worker for worker, rows in enumerate(dealt) if not len(rows)]:
        others = f" and {len(empty) - 1} others" if len(empty) > 1 else ""
        allowed = f"{len(train.labels)} rows of {name} dealt to {workers} workers leave worker {empty[0]}{others}"
        key, value = ("algorithm.workers", workers) if iid else ("dataset.dirichlet_alpha", alpha)
        raise ConfigError([Problem(key, value, f"{allowed} without a row")])
    shards = tuple(Shard(train.features[rows], train.labels[rows]) for rows in dealt)
    held_out = {split: part for split, part in held_out.items() if len(part.labels)}
    exact = train.labels.astype(np.float64)
    own = (0.0, 1.0) if classes else (float(exact.mean()), float(exact.std()) or 1.0)
    return ShardedTask(name, source, metric, classes, shards, held_out, *own)
