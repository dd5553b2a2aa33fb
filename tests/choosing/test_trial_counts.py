"""What an unfinished search says of methods that were not tried as often: nothing, but that they were not."""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any

import pytest

from tests.choosing.made import curves, method, record
from tests.choosing.test_answer import FEW, NEVER, said
from vflbench.choosing import answer, page, trial_counts
from vflbench.choosing.halving import SLOW
from vflbench.choosing.record import Method, Record, Trial

SPACE: dict[str, Any] = {"algorithm.lr": {"low": 0.01, "high": 0.1}}
CLAIM = "o other method reached it"


def tuned(folder: Path, name: str, numbers: range, reaches: bool = False) -> Method:
    """A method without confirmation runs; each of its trials has a run."""
    made = method(folder, name, (FEW if reaches else NEVER)[:1])
    (place,), made.finals, made.space = made.finals, [], SPACE
    made.trials = [
        Trial(number, {}, place, "completed", reaches, 0.93 if reaches else 0.85, 1000.0, 9.0, 1.0, 2.0)
        for number in numbers
    ]
    made.best = 0 if made.trials else None
    return made


def stopped(methods: list[Method], status: Any, each: int) -> Record:
    found = record(methods, trials=4)
    found.status, found.trials_each = status, each
    return found


def texts(found: dict[str, Any], folder: Path) -> str:
    """All that a reader is told: the terminal, then the page."""
    return "\n".join(said(found, folder)) + html.unescape(page.to_html(found, folder))


def test_what_ended_trials_is_no_proof(tmp_path: Path) -> None:
    """Time says nothing of a method; a bound on its cost says that it is no better."""
    cut, bounded = tuned(tmp_path, "svfl", range(2)), tuned(tmp_path, "avfl", range(2))
    cut.trials[1].status, cut.trials[1].reason = "pruned", SLOW
    bounded.trials[1].status, bounded.trials[1].reason = "pruned", "it spent more than 1.5 times the least cost"
    made = record([tuned(tmp_path, "vfl", range(2), reaches=True), cut, bounded])
    made.trials_each = 2
    assert trial_counts.count(made)["ended"] == ["avfl"]
    assert trial_counts.in_words(trial_counts.count(made)) == (
        "1 method was tried less often: SVFL (2 of 2 trials, 1 cut short by the budget)."
    )
    made = record([method(tmp_path, "mtcd", FEW), bounded])
    bounded.out = "no trial reached the target"
    assert answer.answer(tmp_path, made)["sure"].endswith("No other method reached it before its trials were ended.")
    made.methods.pop()
    assert answer.answer(tmp_path, made)["sure"].endswith("No other method was tried.")


def test_a_whole_search_speaks_of_all_methods(tmp_path: Path) -> None:
    found = answer.answer(tmp_path, record([method(tmp_path, "vfl", FEW), method(tmp_path, "svfl", NEVER)]))
    assert found["sure"].endswith("seeds. No other method reached it.") and not found["tried"]["words"]
    assert found["tried"]["as_often"] == ["vfl", "svfl"] and found["tried"]["less"] == []


@pytest.mark.slow
@pytest.mark.parametrize("status", ["interrupted", "out of budget"])
def test_trials_of_an_incomplete_level_and_methods_without_one(tmp_path: Path, status: str) -> None:
    """Two complete levels, a third that has begun, one method with one trial and one without any."""
    methods = [
        tuned(tmp_path, "vfl", range(3), reaches=True), tuned(tmp_path, "svfl", range(2)),
        tuned(tmp_path, "avfl", range(1)), tuned(tmp_path, "mtcd", range(0)),
    ]  # fmt: skip
    found = answer.answer(tmp_path, stopped(methods, status, each=2))
    assert found["winner"] == "vfl" and found["tried"]["as_often"] == ["vfl", "svfl"]
    words = "2 methods were tried less often: AVFL (1 of 2 trials), MTCD (not at all)."
    assert found["tried"]["words"] == words and texts(found, tmp_path).count(words) == 2
    assert CLAIM not in texts(found, tmp_path) and "every method" not in texts(found, tmp_path)


