"""Made-up ridge regression: X ~ N(0, 1) / sqrt(N), a planted theta, noisy labels (MTCD, arXiv 2309.09977, section V).

The paper's sizes, alpha and distribution are unknown. The defaults are ours: of those tried, STCD on a path needs the
fewest hops with them.
"""

from pathlib import Path

import numpy as np

from vflbench.cards.data.tabular.ridge import DATASETS, Config
from vflbench.data.tabular import convex, table
from vflbench.data.tabular.sets import TabularSet
from vflbench.data.tabular.table import Table
from vflbench.data.tasks import AlignedTask, Objective, RelationalTask, ShardedTask
from vflbench.seeding import stream
from vflbench.types import DataSource, Metric


def _make(config: Config, root: Path | None) -> tuple[Table, DataSource]:
    """X (N, d) and y = X theta + noise, (N,), with theta ~ N(0, I): the same for every seed."""
    samples, width = config.samples or 1000, config.features
    rng = stream(0, "twin/ridge")
    features = rng.standard_normal((samples, width)) / np.sqrt(samples)
    labels = features @ rng.standard_normal(width) + config.noise * rng.standard_normal(samples)
    source = DataSource("synthetic", note=f"made-up ridge regression: {samples} samples, {width} features")
    return Table(features, tuple(f"x{number}" for number in range(1, width + 1)), {}, labels, 0), source


SET = TabularSet(DATASETS[0], Metric("rmse", "min"), lambda config: config.features, _make)
check = SET.check


def load(
    config: Config, layout: str, parties: int, seed: int, root: Path | None
) -> AlignedTask | RelationalTask | ShardedTask:
    """The task, as of every tabular set; the numbers of `problem=ridge` are not standardised, as in the paper."""
    if config.problem != "ridge" or check(config, layout, parties):
        return SET.load(config, layout, parties, seed, root)
    whole, source = _make(config, root)
    owned = table.party_columns(config.columns, parties, config.features, config.order, seed)
    blocks = [np.ascontiguousarray(whole.values[:, own]) for own in owned]
    return convex.task(config.name, source, blocks, whole.labels, Objective("ridge", config.alpha))
