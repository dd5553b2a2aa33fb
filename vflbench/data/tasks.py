"""The four layouts of vertically or horizontally split data, as frozen dataclasses of numpy arrays (design section 3).

A task is what an algorithm runs on. Parties never see the task: they get their own part of it, guarded (`federation.party.Guarded`),
and the public facts. Scoring, outside the federation, reads labels and splits from the task itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

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

    def truth(self, split: str) -> np.ndarray | None:
        """Labels of val or test, (n,), for scoring; None where the split is empty."""
        return self.labels[self.splits[split]] if len(self.splits[split]) else None

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


# --- relational: tables, and a join that nobody materialises ------------------------------------------------------------------


@dataclass(frozen=True)
class Equality:
    """A join predicate: `left` = `right`, each a (table, key column). Several between two tables make a composite key."""

    left: tuple[str, str]
    right: tuple[str, str]


@dataclass(frozen=True)
class RelationalPublic:
    """What every party of a relational task may know: the schema of the join, no rows and no sizes."""

    tables: tuple[str, ...]  # in the order of the organisations: one table each
    label_table: str  # the one whose owner has the labels
    joins: tuple[Equality, ...]  # an inner join
    classes: int  # 0: regression
    parts: tuple[tuple[int, ...], ...]  # per table the numbers of the clients that hold its horizontal parts, in the rows' order

    @property
    def outputs(self) -> int:
        """d_c: width of a prediction, the number of classes, or 1 for regression."""
        return self.classes or 1

    @property
    def blocks(self) -> int:
        """M: how many tables share a prediction."""
        return len(self.tables)

    @property
    def owner(self) -> int:
        """The number of the label table."""
        return self.tables.index(self.label_table)

    def table_of(self, client: int) -> int:
        """The number of the table that client number `client` holds a part of."""
        return next(i for i, clients in enumerate(self.parts) if client in clients)


@dataclass(frozen=True)
class RelationalPart:
    """One client's horizontal part of one organisation's table. Training rows; held-out ones are apart."""

    table: str
    keys: Mapping[str, np.ndarray]  # key column -> (n,) as stored: integers, floats, text (object), dates; None or NaN: NULL
    features: np.ndarray  # (n, d) float32 or float64, imputed and standardised; may be memory-mapped
    labels: np.ndarray | None = None  # label table: (n,) float64 targets, or int64 classes 0 .. classes - 1
    held_out: Mapping[str, np.ndarray] = field(default_factory=dict)  # label table: val | test -> features of those rows

    @property
    def rows(self) -> int:
        return len(self.features)


@dataclass(frozen=True)
class HeldOut:
    """The joined rows of a split, for scoring outside the federation."""

    rows: tuple[np.ndarray, ...]  # per table (N_s,) int64: which row; of the label table: which of the split's rows, all parts together
    labels: np.ndarray  # (N_s,)


@dataclass(frozen=True)
class RelationalTask:
    """Tables of organisations, each in horizontal parts at its clients, and how they join. The joined table is nowhere.

    A split divides the rows of the label table; the other tables serve all splits.
    """

    name: str
    source: DataSource
    metric: Metric
    tables: tuple[str, ...]
    label_table: str
    joins: tuple[Equality, ...]
    classes: int  # 0: regression
    clients: tuple[RelationalPart, ...]  # table by table, each in the order of its rows
    held_out: Mapping[str, HeldOut]  # val | test

    @property
    def public(self) -> RelationalPublic:
        parts = tuple(tuple(c for c, part in enumerate(self.clients) if part.table == table) for table in self.tables)
        return RelationalPublic(self.tables, self.label_table, self.joins, self.classes, parts)

    def truth(self, split: str) -> np.ndarray | None:
        """Labels of val or test, (N_s,), for scoring; None where there is no such split."""
        return self.held_out[split].labels if split in self.held_out else None

    def combine(self, split: str, partial: Sequence[Mapping[str, np.ndarray]]) -> np.ndarray:
        """(N_s, d_c): the sum over tables of what each predicts for its row behind each joined row of `split`.

        Parameters
        ----------
        partial : per client, in their order, `rows` -> (n, d_c) of all its rows; of the label table `val`, `test` -> held-out rows.
        """
        total = 0.0
        for table, clients, rows in zip(self.tables, self.public.parts, self.held_out[split].rows, strict=True):
            of = split if table == self.label_table else "rows"
            total = total + np.concatenate([partial[client][of] for client in clients])[rows]
        return np.asarray(total)


# --- aligned: the same samples, a block of features per party -------------------------------------------------------------------


@dataclass(frozen=True)
class Objective:
    """A convex function of theta = (theta_1 ... theta_K), of which party k knows X_k: with u = sum_k X_k theta_k, (N,),

    ridge            f = (1/2) ||u - y||^2 + (weight / 2) ||theta||^2             y real
    sparse_logistic  f = (1/N) sum_j log(1 + exp(-y_j u_j)) + weight ||theta||_1  y in {-1, +1}: classes 0 and 1

    The methods for such problems are scored by how near f is to its minimum on the training samples: metric `suboptimality`,
    (f - f*) / f*, not by held-out samples.
    """

    kind: Literal["ridge", "sparse_logistic"]
    weight: float  # alpha or beta, > 0


@dataclass(frozen=True)
class AlignedPublic:
    """What every party of an aligned task may know."""

    samples: int  # training samples N
    parties: int
    classes: int  # 0: regression
    owner: int  # the party that has the labels
    objective: Objective | None = None  # convex problems: what is minimised

    @property
    def blocks(self) -> int:
        """M: how many parties share a prediction."""
        return self.parties

    @property
    def outputs(self) -> int:
        """Width of a prediction: the number of classes, or 1 for regression."""
        return self.classes or 1


@dataclass(frozen=True)
class AlignedPart:
    """One party's own part: its features of the same samples in the same order."""

    features: np.ndarray  # (N, d_m); image views (N, channels, height, width)
    labels: np.ndarray | None  # the owner's: (N,) float64 targets or int64 classes
    held_out: Mapping[str, np.ndarray]  # val | test -> (N_s, d_m); image views as `features`


