"""The four layouts of vertically or horizontally split data, as frozen dataclasses of numpy arrays (design section 3).

A task is what an algorithm runs on. Parties never see the task: they get their own part of it, guarded (`federation.party.Guarded`),
and the public facts. Scoring, outside the federation, reads labels and splits from the task itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vflbench.types import DataSource, Metric


@dataclass(frozen=True)
class GraphPublic:
    """What every party of a graph task may know: sizes and which nodes are in which split (ids only)."""

    nodes: int
    classes: int
    parties: int
    splits: dict[str, np.ndarray]  # train | val | test -> int64 node ids, sorted, disjoint


@dataclass(frozen=True)
class GraphPart:
    """One party's own part of a graph task."""

    features: np.ndarray  # (nodes, d_m) float32
    edges: np.ndarray  # (2, E_m) int64: both directions of every edge, no self-loops, no duplicates, sorted by (row, column)
    labels: np.ndarray  # (nodes,) int64: labels of training nodes; -1 elsewhere


@dataclass(frozen=True)
class GraphTask:
    """The same nodes at every party; per party a feature block and an edge set."""

    name: str
    source: DataSource
    metric: Metric
    classes: int
    labels: np.ndarray  # (nodes,) int64, all of them: for scoring only
    splits: dict[str, np.ndarray]
    features: tuple[np.ndarray, ...]  # per party (nodes, d_m) float32
    edges: tuple[np.ndarray, ...]  # per party (2, E_m)
    all_edges: np.ndarray  # (2, E): before any party lost some
    columns: tuple[np.ndarray, ...] | None = None  # per party: where its columns stand in the undivided feature matrix

    @property
    def parties(self) -> int:
        return len(self.features)

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


Task = GraphTask
