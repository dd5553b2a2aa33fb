"""Made-up ridge regression: X ~ N(0, 1) / sqrt(N), a planted theta, noisy labels (papers/mtcd.md, sections 7 and 10).

The paper's sizes, alpha and distribution are unknown. The defaults are a prototype's: of those in section 10 the ones at which STCD on a
path needs the fewest hops.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vflbench.data.tabular import convex, table
from vflbench.data.tasks import AlignedTask, ShardedTask
from vflbench.seeding import stream
from vflbench.types import ConfigError, DatasetInfo, DataSource, Metric, Problem

DATASETS = (
    DatasetInfo(
        name="ridge",
        summary="made-up ridge regression with its exact minimum (MTCD); needs no files",
        layouts=("aligned", "sharded"),
        sources=("synthetic",),
    ),
)


@dataclass
class Config(table.Keys):
    name: str = "ridge"
    source: str = "auto"  # auto | synthetic: it is always made up
    problem: str = "ridge"  # ridge | learning
    samples: int | None = 1000  # N; null: 1000
    features: int = 2000  # d
    alpha: float = 1.0  # weight of ||theta||^2 / 2
    noise: float = 0.1  # standard deviation of the labels' noise; that of X theta is sqrt(d / N)


def check(config: Config, layout: str, parties: int) -> list[Problem]:
    """What is wrong with the configuration."""
    problems = table.check(config, layout, parties, max(config.features, 1))
    if config.source == "real":
        problems.append(Problem("dataset.source", config.source, "ridge is always made up: auto or synthetic"))
    if config.features < 1:
        problems.append(Problem("dataset.features", config.features, "must be at least 1"))
    if not 0 <= config.noise < np.inf:
        problems.append(Problem("dataset.noise", config.noise, "must be at least 0"))
    return problems


def load(config: Config, layout: str, parties: int, seed: int, root: Path | None) -> AlignedTask | ShardedTask:
    """The problem, its columns or its rows divided between `parties`. The data is the same for every seed.

    Raises
    ------
    ConfigError
    """
    if problems := check(config, layout, parties):
        raise ConfigError(problems)
    features, labels = make(config.samples or 1000, config.features, config.noise)
    source = DataSource(kind="synthetic", note=f"made-up ridge regression: {len(labels)} samples, {config.features} features")
    if config.problem == "ridge":
        owned = table.party_columns(config.columns, parties, config.features)
        blocks = [np.ascontiguousarray(features[:, own]) for own in owned]
        return convex.task(config.name, source, blocks, labels, table.objective(config))
    columns = tuple(f"x{number}" for number in range(1, config.features + 1))
    made = table.Table(features, columns, {}, labels, 0)
    return table.divide(config, made, source, Metric("rmse", "min"), layout=layout, parties=parties, seed=seed)


def make(samples: int, width: int, noise: float) -> tuple[np.ndarray, np.ndarray]:
    """X (N, d) and y = X theta + noise, (N,), with theta ~ N(0, I)."""
    rng = stream(0, "twin/ridge")
    features = rng.standard_normal((samples, width)) / np.sqrt(samples)
    return features, features @ rng.standard_normal(width) + noise * rng.standard_normal(samples)
