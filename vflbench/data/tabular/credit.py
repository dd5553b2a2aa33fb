"""Default of credit card clients (Yeh and Lien 2009, UCI): 30,000 clients in Taiwan, 23 columns.

Will the next payment default? Two forms can be read: UCI's Excel .xls, which needs the package python-calamine, and
Kaggle's CSV, with its names of columns or UCI's.
"""

import io
from collections.abc import Iterator, Sequence

import numpy as np

from vflbench.cards.data.tabular.credit import DATASETS
from vflbench.data.published_files import Lines, Sheet
from vflbench.data.sources import RawFile
from vflbench.data.tabular import table
from vflbench.data.tabular.sets import Contents, Edition, Files, Form, TabularSet
from vflbench.data.tabular.table import Layout, Table
from vflbench.seeding import stream
from vflbench.types import DataError, Metric

_CSV = RawFile("credit_default/UCI_Credit_Card.csv")
_MONTHS = (0, 2, 3, 4, 5, 6)  # there is no PAY_1
COLUMNS = (
    *("LIMIT_BAL", "SEX", "EDUCATION", "MARRIAGE", "AGE"),
    *(f"PAY_{month}" for month in _MONTHS),
    *(f"BILL_AMT{month}" for month in range(1, 7)),
    *(f"PAY_AMT{month}" for month in range(1, 7)),
)
LEVELS = {"SEX": ("1", "2"), "EDUCATION": tuple("0123456"), "MARRIAGE": tuple("0123")}
_LABEL = "default payment next month"  # Kaggle has points instead of blanks
SAMPLES = 30000


def read_csv(texts: Contents, target: str = _LABEL.replace(" ", "."), header: int = 1) -> Table:
    """The table of Kaggle's UCI_Credit_Card.csv, also with UCI's names of columns: X1 to X23 and Y.

    Raises
    ------
    DataError : naming file and line.
    """
    layout = Layout(("ID", *COLUMNS, target), {**LEVELS, target: ("0", "1")}, header=header, skipped=("ID",))
    return table.read_table(_named(texts, layout.columns), layout, target)


def _named(texts: Contents, columns: Sequence[str]) -> Iterator[tuple[bytes, str]]:
    """The files, with these names of columns where they have UCI's.

    Of the .xls, where they stand above its own names and without ID, nothing is changed.
    """
    for data, label in texts:
        head, newline, rest = data.partition(b"\n")
        names = [name.strip(' "\r') for name in head.decode("utf-8-sig", "replace").split(",")]
        if names == [columns[0], *(f"X{number}" for number in range(1, len(columns) - 1)), "Y"]:
            head = ",".join(columns).encode()
        yield head + newline + rest, label


def read_xls(sheets: Contents) -> Table:
    """The table of UCI's .xls, whose second line has the names of the columns.

    Raises
    ------
    DataError : naming file and line; also where python-calamine is not installed.
    """
    import pandas as pd

    data, label = next(sheets)
    try:
        sheet = pd.read_excel(io.BytesIO(data), engine="calamine", header=None, dtype=object, na_filter=False)
    except ImportError:
        advice = f"pip install 'vflbench[excel]'. Or save it as {_CSV.path}."
        raise DataError(f"{label}: an .xls file needs python-calamine: {advice}") from None
    except Exception as error:  # calamine's errors have no common base
        raise DataError(f"{label}: not an Excel .xls file ({error}). Get the file again.") from None
    # Excel's numbers are floats: 2.0 is the level 2. Row i becomes line i.
    texts = sheet.map(lambda cell: f"{cell:g}" if isinstance(cell, float) and cell.is_integer() else cell)
    return read_csv(iter([(texts.to_csv(header=False, index=False).encode(), label)]), _LABEL, header=2)


def twin() -> Table:
    """Made-up clients: those who pay late in most months mostly default; bills follow the limit and earlier bills."""
    rng = stream(0, "twin/credit")
    late = rng.standard_normal(SAMPLES)
    limit = (10_000 * np.exp(2.4 + 0.8 * rng.standard_normal(SAMPLES) - 0.3 * late)).round(-4).clip(10_000, 1_000_000)
    sex = rng.random(SAMPLES) < 0.6
    education = rng.choice(7, SAMPLES, p=[0.001, 0.352, 0.467, 0.164, 0.004, 0.01, 0.002])
    marriage = rng.choice(4, SAMPLES, p=[0.002, 0.455, 0.532, 0.011])
    age = (21 + rng.gamma(2.2, 6.5, SAMPLES)).round().clip(21, 79)
    months = np.round(1.1 * late[:, None] - 0.2 + 0.6 * rng.standard_normal((SAMPLES, 6))).clip(-2, 8)
    used = 1 / (1 + np.exp(-(late[:, None] - 1 + 0.4 * rng.standard_normal((SAMPLES, 6)).cumsum(axis=1))))
    bills = (limit[:, None] * used).round()
    paid = (bills * rng.beta(0.6, 4, (SAMPLES, 6))).round()
    score = 0.9 * months[:, 0] + 0.2 * months[:, 1:3].sum(axis=1) - limit / 400_000 + 1.1 * rng.logistic(0, 1, SAMPLES)
    values = np.column_stack([limit, sex, education, marriage, age, months, bills, paid])
    return Table(values, COLUMNS, LEVELS, (score > np.quantile(score, 0.7788)).astype(np.int64), 2)


_XLS = RawFile(
    "credit_default/default of credit card clients.xls",
    digest="30c6be3abd8dcfd3e6096c828bad8c2f011238620f5369220bd60cfc82700933",
)
_FORMS = Form((_XLS,), read_xls, Sheet(header=2), 25), Form((_CSV,), read_csv, Lines(), 25)
FILES = Files(DATASETS[0], "clients", (Edition(COLUMNS, _FORMS, twin, SAMPLES),))
FILE_SETS = (FILES.file_set(),)
SET = TabularSet(DATASETS[0], Metric("auroc", "max"), FILES.columns, FILES.make)
check, load = SET.check, SET.load
