"""scikit-learn's breast cancer data."""

from dataclasses import dataclass
from typing import Literal

from vflbench.cards.data.tabular import table
from vflbench.types import DatasetInfo, Positive

DATASETS = (
    DatasetInfo(
        name="breast_cancer",
        summary="scikit-learn's breast cancer data: 569 tumours, 30 columns, sparse logistic regression or learning; "
        "needs no files",
        layouts=("aligned", "sharded", "relational"),
        sources=("real",),
        comes_with="comes with scikit-learn",
    ),
)


@dataclass
class Config(table.ClassKeys):
    """Keys of the data set."""

    name: str = "breast_cancer"
    source: Literal["auto", "real"] = "auto"  # real data that needs no twin
    problem: Literal["learning", "sparse_logistic"] = "sparse_logistic"
    beta: Positive = 0.01  # weight of ||theta||_1
