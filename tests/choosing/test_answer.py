"""The answer of hand-made records whose winner is known."""

from __future__ import annotations

import html
import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from scipy import stats

from tests.choosing.made import curves, method, record
from vflbench import exposure
from vflbench.choosing import answer, baselines, commands, page, terminal
from vflbench.choosing.commands import written
from vflbench.choosing.record import Excluded, Method, Trial
from vflbench.choosing.search import missed
from vflbench.results.compare import paired
from vflbench.types import VflbenchError

CONCEPT = Path(__file__).parents[2] / "docs/concepts/choosing.md"
FEW = curves([(1000, 9.0), (1010, 9.1), (1020, 9.2)])  # few bytes, but slow
FAST = curves([(3000, 1.0), (3010, 1.1), (3020, 1.2)])
SAME = curves([(1005, 9.0), (1000, 9.2), (1030, 9.1)])  # as FEW, but for chance
NEVER = curves([(500, 0.1)] * 3, last=0.85)


def said(found: dict[str, Any], folder: Path) -> list[str]:
    return [text for text, _ in terminal.lines(found, folder)]


@pytest.mark.parametrize(("cost", "first"), [("bytes", "vfl"), ("seconds", "svfl"), ("weighted", "vfl")])
def test_what_counts_decides_who_wins(tmp_path: Path, cost: str, first: str) -> None:
    made = record([method(tmp_path, "vfl", FEW), method(tmp_path, "svfl", FAST)], cost=cost)
    found = answer.answer(tmp_path, made)
    assert found["winner"] == first and found["reached"] and len(found["next"]) == 1
    row = found["methods"][0]
    assert (
        row["place"] == 1
        and row["reached"] == row["of"] == 3
        and row["bytes"] == pytest.approx(stats.gmean([1000, 1010, 1020] if first == "vfl" else [3000, 3010, 3020]))
    )
    assert row["test"] == pytest.approx(0.92) and row["test_sd"] == pytest.approx(0)
    assert all((tmp_path / place / "summary.json").is_file() for place in row["runs"])
    expected = "vflbench algorithm=vfl dataset=breast_cancer algorithm.learning_rate=0.1 algorithm.batch_size=32 "
    expected += "target=0.9 seed=0"
    assert row["command"] == expected.replace("=vfl", f"={first}")
    assert " times as much (95 %" in found["sure"] and found["tuning"]["bytes"] == 14


def test_what_is_said_to_be_typed_is_complete(tmp_path: Path) -> None:
    """The command that trains, that which asks again, and what makes a stopped search go on."""
    made = record([method(tmp_path, "vfl", FEW)], config_dir="my options", demand="forms", algorithms=["vfl", "svfl"])
    made.status = "out of budget"
    found = answer.answer(tmp_path, made)
    assert found["methods"][0]["command"].startswith("vflbench --config-dir 'my options' algorithm=vfl ")
    asked = commands.choose_command(found["question"])
    assert asked.startswith("vflbench choose --config-dir 'my options' dataset=breast_cancer target=0.9 cost=bytes ")
    assert asked.endswith("demand=forms seed=0 trials=2 algorithm=vfl,svfl budget=60s")
    assert asked in html.unescape(page.to_html(found, tmp_path))
    assert "resume=true and a larger budget" in said(found, tmp_path)[0]


def test_the_interval_is_students_over_pairs() -> None:
    rng = np.random.default_rng(0)
    a, b = np.exp(rng.normal(size=(2, 5)))
    found = paired(dict(enumerate(a)), dict(enumerate(b)))
    difference = np.log(b) - np.log(a)
    low, high = stats.t.interval(0.95, 4, difference.mean(), stats.sem(difference))
    assert found is not None and (found.low, found.high) == pytest.approx((math.exp(low), math.exp(high)))
    assert paired({0: 1.0, 1: 2.0}, {1: 3.0}) is None
    zeros = paired({0: 0.0, 1: 0.0}, {0: 0.0, 1: 0.0})
    assert zeros is not None and zeros.tie and not zeros.ratio


