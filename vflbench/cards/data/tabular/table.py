"""Keys of a table of columns with a label: what it is a task of, and how its rows and columns are divided."""

import math
from typing import Annotated, Literal

from vflbench.cards.data.divide import Plan, Sharding
from vflbench.defaults import from_conf
from vflbench.types import Positive, Range

Samples = Annotated[int, Range(at_least=10)] | None
Order = Literal["file", "interleaved", "shuffled"]


@from_conf("dataset/bank")
class Keys(Sharding):
    """Keys of every tabular data set."""

    name: str
    source: Literal["auto", "real", "synthetic"]
    variant: Literal["auto"]
    problem: Literal["learning", "ridge", "sparse_logistic"]
    samples: Samples
    validation: float
    test: float
    columns: list[int] | None
    order: Order

    @property
    def regression(self) -> bool:
        """Whether the data set has targets, not classes."""
        return False

    @property
    def largest(self) -> float:
        """Scaled numbers beyond it, up or down, become it."""
        return math.inf

    @property
    def weight(self) -> float:
        """Weight of the regularisation in the convex `problem`."""
        raise NotImplementedError

    @property
    def plan(self) -> Plan:
        """How rows are divided: at random."""
        return Plan()


@from_conf("dataset/blog")
class RegressionKeys(Keys):
    """A regression, which can be a ridge regression."""

    problem: Literal["learning", "ridge"]
    alpha: Positive

    @property
    def regression(self) -> bool:
        """True: it has targets."""
        return True

    @property
    def weight(self) -> float:
        """The key `alpha`."""
        return self.alpha


@from_conf("dataset/blog")
class TimedKeys(RegressionKeys):
    """A regression whose rows have a time."""

    split: Literal["random", "time"]

    @property
    def plan(self) -> Plan:
        """How rows are divided: as the key `split` says."""
        return Plan(self.split)


@from_conf("dataset/tabular_files")
class Clipped(Keys):
    """A table whose numbers may be far off."""

    clip: Positive | None

    @property
    def largest(self) -> float:
        """The key `clip`."""
        return self.clip or math.inf


@from_conf("dataset/bank")
class ClassKeys(Keys):
    """A classification, which can be a sparse logistic regression."""

    problem: Literal["learning", "sparse_logistic"]
    beta: Positive

    @property
    def weight(self) -> float:
        """The key `beta`."""
        return self.beta
