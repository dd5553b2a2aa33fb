"""What makes a tabular data set: its columns, its files and their reader, its target, its twin."""

from dataclasses import dataclass
from typing import Literal

from vflbench.cards.data.divide.splits import Plan
from vflbench.cards.data.tabular import table


@dataclass
class TimedKeys(table.RegressionKeys):
    """A regression whose rows have a time."""

    #: random, as published | time: the earliest rows train, the latest are for testing
    split: Literal["random", "time"] = "random"

    @property
    def plan(self) -> Plan:
        """How rows are divided: as the key `split` says."""
        return Plan(self.split)