def test_a_tie_is_said(tmp_path: Path) -> None:
    found = answer.answer(tmp_path, record([method(tmp_path, "vfl", FEW), method(tmp_path, "svfl", SAME)]))
    assert found["methods"][1]["behind"]["tie"] and "a tie with SVFL" in found["sure"]


def test_seeds_that_agree_have_no_interval(tmp_path: Path) -> None:
    alike = [method(tmp_path, "vfl", curves([(1000, 9.0)] * 3)), method(tmp_path, "svfl", curves([(3000, 1.0)] * 3))]
    assert answer.answer(tmp_path, record(alike))["sure"].endswith("takes 3 times as much (with each of 3 seeds).")
    near = curves([(300000, 1.0), (300001, 1.0), (300000, 1.0)])
    other = [method(tmp_path, "mtcd", curves([(100000, 9.0)] * 3)), method(tmp_path, "avfl", near)]
    assert answer.answer(tmp_path, record(other))["sure"].endswith("takes 3 times as much (95 %: 3 to 3, 3 seeds).")


def test_the_share_of_seeds_comes_first(tmp_path: Path) -> None:
    lucky = [*curves([(10, 0.1)]), *curves([(10, 0.1)] * 2, last=0.85)]
    found = answer.answer(tmp_path, record([method(tmp_path, "vfl", lucky), method(tmp_path, "svfl", FAST)]))
    assert found["winner"] == "svfl" and found["methods"][1]["reached"] == 1
    assert "reached it in 1" in found["sure"]


