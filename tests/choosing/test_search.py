"""The search: what it ranks, bounds, halves and widens; and that a stopped one ends as one that never stopped."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from vflbench import cli, config
from vflbench.choosing import disclosure, halving, spaces, trial_ranking
from vflbench.choosing.confirmation import Confirmation
from vflbench.choosing.halving import Halving
from vflbench.choosing.levels import Levels
from vflbench.choosing.question import parse
from vflbench.choosing.record import FILE, Method, Record, Trial
from vflbench.choosing.search import Search
from vflbench.choosing.trial_ranking import finalists, promising
from vflbench.choosing.worker_pool import Backend
from vflbench.cli import choose as choosing
from vflbench.cli import tune
from vflbench.config import tuned
from vflbench.results import inventory
from vflbench.types import ConfigError, Problem, VflbenchError

TASK = [
    *("dataset=star_schema", "dataset.rows=200", "dataset.dimension_rows=20", "dataset.width=3"),
    *("dataset.task=classes", "target=0.55", "algorithm=rfl_sgd_v,gd_join", "seed=0"),
]


def trial(number: int, cost: float | None, metric: float, shows: str = "sums", values: Any = None) -> Trial:
    reached = cost is not None
    return Trial(
        number, values or {}, f"trials/{number}", "target_reached" if reached else "completed", reached, metric,
        cost if reached else 1e9, None, 0.0, 1.0, shows=shows.split(),
    )  # fmt: skip


def place(of: Trial | None) -> int | None:
    return None if of is None else of.number


def searching(*methods: Method, trials_each: int, target: str = "0.8") -> Search:
    asked = parse(["dataset=cora", f"target={target}", "trials=8"], "choose")
    record = Record(
        {**asked.asked(), "metric": "accuracy", "goal": "max"}, methods=list(methods), trials_each=trials_each
    )
    backend = Backend(lambda *_: "", lambda *_: {}, lambda _: None)
    return Search(asked, Path("nowhere"), record, [], backend)


def test_the_best_is_the_cheapest_to_the_target_and_an_incomplete_level_counts_for_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Record, "write", lambda *_: None)
    a = Method("glasu", "none", [], {}, [trial(0, 50.0, 0.81), trial(1, 30.0, 0.80), trial(2, 10.0, 0.9)])
    b = Method("ensemble", "none", [], {}, [trial(0, None, 0.7), trial(1, None, 0.79)])
    search = searching(a, b, trials_each=2)
    search._choose()
    assert (a.best, b.best) == (1, 1)  # of b's trials the better metric
    assert a.out is None and b.out == "no trial reached the target: the best validation value is 0.79"
    assert finalists(search.record) == [a]


def test_where_none_reaches_the_target_those_that_came_nearest_are_in_the_final(tmp_path: Path) -> None:
    methods = [Method(f"m{n}", "none", [], {}, [trial(0, None, 0.5 + n / 100)]) for n in range(5)]
    search = searching(*methods, trials_each=1)
    assert [method.algorithm for method in finalists(search.record)] == ["m4", "m3", "m2"]


def test_the_best_third_is_trained_with_further_seeds_and_the_mean_decides() -> None:
    values = [0.80, 0.82, 0.81, 0.60, 0.61, 0.62, 0.79]
    method = Method("glasu", "none", [], {}, [trial(n, None, value) for n, value in enumerate(values)])
    record = searching(method, trials_each=7).record
    record.question["repeats"] = [1, 2]
    assert [one.number for one in promising(record, method)] == [1, 2, 0]
    assert place(trial_ranking.best(record, method)) == 1
    method.trials[2].status = "pruned"
    assert [one.number for one in promising(record, method)] == [1, 0, 6]
    method.trials[2].status = "completed"
    for number, seeds in ((1, (0.70, 0.82)), (2, (0.80, 0.82)), (0, (0.83,))):
        for seed, value in enumerate(seeds, 1):
            method.repeats.append(replace(trial(number, None, value), seed=seed))
    assert place(trial_ranking.best(record, method)) == 1  # 0 lacks a seed: the first seed alone decides
    method.repeats.append(replace(trial(0, None, 0.82), seed=2))
    assert place(trial_ranking.best(record, method)) == 0  # the means are 0.78, 0.81 and 0.817
    method.repeats[-1].status = "diverged"
    assert place(trial_ranking.best(record, method)) == 2
    for repeat in method.repeats:
        repeat.metric = None
    assert place(trial_ranking.best(record, method)) == 6  # the best of those that did not fail with another seed


def test_with_a_target_the_mean_cost_decides_where_every_seed_reaches_it() -> None:
    trials = [trial(0, 50.0, 0.8), trial(1, 20.0, 0.8), trial(2, 30.0, 0.8)]
    method = Method("glasu", "none", [], {}, trials)
    record = searching(method, trials_each=3).record
    record.question["repeats"] = [1]
    assert [one.number for one in promising(record, method)] == [1, 2]
    method.repeats = [replace(trial(1, None, 0.79), seed=1), replace(trial(2, 60.0, 0.8), seed=1)]
    assert place(trial_ranking.best(record, method)) == 2


def test_a_best_value_at_the_edge_is_told_where_a_range_could_be_wider(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Record, "write", lambda *_: None)
    space = {"algorithm.lr": {"low": 0.01, "high": 0.1, "log": True}, "algorithm.local_steps": {"low": 1, "high": 16}}
    space["algorithm.local_steps"] |= {"int": True, "least": 1}
    values = {"algorithm.lr": 0.1, "algorithm.local_steps": 1}
    method = Method("glasu", "none", ["algorithm=glasu"], space, [trial(0, None, 0.8, values=values)])
    search = searching(method, trials_each=1)
    search._choose()
    assert method.edges == ["algorithm.lr"]
    said = tune.found(search.record, method, method.trials[0])
    assert said.endswith(". The best algorithm.lr is at the edge of its range: a better one may lie beyond")


def test_each_further_seed_is_trained_once(tmp_path: Path) -> None:
    asked = parse(["dataset=cora", "algorithm=glasu", "trials=3", "seed=4", "seeds=3"], "tune")
    trials = [trial(n, None, 0.7 + n / 100, values={"algorithm.lr": 0.1 * n}) for n in range(3)]
    record = Record({**asked.asked(), "metric": "accuracy", "goal": "max"}, methods=[], trials_each=3)
    record.methods = [Method("glasu", "none", ["algorithm=glasu"], {}, trials)]
    told: list[list[str]] = []

    def train(words: list[str], folder: str, halt: Halving | None) -> str:
        told.append([Path(folder).name, *(word for word in words if word.startswith(("seed", "algorithm.lr")))])
        return "it fails"

    inventory.claim(tmp_path, "")
    for _ in range(2):  # nothing is left for the second time
        search = Search(asked, tmp_path, record, [], Backend(train, lambda *_: {}, lambda _: None))
        with search.workers:
            search.confirmation.repeat()
    assert told == [
        ["2-seed5", "algorithm.lr=0.2", "seed=5"],
        ["2-seed6", "algorithm.lr=0.2", "seed=6"],
        ["1-seed5", "algorithm.lr=0.1", "seed=5"],
        ["1-seed6", "algorithm.lr=0.1", "seed=6"],
    ]
    assert [one.seed for one in record.methods[0].repeats] == [5, 6, 5, 6] and not record.notes
    record.methods[0].repeats.pop()
    asked.budget, record.spent_seconds = 60.0, 61.0
    cut = Search(asked, tmp_path, record, [], Backend(train, lambda *_: {}, lambda _: None))
    cut.run()
    assert record.status == "out of budget" and "before every promising configuration" in record.notes[0]
    assert Record.read(tmp_path).methods == record.methods


def test_a_bound_is_of_those_that_show_no_more_and_have_the_same_mechanism() -> None:
    sums = Method("a", "none", [], {}, [trial(0, 100.0, 0.8, "sums")])
    more = Method("b", "none", [], {}, [trial(0, 20.0, 0.8, "raw sums")])
    noised = Method("c", "dp_sgd", [], {}, [trial(0, 5.0, 0.8, "~sums")])
    levels = searching(sums, more, noised, trials_each=1).levels
    new = Method("d", "none", [], {})
    assert levels._bound(new, ["sums"]) == ["max_bytes=150.0"]  # 1.5 times that of `a`; `b` shows raw columns too
    assert levels._bound(new, ["raw", "sums"]) == ["max_bytes=30.0"]
    assert levels._bound(new, ["gradient"]) == []
    assert levels._bound(Method("e", "dp_sgd", [], {}), ["~sums"]) == ["max_bytes=7.5"]


def test_noise_shows_less_than_the_same_without() -> None:
    assert disclosure.no_more(["~sums"], ["sums"]) and disclosure.no_more(["~sums"], ["~sums"])
    assert not disclosure.no_more(["sums"], ["~sums"])


def test_a_range_is_widened_once_where_the_best_value_is_at_its_edge() -> None:
    space = {"algorithm.lr": {"low": 0.01, "high": 1.0, "log": True}}
    trials = [
        trial(n, cost, 0.8, values={"algorithm.lr": lr}) for n, (cost, lr) in enumerate([(9, 0.1), (8, 0.3), (5, 0.99)])
    ]
    method = Method("a", "none", [], space, trials)
    search = searching(method, trials_each=3)
    search.levels._widen(3)
    search.levels._widen(3)
    assert method.space["algorithm.lr"]["high"] == 10.0 and method.widened == ["algorithm.lr"]


def test_a_larger_budget_goes_on_with_what_a_smaller_one_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Record, "write", lambda *_: None)
    a = Method("glasu", "none", [], {}, [trial(0, 50.0, 0.81)], out="the budget ended before it was tried")
    b = Method("ensemble", "none", [], {}, [trial(0, None, 0.7)], out="it fails with defaults: no")
    b.trials[0].status = "failed"
    search = searching(a, b, trials_each=8)
    search.record.status, search.record.notes = "out of budget", ["the budget was too small for 8 trials", "other"]
    search.run()
    assert a.out is None and a.best == 0 and b.out is not None
    assert (
        not [note for note in search.record.notes if note.startswith("the budget")] and "other" in search.record.notes
    )


def test_a_stopped_search_says_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Record, "write", lambda *_: None)

    def stopped(_: Levels) -> None:
        raise KeyboardInterrupt

    a = Method("glasu", "none", [], {}, [trial(0, 50.0, 0.81)])
    b = Method("ensemble", "none", [], {})
    search = searching(a, b, trials_each=0)
    monkeypatch.setattr(Levels, "run", stopped)
    with pytest.raises(KeyboardInterrupt):
        search.run()
    assert (search.record.status, a.best, b.out) == ("interrupted", 0, "the search was stopped before it was tried")
    first = "any trial of ensemble", "trials of each method after 0, up to 8", "all confirmation runs"
    assert search.record.missing() == list(first)
    b.trials, search.record.trials_each = [trial(0, None, 0.7)], 8
    assert search.record.missing() == ["all confirmation runs"]
    a.finals = ["finals/glasu/seed2"]
    assert search.record.missing() == ["confirmation runs of glasu with seed 1, 3"]
    search.record.status = "complete"
    assert search.record.missing() == []


def test_settings_stay_once_their_final_has_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Record, "write", lambda *_: None)
    a = Method("glasu", "none", [], {}, [trial(0, 50.0, 0.81), trial(1, 9.0, 0.82)], best=0)
    a.finals = [f"finals/glasu/seed{seed}" for seed in (1, 2, 3)]
    search = searching(a, trials_each=1)
    search.record.status = "complete"
    search.run()
    assert (a.best, search.record.trials_each, search.record.status) == (0, 1, "complete")


def test_a_budget_that_tries_nothing_is_no_complete_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Record, "write", lambda *_: None)
    search = searching(Method("glasu", "none", [], {}), trials_each=0)
    search.question.budget = 1.0
    search.journal.began -= 2.0
    assert search.run().status == "out of budget"
    assert search.record.methods[0].out == "the budget ended before it was tried"


@pytest.mark.slow
def test_a_value_that_does_not_go_with_the_others_is_left_out_of_a_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers of bins take no codec, raw columns do; of what is left out, its own keys too."""
    monkeypatch.setattr(Record, "write", lambda *_: None)
    for form, kept in (("bins", {"algorithm.form": "bins"}), ("raw", {"algorithm.form": "raw", "codec": "int8"})):
        words = ["algorithm=send_once", "dataset=breast_cancer", "dataset.problem=learning"]
        method = Method("send_once", "none", words, {"algorithm.form": [form], "codec": ["int8"]})
        task = searching(method, trials_each=0).levels._trial(method, 1)
        assert task is not None and task.about["values"] == kept
        assert ("codec=int8" in task.arguments[0]) == ("codec" in kept) and f"algorithm.form={form}" in task.arguments[
            0
        ]
    refused = Method("send_once", "none", [*words, "codec=int8"], {})
    search = searching(refused, trials_each=0)
    assert search.levels._trial(refused, 0) is None and refused.trials[0].status == "failed"
    values, space = {"codec": "topk", "codec.fraction": 0.1, "model.codecs": 1}, {"codec": ["topk", "none"]}
    assert spaces.without(values, [Problem("codec", "topk", "")], space) == {"model.codecs": 1}
    wrong = {"algorithm.bins": {"low": 300, "high": 900, "log": True, "int": True}}  # of a space of the user's own
    method = Method("send_once", "none", words, wrong)
    assert searching(method, trials_each=0).levels._trial(method, 1) is None and "256" in str(method.trials[0].reason)


