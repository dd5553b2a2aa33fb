"""scikit-learn's handwritten digits with a k-nearest-neighbour graph: a small real graph task on any machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vflbench.data import partition, sources
from vflbench.data.partition import RawGraph
from vflbench.data.tasks import GraphTask
from vflbench.types import DatasetInfo, DataSource, Problem, refuse

DATASETS = (
    DatasetInfo(
        name="digits_graph",
        summary="scikit-learn's digits with a nearest-neighbour graph: 1,797 images, 64 pixels, 10 digits; needs no files",
        layouts=("graph",),
        sources=("real",),
        comes_with="comes with scikit-learn",
    ),
)


@dataclass
class Config:
    name: str = "digits_graph"
    source: str = "auto"  # auto | real
    variant: str = "auto"  # the only one
    neighbours: int = 5  # nearest neighbours that a node is joined with, in either direction
    train_per_class: int = 20  # training nodes per digit
    validation: int = 300  # validation nodes
    test: int = 500  # test nodes
    keep_edges: float = 0.8  # each client has an edge with this probability
    normalize_features: bool = False  # rows of each client's block scaled to sum 1


def check(config: Config, layout: str, parties: int) -> list[Problem]:
    """What is wrong with the configuration, before anything is read."""
    problems = sources.check_source(config.source, config.variant) + partition.check_division(config.keep_edges, parties)
    if config.source == "synthetic":
        problems.append(Problem("dataset.source", config.source, "digits_graph is real data that needs no twin: auto or real"))
    for key, most in (("neighbours", 100), ("train_per_class", 174), ("validation", 1797), ("test", 1797)):
        value = getattr(config, key)
        if not 1 <= value <= most:
            problems.append(Problem(f"dataset.{key}", value, f"must lie between 1 and {most}"))
    return problems


def load(config: Config, layout: str, parties: int, seed: int, root: Path | None) -> GraphTask:
    """The digits, divided between `parties` clients. `root` is not used: the data comes with scikit-learn.

    Raises
    ------
    ConfigError
    """
    refuse(check(config, layout, parties))
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)  # (1797, 64) integers 0 to 16
    edges = nearest_neighbours(pixels.astype(np.int64), config.neighbours)
    graph = RawGraph((pixels / 16).astype(np.float32), edges, labels.astype(np.int64), 10)
    splits = partition.count_split(graph.labels, 10, config.train_per_class, config.validation, config.test, seed)
    return partition.divide(
        config.name,
        graph,
        splits,
        DataSource(kind="real", note="comes with scikit-learn; the graph is made from the features"),
        parties=parties,
        seed=seed,
        keep_edges=config.keep_edges,
        normalize_features=config.normalize_features,
    )


def nearest_neighbours(points: np.ndarray, k: int) -> np.ndarray:
    """Edges (2, E) between each of the integer `points` (nodes, d) and its `k` nearest, ties to the lower id: the same on every machine."""
    exact = points.astype(np.float64)  # of such integers; BLAS multiplies no others
    squares = (exact**2).sum(axis=1)
    distance = (squares[:, None] + squares[None, :] - 2 * exact @ exact.T).astype(np.int64)
    order = distance * len(points) + np.arange(len(points))
    np.fill_diagonal(order, np.iinfo(order.dtype).max)
    nearest = np.sort(np.partition(order, k - 1, axis=1)[:, :k], axis=1) % len(points)
    return partition.undirected(np.stack([np.repeat(np.arange(len(points)), k), nearest.ravel()]), len(points))