@pytest.mark.slow
def test_nothing_reaches_the_target(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = record([method(tmp_path, "vfl", NEVER), method(tmp_path, "svfl", curves([(9, 9.0)] * 3, last=0.87))])
    assert answer.finish(tmp_path, made) == 2
    found = json.loads((tmp_path / "answer.json").read_text())
    assert found["winner"] is None and found["closest"]["name"] == "svfl" and not found["reached"]
    assert "SVFL came closest: accuracy 0.87 where 0.9 was asked" in capsys.readouterr().out
    made.floor["centralised"]["validation"] = 0.89
    assert answer.answer(tmp_path, made)["sentence"].startswith("Nobody can: even all columns in one place")


def test_of_a_method_that_missed_the_target_trials_that_were_ended_are_told() -> None:
    one = Trial(0, {}, "trials/0", "completed", False, 0.8, 1e6, None, 0.0, 1.0)
    two = replace(one, number=1, status="budget", metric=0.7)
    assert missed([one], one).endswith("value is 0.8")
    assert missed([one, two], one).endswith("value is 0.8; 1 of 2 trials had been ended")


def test_the_label_owner_alone_is_enough(tmp_path: Path) -> None:
    made = record([method(tmp_path, "vfl", FEW)])
    made.floor["alone"]["validation"] = 0.91
    found = answer.answer(tmp_path, made)
    assert found["sentence"].startswith("No federation is needed") and found["reached"]
    assert "If you want one all the same, use VFL" in found["sentence"]
    alone = record([])  # the search may have stopped there
    alone.floor["alone"]["validation"] = 0.91
    assert answer.answer(tmp_path, alone)["reached"]


def noised(covers: str, epsilon: float) -> dict[str, Any]:
    mechanism = "gdp_embedding" if covers == "transcript" else "label_rr"
    return {"mechanism": mechanism, "epsilon": epsilon, "delta": 1e-5, "unit": "row", "neighbouring": "replace_one"} | {
        "covers": covers
    }


def test_guarantees_of_several_kinds_are_not_ranked_together(tmp_path: Path) -> None:
    cheap = method(tmp_path, "avfl", curves([(10, 0.1)] * 3), noised("model", 3.0))
    dear = method(tmp_path, "vfl", FEW, noised("transcript", 3.9))
    weak, none = method(tmp_path, "vfl_ps", FEW, noised("transcript", 5.0)), method(tmp_path, "svfl", FAST)
    found = answer.answer(tmp_path, record([cheap, dear, weak, none], epsilon=4.0))
    assert found["winner"] == "vfl · gdp_embedding"
    why = {row["algorithm"]: row["why"] for row in found["methods"]}
    assert why["vfl"] is None and "of another kind, and is not compared" in why["avfl"]
    assert why["vfl_ps"] == "its epsilon, 5, is above 4" and why["svfl"] == "it has no epsilon"
    assert [(one["name"], one["reached"]) for one in found["kinds"]] == [
        ("vfl · gdp_embedding", 3),
        ("avfl · label_rr", 3),
    ]
    assert any(line.startswith("With another guarantee, not compared: AVFL") for line in said(found, tmp_path))
    row = found["methods"][0]
    assert row["epsilon"] == 3.9 and "covers the transcript" in row["guarantee"]


def test_of_kinds_that_cover_as_much_that_which_takes_least_gives_the_answer(tmp_path: Path) -> None:
    """However many methods another kind has; and demands are first asked of its methods."""
    two = [method(tmp_path, name, FEW, noised("transcript", 3.0)) for name in ("vfl", "vfl_ps")]
    other = noised("transcript", 3.0) | {"mechanism": "gaussian_gradient", "unit": "one gradient row"}
    cheap = method(tmp_path, "avfl", curves([(10, 0.1)] * 3), other)
    found = answer.answer(tmp_path, record([*two, cheap], epsilon=4.0))
    assert next(one["name"] for one in found["kinds"]) == found["winner"] == found["demands"][0]["winner"]
    assert found["winner"].startswith("avfl")


def test_kinds_are_apart_without_an_epsilon_too(tmp_path: Path) -> None:
    other = noised("transcript", 3.0) | {"mechanism": "gaussian_gradient", "unit": "one gradient row"}
    made = [method(tmp_path, "vfl", FEW, other), method(tmp_path, "avfl", FAST, noised("transcript", 3.0))]
    found = answer.answer(tmp_path, record(made))
    assert len(found["kinds"]) == 2 and [row["place"] for row in found["methods"]] == [1, None]


def test_nobody_can_is_not_said_where_a_method_has_more_than_all_columns_gave() -> None:
    lines = [
        {"name": "alone", "validation": 0.7, "test": 0.7, "reaches": False},
        {"name": "centralised", "validation": 0.8, "test": 0.8, "reaches": False},
    ]
    for best, kind in ((None, "nobody can"), (0.79, "nobody can"), (0.85, "needed")):
        assert baselines.verdict(lines, 0.9, "max", "accuracy", best)["kind"] == kind
    for best, kind in ((0.85, "nobody can"), (0.79, "needed")):
        assert baselines.verdict(lines, 0.6, "min", "rmse", best)["kind"] == kind


def test_what_others_may_see(tmp_path: Path) -> None:
    made = [method(tmp_path, "send_once", curves([(10, 0.1)] * 3)), method(tmp_path, "vfl", FEW)]
    found = answer.answer(tmp_path, record(made))
    best = {one["others_may_see"]: one["winner"] for one in found["demands"]}
    assert best["anything"] == best["no raw columns, no labels"] == "send_once"
    assert best["no columns in any form, no labels"] is None  # gradients tell labels
    assert "Best without sharing columns in any form, or labels: no method here" in said(found, tmp_path)
    assert [line["name"] for line in found["floor"]] == ["ship_it", "alone", "centralised", "send_once"]
    found = answer.answer(tmp_path, record(made, demand="labels"))
    assert found["winner"] == "send_once" and found["methods"][1]["why"] == "it shows labels"
    found = answer.answer(tmp_path, record(made, demand="forms"))
    assert found["winner"] is None and {row["why"] for row in found["methods"]} == {
        "it shows binned",
        "it shows labels",
    }
    with pytest.raises(VflbenchError, match="no privacy requirement 'secret'"):
        answer.answer(tmp_path, record(made, demand="secret"))


@pytest.mark.slow
def test_an_unverified_method_meets_no_requirement_and_is_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exposure, "unverified", lambda name: name == "send_once")
    made = [method(tmp_path, "send_once", curves([(10, 0.1)] * 3)), method(tmp_path, "hetero_lr", FEW)]
    found = answer.answer(tmp_path, record(made))
    assert found["winner"] == "send_once" and found["unverified"] == ["Send once"]
    assert found["methods"][0]["others_see"] == "binned columns (unverified)"
    by_key = {one["key"]: (one["winner"], one["unverified"]) for one in found["demands"]}
    assert by_key["anything"] == ("send_once", []) and by_key["labels"] == (None, ["Send once"])
    assert by_key["forms"] == (None, [])  # it would not meet this one anyway
    assert any(
        line.startswith("Unverified, so under no privacy requirement: Send once") for line in said(found, tmp_path)
    )
    assert "no method here; unverified: Send once" in page.to_html(found, tmp_path)
    asked = record(made, demand="labels")
    asked.excluded.append(Excluded("ensemble", None, exposure.UNVERIFIED))
    found = answer.answer(tmp_path, asked)
    assert found["winner"] is None and found["unverified"] == ["Send once", "Ensemble"]
    assert next(row["why"] for row in found["methods"] if row["name"] == "send_once") == exposure.UNVERIFIED


