"""The breast cancer data of scikit-learn (Street, Wolberg, Mangasarian 1993): 569 tumours, 30 measurements.

They are real data that every machine has.
"""

from pathlib import Path

import numpy as np

from vflbench.cards.data.tabular.breast_cancer import DATASETS, Config
from vflbench.data.tabular.sets import TabularSet
from vflbench.data.tabular.table import Table
from vflbench.types import DataSource, Metric


def _make(config: Config, root: Path | None) -> tuple[Table, DataSource]:
    """The tumours, malignant (0) or benign (1)."""
    from sklearn.datasets import load_breast_cancer

    data = load_breast_cancer()
    tumours = Table(data.data, tuple(map(str, data.feature_names)), {}, data.target.astype(np.int64), 2)
    return tumours, DataSource("real", note="comes with scikit-learn")


SET = TabularSet(DATASETS[0], Metric("accuracy", "max"), lambda config: 30, _make)
check, load = SET.check, SET.load