def test_runs_of_other_experiments_are_refused() -> None:
    """A file that changed between a search and its going on would be compared with what was there before."""
    record = searching(trials_each=0).record
    for files in ([["a.csv", "1"], ["b.csv", "2"]], [["a.csv", "1"]]):
        record.check_experiment({"data": {"files": files}, "semantics": 1})
    record.check_experiment({"plugins": {"algorithm mine": "5"}, "semantics": 1})  # other methods have none
    with pytest.raises(VflbenchError, match=r"changed since this search began \(file a\.csv: 1 there, 3 here\)"):
        record.check_experiment({"data": {"files": [["a.csv", "3"], ["b.csv", "2"]]}, "semantics": 1})
    with pytest.raises(VflbenchError, match=r"plug-in algorithm mine: 5 there, 6 here"):
        record.check_experiment({"plugins": {"algorithm mine": "6"}, "semantics": 1})
    for later in ({"semantics": 2}, {}):
        with pytest.raises(VflbenchError, match="semantics version: 1 there"):
            record.check_experiment(later)


def test_more_trials_after_a_final_has_begun_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Record, "write", lambda *_: None)
    monkeypatch.setattr(Confirmation, "confirm", lambda _: None)
    method = Method("glasu", "none", [], {}, trials=[trial(0, 1.0, 0.9)], best=0, finals=["finals/glasu/1"])
    search = searching(method, trials_each=1)
    search.run()  # of eight that were asked for
    assert "confirmation runs have begun, so methods are compared on 1 trials each" in search.record.notes


