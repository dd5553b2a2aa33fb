"""Keys that say how data are divided: a graph between parties, rows between workers, and rows into splits."""

from dataclasses import dataclass
from typing import Annotated, Literal

from vflbench.types import Positive, Range


@dataclass
class Division:
    """The keys of a data set that say which part of a graph each party has."""

    keep_edges: Annotated[float, Range(at_least=0, at_most=1)] = 0.8  # each client has an edge with this probability
    normalize_features: bool = False  # rows of each client's block scaled to sum 1


@dataclass
class Sharding:
    """The keys of a data set that say how its rows are dealt to workers (layout sharded)."""

    sharding: Literal["iid", "dirichlet"] = "iid"  # iid (equal random parts) | dirichlet (label skew)
    dirichlet_alpha: Positive = 0.5  # sharding=dirichlet: the smaller, the fewer classes a worker has


@dataclass(frozen=True)
class Plan:
    """How rows are divided."""

    split: Literal["random", "time", "group"] = "random"
    stratified: bool = False  #: each class is divided by itself


@dataclass
class SplitKeys:
    """The keys of the user's own tables that say how rows are divided."""

    # random: rows | group: entities | time: the earliest rows train, the latest are for testing
    split: Literal["random", "time", "group"] = "random"
    stratify: Literal["auto", "none"] = "auto"  # auto: of a classification, each part gets rows of each class
    time: str | None = None  # split=time: the column with the time of a row, in the labels' table; never a feature
    # split=group or time: the column that says whose row it is (a patient): no entity is in two parts; never a feature
    entity: str | None = None


def plan(keys: SplitKeys, classes: bool) -> Plan:
    """How the user's own rows are divided.

    Parameters
    ----------
    classes : whether the task is a classification.
    """
    return Plan(keys.split, classes and keys.stratify == "auto" and keys.split != "time")
