"""scikit-learn's digits as columns."""

from dataclasses import dataclass
from typing import Literal

from vflbench.cards.data.tabular import table
from vflbench.types import DatasetInfo, Positive

DATASETS = (
    DatasetInfo(
        name="digits",
        summary="scikit-learn's digits: 1,797 images, 64 pixels, 10 classes, or odd against even (sparse logistic); "
        "needs no files",
        layouts=("aligned", "sharded", "relational"),
        sources=("real",),
        comes_with="comes with scikit-learn",
    ),
)


@dataclass
class Config(table.ClassKeys):
    """Keys of the data set."""

    name: str = "digits"
    source: Literal["auto", "real"] = "auto"  # real data that needs no twin
    # learning (10 classes) | sparse_logistic (odd against even)
    problem: Literal["learning", "sparse_logistic"] = "learning"
    beta: Positive = 0.005  # problem=sparse_logistic: weight of ||theta||_1
