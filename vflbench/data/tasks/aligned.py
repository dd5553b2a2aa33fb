"""Aligned: the same samples, a block of features per party."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np

from vflbench.data import shipping
from vflbench.data.tasks.base import Table, Task, no_rows, replace_at, some


@dataclass(frozen=True)
class Objective:
    """A convex function f of theta = (theta_1 ... theta_K), where party k knows X_k.

    With u = sum_k X_k theta_k, (N,):

    ridge            f = (1/2) ||u - y||^2 + (weight / 2) ||theta||^2             y real
    sparse_logistic  f = (1/N) sum_j log(1 + exp(-y_j u_j)) + weight ||theta||_1  y in {-1, +1}: classes 0 and 1

    The metric is `suboptimality`, (f - f*) / f* on the training samples. No samples are held out.
    """

    kind: Literal["ridge", "sparse_logistic"]
    weight: float  #: alpha or beta, > 0


@dataclass(frozen=True)
class AlignedPublic:
    """What every party of an aligned task may know."""

    samples: int  #: training samples N
    parties: int
    classes: int  #: 0: regression
    owner: int  #: the party that has the labels
    objective: Objective | None = None  #: convex problems: what is minimised

    @property
    def blocks(self) -> int:
        """M: how many parties share a prediction."""
        return self.parties

    @property
    def outputs(self) -> int:
        """Width of a prediction: the number of classes, or 1 for regression."""
        return self.classes or 1


@dataclass(frozen=True)
class OwnRows:
    """Labelled rows that only the labels' owner has: training rows without the other parties' columns."""

    features: np.ndarray  #: (m, d_owner)
    labels: np.ndarray  #: (m,)
    places: np.ndarray  #: (m,) among all rows of its file that not every party has


@dataclass(frozen=True)
class AlignedPart:
    """One party's own part: its features of the same samples in the same order."""

    features: np.ndarray  #: (N, d_m); image views (N, channels, height, width)
    labels: np.ndarray | None  #: the owner's: (N,) float64 targets or int64 classes
    held_out: Mapping[str, np.ndarray]  #: val | test -> (N_s, d_m); image views as `features`
    own: OwnRows | None = None  #: the owner's, where they are to be learnt from


@dataclass(frozen=True)
class JoinedPart:
    """All parties' blocks in one place."""

    parts: tuple[AlignedPart, ...]
    labels: np.ndarray  #: (N,)


