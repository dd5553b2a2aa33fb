"""Graphs: the same nodes at every party, each with its own block of features and its own edges."""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from vflbench.data import shipping
from vflbench.data.tasks.base import Task, no_rows, replace_at


@dataclass(frozen=True)
class GraphPublic:
    """What every party of a graph task may know: sizes, and the node ids of each split."""

    nodes: int
    classes: int
    parties: int
    splits: dict[str, np.ndarray]  #: train | val | test -> int64 node ids, sorted, disjoint


@dataclass(frozen=True)
class GraphPart:
    """One party's own part of a graph task."""

    features: np.ndarray  #: (nodes, d_m) float32
    #: (2, E_m) int64: both directions of every edge, no self-loops, no duplicates, sorted by (row, column)
    edges: np.ndarray
    labels: np.ndarray  #: (nodes,) int64: labels of training nodes; -1 elsewhere


@dataclass(frozen=True)
class GraphTask(Task):
    """The same nodes at every party; per party a feature block and an edge set."""

    labels: np.ndarray  #: (nodes,) int64, all of them: for scoring only
    splits: dict[str, np.ndarray]
    features: tuple[np.ndarray, ...]  #: per party (nodes, d_m) float32
    edges: tuple[np.ndarray, ...]  #: per party (2, E_m)
    all_edges: np.ndarray  #: (2, E): before any party lost some
    columns: tuple[np.ndarray, ...] | None = None  #: per party: where its columns stand in the undivided feature matrix

    @property
    def parties(self) -> int:
        """M."""
        return len(self.features)

    def truth(self, split: str) -> np.ndarray | None:
        """Labels of the split's nodes; None if it is empty."""
        labels: np.ndarray = self.labels[self.splits[split]]
        return labels if len(labels) else None

    def training_labels(self) -> np.ndarray:
        """Labels of the training nodes."""
        labels: np.ndarray = self.labels[self.splits["train"]]
        return labels

    @property
    def units(self) -> int:
        """All nodes: every party has them."""
        return len(self.labels)

    def training_features(self) -> dict[str, list[np.ndarray]]:
        """Empty: nodes with equal features still differ by their edges."""
        return {}

    def shipped(self) -> dict[str, shipping.Size]:
        """Features and edges of every client, each edge in one direction: the server that learns has none."""
        nodes = len(self.labels)
        return {
            f"client {m}": shipping.together([shipping.rows(own), shipping.ids(edges.shape[1], nodes)])
            for m, (own, edges) in enumerate(zip(self.features, self.edges, strict=True))
        }

    @property
    def public(self) -> GraphPublic:
        """What every party may know."""
        return GraphPublic(nodes=len(self.labels), classes=self.classes, parties=self.parties, splits=self.splits)

    def part(self, party: int, full_edges: bool = False) -> GraphPart:
        """The party's own data, or all edges with `full_edges` (the simulated-centralized baseline)."""
        visible = np.full_like(self.labels, -1)
        visible[self.splits["train"]] = self.labels[self.splits["train"]]
        return GraphPart(self.features[party], self.all_edges if full_edges else self.edges[party], visible)

    def joined(self) -> GraphPart:
        """All features, in their original order, and all edges: what the centralized baseline trains on."""
        features = np.concatenate(self.features, axis=1)
        if self.columns is not None:
            features = features[:, np.argsort(np.concatenate(self.columns), kind="stable")]
        return GraphPart(features, self.all_edges, self.part(0).labels)

    def without_features(self) -> Self:
        """What the driver may hold: labels and splits."""
        no_edges = np.empty((2, 0), np.int64)
        features, edges = tuple(map(no_rows, self.features)), (no_edges,) * self.parties
        return replace(self, features=features, edges=edges, all_edges=no_edges, columns=None)

    def own_files(self, dataset: Any) -> bool:
        """True where each client has an edge file of its own; all share the file of features."""
        return bool(dataset.client_edges)

    def facts_for(self, index: int | None, labelled: bool) -> Self:
        """The labels of training nodes, which every party knows, and each party's columns."""
        return replace(self.without_features(), labels=self.part(0).labels, columns=self.columns)

    def with_part(self, whole: Self, index: int) -> Self:
        """With the features and edges of party `index`."""
        features = replace_at(self.features, index, whole.features[index])
        return replace(self, features=features, edges=replace_at(self.edges, index, whole.edges[index]))
