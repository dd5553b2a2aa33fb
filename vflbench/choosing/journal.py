"""The journal of a search: its record, which is written after each run, its folder and its clock.

A run is noted when it begins, with its overrides, and is judged when it ends. So a search that goes on does what it
would have done.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vflbench.choosing.halving import LATE, PRUNED, Halving
from vflbench.choosing.question import COSTS, Question
from vflbench.choosing.record import Method, Record, Trial
from vflbench.choosing.worker_pool import Task
from vflbench.results import reader, selection
from vflbench.results.pricing import Charged
from vflbench.results.texts import human_bytes

MARGIN = 1.5  # times the best cost to the target: second places are known, too
CONFIRMING_MARGIN = 3.0  # times what the best setting took on the tuning seed: another seed may take longer
SHARE = 0.6  # of the budget, for trials, where confirmation runs or runs with further seeds follow
LIMITS = {"bytes": "max_bytes", "seconds": "max_virtual_seconds"}  # key of a run that bounds a cost


class Journal:
    """What a search has done, and how much of its budget is left."""

    def __init__(self, question: Question, folder: Path, record: Record, tell: Callable[[str], None]) -> None:
        self.question, self.folder, self.record, self._tell = question, folder, record, tell
        self.began = time.time() - record.spent_seconds
        self.share = SHARE if question.finals or question.seeds > 1 else 1.0  # of the budget, for trials

    def write(self) -> None:
        """Write the record."""
        self.record.spent_seconds = time.time() - self.began
        self.record.write(self.folder)

    def note(self, text: str) -> None:
        """Add a note to the record, once."""
        if text and text not in self.record.notes:
            self.record.notes.append(text)

    def report(self, text: str) -> None:
        """Tell the user a line, with what is left of the budget."""
        self._tell(f"{text}{time_left(self.question.budget, self.began)}")

    def deadline(self, share: float = 1.0) -> float | None:
        """When a share of the budget is over, as time.time(); None without a budget."""
        return None if self.question.budget is None else self.began + share * self.question.budget

    def over(self, share: float = 1.0) -> bool:
        """Whether a share of the budget is over."""
        deadline = self.deadline(share)
        return deadline is not None and time.time() >= deadline

    def overrides(self, seed: int) -> list[str]:
        """The seed and the target of a run."""
        target = self.question.target
        return [f"seed={seed}", *([f"target={target!r}"] if target is not None else [])]

    def limit(self, most: float) -> list[str]:
        """The override that ends a run at a cost; none where that is 0, or weighted."""
        key = LIMITS.get(self.question.cost)
        return [f"{key}={most!r}"] if key and most else []

    def begin(self, folder: str, words: list[str], halt: Halving, about: Any) -> Task:
        """A run to train, noted as begun; it goes on where it was stopped, or starts again where time had ended it."""
        begun = self.record.running.get(folder)
        again = ["overwrite=true"] if begun and begun.get("late") else ["resume=true"]
        self.record.running[folder] = {"words": words}
        self.write()
        return Task(([*words, *again], str(self.folder / folder), halt), about)

    def find(self, task: Task) -> tuple[str, reader.Run | None]:
        """The folder of a task's run, relative to the record's, and the run; None where it has not ended."""
        place = Path(task.arguments[1])
        run = reader.load(place) if (place / "summary.json").is_file() else None
        if run is not None and (place / "manifest.json").is_file():
            self.record.check_experiment(run.manifest)
        return place.relative_to(self.folder).as_posix(), run

    def ended(self, task: Task) -> tuple[str, reader.Run | None] | None:
        """As `find`; None where the time of the search ended the run, so that it does not count."""
        folder, run = self.find(task)
        if run is not None and run.summary.get("reason") == LATE:
            self.record.running[folder]["late"] = True
            self.write()
            return None
        return folder, run

    def keep(self, task: Task, failure: str) -> bool:
        """Keep a trial; False where time ended it, so that it is none."""
        if (ended := self.ended(task)) is None:
            return False
        about, (folder, run) = task.about, ended
        wall = time.time() - self.began - about["began"]
        trial = Trial(about["number"], about["values"], folder, "failed", False, None, None, None, about["began"], wall)
        trial.reason, trial.shows, trial.seed = failure or None, about["shows"], about.get("seed")
        if run is not None:
            _judge(trial, run, self.question.target)
        self.record.running.pop(folder, None)
        self.add(about["method"], trial)
        return True

    def add(self, method: Method, trial: Trial) -> None:
        """Add a trial to its method; a method whose defaults fail is out."""
        trials = method.trials if trial.seed is None else method.repeats
        trials.append(trial)
        trials.sort(key=lambda one: (one.number, one.seed or 0))
        if trial.number == 0 and trial.seed is None and trial.status == "failed":
            method.out = f"it fails with defaults: {trial.reason}"
        self.write()
        which = f"trial {trial.number}" + (f", seed {trial.seed}" if trial.seed is not None else "")
        self.report(f"[{which}] {method.name}: {self._in_words(trial)}")

    def _in_words(self, trial: Trial) -> str:
        value = f"{self.record.question['metric']} {trial.metric:.4g}" if trial.metric is not None else "no value"
        cost = trial.cost(self.question.cost)
        amount = "" if cost is None else human_bytes(int(cost)) if self.question.cost == "bytes" else f"{cost:.4g}"
        if trial.status == "failed":
            return f"failed ({trial.reason})"
        if trial.reached:
            return f"{value}, reached with {amount}"
        return f"{value} after {amount}, {trial.status}" + (f" ({trial.reason})" if trial.reason else "")


def _judge(trial: Trial, run: reader.Run, target: float | None) -> None:
    """Status, metric and costs of a trial, from its run."""
    summary = run.summary
    trial.status, trial.reason = summary["status"], summary.get("reason")
    if trial.status == "budget":
        trial.status = PRUNED
        if str(trial.reason).startswith(tuple(LIMITS.values())):
            lost = f"{MARGIN:g} times the least cost so far: it cannot win any more"
            again = f"{CONFIRMING_MARGIN:g} times what its configuration took with the first seed"
            trial.reason = f"it spent more than {lost if trial.seed is None else again}"
    if trial.status == "failed" or not len(run.curve):
        return
    trial.wall_seconds = max(trial.wall_seconds, summary["wall_seconds"])
    place = selection.reached(run, target) if target is not None else None
    trial.reached, trial.metric = place is not None, selection.best(run)
    trial.sent = float(summary["bytes"]["total"])
    trial.bytes, trial.seconds, trial.weighted = (Charged().spent(run, column, place) for column in COSTS.values())


def time_left(budget: float | None, began: float) -> str:
    """What remains of a budget of seconds."""
    if budget is None:
        return ""
    seconds = max(budget - (time.time() - began), 0.0)
    return f"; {seconds / 60:.0f} min of the budget left" if seconds >= 90 else f"; {seconds:.0f} s of the budget left"
