"""Sharded: whole rows at each worker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from vflbench.data import shipping
from vflbench.data.tasks.base import Task, no_rows


@dataclass(frozen=True)
class ShardedPublic:
    """What every worker of a sharded task may know."""

    rows: tuple[int, ...]  #: training rows of each worker
    shape: tuple[int, ...]  #: of a row's features: (d,), or (channels, height, width)
    classes: int  #: 0: regression
    shift: float = 0.0  #: of a regression: models learn (y - shift) / scale, whatever the unit of y
    scale: float = 1.0

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

    features: np.ndarray  #: (n, *shape) float32
    labels: np.ndarray  #: (n,) int64 classes, or float32 targets


@dataclass(frozen=True)
class ShardedTask(Task):
    """Rows of each worker. Held-out rows are for scoring only: no worker has them."""

    shards: tuple[Shard, ...]  #: one per worker, none empty
    held_out: Mapping[str, Shard]  #: val | test
    shift: float = 0.0  #: of a regression: mean and spread of all workers' targets, computed with those of the columns
    scale: float = 1.0

    @property
    def public(self) -> ShardedPublic:
        """What every worker may know."""
        rows = tuple(len(shard.labels) for shard in self.shards)
        return ShardedPublic(rows, self.shards[0].features.shape[1:], self.classes, self.shift, self.scale)

    def truth(self, split: str) -> np.ndarray | None:
        """Labels of val or test, (n,)."""
        return self.held_out[split].labels if split in self.held_out else None

    @property
    def by_rows(self) -> ShardedTask:
        """The task itself."""
        return self

    def training_labels(self) -> np.ndarray:
        """Labels of all workers, in their order."""
        return np.concatenate([shard.labels for shard in self.shards])

    @property
    def units(self) -> int:
        """The rows of the worker that has most."""
        return max(self.public.rows)

    def training_features(self) -> dict[str, list[np.ndarray]]:
        """Features of all workers together: the rows of one may well be equal."""
        return {"": [shard.features for shard in self.shards]}

    def shipped(self) -> dict[str, shipping.Size]:
        """Features and labels of all workers but the one with most rows."""
        most = int(np.argmax(self.public.rows))
        return {
            f"worker {w}": shipping.together([shipping.rows(shard.features), shipping.rows(shard.labels)])
            for w, shard in enumerate(self.shards)
            if w != most
        }

    def probe(self, rows: int) -> Shard:
        """About `rows` training rows, equally many of every shard, on which the training loss is measured."""
        share = -(-rows // len(self.shards))
        return _stacked([Shard(shard.features[:share], shard.labels[:share]) for shard in self.shards])

    def joined(self) -> Shard:
        """All training rows: what a centralized baseline trains on."""
        return _stacked(self.shards)

    def without_features(self) -> Self:
        """What the driver may hold: labels, and of features the shape of a row."""

        def bare(shard: Shard) -> Shard:
            return Shard(no_rows(shard.features), shard.labels)

        held_out = {split: bare(shard) for split, shard in self.held_out.items()}
        return replace(self, shards=tuple(map(bare, self.shards)), held_out=held_out)


def _stacked(shards: Sequence[Shard]) -> Shard:
    if len(shards) == 1:
        return shards[0]
    features = np.concatenate([shard.features for shard in shards])
    return Shard(features, np.concatenate([shard.labels for shard in shards]))