def test_no_method_takes_the_time_of_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not begun where its first evaluation would take longer than a trial may, and ended where it does."""
    monkeypatch.setattr(Record, "write", lambda *_: None)
    slow, fast = (Method(name, "none", [], {}, wall_seconds=wall) for name, wall in (("mtcd", 20.0), ("vfl", 10.0)))
    search = searching(slow, fast, trials_each=0)
    search.levels._leave_out_slow()
    assert slow.out is None  # without a budget everything is tried
    search.question.budget = 100.0  # 60 s for trials, a quarter of them for one
    search.levels._leave_out_slow()
    assert slow.out is not None and slow.out.startswith("the budget is too small") and fast.out is None
    halt = search.levels._halving(fast, 0)
    assert halt.slow is not None and halt.slow - time.time() == pytest.approx(15.0, abs=2.0)
    assert halt(rows(0.5)) is None
    halt.slow = time.time() - 1
    assert halt(rows(0.5)) == halving.SLOW


def rows(*values: float) -> list[dict[str, Any]]:
    return [{"bytes": 10.0 * (place + 1), "val_accuracy": value} for place, value in enumerate(values)]


def test_at_a_rung_the_best_third_goes_on() -> None:
    """Costs of 10, 20, ... 90: rungs at a ninth and a third of 90, that is at 10 and 30."""
    paths = [halving.path_of(rows(*values), "accuracy", "max", "bytes") for values in ([0.5] * 9, [0.6] * 9)]
    halt = Halving("accuracy", "max", "bytes", 90.0, paths)
    assert halt(rows(0.55)) == "behind other configurations of its method at 10 bytes"
    assert halt(rows(0.65)) is None
    assert halt(rows(0.65, 0.65)) is None
    assert halt(rows(0.65, 0.65, 0.2)) is None  # the best so far counts
    five = [halving.path_of(rows(*[value] * 9), "accuracy", "max", "bytes") for value in (0.5, 0.9, 0.6, 0.8, 0.7)]
    halt.earlier = five  # of six the best two go on; equal values go on together
    assert halt(rows(0.79)) is not None and halt(rows(0.8)) is None
    halt.goal = "min"
    assert halt(rows(0.61)) is not None and halt(rows(0.6)) is None
    assert Halving("accuracy", "max", "bytes", 90.0, paths[:1])(rows(0.1)) is None  # too few to be compared
    lower = Halving("accuracy", "min", "bytes", 90.0, paths)
    assert lower(rows(0.55)) is not None and lower(rows(0.4)) is None


def test_without_pruning_trials_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    method = Method("glasu", "none", [], {}, [trial(0, 50.0, 0.81)])
    search = searching(method, trials_each=2)
    search.levels.paths = {method.trials[0].folder: [(50.0, 0.81)]}
    assert search.levels._halving(method, 1).whole == 50.0
    search.question.prune = False
    assert search.levels._halving(method, 1).whole is None


def test_of_evaluations_at_one_cost_the_first_counts() -> None:
    path = halving.path_of([{"bytes": 10.0, "val_accuracy": value} for value in (0.3, 0.6)], "accuracy", "max", "bytes")
    assert path == [(10.0, 0.3)]


def test_a_search_goes_on_as_it_was_begun() -> None:
    words = ["algorithm=glasu", "dataset=cora", "trials=8"]
    whole, halved = parse([*words, "prune=false"], "tune"), parse(words, "tune")
    assert choosing.same(Record(whole.asked()), whole) and choosing.same(Record(halved.asked()), halved)
    assert not choosing.same(Record(whole.asked()), halved) and not choosing.same(Record(halved.asked()), whole)
    with pytest.raises(ConfigError, match="prune=maybe: must be true or false"):
        parse([*words, "prune=maybe"], "tune")


def test_at_a_rung_trials_are_compared_at_equal_cost() -> None:
    """The others were first looked at when they had cost 12 or 25, this trial at 10."""
    halt = Halving("accuracy", "max", "bytes", 90.0, [[(first, 0.6), (50.0, 0.7)] for first in (12.0, 12.0, 25.0)])
    assert halt(rows(0.5)) is None  # at 10 they had nothing
    assert halt(rows(0.5, 0.5, 0.5)) == "behind other configurations of its method at 30 bytes"
    assert halt(rows(0.5, 0.5, 0.65)) is None


def test_the_time_of_the_search_ends_a_run() -> None:
    assert Halving("accuracy", "max", "bytes", None, [], time.time() - 1)(rows(0.9)) == halving.LATE
    assert Halving("accuracy", "max", "bytes", None, [], time.time() + 99)(rows(0.9)) is None


def timeless(folder: Path) -> dict[str, Any]:
    """The record without what this machine's clock has in it."""
    values: dict[str, Any] = json.loads((folder / FILE).read_text())
    del values["spent_seconds"], values["floor"]  # the tests compute no levels, a process of its own does
    for method in values["methods"]:
        del method["wall_seconds"]
        for one in method["trials"]:
            del one["began"], one["wall_seconds"]
    return values


