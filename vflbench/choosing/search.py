"""The search: which methods enter, levels of trials, runs with other seeds, and the best setting of each method.

All that is known is in the record, written after each run. A search that goes on does what it would have done.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from vflbench.choosing import spaces, trial_ranking
from vflbench.choosing.confirmation import Confirmation
from vflbench.choosing.journal import Journal
from vflbench.choosing.levels import Levels
from vflbench.choosing.question import Question
from vflbench.choosing.record import CUT, Excluded, Method, Record, Trial
from vflbench.choosing.worker_pool import Backend, Task, WorkerPool
from vflbench.types import VflbenchError

MEASURING = 0.15  # of the budget, for what a round of each method sends


class Search:
    """One search in its folder; `entering` are the methods of a new one."""

    def __init__(
        self, question: Question, folder: Path, record: Record, entering: list[Method], backend: Backend
    ) -> None:
        self.question, self.record, self.entering, self.backend = question, record, entering, backend
        self.journal = Journal(question, folder, record, backend.report)
        self.workers = WorkerPool(question.jobs, backend.executor)
        train = partial(self.workers.carry_out, do=backend.train)
        self.levels, self.confirmation = Levels(self.journal, train), Confirmation(self.journal, train)

    def run(self) -> Record:
        """Search, and train the confirmation runs; the record is written as it grows."""
        try:
            with self.workers:
                if not self.record.methods:
                    self._enter()
                if not self._confirmation_began():
                    self._reopen()
                    self.levels.run()
                    self.confirmation.repeat()
                    self._choose()
                elif (self.question.trials or 0) > (each := self.record.trials_each):
                    self.journal.note(f"confirmation runs have begun, so methods are compared on {each} trials each")
                cut = any(note.startswith(CUT) for note in self.record.notes)
                self.record.status = "finals" if self.question.finals else "out of budget" if cut else "complete"
                if self.question.finals:
                    self.confirmation.confirm()
        except KeyboardInterrupt:
            searching, self.record.status = self.record.status == "searching", "interrupted"
            if searching and self.record.methods:
                self._choose()  # the best so far; a search that goes on chooses anew
            raise
        finally:
            if self.record.methods:
                self.journal.write()
        return self.record

    def _confirmation_began(self) -> bool:
        """Whether a confirmation run has begun: then the settings that were chosen stay."""
        folders = [*self.record.running, *(folder for method in self.record.methods for folder in method.finals)]
        return any(folder.startswith("finals/") for folder in folders)

    def _reopen(self) -> None:
        """Trials go on, with what a smaller budget left out; a method whose defaults fail stays out."""
        self.record.status = "searching"
        self.record.notes = [note for note in self.record.notes if not note.startswith(CUT)]
        for method in self.record.methods:
            method.best, method.edges = None, []
            if not any(trial.number == 0 and trial.status == "failed" for trial in method.trials):
                method.out = None

    def _enter(self) -> None:
        """Order those that enter by what they are expected to send; those that the data refuse are excluded."""
        record, methods = self.record, self.entering
        self.backend.report(f"what a round sends of each of {len({method.algorithm for method in methods})} algorithms")
        unit = "seconds" if self.question.cost == "seconds" else "bytes"
        refused: dict[str, dict[str, Any]] = {}
        for task, found in self.workers.carry_out(self._measured(methods), self.backend.measure):
            if "error" in found:
                refused[task.about.algorithm] = found
                continue
            record.question |= {"metric": found["metric"], "goal": found["goal"]}
            if found["floor"]:
                record.floor = found["floor"]
            self.journal.note(found.get("large_delta", ""))
            for method in (one for one in methods if one.algorithm == task.about.algorithm):
                method.expected = found[unit] * found["rounds"]
                method.space = spaces.limited(method.space, found["most"])
                method.wall_seconds = found["wall_seconds"] * found["rounds"]
        record.excluded += [Excluded(name, None, found["error"]) for name, found in refused.items()]
        entered = [method for method in methods if method.algorithm not in refused]
        if not entered or "metric" not in record.question:
            reasons = [found["error"] for found in refused.values()] or ["the budget is too small"]
            raise VflbenchError(f"no method runs on these data: {max(reasons, key=reasons.count)}")
        for method in entered:
            if not method.space:
                self.journal.note(f"{method.name} has no key to search: one configuration is tried")
        record.methods = sorted(entered, key=lambda method: math.inf if method.expected is None else method.expected)
        self.journal.write()

    def _measured(self, methods: list[Method]) -> Iterator[Task]:
        """A round of each algorithm, with the first of its mechanisms; the first one computes the baselines."""
        first = {method.algorithm: method for method in reversed(methods)}
        for number, name in enumerate(dict.fromkeys(method.algorithm for method in methods)):
            if number and self.journal.over(MEASURING):
                return
            words = [*first[name].words, *self.journal.overrides(self.question.seed), "plot=none"]
            yield Task(([*words, *(["floor=none"] if number else [])],), first[name])

    def _choose(self) -> None:
        """The best setting of each method, and which methods get confirmation runs."""
        ended = "the search was stopped" if self.record.status == "interrupted" else f"{CUT} ended"
        for method in self.record.methods:
            trial = trial_ranking.best(self.record, method)
            method.best = None if trial is None else trial.number
            if trial is not None:
                found = spaces.edges(method.space, trial.values).items()
                method.edges = [key for key, side in found if spaces.widened(method.space[key], side) is not None]
            elif method.out is None:
                method.out = f"{ended} before it was tried" if not method.trials else "no trial has a value"
        if self.question.target is None:
            return
        finalists = trial_ranking.finalists(self.record)
        for method in self.record.methods:
            if method not in finalists and method.out is None:
                trial = trial_ranking.best(self.record, method)
                assert trial is not None
                method.out = missed(method.trials, trial)
        self.journal.write()


def missed(trials: Sequence[Trial], best: Trial) -> str:
    """Why a method has no confirmation run: none of its trials reached the target, which some could not any more."""
    early = sum(one.status in ("pruned", "budget") for one in trials)
    ended = f"; {early} of {len(trials)} trials had been ended" if early else ""
    return f"no trial reached the target: the best validation value is {best.metric:.4g}{ended}"
