"""Bank Marketing (Moro, Cortez, Rita 2014, UCI): calls to clients of a bank; did the client subscribe a deposit?

`duration`, the length of the call, is known only after it: the paper that compares with these AUCs kept it, so do we.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vflbench.data import sources, twins
from vflbench.data.sources import FileSet, Found, Part, RawFile
from vflbench.data.tabular import table
from vflbench.data.tabular.table import Layout, Table
from vflbench.data.tasks import AlignedTask, ShardedTask
from vflbench.seeding import stream
from vflbench.types import ConfigError, DatasetInfo, DataSource, Metric, Problem

DATASETS = (
    DatasetInfo(
        name="bank",
        summary="Bank Marketing: 41,188 calls, 20 columns (10 of them categories), 11 % yes; also as sparse logistic regression",
        layouts=("aligned", "sharded"),
        folder="bank_marketing",
    ),
)

# --- files ------------------------------------------------------------------------------------------------------------------

_ADDRESS = "https://archive.ics.uci.edu/ml/machine-learning-databases/00222"
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_ASKED = ("no", "yes", "unknown")
_JOBS = (
    *("admin.", "blue-collar", "entrepreneur", "housemaid", "management", "retired", "self-employed", "services", "student"),
    *("technician", "unemployed", "unknown"),
)
_Y = {"y": ("no", "yes")}


@dataclass(frozen=True)
class _Edition:
    """One of the two published tables."""

    archive: RawFile
    member: str  # of the archive
    unpacked: RawFile
    columns: tuple[str, ...]
    levels: dict[str, tuple[str, ...]]
    samples: int


EDITIONS = {
    "additional": _Edition(
        RawFile(
            "bank_marketing/bank-additional.zip",
            f"{_ADDRESS}/bank-additional.zip",
            "a607b5edab6c6c75ce09c39142a77702c38123bd5aa7ae89a63503bbe17d65cd",
        ),
        "bank-additional/bank-additional-full.csv",
        RawFile("bank_marketing/bank-additional-full.csv"),
        (
            *("age", "job", "marital", "education", "default", "housing", "loan", "contact", "month", "day_of_week", "duration"),
            *("campaign", "pdays", "previous", "poutcome", "emp.var.rate", "cons.price.idx", "cons.conf.idx", "euribor3m", "nr.employed"),
        ),
        {
            "job": _JOBS,
            "marital": ("divorced", "married", "single", "unknown"),
            "education": (
                *("basic.4y", "basic.6y", "basic.9y", "high.school", "illiterate", "professional.course", "university.degree", "unknown"),
            ),
            **{"default": _ASKED, "housing": _ASKED, "loan": _ASKED},
            "contact": ("cellular", "telephone"),
            "month": _MONTHS,
            "day_of_week": ("mon", "tue", "wed", "thu", "fri"),
            "poutcome": ("failure", "nonexistent", "success"),
        },
        41188,
    ),
    "full": _Edition(
        RawFile(
            "bank_marketing/bank.zip",
            f"{_ADDRESS}/bank.zip",
            "99d7e8eb12401ed278b793984423915411ea8df099e1795f9fefe254f513fe5e",
        ),
        "bank-full.csv",
        RawFile("bank_marketing/bank-full.csv"),
        (
            *("age", "job", "marital", "education", "default", "balance", "housing", "loan", "contact", "day", "month", "duration"),
            *("campaign", "pdays", "previous", "poutcome"),
        ),
        {
            "job": _JOBS,
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
VARIANTS = ("auto", *EDITIONS)


def _file_set(variant: str) -> FileSet:
    groups = tuple(group for name, e in EDITIONS.items() if variant in ("auto", name) for group in ((e.archive,), (e.unpacked,)))
    return FileSet("bank", "bank_marketing", (Part("calls", groups),))


FILE_SETS = (_file_set("auto"),)


@dataclass
class Config(table.Keys):
    name: str = "bank"
    variant: str = "auto"  # auto (additional where it is there) | additional (41,188 x 20) | full (45,211 x 16, the older one)
    verify: bool = True  # compare the files with the known checksums
    beta: float = 0.001  # problem=sparse_logistic: weight of ||theta||_1


def check(config: Config, layout: str, parties: int) -> list[Problem]:
    """What is wrong with the configuration, before anything is read."""
    edition = EDITIONS.get(config.variant, EDITIONS["additional"])
    return table.check(config, layout, parties, len(edition.columns), VARIANTS)


def load(config: Config, layout: str, parties: int, seed: int, root: Path | None) -> AlignedTask | ShardedTask:
    """The calls, their columns or their rows divided between `parties`.

    Raises
    ------
    ConfigError, DataError
    """
    if problems := check(config, layout, parties):
        raise ConfigError(problems)
    found = sources.locate(_file_set(config.variant), root, config.source, config.verify)
    if found is None:
        if config.source == "synthetic":
            sources.announce_twin("bank")
        variant = "additional" if config.variant == "auto" else config.variant
        made, source = twin(variant), twins.twin_source(variant)
    else:
        variant = next(name for name, edition in EDITIONS.items() if edition.archive in found or edition.unpacked in found)
        made, used = read(found, EDITIONS[variant])
        source = DataSource("real", variant, files=tuple(entry for entry in found.files if entry[0] == used))
    return table.divide(config, made, source, Metric("auroc", "max"), layout=layout, parties=parties, seed=seed)


def read(found: Found, edition: _Edition) -> tuple[Table, str]:
    """The table, and the label of the file that it was read from. Raises DataError, naming file and line."""
    if edition.archive in found:
        used = found.label(edition.archive)
        data, label = table.member(found.read(edition.archive), used, edition.member), f"{used}, {edition.member}"
    else:
        used = label = found.label(edition.unpacked)
        data = found.read(edition.unpacked)
    values = table.read_text(data, label, Layout((*edition.columns, "y"), {**edition.levels, **_Y}, ";"))
    return Table(values[:, :-1], edition.columns, edition.levels, values[:, -1].astype(np.int64), 2), used


def twin(variant: str) -> Table:
    """Made-up calls with the edition's columns and levels: some levels are common, some say yes more often, long calls do too."""
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
    values[:, edition.columns.index("duration")] = (250 * np.exp(0.8 * values[:, edition.columns.index("duration")])).round()
    score += rng.logistic(0, 1, edition.samples)
    return Table(values, edition.columns, edition.levels, (score > np.quantile(score, 0.887)).astype(np.int64), 2)