def test_a_first_level_that_did_not_end(tmp_path: Path) -> None:
    methods = [tuned(tmp_path, "vfl", range(1), reaches=True), tuned(tmp_path, "svfl", range(0))]
    found = trial_counts.count(stopped(methods, "interrupted", each=0))
    assert found["as_often"] == ["vfl"] and [one["often"] for one in found["less"]] == ["not at all"]


@pytest.mark.parametrize("status", ["interrupted", "finals", "out of budget"])
def test_confirmation_runs_that_are_missing(tmp_path: Path, status: str) -> None:
    """The first method has all, the second one, the third none: it may well be better."""
    first, second = method(tmp_path, "vfl", FEW), method(tmp_path, "svfl", NEVER[:1])
    made = stopped([first, second, tuned(tmp_path, "avfl", range(1), reaches=True)], status, each=1)
    found = answer.answer(tmp_path, made)
    assert found["sure"].endswith("No other method was tried as often.")
    assert "SVFL (1 of 3 confirmation runs), AVFL (0 of 3 confirmation runs)" in found["tried"]["words"]
    made.methods.append(tuned(tmp_path, "mtcd", range(1)))
    made.methods[-1].out = "no trial reached the target"
    found = answer.answer(tmp_path, made)
    assert found["sure"].endswith("Of the 2 methods that were tried as often, no other method reached it.")
    assert CLAIM not in found["sure"].replace("as often, no other", "")
    made.status = "complete"  # a run that failed is a lost seed, and no missing one
    assert trial_counts.count(made)["less"] == []


def test_a_winner_that_lacks_runs_has_its_share_so_far(tmp_path: Path) -> None:
    methods = [method(tmp_path, "vfl", FEW[:1]), method(tmp_path, "svfl", curves([(3000, 1.0)]))]
    found = answer.answer(tmp_path, stopped(methods, "interrupted", each=1))
    assert found["sure"].startswith("It reached the target in 1 of 3 seeds so far. The next so far, SVFL,")


def test_nothing_is_impossible_until_all_were_tried(tmp_path: Path) -> None:
    methods = [tuned(tmp_path, "vfl", range(1)), tuned(tmp_path, "svfl", range(0))]
    made = stopped(methods, "interrupted", each=1)
    made.floor["centralised"]["validation"] = 0.85
    found = answer.answer(tmp_path, made)
    assert found["verdict"]["kind"] == "unknown" and "Nobody can" not in texts(found, tmp_path)
    assert "No method has reached the target so far." in found["sentence"]
    assert {one["why"] for one in found["demands"] if one["winner"] is None} <= {
        "none reaches the target so far", "no method here so far",
    }  # fmt: skip
    assert "1 method was tried less often: SVFL (not at all)." in said(found, tmp_path)
    made.methods.pop()
    found = answer.answer(tmp_path, made)
    assert found["verdict"]["kind"] == "nobody can" and found["sentence"].startswith("Nobody can: even all columns")


def test_a_method_without_a_space_has_one_setting_and_one_that_fails_has_no_more(tmp_path: Path) -> None:
    one, failing = tuned(tmp_path, "vfl", range(1), reaches=True), tuned(tmp_path, "svfl", range(1))
    one.space, failing.out = {}, "it fails with defaults: out of memory"
    made = record([one, failing, tuned(tmp_path, "avfl", range(4))])
    made.trials_each = 4
    assert trial_counts.count(made)["as_often"] == ["vfl", "avfl"]
    assert trial_counts.in_words(trial_counts.count(made)) == "1 method was tried less often: SVFL (1 of 4 trials)."


def test_what_reached_the_target_and_is_not_ranked_is_no_other_method(tmp_path: Path) -> None:
    found = answer.answer(
        tmp_path, record([method(tmp_path, "send_once", FEW), method(tmp_path, "vfl", FEW)], demand="labels")
    )
    assert found["winner"] == "send_once" and found["sure"].endswith("No other ranked method reached it.")
