"""Runs with other seeds: of the most promising trials, and of each method's best setting in the end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from vflbench.choosing import baselines, spaces, trial_ranking
from vflbench.choosing.halving import Halving
from vflbench.choosing.journal import CONFIRMING_MARGIN, Journal
from vflbench.choosing.levels import QUIET
from vflbench.choosing.record import CUT, Method, Trial, final_folder
from vflbench.choosing.worker_pool import Task, TrainAll
from vflbench.results import reader


class Confirmation:
    """The runs of a search with other seeds than that of its trials."""

    def __init__(self, journal: Journal, train: TrainAll) -> None:
        self.journal, self.question, self.record, self.train = journal, journal.question, journal.record, train

    # --- of promising trials --------------------------------------------------------------------------------------

    def repeat(self) -> None:
        """Train the most promising settings with further seeds, over which the mean decides."""
        for task, failure in self.train(self._repeats()):
            self.journal.keep(task, failure)
        if self._unrepeated():
            self.journal.note(f"{CUT} ended before every promising configuration was trained with every seed")

    def _unrepeated(self) -> list[tuple[Method, Trial, int]]:
        """The runs with further seeds that are not there yet."""
        return [
            (method, trial, seed)
            for method in self.record.methods
            for trial in (trial_ranking.promising(self.record, method) if method.out is None else [])
            for seed in self.record.repeats
            if not any((one.number, one.seed) == (trial.number, seed) for one in method.repeats)
        ]

    def _repeats(self) -> Iterator[Task]:
        for method, trial, seed in self._unrepeated():
            if self.journal.over():
                return
            about = {"method": method, "number": trial.number, "values": trial.values, "seed": seed}
            about |= {"shows": trial.shows, "began": time.time() - self.journal.began}
            yield self._task(f"{trial.folder}-seed{seed}", method, trial, seed, QUIET, about)

    # --- of the best settings -------------------------------------------------------------------------------------

    def confirm(self) -> None:
        """Train the best setting of each method that comes so far with fresh seeds, and set the record's status."""
        self._baselines()
        finalists = trial_ranking.finalists(self.record)
        for task, failure in self.train(self._confirmations(finalists)):
            if (ended := self.journal.ended(task)) is None:
                continue
            method, (folder, run) = task.about, ended
            self.record.running.pop(folder, None)
            if run is not None and not failure:
                method.finals = sorted({*method.finals, folder}, key=reader.natural)
            else:
                self.journal.note(f"{folder} failed: {failure}")
            self.journal.write()
            status = run.summary["status"] if run is not None else failure
            self.journal.report(f"[confirmation] {method.name}, {Path(folder).name}: {status}")
        late = [folder for folder, begun in self.record.running.items() if begun.get("late")]
        untried = not finalists and self.journal.over(self.journal.share)
        cut = untried or (self.record.missing() and (late or self.journal.over()))
        self.record.status = "out of budget" if cut else "complete"

    def _baselines(self) -> None:
        """The local-only and the centralised baseline, where no learner of tables can tell."""
        for task, failure in self.train(baselines.tasks(self.record, self.question, self.journal.folder)):
            if not failure and (run := self.journal.find(task)[1]) is not None:
                self.record.floor[task.about] = baselines.level(run)
                self.journal.write()

    def _confirmations(self, finalists: list[Method]) -> Iterator[Task]:
        for method in finalists:
            for seed in self.record.question["seeds"]:
                folder = final_folder(method, seed)
                if folder in method.finals:
                    continue
                if self.journal.over():
                    return
                best = trial_ranking.best(self.record, method)
                yield self._task(folder, method, best, seed, ("plot=none",), method)

    def _task(
        self, folder: str, method: Method, trial: Trial | None, seed: int, more: tuple[str, ...], about: object
    ) -> Task:
        """A run of a trial's setting with another seed. It ends where it takes much more, or the search's time ends."""
        values = spaces.in_words(trial.values) if trial is not None and trial.number else []
        cost = trial.cost(self.question.cost) if trial is not None and trial.reached else None
        limit = self.journal.limit(CONFIRMING_MARGIN * (cost or 0.0))
        words = [*method.words, *values, *self.journal.overrides(seed), *limit, *more]
        until_the_end = Halving("", "max", "bytes", None, [], self.journal.deadline())
        return self.journal.begin(folder, words, until_the_end, about)
