"""What every layout has: all that the runner uses of a task, whatever its layout."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from vflbench.data.shipping import Size
from vflbench.types import DataSource, Metric

if TYPE_CHECKING:
    from vflbench.data.tasks.aligned import Objective
    from vflbench.data.tasks.sharded import ShardedTask


@dataclass(frozen=True)
class Table:
    """Rows whose columns are divided between parties, one of which has the labels."""

    blocks: tuple[np.ndarray, ...]  #: per party (n, ...)
    labels: np.ndarray  #: (n,)
    owner: int  #: the place of the party that has them


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

    @property
    def divided_among(self) -> tuple[str, ...]:
        """Between whom columns are divided; empty where every party has rows and labels of its own."""
        return ()

    # --- what is learnt ---

    @abstractmethod
    def training_labels(self) -> np.ndarray:
        """(N,) targets or classes of all training rows."""

    @abstractmethod
    def training_features(self) -> dict[str, list[np.ndarray]]:
        """Features of the training rows, by holder.

        Returns
        -------
        holder's name in messages -> arrays (n, ...). Empty where rows may be told apart without their features.
        """

    @abstractmethod
    def shipped(self) -> dict[str, Size]:
        """What those send that do not learn themselves, if data are sent once and learnt from in one place.

        Returns
        -------
        sender -> the smallest form of its training rows, with what else the learner must know of them.
        """

    @property
    def units(self) -> int:
        """What the party with most protects under privacy: its training rows, or nodes."""
        return len(self.training_labels())

    def table(self, split: str, rng: np.random.Generator | None = None, share: float = 1.0) -> Table | None:
        """The rows of `train`, `val` or `test`, or a random `share` of them drawn by `rng`.

        `own` are further training rows that only the labels' owner has; the others' columns are NaN there.

        Returns
        -------
        None where the data are no table whose columns are divided: every party has labels of its own.
        """
        return None

    # --- what is scored ---

    @abstractmethod
    def truth(self, split: str) -> np.ndarray | None:
        """Labels of val or test, (n,), for scoring; None where there is no such split."""

    def combine(self, split: str, partial: Sequence[Mapping[str, np.ndarray]]) -> np.ndarray:
        """Predictions of `split`, (n, d_c): the sum of the clients' parts.

        Parameters
        ----------
        partial : per client, in their order, split -> (n, d_c).
        """
        return np.asarray(sum(part[split] for part in partial))

    @property
    def convex(self) -> tuple[Objective, float] | None:
        """The objective and its minimum f*, for the metric `suboptimality`; None: the problem is not convex."""
        return None

    @property
    def by_rows(self) -> ShardedTask | None:
        """The sharded task, where parties have whole rows and report whole models; None: they report predictions."""
        return None

    # --- what may leave the data's owner (runner/distributed.py) ---

    @abstractmethod
    def without_features(self) -> Self:
        """What the driver may hold.

        These are labels, splits and sizes, for scoring. Of features, edges and keys only the shape of a row is left.
        """

    def own_files(self, dataset: Any) -> bool:
        """Whether a party can read its part without the others' files.

        If so, the layout has `facts_for` and `with_part`, too.

        Parameters
        ----------
        dataset : configuration of a data set whose module has a function `load_own`.
        """
        return False

    def facts_for(self, index: int | None, labelled: bool) -> Self:
        """The task, reduced to what the owner of part `index` must know.

        Parameters
        ----------
        index : None: the participant has no part.
        labelled : whether its program has the training labels, too.
        """
        raise NotImplementedError

    def with_part(self, whole: Self, index: int) -> Self:
        """With part `index` of the whole task, as `load_own` reads it from files; `self` is what `facts_for` gives."""
        raise NotImplementedError


def some(rows: int, rng: np.random.Generator | None, share: float) -> np.ndarray | slice:
    """A random `share` of so many rows, in their order; all of them without `rng`."""
    return slice(None) if rng is None else np.sort(rng.choice(rows, max(1, int(share * rows)), replace=False))


def no_rows(array: np.ndarray) -> np.ndarray:
    """An array without rows, whose rows would have the same shape and type."""
    return np.empty((0, *array.shape[1:]), array.dtype)


def replace_at(blocks: tuple[Any, ...], index: int, own: Any) -> tuple[Any, ...]:
    """`blocks` with `own` at place `index`."""
    return (*blocks[:index], own, *blocks[index + 1 :])
