"""Which rows train, validate and test: drawn at random, class by class or by entity, or cut by time."""

from dataclasses import dataclass
from typing import Literal


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
