"""What every layout has, and all that the runner asks of a task: it does not ask which layout that is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from vflbench.types import DataSource, Metric

if TYPE_CHECKING:
    from vflbench.data.tasks.aligned import Objective
    from vflbench.data.tasks.sharded import ShardedTask


@dataclass(frozen=True)
class Task(ABC):
    """Base of all layouts."""

    name: str
    source: DataSource
    metric: Metric
    classes: int  #: 0: regression

    @property
    @abstractmethod
    def public(self) -> Any:
        """What every party may know."""

    # --- what is learnt ---

    @abstractmethod
    def training_labels(self) -> np.ndarray:
        """(N,) targets or classes of all training rows."""

    @abstractmethod
    def training_features(self) -> dict[str, list[np.ndarray]]:
        """Per holder, by what messages call it, its features of training rows, (n, ...) each; none where rows are more
        than features."""

    # --- what is scored ---

    @abstractmethod
    def truth(self, split: str) -> np.ndarray | None:
        """Labels of val or test, (n,), for scoring; None where there is no such split."""

    def combine(self, split: str, partial: Sequence[Mapping[str, np.ndarray]]) -> np.ndarray:
        """(n, d_c) predictions of `split` from the clients' parts of them, in their order: the sum of all, each split
        -> (n, d_c)."""
        return np.asarray(sum(part[split] for part in partial))

    @property
    def convex(self) -> tuple[Objective, float] | None:
        """What metric `suboptimality` is of: an objective and its minimum f*. None: there is no such metric."""
        return None

    @property
    def by_rows(self) -> ShardedTask | None:
        """The task in rows, where parties have whole rows, and report whole models to be scored on rows. None: they
        report predictions."""
        return None

    # --- what whoever does not hold the data is told (runner/distributed.py) ---

    @abstractmethod
    def without_features(self) -> Self:
        """What the driver may hold: labels, splits and sizes for scoring; of features, edges and keys the shapes of a
        row."""

    def own_files(self, dataset: Any) -> bool:
        """Whether a party can read its part and leave the others' files alone. If so there are `facts_for` and
        `with_part`, too.

        Parameters
        ----------
        dataset : the configuration of a data set whose module has a function `load_own`.
        """
        return False

    def facts_for(self, index: int | None, labelled: bool) -> Self:
        """What the owner of part `index` must be told; None: it has no part. `labelled`: its program has the training
        labels, too."""
        raise NotImplementedError

    def with_part(self, whole: Self, index: int) -> Self:
        """This, as `facts_for` gives it, with part `index` of the whole task: what `load_own` makes of it, from the
        files."""
        raise NotImplementedError


def no_rows(array: np.ndarray) -> np.ndarray:
    """The shape of a row and its type are all that is left."""
    return np.empty((0, *array.shape[1:]), array.dtype)


def beside(blocks: tuple[Any, ...], index: int, own: Any) -> tuple[Any, ...]:
    """`blocks` with `own` in place `index`."""
    return (*blocks[:index], own, *blocks[index + 1 :])
