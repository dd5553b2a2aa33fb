"""Every method that `vflbench list dataset=NAME` lists trains a round there, with its defaults, on small data."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path

import pytest

import vflbench
from tests.contracts.test_algorithms import FEW as LEADERS
from tests.contracts.test_algorithms import marks
from vflbench import cli, registry
from vflbench.cli.list import runnable
from vflbench.types import ConfigError

# Data set -> the keys that make it small; those made up are twins, which every machine has.
FEW = ["dataset.samples=200"]
TWIN = ["dataset.source=synthetic"]
SMALL = {
    **{name: [*FEW, *TWIN] for name in ("bank", "blog", "credit", "energy")},
    **{name: FEW for name in ("breast_cancer", "digits")},
    "ridge": ["dataset.samples=60", "dataset.features=50"],
    "synthetic": [*FEW, "dataset.features=120"],
    "star_schema": ["dataset.rows=200", "dataset.dimension_rows=40"],
    "digits_graph": [],
    "cora": TWIN,
    "gisette": ["dataset.samples=60", "floor=none", *TWIN],
    "criteo": ["dataset.samples=400", "floor=none", *TWIN],
}


# As others of their layout: only representatives train there.
ALIKE = {"credit", "blog", "digits", "breast_cancer", "synthetic", "cora", "gisette", "criteo"}


def stands_for_all(data: str, algorithm: str) -> bool:
    """Whether it is a representative, on the first data set that fits it."""
    info, known = registry.algorithms()[algorithm], registry.datasets()
    return not marks(algorithm, LEADERS) and data == next(name for name in SMALL if registry.fit(info, known[name]))


def thinned() -> Iterator[tuple[str, str]]:
    """Every method on a third of the data sets that fit it, and a representative on each that is like another one.

    What reads data is a family's, not a method's.
    """
    known, methods = registry.datasets(), sorted(registry.algorithms().items())
    for number, (name, info) in enumerate(methods):
        fitting = [data for data in SMALL if data not in ALIKE and registry.fit(info, known[data])]
        places = range(number % min(3, len(fitting)), len(fitting), 3) if fitting else ()
        yield from ((fitting[place], name) for place in places)
    for number, data in enumerate(sorted(ALIKE)):
        leading = [name for name, info in methods if not marks(name) and registry.fit(info, known[data])]
        yield data, leading[number % len(leading)]
    yield from ((data, name) for data in SMALL for name in LEADERS if stands_for_all(data, name))


PAIRS = [
    pytest.param(data, name, id=f"{data}-{name}", marks=[] if stands_for_all(data, name) else pytest.mark.slow)
    for data, name in sorted({*thinned()})
]


def test_every_data_set_and_every_method_is_tried() -> None:
    pairs = [*thinned()]
    assert {data for data, _ in pairs} == SMALL.keys()
    assert {name for _, name in pairs} == registry.algorithms().keys()


@functools.cache
def listed(data: str) -> frozenset[str]:
    """The methods that run there."""
    return frozenset(runnable([f"dataset={data}", *SMALL[data]]))


@pytest.mark.parametrize(("data", "algorithm"), PAIRS)
def test_a_listed_pair_trains_a_round_and_another_one_is_refused(data: str, algorithm: str, tmp_path: Path) -> None:
    words = [f"algorithm={algorithm}", f"dataset={data}", *SMALL[data], "rounds=1", "plot=none", "engine.threads=1"]
    if not stands_for_all(data, algorithm) and algorithm not in listed(data):
        with pytest.raises(ConfigError):
            vflbench.run([*words, f"hydra.run.dir={tmp_path / 'run'}"])
        return
    assert vflbench.run([*words, f"hydra.run.dir={tmp_path / 'run'}"]).status == "completed"


@pytest.mark.slow
def test_the_list_of_a_data_set(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.command(["list", "dataset=digits_graph"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["algorithm", "model", "divided", "between", "length"]
    assert [line.split()[0] for line in lines[1:-2]] == [
        *(
            "centralized_gnn",
            "ensemble",
            "glasu",
            "glasu_exact",
            "graph_once",
            "simulated_centralized",
            "standalone_gnn",
        ),
    ]
    assert "3 parties" in lines[2] and lines[-1].startswith("7 algorithms run on these data")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["dataset=digits_grap"], "Did you mean 'digits_graph'?"),
        (["dataset=graph_files"], "dataset.labels=null: must name a file"),
        (["seed=1"], "vflbench list takes dataset=NAME"),
    ],
)
def test_what_cannot_be_listed(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.command(["list", *words]) == 1
    assert told in capsys.readouterr().err
