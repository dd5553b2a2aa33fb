"""Parts of figures that the definitions of MTCD and LEASGD ask for."""

import dataclasses
import math
from types import SimpleNamespace

import pandas as pd
import pytest

from vflbench.papers import figures, measured
from vflbench.papers.claims import Claim, fixed, judge, mean_and_spread, reason
from vflbench.papers.definition import Definition, Numbers, load
from vflbench.plots.curves import Picture
from vflbench.types import DataSource


def rows(**values):
    return [
        {"a": name[0], "q": int(name[1]), "cost": value, "cost_sd": math.nan, "data_source": "real"}
        for name, value in values.items()
    ]


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


def lacking(**values):
    """Rows of which those without a value are of missing runs."""
    made = rows(**{name: math.nan if value is None else value for name, value in values.items()})
    return [
        {**row, "seeds": 0, "missing": [0], "data_source": None} if row["cost"] != row["cost"] else {**row, "seeds": 1}
        for row in made
    ]


X, Y, ALONG = {"a": "x"}, {"a": "y"}, {"along": "q", "each": ["a"]}


@pytest.mark.parametrize(
    ("table", "claim", "verdict"),
    [
        (lacking(x1=1, y1=None), {"check": "order", "of": [X, Y]}, "not testable"),
        (lacking(x1=1, x2=None, y1=2, y2=2), {"check": "order", "of": [X, Y], "each": ["q"]}, "not testable"),
        (lacking(x1=3, x2=None, y1=2, y2=2), {"check": "order", "of": [X, Y], "each": ["q"]}, "does not hold"),
        # y is none of it
        (lacking(x1=1, x2=1, y1=None), {"check": "order", "of": [{"q": 1}, {"q": 2}], "where": X}, "holds"),
        (lacking(x1=1, x2=2, x3=None), {"check": "trend", **ALONG}, "not testable"),
        (lacking(x1=1, x2=None, x3=2), {"check": "trend", **ALONG}, "not testable"),
        (lacking(x1=2, x2=None, x3=1), {"check": "trend", **ALONG}, "does not hold"),
        # 0.5 a place is allowed
        (lacking(x1=2, x2=None, x3=1), {"check": "trend", "slack": 0.6, **ALONG}, "not testable"),
        (lacking(x1=1, x2=2, x3=1, x4=None), {"check": "interior", **ALONG}, "not testable"),
        (lacking(x1=1, y1=2, y2=None), {"check": "best", "of": [X]}, "not testable"),
        (lacking(x1=3, y1=2, y2=None), {"check": "best", "of": [X]}, "does not hold"),
        (lacking(x1=3, x2=None, y1=2), {"check": "best", "of": [X]}, "not testable"),  # the missing x may be better
        (rows(x1=1, y1=2, y2=math.nan), {"check": "best", "of": [X]}, "not testable"),
        (lacking(x1=1, x2=None), {"check": "value", "at_least": 1}, "not testable"),
        (lacking(x1=0, x2=None), {"check": "value", "at_least": 1}, "does not hold"),
        (lacking(x1=1, x2=None), {"check": "value", "of": [{"q": 1}, {"q": 2}], "at_least": 1}, "not testable"),
        ([{**rows(x1=1)[0], "seeds": 1, "missing": [1, 2]}], {"check": "value", "at_least": 1}, "not testable"),
        # nothing of q = 2
        (rows(x1=1), {"check": "value", "at_least": 1, "each": ["q"], "where": {"q": [1, 2]}}, "not testable"),
        (lacking(x1=None), {"check": "value", "at_least": 1}, "not testable"),
        (rows(x1=1, x2=5), {"check": "near", "at_most": 0.1, "where": {"q": 1}}, "holds"),
        (rows(x1=1), {"check": "near", "at_most": 0.1}, "not testable"),
        (rows(x1=3), {"check": "near", "at_most": 0.1}, "does not hold"),
        (
            [{**row, "seeds": 1, "missing": [1]} for row in rows(x1=1, x2=5)],
            {"check": "near", "at_most": 0.1},
            "not testable",
        ),
        # never is not before never
        (rows(x1=math.inf, y1=math.inf), {"check": "order", "of": [X, Y]}, "not testable"),
        (rows(x1=math.inf, x2=math.inf), {"check": "trend", **ALONG}, "not testable"),
        (rows(x1=math.inf, x2=math.inf, x3=1), {"check": "trend", **ALONG}, "does not hold"),
        (rows(x1=1, x2=2, x3=math.inf), {"check": "trend", **ALONG}, "holds"),
        (rows(x1=math.inf, x2=math.inf, x3=math.inf), {"check": "interior", **ALONG}, "not testable"),
        (rows(x1=1, x2=1, x3=1), {"check": "interior", **ALONG}, "not testable"),
    ],
)
def test_what_is_missing_or_never_reached_decides_nothing(table, claim, verdict):
    made = Claim("c", column="cost", **claim)
    assert not made.problems(["a", "q"], ["cost"])
    judged = judge(made, table, [{"a": "x", "q": q, "mean": mean, "sd": None} for q, mean in ((1, 1.0), (2, 5.0))])
    assert judged.verdict == verdict, judged.why
    assert judged.why


