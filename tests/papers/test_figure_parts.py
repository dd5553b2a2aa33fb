"""Parts of figures that the definitions of MTCD and LEASGD ask for."""

import math
from types import SimpleNamespace

import pandas as pd
import pytest

from vflbench.papers import figures, measured
from vflbench.papers.claims import Claim, judge
from vflbench.papers.definition import Definition, Picture


def rows(**values):
    return [{"a": name[0], "q": int(name[1]), "cost": value, "cost_sd": math.nan, "data_source": "real"} for name, value in values.items()]


@pytest.mark.parametrize(
    ("table", "claim", "verdict"),
    [
        (rows(x1=3, x2=1, y1=2), {"check": "best", "of": [{"a": "x"}]}, "holds"),
        (rows(x1=3, x2=2, y1=2), {"check": "best", "of": [{"a": "x"}]}, "does not hold"),  # a tie is not better
        (rows(x1=3, x2=1, y1=2), {"check": "best", "of": [{"a": "x"}], "falling": True}, "holds"),
        (rows(x1=3, x2=1, y1=4), {"check": "best", "of": [{"a": "x"}], "falling": True}, "does not hold"),
        (rows(x1=math.inf, y1=math.inf), {"check": "best", "of": [{"a": "x"}]}, "not testable"),
        (rows(x1=1), {"check": "best", "of": [{"a": "x"}]}, "not testable"),
        # x loses 3 from 1 to 2, y loses 1
        (
            rows(x1=5, x2=2, y1=4, y2=3),
            {"check": "difference", "of": [{"a": a, "q": q} for a in "xy" for q in (1, 2)], "at_most": 2.0},
            "holds",
        ),
        (
            rows(x1=5, x2=2, y1=4, y2=3),
            {"check": "difference", "of": [{"a": a, "q": q} for a in "xy" for q in (1, 2)], "at_most": 1.9},
            "does not hold",
        ),
    ],
)
def test_verdicts(table, claim, verdict):
    made = Claim("c", column="cost", **claim)
    assert not made.problems(["a", "q"], ["cost"])
    assert judge(made, table, []).verdict == verdict


def test_best_needs_a_setting_and_a_ratio_only_two():
    assert Claim("c", "best", column="cost").problems(["a"], ["cost"])
    assert Claim("c", "ratio", column="cost", of=[{"a": "x"}] * 4, at_most=1).problems(["a"], ["cost"])


@pytest.fixture
def run():
    curve = {"iterations": [10, 20, 30], "vectors": [1, 2, 3], "bytes": [4, 8, 12], "cost": [4, 8, 12], "epsilon": [math.nan] * 3}
    curve |= {"communication_seconds": [0.1, 0.2, 0.3], "virtual_seconds": [0.1, 0.2, 0.3]}
    curve |= {"train_loss": [0.9, 0.4, 0.2], "val_accuracy": [0.5, 0.6, 0.7], "test_accuracy": [0.5, 0.6, 0.7]}
    summary = {
        "metric": {"name": "accuracy", "goal": "max", "selected": None, "final": 0.7},
        "bytes": {"total": 12},
        "privacy": {"epsilon": None},
    }
    summary |= dict.fromkeys(("epochs", "messages", "vectors", "cost", "communication_seconds", "wall_seconds", "virtual_seconds"), 1)
    manifest = {"config": {"target": 0.7, "dataset": {"name": "mnist"}}}
    return SimpleNamespace(summary=summary, curve=pd.DataFrame(curve), manifest=manifest)


@pytest.mark.parametrize(
    ("targets", "iterations"),
    [({}, 30), ({"accuracy": 0.6}, 20), ({"accuracy": {"mnist": 0.5}}, 10), ({"accuracy": {"cora": 0.5}}, 30), ({"train_loss": 0.4}, 20)],
)
def test_the_figures_target_comes_before_the_runs(run, targets, iterations):
    found = measured.numbers(run, targets)
    assert (found["updates_to_target"], found["train_loss"]) == (iterations, 0.2)
    assert math.isinf(measured.numbers(run, {"train_loss": 0.1})["updates_to_target"])


def test_a_line_is_named_by_what_tells_it_apart():
    table = [{"algorithm.name": a, "algorithm.hops": hops} for a, hops in (("mtcd", 2), ("mtcd", 8), ("stcd", 100), ("svfl", "-"))]
    picture = Picture("values", "algorithm.hops", lines=["algorithm.name", "algorithm.hops"])
    definition = Definition("t", "s", [], ["algorithm.name", "algorithm.hops"], [])
    telling = figures._telling(table, Picture("curves", "cost", lines=picture.lines), definition)
    assert [telling(row)["algorithm.hops"] for row in table] == [2, 8, "-", "-"]
    assert [figures._telling(table, picture, definition)(row) for row in table] == table  # the axis keeps its values
    only = [row for row in table if row["algorithm.name"] == "stcd"]
    assert figures._telling(only, Picture("curves", "cost", lines=picture.lines), definition)(only[0]) == only[0]
