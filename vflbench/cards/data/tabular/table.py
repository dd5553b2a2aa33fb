"""Keys of a table of columns with a label: what it is a task of, and how its rows and columns are divided."""

import math
from dataclasses import dataclass
from typing import Annotated, Literal

from vflbench.cards.data.divide import Plan, Sharding
from vflbench.types import Positive, Range

Samples = Annotated[int, Range(at_least=10)] | None
Order = Literal["file", "interleaved", "shuffled"]


@dataclass
class Keys(Sharding):
    """Keys of every tabular data set."""

    name: str = ""
    source: Literal["auto", "real", "synthetic"] = "auto"
    variant: Literal["auto"] = "auto"
    #: some rows held out | convex: all rows, by suboptimality
    problem: Literal["learning", "ridge", "sparse_logistic"] = "learning"
    samples: Samples = None  #: at most this many rows, the same for every seed; null: all
    validation: float = 0.1  #: learning: fraction of the rows
    test: float = 0.3
    #: how many columns each party has, party 0 (the labels' owner) first; null: evenly (joins: two)
    columns: list[int] | None = None
    order: Order = "file"  #: of the columns before they are divided: see party_columns

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


@dataclass
class RegressionKeys(Keys):
    """A regression, which can be a ridge regression."""

    problem: Literal["learning", "ridge"] = "learning"
    alpha: Positive = 0.1  #: problem=ridge: weight of ||theta||^2 / 2

    @property
    def regression(self) -> bool:
        """True: it has targets."""
        return True

    @property
    def weight(self) -> float:
        """The key `alpha`."""
        return self.alpha


@dataclass
class TimedKeys(RegressionKeys):
    """A regression whose rows have a time."""

    #: random, as published | time: the earliest rows train, the latest are for testing
    split: Literal["random", "time"] = "random"

    @property
    def plan(self) -> Plan:
        """How rows are divided: as the key `split` says."""
        return Plan(self.split)


@dataclass
class Clipped(Keys):
    """A table whose numbers may be far off."""

    clip: Positive | None = None  #: largest size of a scaled number, in standard deviations; null: any

    @property
    def largest(self) -> float:
        """The key `clip`."""
        return self.clip or math.inf


@dataclass
class ClassKeys(Keys):
    """A classification, which can be a sparse logistic regression."""

    problem: Literal["learning", "sparse_logistic"] = "learning"
    beta: Positive = 0.001  #: problem=sparse_logistic: weight of ||theta||_1

    @property
    def weight(self) -> float:
        """The key `beta`."""
        return self.beta
