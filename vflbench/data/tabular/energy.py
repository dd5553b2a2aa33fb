"""Appliances energy prediction (Candanedo et al. 2017, UCI): 27 readings of a house every ten minutes.

The target is the appliances' consumption in Wh. The date is left out, as in PubSub-VFL (19,735 x 27).
"""

import functools

import numpy as np

from vflbench.cards.data.tabular.energy import DATASETS
from vflbench.data.published_files import Lines
from vflbench.data.sources import RawFile
from vflbench.data.tabular import table
from vflbench.data.tabular.sets import Edition, Files, Form, TabularSet
from vflbench.data.tabular.table import Layout, Table
from vflbench.seeding import stream
from vflbench.types import Metric

_ROOMS = tuple(f"{kind}{room}" for room in range(1, 10) for kind in ("T", "RH_"))  # temperature (C) and humidity (%)
COLUMNS = ("lights", *_ROOMS, "T_out", "Press_mm_hg", "RH_out", "Windspeed", "Visibility", "Tdewpoint", "rv1", "rv2")
SAMPLES = 19735


def twin() -> Table:
    """Made-up readings: five slow states drive temperatures and humidities, and the target is skewed.

    rv1 = rv2 is noise, as in the original.
    """
    rng = stream(0, "twin/energy")
    steps = np.arange(SAMPLES)[:, None] / 144  # days
    periods = np.array([1.0, 1.0, 7.0, 30.0, 137.0])
    states = np.sin(2 * np.pi * steps / periods + rng.uniform(0, 6, 5)) + 0.3 * rng.standard_normal((SAMPLES, 5))
    readings = states @ rng.normal(0, 1, (5, 24)) + 0.5 * rng.standard_normal((SAMPLES, 24))
    lit = rng.random(SAMPLES) < 0.23
    lights = np.where(lit, 10.0 * rng.integers(1, 5, SAMPLES), 0)
    noise = rng.uniform(0, 50, SAMPLES)
    values = np.column_stack([lights, 20 + 3 * readings, noise, noise])
    score = readings @ rng.normal(0, 0.07, 24) + 0.4 * lit + 0.7 * rng.standard_normal(SAMPLES)
    return Table(values, COLUMNS, {}, 10 * np.round(7 * np.exp(score)).clip(1, 108), 0, times=np.arange(SAMPLES))


read = functools.partial(
    table.read_table, layout=Layout(("date", "Appliances", *COLUMNS), {}, time="date"), target="Appliances"
)
_SHA256 = "2820bf712ad0275cb18b85a05250926100d8e65ebb9f4d2d016ca91ea152a25d"  # of the member of UCI's archive
_FORM = Form((RawFile("appliances_energy/energydata_complete.csv", digest=_SHA256),), read, Lines(), width=29)
FILES = Files(DATASETS[0], "readings", (Edition(COLUMNS, (_FORM,), twin, SAMPLES),))
FILE_SETS = (FILES.file_set(),)
SET = TabularSet(DATASETS[0], Metric("rmse", "min"), FILES.columns, FILES.make)
check, load = SET.check, SET.load