def test_what_is_sent_once_is_in_the_floor_whatever_became_of_it(tmp_path: Path) -> None:
    """Of a graph it has another name, and without a final its best trial counts."""
    once, vfl = method(tmp_path, "graph_once", curves([(10, 0.1)] * 3)), method(tmp_path, "vfl", FEW)
    line = answer.answer(tmp_path, record([vfl, once]))["floor"][-1]
    assert (line["name"], line["bytes"], line["reaches"]) == ("send_once", 10, True)
    once.finals, once.out = [], "the target was not reached"
    once.trials[0].metric, once.trials[0].bytes = 0.8, 20.0
    line = answer.answer(tmp_path, record([vfl, once]))["floor"][-1]
    assert (line["label"], line["validation"], line["bytes"]) == ("Graph once", 0.8, 20.0)
    assert line["reaches"] is False and "without a confirmation run" in line["note"]
    assert "Graph once 0.8" in " ".join(said(answer.answer(tmp_path, record([vfl, once])), tmp_path))


def test_an_easier_target_may_have_another_winner(tmp_path: Path) -> None:
    early = [[(10, 0.1, 0.85), (9000, 9.0, 0.93)]] * 3
    found = answer.answer(tmp_path, record([method(tmp_path, "vfl", FEW), method(tmp_path, "svfl", early)]))
    assert [one["winner"] for one in found["targets"]] == ["svfl", "vfl"] or found["targets"][-1]["to"] == 0.9
    assert found["targets"][-1]["winner"] == "vfl" and "svfl" in [one["winner"] for one in found["targets"]]


def test_a_search_without_finals_answers_by_its_trials(tmp_path: Path) -> None:
    made = method(tmp_path, "vfl", FEW)
    made.finals, status = [], record([made])
    status.status = "interrupted"
    found = answer.answer(tmp_path, status)
    assert found["winner"] == "vfl" and found["methods"][0]["basis"] == "tuning"
    assert "no confirmation runs" in found["sure"]
    assert said(found, tmp_path)[0].startswith("Not finished (interrupted)")
    assert (
        said(found, tmp_path)[1] == f"Missing: {'; '.join(found['missing'])}."
        and "all confirmation runs" in found["missing"]
    )
    made.trials, made.best = [], None  # it was stopped before its first trial had ended
    found = answer.write(tmp_path, status)
    assert found["winner"] is None and found["floor"] and "any trial of vfl" in found["missing"]
    assert "Missing: any trial of vfl" in (tmp_path / found["page"]).read_text()


@pytest.mark.slow
def test_what_the_budget_left_out_is_said_beside_the_answer(tmp_path: Path) -> None:
    made = record([method(tmp_path, "vfl", FEW)], budget_seconds=5.0)
    made.notes = ["svfl has no key to search", "the budget ended before every method was tried once: svfl was not"]
    found = answer.answer(tmp_path, made)
    told = "The budget ended before every method was tried once: svfl was not."
    assert said(found, tmp_path)[0] == told and said(found, tmp_path)[1].startswith("Use VFL")
    assert page.to_html(found, tmp_path).index(told) < page.to_html(found, tmp_path).index('id="answer"')


