"""The handwritten digits of scikit-learn with a k-nearest-neighbour graph: a small real graph task on any machine."""

import functools
from pathlib import Path

import numpy as np

from vflbench.cards.data.graph.digits_graph import Config
from vflbench.data.digit_images import images
from vflbench.data.divide import partition
from vflbench.data.divide.partition import RawGraph
from vflbench.data.tasks import GraphTask
from vflbench.types import DataSource


def load(config: Config, layout: str, parties: int, seed: int, root: Path | None) -> GraphTask:
    """The digits, divided between `parties` clients; `root` is not used, as the data come with scikit-learn."""
    pixels, labels = images()
    graph = RawGraph((pixels / 16).astype(np.float32), _edges(config.neighbours).copy(), labels.astype(np.int64), 10)
    splits = partition.count_split(graph.labels, 10, config.train_per_class, config.validation, config.test, seed)
    source = DataSource(kind="real", note="comes with scikit-learn; the graph is made from the features")
    return partition.divide(config.name, graph, splits, source, config, parties=parties, seed=seed)


@functools.lru_cache(maxsize=4)
def _edges(neighbours: int) -> np.ndarray:
    """The graph's edges, which jobs of one sweep share."""
    return nearest_neighbours(images()[0].astype(np.int64), neighbours)


def nearest_neighbours(points: np.ndarray, k: int) -> np.ndarray:
    """Edges (2, E) between each of the integer `points` (nodes, d) and its `k` nearest, the same on every machine.

    Of equally near points the lower ids count.
    """
    exact = points.astype(np.float64)  # exact for such integers, and BLAS multiplies no others
    squares = (exact**2).sum(axis=1)
    distance = (squares[:, None] + squares[None, :] - 2 * exact @ exact.T).astype(np.int64)
    order = distance * len(points) + np.arange(len(points))
    np.fill_diagonal(order, np.iinfo(order.dtype).max)
    nearest = np.sort(np.partition(order, k - 1, axis=1)[:, :k], axis=1) % len(points)
    return partition.undirected(np.stack([np.repeat(np.arange(len(points)), k), nearest.ravel()]), len(points))
