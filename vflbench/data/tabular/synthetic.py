"""scikit-learn's make_classification (Guyon's generator of Madelon): PubSub-VFL's Synthetic, 1,000,000 x 500 in float32.

That paper's other parameters are unknown: 50 informative and 50 redundant columns, 1 % of the labels turned over, are ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vflbench.data.tabular import table
from vflbench.data.tabular.sets import TabularSet
from vflbench.data.tabular.table import Table
from vflbench.seeding import derive, stream
from vflbench.types import DatasetInfo, DataSource, Metric, Problem

DATASETS = (
    DatasetInfo(
        name="synthetic",
        summary="scikit-learn's make_classification: 1,000,000 rows, 500 columns or as many as you say, two classes; needs no files",
        layouts=("aligned", "sharded", "relational"),
        sources=("synthetic",),
    ),
)

_ROWS = 65536  # turned to float32 at a time


@dataclass
class Config(table.Keys):
    name: str = "synthetic"
    source: str = "auto"  # auto | synthetic: it is always made up
    samples: int | None = 1_000_000  # null: 1,000,000
    features: int = 500
    informative: int = 50  # columns that tell the classes apart
    redundant: int = 50  # linear combinations of those
    separation: float = 1.0  # how far the classes' clusters lie apart
    flipped: float = 0.01  # fraction of the labels drawn at random
    beta: float = 0.001  # problem=sparse_logistic: weight of ||theta||_1


def _problems(config: Config) -> list[Problem]:
    problems = []
    for key, least in (("features", 2), ("informative", 2), ("redundant", 0)):
        if getattr(config, key) < least:
            problems.append(Problem(f"dataset.{key}", getattr(config, key), f"must be at least {least}"))
    if config.informative + config.redundant > config.features:
        shown = f"{config.informative} + {config.redundant}"
        problems.append(Problem("dataset.informative + dataset.redundant", shown, f"must be at most dataset.features={config.features}"))
    if not 0 < config.separation < np.inf:
        problems.append(Problem("dataset.separation", config.separation, "must be a number above 0"))
    if not 0 <= config.flipped < 1:
        problems.append(Problem("dataset.flipped", config.flipped, "must be a fraction below 1"))
    return problems


def _make(config: Config, root: Path | None) -> tuple[Table, DataSource]:
    """The rows in float32, rows and columns in random order: at most twice the table in float64 is held at a time.

    They are the same for every seed.
    """
    from sklearn.datasets import make_classification

    samples = config.samples or 1_000_000
    # shuffle=False: its own shuffling copies the float64 table twice.
    features, labels = make_classification(
        samples,
        config.features,
        n_informative=config.informative,
        n_redundant=config.redundant,
        class_sep=config.separation,
        flip_y=config.flipped,
        shuffle=False,
        random_state=derive(0, "twin/synthetic") % 2**32,
    )
    rng = stream(0, "twin/synthetic/order")
    rows, columns = rng.permutation(samples), rng.permutation(config.features)
    values = np.empty(features.shape, np.float32)
    for first in range(0, samples, _ROWS):
        values[first : first + _ROWS] = features[rows[first : first + _ROWS]][:, columns]
    names = tuple(f"x{number}" for number in range(1, config.features + 1))
    source = DataSource("synthetic", note=f"made up by make_classification: {samples} samples, {config.features} columns")
    return Table(values, names, {}, labels[rows].astype(np.int64), 2), source


SET = TabularSet(DATASETS[0], Metric("auroc", "max"), lambda config: max(config.features, 1), _make, _problems)
check, load = SET.check, SET.load
