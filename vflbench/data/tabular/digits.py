"""scikit-learn's handwritten digits: 1,797 images of 64 pixels: real data on any machine. Ten classes, or is the digit odd?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vflbench.data.tabular import table
from vflbench.data.tasks import AlignedTask, ShardedTask
from vflbench.types import ConfigError, DatasetInfo, DataSource, Metric, Problem

DATASETS = (
    DatasetInfo(
        name="digits",
        summary="scikit-learn's digits: 1,797 images, 64 pixels, 10 classes, or odd against even (sparse logistic); needs no files",
        layouts=("aligned", "sharded"),
        sources=("real",),
        comes_with="comes with scikit-learn",
    ),
)


@dataclass
class Config(table.Keys):
    name: str = "digits"
    source: str = "auto"  # auto | real
    problem: str = "learning"  # learning (10 classes) | sparse_logistic (odd against even)
    beta: float = 0.005  # problem=sparse_logistic: weight of ||theta||_1


def check(config: Config, layout: str, parties: int) -> list[Problem]:
    """What is wrong with the configuration."""
    problems = table.check(config, layout, parties, 64)
    if config.source == "synthetic":
        problems.append(Problem("dataset.source", config.source, "digits is real data that needs no twin: auto or real"))
    return problems


def load(config: Config, layout: str, parties: int, seed: int, root: Path | None) -> AlignedTask | ShardedTask:
    """The images, divided between `parties`: their pixels, row by row, or whole images (1, 8, 8). `root` is not used.

    Raises
    ------
    ConfigError
    """
    if problems := check(config, layout, parties):
        raise ConfigError(problems)
    from sklearn.datasets import load_digits

    pixels, digits = load_digits(return_X_y=True)
    labels, classes = (digits, 10) if config.problem == "learning" else (digits % 2, 2)
    columns = tuple(f"pixel_{row}_{column}" for row in range(8) for column in range(8))
    made = table.Table(pixels, columns, {}, labels.astype(np.int64), classes)
    source = DataSource(kind="real", note="comes with scikit-learn" + ("; odd (1) against even (0)" if classes == 2 else ""))
    return table.divide(config, made, source, Metric("accuracy", "max"), layout=layout, parties=parties, seed=seed, shape=(1, 8, 8))