def test_the_order_of_words_is_nothing_of_the_question(tmp_path: Path) -> None:
    words = ["dataset=cora", "dataset.clients=3", "algorithm=glasu,ensemble", "target=0.8", "trials=2", "jobs=2"]
    first = parse(words, "choose")
    record = Record(first.asked(), status="interrupted")
    (tmp_path / "a").mkdir()
    record.write(tmp_path / "a")
    again = [*reversed(words[3:]), "algorithm=ensemble,glasu", *words[1::-1], "resume=true"]
    assert choosing.place(parse(again, "choose"), tmp_path)[0] == tmp_path / "a"
    assert record.question["words"] == ["dataset=cora", "dataset.clients=3"]  # as it is typed again
    other = choosing.place(parse([*words, "seed=1", "resume=true"], "choose"), tmp_path)[0]
    assert not other.exists()


def choose(folder: Path, *words: str) -> int:
    return cli.command(["choose", *TASK, f"out={folder}", *words])


@pytest.mark.slow
def test_two_searches_find_the_same_and_one_that_was_killed_too(tmp_path: Path) -> None:
    assert choose(tmp_path / "a", "trials=2") == 0
    first = timeless(tmp_path / "a")
    assert first["status"] == "complete" and first["trials_each"] == 2
    assert all(len(method["trials"]) == 2 and len(method["finals"]) == 3 for method in first["methods"])
    assert choose(tmp_path / "b", "trials=2") == 0
    assert timeless(tmp_path / "b") == first
    command = [sys.executable, "-m", "vflbench", "choose", *TASK, f"out={tmp_path / 'c'}", "trials=2", "resume=true"]
    for number in (signal.SIGKILL, signal.SIGTERM):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        known = len(list((tmp_path / "c").rglob("summary.json")))
        while process.poll() is None and len(list((tmp_path / "c").rglob("summary.json"))) == known:
            time.sleep(0.01)  # its runs are short: on a busy machine all would end while this slept
        process.send_signal(number)
        process.wait()
        command[4:10] = reversed(command[4:10])  # the order of the words is nothing of the question
    so_far = json.loads((tmp_path / "c" / "answer.json").read_text())
    assert so_far["status"] == "interrupted" and so_far["winner"] and (tmp_path / "c" / "answer.html").is_file()
    assert so_far["missing"][-1].startswith(("all confirmation runs", "confirmation runs of "))
    assert choose(tmp_path / "c", "trials=2", "resume=true") == 0
    assert timeless(tmp_path / "c") == first


