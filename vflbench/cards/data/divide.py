"""Keys that say how data are divided: a graph between parties, rows between workers, and rows into splits."""

from dataclasses import dataclass
from typing import Annotated, Literal

from vflbench.defaults import from_conf
from vflbench.types import Positive, Range


@from_conf("dataset/citeseer")
class Division:
    """The keys of a data set that say which part of a graph each party has."""

    keep_edges: Annotated[float, Range(at_least=0, at_most=1)]


@from_conf("dataset/bank")
class Sharding:
    """The keys of a data set that say how its rows are dealt to workers (layout sharded)."""

    sharding: Literal["iid", "dirichlet"]
    dirichlet_alpha: Positive


@dataclass(frozen=True)
class Plan:
    """How rows are divided."""

    split: Literal["random", "time", "group"] = "random"
    stratified: bool = False  #: each class is divided by itself


@from_conf("dataset/sql")
class SplitKeys:
    """The keys of the user's own tables that say how rows are divided."""

    split: Literal["random", "time", "group"]
    stratify: Literal["auto", "none"]
    time: str | None
    entity: str | None


def plan(keys: SplitKeys, classes: bool) -> Plan:
    """How the user's own rows are divided.

    Parameters
    ----------
    classes : whether the task is a classification.
    """
    return Plan(keys.split, classes and keys.stratify == "auto" and keys.split != "time")