@dataclass(frozen=True)
class JoinedPart:
    """All parties' blocks in one place."""

    parts: tuple[AlignedPart, ...]
    labels: np.ndarray  # (N,)


@dataclass(frozen=True)
class AlignedTask:
    """The same samples at every party; per party a block of features."""

    name: str
    source: DataSource
    metric: Metric
    classes: int
    owner: int
    features: tuple[np.ndarray, ...]  # per party (N, d_m), or (N, channels, height, width): training samples
    labels: np.ndarray  # (N,)
    held_out_features: Mapping[str, tuple[np.ndarray, ...]]  # val | test -> per party (N_s, d_m), or views
    held_out_labels: Mapping[str, np.ndarray]
    objective: Objective | None = None  # convex problems; the metric is then suboptimality
    optimum: float | None = None  # f*: for scoring only
    rows: tuple[np.ndarray, ...] | None = None  # where each party has a file of its own: the samples' rows in it, before they are split

    @property
    def parties(self) -> int:
        return len(self.features)

    @property
    def public(self) -> AlignedPublic:
        return AlignedPublic(len(self.labels), self.parties, self.classes, self.owner, self.objective)

    def truth(self, split: str) -> np.ndarray | None:
        """Labels of val or test, (N_s,), for scoring; None where there is no such split."""
        return self.held_out_labels.get(split)

    def combine(self, split: str, partial: Sequence[Mapping[str, np.ndarray]]) -> np.ndarray:
        """(N_s, d_c): the sum of the parties' predictions, each with `val`, `test` -> (N_s, d_c)."""
        return np.asarray(sum(part[split] for part in partial))

    def part(self, party: int, share_labels: bool = False) -> AlignedPart:
        """Party `party`'s own data; `share_labels`: all parties know the labels (the relaxed protocol of MTCD and FedBCD)."""
        held_out = {split: blocks[party] for split, blocks in self.held_out_features.items()}
        return AlignedPart(self.features[party], self.labels if share_labels or party == self.owner else None, held_out)

    def joined(self) -> JoinedPart:
        """Everything: what a centralized baseline trains on."""
        return JoinedPart(tuple(self.part(party) for party in range(self.parties)), self.labels)


# --- sharded: rows per worker ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ShardedPublic:
    """What every worker of a sharded task may know."""

    rows: tuple[int, ...]  # training rows of each worker
    shape: tuple[int, ...]  # of a row's features: (d,), or (channels, height, width)
    classes: int  # 0: regression

    @property
    def samples(self) -> int:
        """Training rows of all workers together."""
        return sum(self.rows)

    @property
    def outputs(self) -> int:
        """Width of a prediction: the number of classes, or 1 for regression."""
        return self.classes or 1


@dataclass(frozen=True)
class Shard:
    """One worker's own rows, in random order."""

    features: np.ndarray  # (n, *shape) float32
    labels: np.ndarray  # (n,) int64 classes, or float32 targets


@dataclass(frozen=True)
class ShardedTask:
    """Rows per worker; held-out rows are for scoring only, no worker has them."""

    name: str
    source: DataSource
    metric: Metric
    classes: int  # 0: regression
    shards: tuple[Shard, ...]  # one per worker, none empty
    held_out: Mapping[str, Shard]  # val | test

    @property
    def public(self) -> ShardedPublic:
        rows = tuple(len(shard.labels) for shard in self.shards)
        return ShardedPublic(rows, self.shards[0].features.shape[1:], self.classes)

    def truth(self, split: str) -> np.ndarray | None:
        """Labels of val or test, (n,), for scoring; None where there is no such split."""
        return self.held_out[split].labels if split in self.held_out else None

    def probe(self, rows: int) -> Shard:
        """About `rows` training rows, the first ones of every shard alike: on them the training loss is measured."""
        share = -(-rows // len(self.shards))
        return _stacked([Shard(shard.features[:share], shard.labels[:share]) for shard in self.shards])

    def joined(self) -> Shard:
        """All training rows: what a centralized baseline trains on."""
        return _stacked(self.shards)


def _stacked(shards: Sequence[Shard]) -> Shard:
    if len(shards) == 1:
        return shards[0]
    return Shard(np.concatenate([shard.features for shard in shards]), np.concatenate([shard.labels for shard in shards]))


Task = GraphTask | RelationalTask | AlignedTask | ShardedTask