def seeds(a, *values, column="cost", **changes):
    found = [value for value in values if math.isfinite(value)]
    row = {
        "a": a,
        "seeds": len(values),
        "diverged": 0,
        "data_source": "real",
        "by_seed": {seed: {column: v} for seed, v in enumerate(values)},
    }
    row[column], row[f"{column}_sd"] = measured.moments(values if math.inf in values else found)
    return {**row, **changes}


def test_the_difference_seed_by_seed_is_beside_the_verdict():
    claim = Claim("c", "order", column="cost", of=[X, Y])
    # differences -0.4, 0.1, -0.2: sd 0.2517, 2 SE 0.29
    close = judge(claim, [seeds("x", 1.0, 2.0, 3.0), seeds("y", 1.4, 1.9, 3.2)], [])
    assert close.verdict == "holds" and "[difference by seed -0.1667 ± 0.2517, 3 seeds, within the spread]" in close.why
    # -1, -1.1, -1, though both spread by 1
    clear = judge(claim, [seeds("x", 1.0, 2.0, 3.0), seeds("y", 2.0, 3.1, 4.0)], [])
    assert clear.verdict == "holds" and "-1.033 ± 0.058, 3 seeds]" in clear.why
    other = seeds("y", 2.0, 3.1, 4.0)
    other["by_seed"] = {seed + 1: one for seed, one in other["by_seed"].items()}
    assert "by seed" not in judge(claim, [seeds("x", 1.0, 2.0, 3.0), other], []).why
    best = judge(Claim("c", "best", column="cost", of=[X]), [seeds("x", 1.0, 2.0), seeds("y", 1.5, 2.5)], [])
    assert best.why == "a x: 1.500 ± 0.707 against a y: 2.000 ± 0.707 [difference by seed -0.5000 ± 0.0000, 2 seeds]"


def bare(a, value, sd, n=4):
    """A row as a CSV has it: without the values of seeds."""
    return {"a": a, "seeds": n, "data_source": "real", "cost": value, "cost_sd": sd}


APART = [bare("x", 5.0, 2.0), bare("y", 8.0, 2.0)]


@pytest.mark.parametrize(
    ("claim", "table", "verdict", "close"),
    [
        # a standard error of 1 for each mean: 2.83 is two of a difference's
        ({"check": "order", "of": [X, Y]}, [bare("x", 5.0, 2.0), bare("y", 7.5, 2.0)], "holds", True),
        ({"check": "order", "of": [X, Y]}, [bare("x", 5.0, 2.0), bare("y", 8.0, 2.0)], "holds", False),
        ({"check": "order", "of": [Y, X]}, [bare("x", 5.0, 2.0), bare("y", 7.5, 2.0)], "does not hold", True),
        ({"check": "order", "of": [Y, X]}, [bare("x", 5.0, 2.0), bare("y", 8.0, 2.0)], "does not hold", False),
        ({"check": "best", "of": [X]}, [bare("x", 5.0, 2.0), bare("y", 7.5, 2.0)], "holds", True),
        ({"check": "best", "of": [Y]}, [bare("x", 5.0, 2.0), bare("y", 8.0, 2.0)], "does not hold", False),
        ({"check": "value", "at_least": 3.5, "of": [X]}, [bare("x", 5.0, 2.0)], "holds", True),
        ({"check": "value", "at_least": 2.5, "of": [X]}, [bare("x", 5.0, 2.0)], "holds", False),
        # 10 - 2 * 3 = 4, of which two standard errors are 2 * sqrt(1 + 4) = 4.47
        ({"check": "ratio", "at_least": 2, "of": [X, Y]}, [bare("x", 10.0, 2.0), bare("y", 3.0, 2.0)], "holds", True),
        ({"check": "ratio", "at_least": 1, "of": [X, Y]}, [bare("x", 10.0, 2.0), bare("y", 3.0, 2.0)], "holds", False),
        ({"check": "difference", "at_most": -1.0, "of": [X, Y]}, APART, "holds", True),
        ({"check": "difference", "at_most": 1.0, "of": [X, Y]}, APART, "holds", False),
        # the same values: their difference has no spread
        ({"check": "difference", "at_least": -0.1, "of": [X, Y]}, [APART[0], bare("y", 5.0, 2.0)], "holds", False),
        # one seed has none either
        ({"check": "order", "of": [X, Y]}, [bare("x", 5.0, math.nan, 1), bare("y", 5.1, math.nan, 1)], "holds", False),
    ],
)  # fmt: skip
def test_a_verdict_is_close_where_other_seeds_might_turn_it(claim, table, verdict, close):
    judged = judge(Claim("c", column="cost", **claim), table, [])
    assert (judged.verdict, judged.close) == (verdict, close)
    assert reason(judged) == judged.why + " (close: other seeds might turn it)" * close