@pytest.mark.slow
def test_of_a_graph_alone_and_centralised_are_trained(tmp_path: Path) -> None:
    words = ["choose", "dataset=digits_graph", "target=0.1", "algorithm=graph_once", "trials=1", "rounds=3"]
    assert cli.command([*words, f"out={tmp_path / 'a'}"]) == 0
    floor = {line["name"]: line for line in json.loads((tmp_path / "a" / "answer.json").read_text())["floor"]}
    assert floor["alone"]["note"] == "algorithm=standalone_gnn with defaults, seed 1"
    assert floor["alone"]["bytes"] == 0 and floor["centralised"]["validation"] > 0
    assert floor["alone"]["test"] is not None and floor["centralised"]["note"].startswith("algorithm=centralized_gnn")


@pytest.mark.slow
def test_an_interrupt_finds_no_first_import_of_pandas() -> None:
    """Interrupted, it fails when it is tried again, and the answer so far needs it."""
    lines = ["import sys", "from vflbench.cli import choose", "seen = lambda *_: sys.exit('pandas' not in sys.modules)"]
    lines += ["assert 'pandas' not in sys.modules", "choose.place = seen", "choose.search(None, None)"]
    assert subprocess.run([sys.executable, "-c", "\n".join(lines)]).returncode == 0


