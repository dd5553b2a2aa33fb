"""scikit-learn's make_classification (Guyon's generator of Madelon): PubSub-VFL's Synthetic, 1,000,000 x 500 in float32.

That paper's other parameters are unknown: 50 informative and 50 redundant columns, 1 % of the labels turned over, are ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vflbench.data.tabular import table
from vflbench.data.tasks import AlignedTask, ShardedTask
from vflbench.seeding import derive, stream
from vflbench.types import ConfigError, DatasetInfo, DataSource, Metric, Problem

DATASETS = (
    DatasetInfo(
        name="synthetic",
        summary="scikit-learn's make_classification: 1,000,000 rows, 500 columns or as many as you say, two classes; needs no files",
        layouts=("aligned", "sharded"),
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


def check(config: Config, layout: str, parties: int) -> list[Problem]:
    """What is wrong with the configuration."""
    problems = table.check(config, layout, parties, max(config.features, 1))
    if config.source == "real":
        problems.append(Problem("dataset.source", config.source, "synthetic is always made up: auto or synthetic"))
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


def load(config: Config, layout: str, parties: int, seed: int, root: Path | None) -> AlignedTask | ShardedTask:
    """The rows, their columns or their rows divided between `parties`. The data is the same for every seed.

    Raises
    ------
    ConfigError
    """
    if problems := check(config, layout, parties):
        raise ConfigError(problems)
    made = make(config)
    source = DataSource(kind="synthetic", note=f"made up by make_classification: {len(made.labels)} samples, {config.features} columns")
    return table.divide(config, made, source, Metric("auroc", "max"), layout=layout, parties=parties, seed=seed)


def make(config: Config) -> table.Table:
    """The rows in float32, rows and columns in random order: at most twice the table in float64 is held at a time."""
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
    return table.Table(values, names, {}, labels[rows].astype(np.int64), 2)
