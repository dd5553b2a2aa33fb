"""Made-up ridge regression."""

from dataclasses import dataclass
from typing import Annotated, Literal

from vflbench.cards.data.tabular import table
from vflbench.types import Count, DatasetInfo, Positive, Range

DATASETS = (
    DatasetInfo(
        name="ridge",
        summary="made-up ridge regression with its exact minimum (MTCD); needs no files",
        layouts=("aligned", "sharded", "relational"),
        sources=("synthetic",),
    ),
)


@dataclass
class Config(table.RegressionKeys):
    """Keys of the data set."""

    name: str = "ridge"
    source: Literal["auto", "synthetic"] = "auto"  # it is always made up
    problem: Literal["learning", "ridge"] = "ridge"
    samples: table.Samples = 1000  # N; null: 1000
    features: Count = 2000  # d
    alpha: Positive = 1.0  # weight of ||theta||^2 / 2
    # standard deviation of the labels' noise; that of X theta is sqrt(d / N)
    noise: Annotated[float, Range(at_least=0)] = 0.1
