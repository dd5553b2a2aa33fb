"""Graphs: the same nodes at every party, which has a block of their features and an edge set of its own."""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from vflbench.data.tasks.base import Task, beside, no_rows


@dataclass(frozen=True)
class GraphPublic:
    """What every party of a graph task may know: sizes and which nodes are in which split (ids only)."""

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
        return len(self.features)

    def truth(self, split: str) -> np.ndarray | None:
        """None, too, where the split is empty."""
        return self.labels[self.splits[split]] if len(self.splits[split]) else None

    def training_labels(self) -> np.ndarray:
        return self.labels[self.splits["train"]]

    def training_features(self) -> dict[str, list[np.ndarray]]:
        """Nodes whose features are all alike still differ by their edges."""
        return {}

    @property
    def public(self) -> GraphPublic:
        return GraphPublic(nodes=len(self.labels), classes=self.classes, parties=self.parties, splits=self.splits)

    def part(self, party: int, full_edges: bool = False) -> GraphPart:
        """Party `party`'s own data; `full_edges` gives it all edges (the simulated-centralized baseline)."""
        visible = np.full_like(self.labels, -1)
        visible[self.splits["train"]] = self.labels[self.splits["train"]]
        return GraphPart(self.features[party], self.all_edges if full_edges else self.edges[party], visible)

    def joined(self) -> GraphPart:
        """All features, in their undivided order, and all edges: what the centralized baseline trains on."""
        features = np.concatenate(self.features, axis=1)
        if self.columns is not None:
            features = features[:, np.argsort(np.concatenate(self.columns), kind="stable")]
        visible = self.part(0).labels
        return GraphPart(features, self.all_edges, visible)

    def without_features(self) -> Self:
        no_edges = np.empty((2, 0), np.int64)
        features, edges = tuple(map(no_rows, self.features)), (no_edges,) * self.parties
        return replace(self, features=features, edges=edges, all_edges=no_edges, columns=None)

    def own_files(self, dataset: Any) -> bool:
        """Features are in one file that all share, edges in one for each."""
        return bool(dataset.client_edges)

    def facts_for(self, index: int | None, labelled: bool) -> Self:
        """Labels of training nodes, which every party knows, and which columns are whose."""
        return replace(self.without_features(), labels=self.part(0).labels, columns=self.columns)

    def with_part(self, whole: Self, index: int) -> Self:
        """With the features and edges of party `index`."""
        features, edges = (
            beside(self.features, index, whole.features[index]),
            beside(self.edges, index, whole.edges[index]),
        )
        return replace(self, features=features, edges=edges)