def test_a_clear_failure_is_not_close_whatever_else_is():
    table = [bare("x", 5.0, 2.0), bare("y", 4.9, 2.0), bare("z", 0.0, 2.0)]
    failed = judge(Claim("c", "order", column="cost", of=[X, Y, {"a": "z"}]), table, [])
    assert failed.verdict == "does not hold" and not failed.close


@pytest.mark.parametrize(
    ("claim", "table", "close"),
    [
        # what fails for certain is no close failure, whatever else fails
        ({"check": "value", "at_least": 4.0}, [bare("x", 1.0, 0.0), bare("y", 3.9, 2.0)], False),
        # every rival may be the better one, not only the nearest by its mean
        ({"check": "best", "of": [X]}, [bare("x", 5.0, 0.2), bare("y", 6.0, 0.2), bare("z", 7.0, 40.0)], True),
        ({"check": "best", "of": [X]}, [bare("x", 5.0, 0.02), bare("y", 4.0, 10.0), bare("z", 4.5, 0.02)], False),
        # one seed of three decides that the target is not reached
        ({"check": "order", "of": [X, Y]}, [seeds("x", 1.0, 1.1, 0.9), seeds("y", 2.0, 2.1, math.inf)], True),
        ({"check": "order", "of": [Y, X]}, [seeds("x", 1.0, 1.1, 0.9), seeds("y", 2.0, 2.1, math.inf)], True),
        ({"check": "order", "of": [X, Y]}, [seeds("x", 1.0, 1.1, 0.9), seeds("y", math.inf, math.inf)], False),
        # falling, along a key, and with the slack
        ({"check": "trend", "along": "a", "falling": True}, [bare(1, 5.0, 2.0), bare(2, 1.0, 2.0)], False),
        ({"check": "trend", "along": "a", "falling": True}, [bare(1, 5.0, 2.0), bare(2, 4.0, 2.0)], True),
        ({"check": "trend", "along": "a", "slack": 4.0}, [bare(1, 5.0, 2.0), bare(2, 4.5, 2.0)], False),
        ({"check": "interior", "along": "a"}, [bare(1, 1.0, 2.0), bare(2, 5.0, 2.0), bare(3, 1.5, 2.0)], False),
        ({"check": "interior", "along": "a"}, [bare(1, 1.0, 2.0), bare(2, 5.0, 2.0), bare(3, 4.5, 2.0)], True),
    ],
)
def test_what_makes_a_verdict_close(claim, table, close):
    assert judge(Claim("c", column="cost", **claim), table, []).close == close


def test_values_of_seeds_say_more_than_spreads():
    claim = Claim("c", "order", column="cost", of=[X, Y])
    assert not judge(claim, [seeds("x", 1.0, 2.0, 3.0), seeds("y", 2.0, 3.1, 4.0)], []).close
    assert judge(claim, [seeds("x", 1.0, 2.0, 3.0), seeds("y", 1.4, 1.9, 3.2)], []).close


