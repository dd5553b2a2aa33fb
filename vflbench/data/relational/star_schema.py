"""A made-up star schema whose joined table is `duplication` times as long as its fact table.

Every fact row joins one row of each dimension, but `duplication` rows of the first, where keys repeat. So the joined
table has exactly rows x duplication rows, while no organisation's table grows. This shows whether a method's cost
depends on n_i or on N.
"""

from pathlib import Path

import numpy as np

from vflbench.cards.data.relational.star_schema import Config
from vflbench.data.divide import raw_tables
from vflbench.data.divide.raw_tables import RawTable, RawTables
from vflbench.data.divide.splits import check_fractions, split_rows
from vflbench.data.tasks import AlignedTask, Equality, RelationalTask
from vflbench.seeding import stream
from vflbench.types import DataSource, Metric, Problem, refuse

TASKS = {"regression": Metric("rmse", "min"), "classes": Metric("accuracy", "max")}
_OWN = 0.6  # standard deviation of a row's own part of its features; the part that its key's rows share has 0.8


def check(config: Config, layout: str, parties: int) -> list[Problem]:
    """What is wrong with the configuration."""
    problems = check_fractions(config.validation, config.test)
    if config.duplication > config.dimension_rows:
        most = f"must be at most dataset.dimension_rows={config.dimension_rows}"
        allowed = f"{most}: it is the number of rows of the first dimension that share a key"
        problems.append(Problem("dataset.duplication", config.duplication, allowed))
    return problems


def load(config: Config, layout: str, parties: int, seed: int, root: Path | None) -> RelationalTask | AlignedTask:
    """The star schema, each table in `parties` horizontal parts; only the split depends on the seed."""
    refuse(check(config, layout, parties))
    note = f"made-up star schema: {config.rows} facts, {config.dimensions} dimensions, duplication {config.duplication}"
    source = DataSource(kind="synthetic", note=note)
    splits = split_rows(config.rows, config.validation, config.test, seed)
    metric = TASKS[config.task]
    return raw_tables.divide(config.name, make(config), splits, source, metric, layout=layout, parts=parties)


def make(config: Config) -> RawTables:
    """The tables.

    If `duplication` does not divide the rows of the first dimension, those left over join with nothing. A label is the
    sum over tables of a linear function of the features. Of a dimension's features the part counts that all rows of a
    key share.
    """
    outputs = config.classes if config.task == "classes" else 1
    names = [f"dimension_{number}" for number in range(1, config.dimensions + 1)]
    facts = _stream("facts").standard_normal((config.rows, config.width), dtype=np.float32)
    scores = facts @ _weights("facts", config, outputs)
    made, keys = [], {}
    for name in names:
        repeats = config.duplication if name == names[0] else 1
        rng, key_rng = _stream(name), _stream(f"keys/{name}")  # two, so that keys do not depend on the width
        distinct = config.dimension_rows // repeats
        common = rng.standard_normal((distinct + 1, config.width), dtype=np.float32) * np.float32(np.sqrt(1 - _OWN**2))
        key = key_rng.permutation(np.minimum(np.arange(config.dimension_rows) // repeats, distinct))
        own = rng.standard_normal((config.dimension_rows, config.width), dtype=np.float32)
        features = common[key] + own * np.float32(_OWN)
        keys[name] = key_rng.integers(0, distinct, config.rows)
        scores = scores + (common @ _weights(name, config, outputs))[keys[name]]
        made.append(RawTable(name, {"key": np.where(key < distinct, key, -1)}, features, _columns(config.width)))
    # so that the explained part has deviation 1
    scale = np.float32(np.sqrt(1 + config.dimensions * (1 - _OWN**2)))
    noisy = scores / scale + np.float32(config.noise) * _stream("noise").standard_normal(scores.shape, dtype=np.float32)
    labels = noisy.argmax(axis=1) if config.task == "classes" else noisy[:, 0].astype(np.float64)
    fact_table = RawTable("facts", {f"{name}_key": keys[name] for name in names}, facts, _columns(config.width))
    joins = tuple(Equality(("facts", f"{name}_key"), (name, "key")) for name in names)
    return RawTables((fact_table, *made), "facts", labels, outputs if config.task == "classes" else 0, joins)


def _stream(name: str) -> np.random.Generator:
    return stream(0, f"twin/star_schema/{name}")


def _weights(name: str, config: Config, outputs: int) -> np.ndarray:
    """Random weights, (width, outputs) float32, with columns of length 1."""
    weights = _stream(f"weights/{name}").standard_normal((config.width, outputs), dtype=np.float32)
    return np.asarray(weights / np.linalg.norm(weights, axis=0))


def _columns(width: int) -> tuple[str, ...]:
    return tuple(f"x{number}" for number in range(1, width + 1))
