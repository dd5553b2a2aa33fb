"""Bank Marketing (Moro, Cortez, Rita 2014, UCI): calls of a bank that offer clients a deposit.

`duration`, the length of the call, is known only afterwards. The paper whose AUCs we compare with kept it; so do we.
"""

import functools
from dataclasses import dataclass

import numpy as np

from vflbench.cards.data.tabular.bank import DATASETS
from vflbench.data.published_files import Lines
from vflbench.data.sources import RawFile
from vflbench.data.tabular import table
from vflbench.data.tabular.sets import Edition, Files, Form, TabularSet
from vflbench.data.tabular.table import Layout, Table
from vflbench.seeding import stream
from vflbench.types import Metric

# --- files ------------------------------------------------------------------------------------------------------------

_ADDRESS = "https://archive.ics.uci.edu/ml/machine-learning-databases/00222"
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_ASKED = ("no", "yes", "unknown")
_JOBS = """
    admin. blue-collar entrepreneur housemaid management retired self-employed services student technician unemployed
    unknown
"""
_ADDITIONAL = """
    age job marital education default housing loan contact month day_of_week duration campaign pdays previous poutcome
    emp.var.rate cons.price.idx cons.conf.idx euribor3m nr.employed
"""
_FULL = """
    age job marital education default balance housing loan contact day month duration campaign pdays previous poutcome
"""
_SCHOOLS = "basic.4y basic.6y basic.9y high.school illiterate professional.course university.degree unknown"


@dataclass(frozen=True)
class _Calls:
    """One of the two published tables."""

    archive: RawFile
    member: str  # of the archive
    unpacked: RawFile
    columns: tuple[str, ...]
    levels: dict[str, tuple[str, ...]]
    samples: int


EDITIONS = {
    "additional": _Calls(
        RawFile(
            "bank_marketing/bank-additional.zip",
            f"{_ADDRESS}/bank-additional.zip",
            "a607b5edab6c6c75ce09c39142a77702c38123bd5aa7ae89a63503bbe17d65cd",
        ),
        "bank-additional/bank-additional-full.csv",
        RawFile(
            "bank_marketing/bank-additional-full.csv",
            digest="74adfc578bf77a7ff4bb1ba4a9f8709d9e3c6907342959c2c8416847e0afb4d8",
        ),
        tuple(_ADDITIONAL.split()),
        {
            "job": tuple(_JOBS.split()),
            "marital": ("divorced", "married", "single", "unknown"),
            "education": tuple(_SCHOOLS.split()),
            **{"default": _ASKED, "housing": _ASKED, "loan": _ASKED},
            "contact": ("cellular", "telephone"),
            "month": _MONTHS,
            "day_of_week": ("mon", "tue", "wed", "thu", "fri"),
            "poutcome": ("failure", "nonexistent", "success"),
        },
        41188,
    ),
    "full": _Calls(
        RawFile(
            "bank_marketing/bank.zip",
            f"{_ADDRESS}/bank.zip",
            "99d7e8eb12401ed278b793984423915411ea8df099e1795f9fefe254f513fe5e",
        ),
        "bank-full.csv",
        RawFile(
            "bank_marketing/bank-full.csv",
            digest="d1513ec63b385506f7cfce9f2c5caa9fe99e7ba4e8c3fa264b3aaf0f849ed32d",
        ),
        tuple(_FULL.split()),
        {
            "job": tuple(_JOBS.split()),
            "marital": ("divorced", "married", "single"),
            "education": ("primary", "secondary", "tertiary", "unknown"),
            **{"default": ("no", "yes"), "housing": ("no", "yes"), "loan": ("no", "yes")},
            "contact": ("cellular", "telephone", "unknown"),
            "month": _MONTHS,
            "poutcome": ("failure", "other", "success", "unknown"),
        },
        45211,
    ),
}


def twin(variant: str) -> Table:
    """Made-up calls with the edition's columns and levels.

    Some levels are common. Some levels, and long calls, have more yes.
    """
    edition = EDITIONS[variant]
    rng = stream(0, f"twin/bank/{variant}")
    values = rng.standard_normal((edition.samples, len(edition.columns)))
    score = np.zeros(edition.samples)
    for i, name in enumerate(edition.columns):
        if name in edition.levels:
            count = len(edition.levels[name])
            values[:, i] = rng.choice(count, edition.samples, p=rng.dirichlet(np.full(count, 2.0)))
            score += rng.normal(0, 0.5, count)[values[:, i].astype(np.int64)]
        else:
            score += (1.5 if name == "duration" else rng.normal(0, 0.3)) * values[:, i]
    duration = edition.columns.index("duration")
    values[:, duration] = (250 * np.exp(0.8 * values[:, duration])).round()
    score += rng.logistic(0, 1, edition.samples)
    return Table(values, edition.columns, edition.levels, (score > np.quantile(score, 0.887)).astype(np.int64), 2)


def _edition(variant: str, calls: _Calls) -> Edition:
    layout = Layout((*calls.columns, "y"), {**calls.levels, "y": ("no", "yes")}, ";")
    read = functools.partial(table.read_table, layout=layout, target="y")
    width, members = len(layout.columns), (calls.member,)
    forms = (
        Form((calls.archive,), read, Lines(";", members=members), width, members),
        Form((calls.unpacked,), read, Lines(";"), width),
    )
    return Edition(calls.columns, forms, functools.partial(twin, variant), calls.samples, variant)


FILES = Files(DATASETS[0], "calls", tuple(_edition(*named) for named in EDITIONS.items()), lambda config: config.verify)
FILE_SETS = (FILES.file_set(),)
SET = TabularSet(DATASETS[0], Metric("auroc", "max"), FILES.columns, FILES.make)
check, load = SET.check, SET.load
