"""scikit-learn's breast cancer data (Street, Wolberg, Mangasarian 1993): 569 tumours, 30 measurements: real data on any machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vflbench.data.tabular import table
from vflbench.data.tasks import AlignedTask, ShardedTask
from vflbench.types import ConfigError, DatasetInfo, DataSource, Metric, Problem

DATASETS = (
    DatasetInfo(
        name="breast_cancer",
        summary="scikit-learn's breast cancer data: 569 tumours, 30 columns, sparse logistic regression or learning; needs no files",
        layouts=("aligned", "sharded"),
        sources=("real",),
        comes_with="comes with scikit-learn",
    ),
)


@dataclass
class Config(table.Keys):
    name: str = "breast_cancer"
    source: str = "auto"  # auto | real
    problem: str = "sparse_logistic"  # sparse_logistic | learning
    beta: float = 0.01  # weight of ||theta||_1


def check(config: Config, layout: str, parties: int) -> list[Problem]:
    """What is wrong with the configuration."""
    problems = table.check(config, layout, parties, 30)
    if config.source == "synthetic":
        problems.append(Problem("dataset.source", config.source, "breast_cancer is real data that needs no twin: auto or real"))
    return problems


def load(config: Config, layout: str, parties: int, seed: int, root: Path | None) -> AlignedTask | ShardedTask:
    """The tumours, malignant (0) or benign (1), their columns or their rows divided between `parties`. `root` is not used.

    Raises
    ------
    ConfigError
    """
    if problems := check(config, layout, parties):
        raise ConfigError(problems)
    from sklearn.datasets import load_breast_cancer

    held = load_breast_cancer()
    made = table.Table(held.data, tuple(map(str, held.feature_names)), {}, held.target.astype(np.int64), 2)
    source = DataSource(kind="real", note="comes with scikit-learn")
    return table.divide(config, made, source, Metric("accuracy", "max"), layout=layout, parties=parties, seed=seed)