def test_what_diverged_or_reached_the_target_in_part_is_told():
    diverged = seeds("y", 0.1, 0.2, math.nan, diverged=1)
    why = judge(Claim("c", "order", column="cost", of=[X, Y]), [seeds("x", 0.1, 0.1, 0.1), diverged], []).why
    assert "y: 0.1500 ± 0.0707 (2 of 3 seeds) (1 diverged)" in why
    assert mean_and_spread(seeds("x", 1.0, math.inf, 2.0), "cost") == "reached by 2 of 3"
    assert mean_and_spread(seeds("x", math.inf, math.inf), "cost") == "never reached"


@pytest.mark.parametrize(
    ("value", "sd", "text"),
    [
        *[
            (649.8, 139.6, "649.8 ± 139.6"),
            (15731.4, 2214.0, "15731 ± 2214"),
            (65.45, 0.0, "65.45 ± 0.00"),
            (0.0, 0.0, "0 ± 0"),
        ],
        *[
            (0.0004, 0.01, "0.00040 ± 0.01000"),
            (2e-7, 3e-8, "2e-07 ± 3e-08"),
            (0.5, math.nan, "0.5"),
            (459.1, math.nan, "459.1"),
        ],
        *[(15730.0, math.nan, "15730"), (-0.1667, math.nan, "-0.1667"), (0.0, math.nan, "0")],
    ],
)
def test_numbers_are_in_fixed_notation(value, sd, text):
    assert fixed(value, sd) == text


def test_a_page_names_settings_and_tells_of_missing_and_diverged_runs(make_run, tmp_path):
    def job(seed, lr, status="completed", there=True):
        run = make_run(f"{seed}_{lr}", seed=seed, options={"lr": lr}, status=status, level=lambda t: 0.5 + seed / 100)
        return SimpleNamespace(
            values=run.manifest["config"],
            run=run if there else None,
            failure="" if there else "broke",
            label="l",
            fresh=True,
        )

    jobs = [job(0, 1), job(1, 1), job(2, 1, "diverged"), job(0, 2), job(1, 2, there=False), job(0, 3, there=False)]
    key = "algorithm.lr"
    claim = Claim("2 is as good", "difference", of=[{key: 1}, {key: 2}], at_most=1.0)
    numbers = [Numbers("p", [key], {1: 0.5}, column="selected")]
    target = {"accuracy": {"cora": 0.505, "pubmed": 0.82}}
    made = Definition(
        "t",
        "s",
        [],
        [key],
        [Picture("values", key, lines=[])],
        target,
        numbers,
        [claim],
        name="glasu/x",
        names={key: {"1": "slow", "2": "fast"}},
    )
    done = figures.make(made, jobs, "small", tmp_path / "out", [])
    text = (done.folder / "page.md").read_text()
    assert done.verdicts == {"not testable": 1} and "missing: fast seed 1" in text
    assert "| slow | selected | 0.5 | 0.5100 ± 0.0100 | 3, 1 diverged |" in text
    assert "| fast | 1, 1 missing |" in text and "Target: accuracy 0.505 (Cora), 0.82 (PubMed)." in text
    table = (done.folder / "table.csv").read_text()
    assert "by_seed" not in table and len(table.splitlines()) == 3  # a setting without any run is none of the table's


def test_a_page_of_made_up_data_says_which_claims_are_judged(make_run, tmp_path):
    run = make_run("0", source=DataSource("synthetic"))
    job = SimpleNamespace(values=run.manifest["config"], run=run, failure="", label="l", fresh=True)
    pictures, sizes = (
        [Picture("values", "seed", lines=[])],
        Claim("c", "value", column="megabytes", at_least=1.0, made_up=True),
    )
    for claim, judged in ((sizes, True), (dataclasses.replace(sizes, made_up=False), False)):
        done = figures.make(
            Definition("t", "s", [], ["seed"], pictures, claims=[claim], name="glasu/x"),
            [job],
            "small",
            tmp_path / "out",
            [],
        )
        text = (done.folder / "page.md").read_text()
        assert "Made-up data" in text and ("depend only on sizes" in text) is judged
        assert ("holds" if judged else "not testable") in done.verdicts