@dataclass(frozen=True)
class AlignedTask(Task):
    """The same samples at every party; per party a block of features."""

    owner: int
    features: tuple[np.ndarray, ...]  #: per party (N, d_m), or (N, channels, height, width): training samples
    labels: np.ndarray  #: (N,)
    held_out_features: Mapping[str, tuple[np.ndarray, ...]]  #: val | test -> per party (N_s, d_m), or views
    held_out_labels: Mapping[str, np.ndarray]
    objective: Objective | None = None  #: convex problems; the metric is then suboptimality
    optimum: float | None = None  #: f*: for scoring only
    #: where each party has a file of its own: the samples' rows in it, before they are split
    rows: tuple[np.ndarray, ...] | None = None
    splits: Mapping[str, np.ndarray] | None = None  #: and which of these samples are in which split
    #: where blocks repeat rows (joined tables, copies of images): what sending each party's data takes but the owner's
    table_sizes: Mapping[str, shipping.Size] | None = None
    own: OwnRows | None = None  #: of the labels' owner, where they are to be learnt from

    @property
    def divided_among(self) -> tuple[str, ...]:
        """All parties."""
        return tuple(f"party {k}" for k in range(self.parties))

    @property
    def parties(self) -> int:
        """K."""
        return len(self.features)

    @property
    def public(self) -> AlignedPublic:
        """What every party may know."""
        return AlignedPublic(len(self.labels), self.parties, self.classes, self.owner, self.objective)

    def truth(self, split: str) -> np.ndarray | None:
        """Labels of val or test, (N_s,)."""
        return self.held_out_labels.get(split)

    @property
    def convex(self) -> tuple[Objective, float] | None:
        """The objective and its minimum f*, where the problem is convex."""
        return None if self.objective is None or self.optimum is None else (self.objective, self.optimum)

    def training_labels(self) -> np.ndarray:
        """All of them, (N,)."""
        return self.labels

    def label_sums(self, client: int) -> np.ndarray:
        """Sums of labels (N, 1), or counts of classes (N, k), behind each row of a client: of that row alone."""
        return np.eye(self.classes)[self.labels] if self.classes else self.labels[:, None]

    @property
    def label_owners(self) -> tuple[int, ...]:
        """Numbers of the clients that have labels."""
        return (self.owner,)

    def training_features(self) -> dict[str, list[np.ndarray]]:
        """Every party's block."""
        return {f"party {party}": [features] for party, features in enumerate(self.features)}

    def shipped(self) -> dict[str, shipping.Size]:
        """The blocks of all but the labels' owner; where they repeat rows, what they were made of."""
        if self.table_sizes is not None:
            return dict(self.table_sizes)
        return {f"party {p}": shipping.rows(block) for p, block in enumerate(self.features) if p != self.owner}

    def table(self, split: str, rng: np.random.Generator | None = None, share: float = 1.0) -> Table | None:
        """The rows of a split; None where it has none, or where rows are pictures. See also `Task.table`."""
        if split == "own" and self.own is not None:
            rows = some(len(self.own.labels), rng, share)
            known, count = self.own.features[rows], len(self.own.labels[rows])
            unknown = [np.full((count, block.shape[1]), np.nan, block.dtype) for block in self.features]
            return Table(replace_at(tuple(unknown), self.owner, known), self.own.labels[rows], self.owner)
        blocks = self.features if split == "train" else self.held_out_features.get(split, ())
        if not blocks or any(block.ndim > 2 for block in blocks):
            return None
        labels = self.labels if split == "train" else self.held_out_labels[split]
        rows = some(len(labels), rng, share)
        return Table(tuple(block[rows] for block in blocks), labels[rows], self.owner)

    def block(self, client: int) -> tuple[int, np.ndarray]:
        """The number of the block that client `client` holds (its own number), and the block's features."""
        return client, self.features[client]

    def sample(self, rows: int, rng: np.random.Generator) -> list[np.ndarray]:
        """Each party's features (k, d_m) of `rows` random training samples, or of all if there are fewer."""
        some = np.sort(rng.choice(len(self.labels), min(rows, len(self.labels)), replace=False))
        return [block[some] for block in self.features]

    def part(self, party: int, share_labels: bool = False) -> AlignedPart:
        """The party's own data.

        Parameters
        ----------
        share_labels : whether all parties know the labels (the relaxed protocol of MTCD and FedBCD).
        """
        held_out = {split: blocks[party] for split, blocks in self.held_out_features.items()}
        owns = party == self.owner
        labels, own = self.labels if share_labels or owns else None, self.own if owns else None
        return AlignedPart(self.features[party], labels, held_out, own)

    def joined(self) -> JoinedPart:
        """Everything: what a centralized baseline trains on."""
        return JoinedPart(tuple(self.part(party) for party in range(self.parties)), self.labels)

    def without_features(self) -> Self:
        """What the driver may hold: labels, and of features the shape of a row."""
        apart = {split: tuple(map(no_rows, blocks)) for split, blocks in self.held_out_features.items()}
        own = None if self.own is None else replace(self.own, features=no_rows(self.own.features))
        return replace(self, features=tuple(map(no_rows, self.features)), held_out_features=apart, own=own)

    def own_files(self, dataset: Any) -> bool:
        """True where each party has a file of its own."""
        return self.rows is not None

    def facts_for(self, index: int | None, labelled: bool) -> Self:
        """Where the samples are in the owner's own file, and labels if it has them; nobody has those of test rows."""
        assert self.rows is not None
        rows = tuple(rows if party == index else np.empty(0, np.int64) for party, rows in enumerate(self.rows))
        labels = self.labels if labelled or index == self.owner else np.zeros_like(self.labels)
        apart = {
            split: truth if split == "val" and index == self.owner else np.zeros_like(truth)
            for split, truth in self.held_out_labels.items()
        }
        facts = replace(self.without_features(), rows=rows, labels=labels, held_out_labels=apart)
        return facts if index == self.owner else replace(facts, own=None)

    def with_part(self, whole: Self, index: int) -> Self:
        """With the block of party `index`, training and held-out rows."""
        held_out = {
            split: replace_at(self.held_out_features[split], index, blocks[index])
            for split, blocks in whole.held_out_features.items()
        }
        features = replace_at(self.features, index, whole.features[index])
        own = whole.own if index == self.owner else self.own
        return replace(self, features=features, held_out_features=held_out, own=own)