def test_a_failed_final_is_a_lost_seed(tmp_path: Path) -> None:
    lost = method(tmp_path, "vfl", FEW)
    summary = tmp_path / lost.finals[2] / "summary.json"
    summary.write_text(json.dumps({**json.loads(summary.read_text()), "status": "failed", "reason": "out of memory"}))
    found = answer.answer(tmp_path, record([lost, method(tmp_path, "svfl", FAST)]))
    assert found["winner"] == "svfl" and found["methods"][1]["reached"] == 2
    assert any("out of memory" in note for note in found["notes"])


def test_the_terminal_says_it_in_25_lines(tmp_path: Path) -> None:
    made = record([method(tmp_path, name, FEW) for name in ("vfl", "svfl", "avfl", "send_once")])
    for one in made.methods:
        run = tmp_path / one.finals[0] / "summary.json"
        run.write_text(json.dumps({**json.loads(run.read_text()), "data_source": "synthetic"}))
    found = answer.answer(tmp_path, made)
    lines = said(found, tmp_path)
    assert len(lines) <= terminal.MOST and lines[0].startswith("SYNTHETIC DATA")
    assert lines[1].startswith("Use ") and lines[3].startswith("vflbench algorithm=")
    assert sum(line.startswith("Next: ") for line in lines) == 2 and lines[-1].endswith("answer.html")
    with (tmp_path / "out").open("w") as file:
        terminal.show(found, tmp_path, Console(file=file, highlight=False))
    assert (tmp_path / "out").read_text().splitlines() == lines


def keys(value: Any, path: str = "") -> set[str]:
    """Every key of an answer; maps by method, of values, and the question are one key."""
    if isinstance(value, dict) and path not in ("question", "methods[].values", "map.cells[][].seconds"):
        if path == "tuning.timeline[].values":
            return set()
        return {
            full for key, item in value.items() for name in [f"{path}.{key}" if path else key]
            for full in {name, *keys(item, name)}
        }  # fmt: skip
    return {full for item in value for full in keys(item, f"{path}[]")} if isinstance(value, list) else set()


def test_every_key_is_documented(tmp_path: Path) -> None:
    made = record([method(tmp_path, "vfl", FEW), method(tmp_path, "svfl", FAST)])
    lost = method(tmp_path, "avfl", NEVER)
    lost.out, lost.finals = "no trial reached the target", []
    made.methods += [lost, Method("mtcd", "none", [], {}, out="the budget ended before it was tried")]
    found = answer.answer(tmp_path, made) | {"excluded": [{"name": "GLASU", "why": "needs a graph"}]}
    private = method(tmp_path / "b", "vfl", NEVER, noised("transcript", 3.0))
    nobody = answer.answer(tmp_path / "b", record([private], epsilon=4.0))
    cell = {"winner": "vfl", "tie": False, "seconds": {"vfl": 1.0}}
    found["map"] |= {"cells": [[cell]], "words": [{"words": "below 3 ms VFL", "name": "vfl"}]}
    schema = CONCEPT.read_text(encoding="utf-8").partition("## answer.json")[2]
    documented = set(re.findall(r"^\| `([^`]+)` \|", schema, re.M))
    assert keys(found) | keys(nobody) == documented


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0.1, "0.1"), (True, "true"), (None, "null"), ([1, 2], "[1,2]"), ("int8", "int8"), ("1", "'1'"), ("a b", "'a b'"),
     ("it's", r"'it\'s'"), ("null", "'null'")],
)  # fmt: skip
def test_values_are_written_as_hydra_reads_them(value: Any, expected: str) -> None:
    from hydra.core.override_parser.overrides_parser import OverridesParser

    assert written(value) == expected
    assert OverridesParser.create().parse_override(f"key={expected}").value() == value