@pytest.mark.slow
def test_ctrl_c_ends_processes_that_train_side_by_side(tmp_path: Path) -> None:
    """A terminal sends it to all of them; the search waits for none for ever, and goes on."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background ignores it, and so would children
    command = [sys.executable, "-m", "vflbench", "choose", *TASK, f"out={tmp_path / 'a'}", "trials=2", "jobs=2"]
    for runs in (1, 3):
        process = subprocess.Popen([*command, "resume=true"], stdout=-3, stderr=-3, start_new_session=True)
        while process.poll() is None and len(list((tmp_path / "a").rglob("summary.json"))) < runs:
            time.sleep(0.1)
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(50) == 130
    assert choose(tmp_path / "a", "trials=2", "resume=true") == 0
    assert not [m.out for m in Record.read(tmp_path / "a").methods if m.out]


@pytest.mark.slow
def test_bounds_and_rungs_do_not_change_who_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    choose(tmp_path / "pruned", "trials=4")
    monkeypatch.setattr(Levels, "_bound", lambda *_: [])
    monkeypatch.setattr(Halving, "__call__", lambda *_: None)
    choose(tmp_path / "whole", "trials=4")
    best = []
    for name in ("pruned", "whole"):
        record = Record.read(tmp_path / name)
        best.append([(m.name, m.best, m.trials[m.best].bytes) for m in record.methods if m.best is not None])
    assert min(best[0], key=lambda one: one[2] or 0) == min(best[1], key=lambda one: one[2] or 0)


@pytest.mark.slow
def test_values_found_with_noise_count_with_that_noise_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run without noise has no clip."""
    monkeypatch.chdir(tmp_path)
    words = ["tune", *(word for word in TASK if not word.startswith(("algorithm", "target"))), "algorithm=gd_join"]
    words += ["trials=2", "privacy=dp_sgd", "codec=none", "--out", str(tmp_path / "mine")]
    assert cli.command(words) == 0
    found = tuned.read(tmp_path / "mine" / "tuned" / "gd_join.yaml")["star_schema/dp_sgd"]
    assert ". Use these values with codec=none" in found["found"]
    assert [key for key in found if key.startswith("privacy.")] == ["privacy.clip"]
    rows = list(csv.DictReader((tmp_path / "mine" / "tuned" / "gd_join.csv").open()))
    assert {row["privacy"] for row in rows} == {"dp_sgd"} and "; privacy.clip: 0.1 to " in rows[0]["space"]
    run = ("algorithm=gd_join", "dataset=star_schema")
    with config.session([], tmp_path / "mine") as hydra:
        noisy = config.plan(hydra, [*run, "privacy=dp_sgd"]).config
        other = config.plan(hydra, [*run, "privacy=label_dp"]).config
        clean = config.plan(hydra, [*run]).config
    assert noisy is not None and other is not None and clean is not None
    assert (noisy.privacy.clip, noisy.algorithm.lr) == (found["privacy.clip"], found["algorithm.lr"])
    assert clean.algorithm.lr == other.algorithm.lr != noisy.algorithm.lr


