"""The breast cancer data of scikit-learn (Street, Wolberg, Mangasarian 1993): 569 tumours, 30 measurements.

They are real data that every machine has.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from vflbench.data.tabular import table
from vflbench.data.tabular.sets import TabularSet
from vflbench.data.tabular.table import Table
from vflbench.types import DatasetInfo, DataSource, Metric, Positive

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


def _make(config: Config, root: Path | None) -> tuple[Table, DataSource]:
    """The tumours, malignant (0) or benign (1)."""
    from sklearn.datasets import load_breast_cancer

    data = load_breast_cancer()
    tumours = Table(data.data, tuple(map(str, data.feature_names)), {}, data.target.astype(np.int64), 2)
    return tumours, DataSource("real", note="comes with scikit-learn")


SET = TabularSet(DATASETS[0], Metric("accuracy", "max"), lambda config: 30, _make)
check, load = SET.check, SET.load
