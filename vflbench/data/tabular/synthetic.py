"""The data of scikit-learn's make_classification, Guyon's generator of Madelon.

As PubSub-VFL's Synthetic they are 1,000,000 x 500 in float32. That paper's other parameters are unknown. Ours are 50
informative and 50 redundant columns, and 1 % of the labels drawn at random.
"""

from functools import partial
from pathlib import Path

import numpy as np

from vflbench.cards.data.tabular.synthetic import DATASETS, Config
from vflbench.data.tabular.sets import TabularSet, kept
from vflbench.data.tabular.table import Table
from vflbench.seeding import derive, stream
from vflbench.types import DataSource, Metric, Problem

_ROWS = 65536  # turned to float32 at a time


def _problems(config: Config) -> list[Problem]:
    if config.informative + config.redundant <= config.features:
        return []
    shown = f"{config.informative} + {config.redundant}"
    return [
        Problem("dataset.informative + dataset.redundant", shown, f"must be at most dataset.features={config.features}")
    ]


def _make(config: Config, root: Path | None) -> tuple[Table, DataSource]:
    samples = config.samples or 1_000_000
    source = DataSource(
        "synthetic", note=f"made up by make_classification: {samples} samples, {config.features} columns"
    )
    shape = samples, config.features, config.informative, config.redundant
    return kept(config.name, partial(_drawn, config, samples), *shape), source


def _drawn(config: Config, samples: int) -> Table:
    """The rows in float32, rows and columns in random order: the same for every seed.

    The peak of memory is twice the table in float64.
    """
    from sklearn.datasets import make_classification

    # shuffle=False: its own shuffling copies the float64 table twice.
    features, labels = make_classification(
        samples,
        config.features,
        n_informative=config.informative,
        n_redundant=config.redundant,
        shuffle=False,
        random_state=derive(0, "twin/synthetic") % 2**32,
    )
    rng = stream(0, "twin/synthetic/order")
    rows, columns = rng.permutation(samples), rng.permutation(config.features)
    values = np.empty(features.shape, np.float32)
    for first in range(0, samples, _ROWS):
        values[first : first + _ROWS] = features[rows[first : first + _ROWS]][:, columns]
    names = tuple(f"x{number}" for number in range(1, config.features + 1))
    return Table(values, names, {}, labels[rows].astype(np.int64), 2)


SET = TabularSet(DATASETS[0], Metric("auroc", "max"), lambda config: config.features, _make, _problems)
check, load = SET.check, SET.load