def test_tune_asks_which_noise(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.command(["tune", "algorithm=vfl", "dataset=bank", "privacy.epsilon=4", "trials=1"]) == 1
    assert "privacy=(missing): name the mechanism" in capsys.readouterr().err


@pytest.mark.slow
def test_tuned_values_are_written_with_how_they_were_found_and_never_over_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["tune", *(word for word in TASK if not word.startswith(("algorithm", "target"))), "algorithm=gd_join"]
    words += ["trials=2", "seeds=2", "algorithm.weight_decay=0.5", "--out", str(tmp_path / "mine")]
    assert cli.command(words) == 0
    file, trials = tmp_path / "mine" / "tuned" / "gd_join.yaml", tmp_path / "mine" / "tuned" / "gd_join.csv"
    text, entry = file.read_text(), tuned.read(file)["star_schema"]
    assert entry["found"].startswith("best validation accuracy of 2 trials, seed 0 (2 also with 1, which decide), on ")
    assert entry["algorithm.weight_decay"] == 0.5 and ". Use these values with codec=" in entry["found"]
    rows = list(csv.DictReader(trials.open()))
    assert [(row["dataset"], row["trial"], row["seeds"]) for row in rows] == [("star_schema", n, "0 1") for n in "01"]
    (best,) = (row for row in rows if row["best"])
    assert f"lr={entry['algorithm.lr']}" in best["settings"] and float(best["value"]) > 0
    task = words[1 : words.index("trials=2")]
    assert cli.command(["--config-dir", str(tmp_path / "mine"), *task, "plot=none", "floor=none"]) == 0
    (used,) = (tmp_path / "outputs" / "runs").glob("*/.hydra/config.yaml")
    assert yaml.safe_load(used.read_text())["algorithm"]["lr"] == entry["algorithm.lr"]
    capsys.readouterr()
    assert cli.command(words) == 1
    assert "already exists: replace it with overwrite=true" in capsys.readouterr().err and file.read_text() == text
    others, row = "# mine\nbank:  # kept\n  algorithm.lr: 1e-5\n", "bank,,0,,lr=1e-5,auroc,0.9,,,completed,0,,\n"
    file.write_text(others + "star_schema:\n  algorithm.lr: 1\n")
    trials.write_text(trials.read_text() + row)
    assert cli.command([*words, "overwrite=true"]) == 0
    assert file.read_text() == others + text and row in trials.read_text()
    words[words.index("trials=2")] = "trials=3"
    capsys.readouterr()
    assert cli.command([*words, "overwrite=true", "resume=true"]) == 0
    assert "[trial 2]" in (told := capsys.readouterr().err) and "[trial 1]" not in told
    assert " of 3 trials, seed 0" in tuned.read(file)["star_schema"]["found"]
    assert [line["dataset"] for line in csv.DictReader(trials.open())] == ["bank", *["star_schema"] * 3]