@pytest.mark.parametrize(
    ("figure", "text", "own", "rival", "column", "falling"),
    [
        ("table4", "averaging at the end only costs most of all", "never", "every_epoch", "selected", False),
        ("table4", "the same on Energy", "never", "every_epoch", "selected", True),
        ("table9", "PubSub-VFL uses the cores best", "pubsub_vfl", "vfl", "utilisation", True),
        ("fig3", "PubSub-VFL sends the least until the target", "pubsub_vfl", "vfl", "megabytes_to_target", False),
        (
            "fig4",
            "PubSub-VFL is the fastest for every division of the cores",
            "pubsub_vfl",
            "vfl_ps",
            "running_seconds",
            False,
        ),
    ],
)
def test_the_best_of_all_is_compared_with_all(figure, text, own, rival, column, falling):
    """Two settings beside the claim's own, of which the less usual one decides; the rivals' order among themselves is
    nothing to it."""
    (claim,) = (
        dataclasses.replace(claim, model="") for claim in load(f"pubsub_vfl/{figure}").claims if claim.claim == text
    )
    key = "algorithm.aggregation" if figure == "table4" else "algorithm.name"
    usual = "semi_async" if figure == "table4" else "avfl_ps"
    common = {"data_source": "real", "compute.cores": "[50, 14]", **claim.where}

    def verdict(**values):
        return judge(
            claim, [{**common, key: name, column: -value if falling else value} for name, value in values.items()], []
        ).verdict

    assert verdict(**{own: 1.0, usual: 3.0, rival: 2.0}) == verdict(**{own: 1.0, usual: 2.0, rival: 3.0}) == "holds"
    assert verdict(**{own: 1.0, usual: 3.0, rival: 0.5}) == "does not hold"


def test_best_needs_a_setting_and_a_ratio_only_two():
    assert Claim("c", "best", column="cost").problems(["a"], ["cost"])
    assert Claim("c", "ratio", column="cost", of=[{"a": "x"}] * 4, at_most=1).problems(["a"], ["cost"])


@pytest.fixture
def run():
    curve = {
        "iterations": [10, 20, 30],
        "vectors": [1, 2, 3],
        "bytes": [4, 8, 12],
        "cost": [4, 8, 12],
        "epsilon": [math.nan] * 3,
    }
    curve |= {"communication_seconds": [0.1, 0.2, 0.3], "virtual_seconds": [0.1, 0.2, 0.3]}
    curve |= {"train_loss": [0.9, 0.4, 0.2], "val_accuracy": [0.5, 0.6, 0.7], "test_accuracy": [0.5, 0.6, 0.7]}
    summary = {
        "metric": {"name": "accuracy", "goal": "max", "selected": None, "final": 0.7},
        "bytes": {"total": 12},
        "privacy": {"epsilon": None},
    }
    summary |= dict.fromkeys(
        ("epochs", "messages", "vectors", "cost", "communication_seconds", "wall_seconds", "virtual_seconds"), 1
    )
    summary["idle_seconds"] = None
    manifest = {"config": {"target": 0.7, "dataset": {"name": "mnist"}}}
    return SimpleNamespace(summary=summary, curve=pd.DataFrame(curve), manifest=manifest)


@pytest.mark.parametrize(
    ("targets", "iterations"),
    [
        ({}, 30),
        ({"accuracy": 0.6}, 20),
        ({"accuracy": {"mnist": 0.5}}, 10),
        ({"accuracy": {"cora": 0.5}}, 30),
        ({"train_loss": 0.4}, 20),
    ],
)
def test_the_figures_target_comes_before_the_runs(run, targets, iterations):
    found = measured.numbers(run, targets)
    assert (found["updates_to_target"], found["train_loss"]) == (iterations, 0.2)
    assert math.isinf(measured.numbers(run, {"train_loss": 0.1})["updates_to_target"])


def test_a_line_is_named_by_what_tells_it_apart():
    table = [
        {"algorithm.name": a, "algorithm.hops": hops}
        for a, hops in (("mtcd", 2), ("mtcd", 8), ("stcd", 100), ("svfl", "-"))
    ]
    picture = Picture("values", "algorithm.hops", lines=["algorithm.name", "algorithm.hops"])
    definition = Definition("t", "s", [], ["algorithm.name", "algorithm.hops"], [])
    shortened = figures._without_shared_keys(table, Picture("curves", "cost", lines=picture.lines), definition)
    assert [shortened(row)["algorithm.hops"] for row in table] == [2, 8, "-", "-"]
    assert [
        figures._without_shared_keys(table, picture, definition)(row) for row in table
    ] == table  # the axis keeps its values
    only = [row for row in table if row["algorithm.name"] == "stcd"]
    assert (
        figures._without_shared_keys(only, Picture("curves", "cost", lines=picture.lines), definition)(only[0])
        == only[0]
    )
