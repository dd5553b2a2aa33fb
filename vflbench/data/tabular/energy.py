"""Appliances energy prediction (Candanedo et al. 2017, UCI): a house every ten minutes, 27 readings, the target the appliances' Wh.

The date is left out, as in PubSub-VFL (19,735 x 27).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vflbench.data import sources, twins
from vflbench.data.sources import FileSet, Part, RawFile
from vflbench.data.tabular import table
from vflbench.data.tabular.table import Layout, Table
from vflbench.data.tasks import AlignedTask, ShardedTask
from vflbench.seeding import stream
from vflbench.types import ConfigError, DatasetInfo, Metric, Problem

DATASETS = (
    DatasetInfo(
        name="energy",
        summary="Appliances energy: 19,735 readings of a house, 27 columns, regression; also as ridge regression",
        layouts=("aligned", "sharded"),
        folder="appliances_energy",
    ),
)

_FILE = RawFile("appliances_energy/energydata_complete.csv")
FILE_SETS = (FileSet("energy", "appliances_energy", (Part("readings", ((_FILE,),)),)),)

_ROOMS = tuple(f"{kind}{room}" for room in range(1, 10) for kind in ("T", "RH_"))  # temperature (C) and humidity (%)
COLUMNS = ("lights", *_ROOMS, "T_out", "Press_mm_hg", "RH_out", "Windspeed", "Visibility", "Tdewpoint", "rv1", "rv2")
_DATE = "date"
SAMPLES = 19735


@dataclass
class Config(table.Keys):
    name: str = "energy"
    alpha: float = 0.1  # problem=ridge: weight of ||theta||^2 / 2


def check(config: Config, layout: str, parties: int) -> list[Problem]:
    """What is wrong with the configuration, before anything is read."""
    return table.check(config, layout, parties, len(COLUMNS))


def load(config: Config, layout: str, parties: int, seed: int, root: Path | None) -> AlignedTask | ShardedTask:
    """The readings, their columns or their rows divided between `parties`.

    Raises
    ------
    ConfigError, DataError
    """
    if problems := check(config, layout, parties):
        raise ConfigError(problems)
    found = sources.locate(FILE_SETS[0], root, config.source)
    if found is None:
        if config.source == "synthetic":
            sources.announce_twin("energy")
        made, source = twin(), twins.twin_source()
    else:
        made, source = read(found.read(_FILE), found.label(_FILE)), found.source()
    return table.divide(config, made, source, Metric("rmse", "min"), layout=layout, parties=parties, seed=seed)


def read(data: bytes, label: str) -> Table:
    """The table of energydata_complete.csv. Raises DataError, naming file and line."""
    values = table.read_text(data, label, Layout((_DATE, "Appliances", *COLUMNS), {}, skipped=(_DATE,)))
    return Table(values[:, 1:], COLUMNS, {}, values[:, 0], 0)


def twin() -> Table:
    """Made-up readings: five slow states drive temperatures and humidities, rv1 = rv2 is noise (as originally), the target is skewed."""
    rng = stream(0, "twin/energy")
    steps = np.arange(SAMPLES)[:, None] / 144  # days
    states = np.sin(2 * np.pi * steps / np.array([1.0, 1.0, 7.0, 30.0, 137.0]) + rng.uniform(0, 6, 5)) + 0.3 * rng.standard_normal(
        (SAMPLES, 5)
    )
    readings = states @ rng.normal(0, 1, (5, 24)) + 0.5 * rng.standard_normal((SAMPLES, 24))
    lit = rng.random(SAMPLES) < 0.23
    lights = np.where(lit, 10.0 * rng.integers(1, 5, SAMPLES), 0)
    noise = rng.uniform(0, 50, SAMPLES)
    values = np.column_stack([lights, 20 + 3 * readings, noise, noise])
    score = readings @ rng.normal(0, 0.07, 24) + 0.4 * lit + 0.7 * rng.standard_normal(SAMPLES)
    return Table(values, COLUMNS, {}, 10 * np.round(7 * np.exp(score)).clip(1, 108), 0)
