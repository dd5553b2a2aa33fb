"""Gisette."""

from dataclasses import dataclass
from typing import Literal

from vflbench.cards.data.tabular import table
from vflbench.types import DatasetInfo

DATASETS = (
    DatasetInfo(
        name="gisette",
        summary="Gisette: 6,000 samples, 5,000 columns, 13 % not zero, sparse logistic regression (MTCD) or learning",
        layouts=("aligned", "sharded", "relational"),
        folder="gisette",
    ),
)


@dataclass
class Config(table.ClassKeys):
    """Keys of the data set."""

    name: str = "gisette"
    problem: Literal["learning", "sparse_logistic"] = "sparse_logistic"
