"""Default of credit card clients (Yeh and Lien 2009, UCI): 30,000 clients in Taiwan, 23 columns, will the next payment default?

Read as UCI publishes it (an Excel .xls, which needs the package python-calamine) and as Kaggle does (a CSV).
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vflbench.data import sources, twins
from vflbench.data.sources import FileSet, Part, RawFile
from vflbench.data.tabular import table
from vflbench.data.tabular.table import Layout, Table
from vflbench.data.tasks import AlignedTask, ShardedTask
from vflbench.seeding import stream
from vflbench.types import ConfigError, DataError, DatasetInfo, DataSource, Metric, Problem

DATASETS = (
    DatasetInfo(
        name="credit",
        summary="Default of credit card clients: 30,000 clients, 23 columns, 22 % default; also as sparse logistic regression",
        layouts=("aligned", "sharded"),
        folder="credit_default",
    ),
)

_XLS = RawFile("credit_default/default of credit card clients.xls")
_CSV = RawFile("credit_default/UCI_Credit_Card.csv")
FILE_SETS = (FileSet("credit", "credit_default", (Part("clients", ((_XLS,), (_CSV,))),)),)

_MONTHS = (0, 2, 3, 4, 5, 6)  # of PAY_: the published names leave 1 out
COLUMNS = (
    *("LIMIT_BAL", "SEX", "EDUCATION", "MARRIAGE", "AGE"),
    *(f"PAY_{month}" for month in _MONTHS),
    *(f"BILL_AMT{month}" for month in range(1, 7)),
    *(f"PAY_AMT{month}" for month in range(1, 7)),
)
LEVELS = {"SEX": ("1", "2"), "EDUCATION": tuple("0123456"), "MARRIAGE": tuple("0123")}
_LABEL = "default payment next month"  # Kaggle writes points for the blanks
SAMPLES = 30000


@dataclass
class Config(table.Keys):
    name: str = "credit"
    beta: float = 0.001  # problem=sparse_logistic: weight of ||theta||_1


def check(config: Config, layout: str, parties: int) -> list[Problem]:
    """What is wrong with the configuration, before anything is read."""
    return table.check(config, layout, parties, len(COLUMNS))


def load(config: Config, layout: str, parties: int, seed: int, root: Path | None) -> AlignedTask | ShardedTask:
    """The clients, their columns or their rows divided between `parties`.

    Raises
    ------
    ConfigError, DataError
    """
    if problems := check(config, layout, parties):
        raise ConfigError(problems)
    found = sources.locate(FILE_SETS[0], root, config.source)
    if found is None:
        if config.source == "synthetic":
            sources.announce_twin("credit")
        made, source = twin(), twins.twin_source()
    else:
        file, read = (_XLS, read_xls) if _XLS in found else (_CSV, read_csv)
        made = read(found.read(file), found.label(file))
        source = DataSource("real", files=tuple(entry for entry in found.files if entry[0] == found.label(file)))
    return table.divide(config, made, source, Metric("auroc", "max"), layout=layout, parties=parties, seed=seed)


def read_csv(data: bytes, label: str) -> Table:
    """The table of Kaggle's UCI_Credit_Card.csv. Raises DataError, naming file and line."""
    names = ("ID", *COLUMNS, _LABEL.replace(" ", "."))
    binary = {names[-1]: ("0", "1")}
    return _table(table.read_text(data, label, Layout(names, {**LEVELS, **binary}, skipped=("ID",))))


def read_xls(data: bytes, label: str) -> Table:
    """The table of UCI's .xls, whose second line has the names of the columns.

    Raises
    ------
    DataError : naming file and line; also where python-calamine is not installed.
    """
    import csv

    import pandas as pd

    try:
        sheet = pd.read_excel(io.BytesIO(data), engine="calamine", header=None, dtype=object, na_filter=False)
    except ImportError:
        raise DataError(f"{label}: an .xls file needs python-calamine: pip install 'vflbench[excel]'. Or save it as {_CSV.path}.") from None
    except Exception as error:  # calamine raises what it likes
        raise DataError(f"{label}: not an Excel .xls file ({error}). Get the file again.") from None
    text = io.StringIO()
    # Excel's numbers are floats: 2.0 is the level 2. Rows stay lines of the same number.
    rows = ([f"{cell:g}" if isinstance(cell, float) and cell.is_integer() else cell for cell in row] for row in sheet.to_numpy())
    csv.writer(text, lineterminator="\n").writerows(rows)
    names = ("ID", *COLUMNS, _LABEL)
    return _table(
        table.read_text(text.getvalue().encode(), label, Layout(names, {**LEVELS, _LABEL: ("0", "1")}, header=2, skipped=("ID",)))
    )


def _table(values: np.ndarray) -> Table:
    return Table(values[:, :-1], COLUMNS, LEVELS, values[:, -1].astype(np.int64), 2)


def twin() -> Table:
    """Made-up clients: some pay late month after month and mostly default; bills follow the limit and one another."""
    rng = stream(0, "twin/credit")
    late = rng.standard_normal(SAMPLES)
    limit = (10_000 * np.exp(2.4 + 0.8 * rng.standard_normal(SAMPLES) - 0.3 * late)).round(-4).clip(10_000, 1_000_000)
    sex, education = 1 + (rng.random(SAMPLES) < 0.6), rng.choice(7, SAMPLES, p=[0.001, 0.352, 0.467, 0.164, 0.004, 0.01, 0.002])
    marriage, age = rng.choice(4, SAMPLES, p=[0.002, 0.455, 0.532, 0.011]), (21 + rng.gamma(2.2, 6.5, SAMPLES)).round().clip(21, 79)
    months = np.round(1.1 * late[:, None] - 0.2 + 0.6 * rng.standard_normal((SAMPLES, 6))).clip(-2, 8)
    used = 1 / (1 + np.exp(-(late[:, None] - 1 + 0.4 * rng.standard_normal((SAMPLES, 6)).cumsum(axis=1))))
    bills = (limit[:, None] * used).round()
    paid = (bills * rng.beta(0.6, 4, (SAMPLES, 6))).round()
    score = 0.9 * months[:, 0] + 0.2 * months[:, 1:3].sum(axis=1) - limit / 400_000 + 1.1 * rng.logistic(0, 1, SAMPLES)
    levels = sex - 1, education, marriage
    values = np.column_stack([limit, *levels, age, months, bills, paid])
    return Table(values, COLUMNS, LEVELS, (score > np.quantile(score, 0.7788)).astype(np.int64), 2)
