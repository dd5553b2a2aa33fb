"""Trials level by level: the same number for every method.

Trial 0 of a method has its defaults. Level k has trial k of every method, cheapest first, so that a budget that ends
lowers the number for all alike. A trial is an ordinary run in its own folder. It ends at the target, at a bound on what
it may send, or at a rung of the halving. The bound loses nothing: what has spent 1.5 times the best cost to the target
known so far cannot win any more, where that best shows no more and has the same mechanism.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Any

from vflbench import config, registry
from vflbench.choosing import disclosure, halving, spaces, trial_ranking
from vflbench.choosing.journal import MARGIN, Journal
from vflbench.choosing.question import COSTS
from vflbench.choosing.record import CUT, Method, Trial, slug
from vflbench.choosing.worker_pool import Task, TrainAll
from vflbench.results import reader
from vflbench.types import ConfigError

SLICE = 0.25  # of the time that is left for trials, for one of them: no method takes the time of all others
MOST_TRIALS = 32  # of a method, where only the budget ends the search
BEFORE_WIDENING = 3  # trials of a method
QUIET = ("floor=none", "plot=none")


class Levels:
    """The trials of a search."""

    def __init__(self, journal: Journal, train: TrainAll) -> None:
        self.journal, self.question, self.record, self.train = journal, journal.question, journal.record, train
        self.paths: dict[str, halving.Path] = {}  # of trials' folders

    def run(self) -> None:
        """Train level after level, until there are as many as are asked for, or the budget ends."""
        self._leave_out_slow()
        level = self.record.trials_each
        while level < (self.question.trials or MOST_TRIALS) and not self.journal.over(self.journal.share):
            self._widen(level)  # not after the last one: then the edge is said
            whole = True
            for task, failure in self.train(self._tasks(level)):
                whole &= self.journal.keep(task, failure)
            whole &= all(_has(method, level) for method in self._tuned(level))
            if not whole:
                break
            level += 1
            self.record.trials_each = level
            self.journal.write()
            if not any(method.space and method.out is None for method in self.record.methods):
                break
        self._say_what_budget_cut()

    def _leave_out_slow(self) -> None:
        """A method that the budget does not even take to its first evaluation is not begun."""
        most = SLICE * self.journal.share * (math.inf if self.question.budget is None else self.question.budget)
        for method in self.record.methods:
            wall = method.wall_seconds or 0.0
            if not method.trials and method.out is None and wall > most:
                method.out = (
                    f"the budget is too small: its first evaluation would take about {wall:.0f} s here, "
                    f"and a trial has {most:.0f} s"
                )

    def _say_what_budget_cut(self) -> None:
        note, each, asked = self.journal.note, self.record.trials_each, self.question.trials
        begun = max((len(method.trials) for method in self.record.methods), default=0)
        if not each:
            late = [method.name for method in self.record.methods if not method.trials and method.out is None]
            note(f"{CUT} ended before every method was tried once" + (f": not {', '.join(late)}" if late else ""))
        elif begun > each:
            note(f"{CUT} ended during trial {each + 1}, so it was discarded: methods are compared on {each} each")
        if asked is not None and each < asked and self.journal.over(self.journal.share):
            note(f"{CUT} was too small for {asked} trial{'s' * (asked != 1)}: methods are compared on {each} each")

    def _tuned(self, level: int) -> list[Method]:
        """The methods that have a trial at a level, cheapest first."""
        return [method for method in self.record.methods if method.out is None and (not level or method.space)]

    def _tasks(self, level: int) -> Iterator[Task]:
        """The trials of a level that are not there yet; each is decided on when it can begin."""
        for method in self._tuned(level):
            if _has(method, level):
                continue
            if self.journal.over(self.journal.share):
                return
            task = self._trial(method, level)
            if task is not None:
                yield task

    def _trial(self, method: Method, level: int) -> Task | None:
        """A trial to train, less values that do not go with others; None where it is refused: that counts as one."""
        folder = f"trials/{slug(method)}/{level}"
        values = spaces.point(method.space, self.question.seed, level) if level else {}
        began, run = time.time() - self.journal.began, None
        while run is None:
            base = [*method.words, *spaces.in_words(values), *self.journal.overrides(self.question.seed), *QUIET]
            try:
                run = self._planned(base)
            except ConfigError as error:
                if (fewer := spaces.without(values, error.problems, method.space)) == values:
                    reason = "; ".join(str(problem).rstrip(".") for problem in error.problems)
                    failed = Trial(level, values, folder, "failed", False, None, None, None, began, 0.0, reason)
                    self.journal.add(method, failed)
                    return None
                values = fewer
        values = values or spaces.defaults(run, method.space)
        shows = disclosure.disclosed(run)
        begun = self.record.running.get(folder)
        words = begun["words"] if begun else [*base, *self._bound(method, shows)]
        about = {"method": method, "number": level, "values": values, "shows": shows, "began": began}
        return self.journal.begin(folder, words, self._halving(method, level), about)

    def _planned(self, words: list[str]) -> Any:
        with config.session(words, self.question.config_dir) as hydra:
            run = config.plan(hydra, words).config
        assert run is not None
        return run

    def _bound(self, method: Method, shows: list[str]) -> list[str]:
        """The override that ends a trial which cannot win: what shows no more, with its mechanism, took less."""
        costs = [
            cost
            for other in self.record.methods
            if other.privacy == method.privacy
            for trial in other.trials
            if trial.reached and (cost := trial.cost(self.question.cost)) is not None
            if disclosure.no_more(trial.shows, shows)
        ]
        return self.journal.limit(MARGIN * min(costs, default=0.0))

    def _halving(self, method: Method, level: int) -> halving.Halving:
        """What may end a trial: time, and other settings of its method that are better at equal cost."""
        axis = COSTS[self.question.cost]
        earlier = [self._path(trial) for trial in method.trials if trial.number < level]
        first = earlier[0][-1][0] if earlier and earlier[0] else None
        deadline = self.journal.deadline(self.journal.share)
        once = registry.algorithms()[method.registered].one_shot
        slow = None if deadline is None or once else time.time() + SLICE * (deadline - time.time())
        comparable = self.question.prune and level > 0 and axis != "cost" and not once
        metric, goal = (str(self.record.question[key]) for key in ("metric", "goal"))
        return halving.Halving(metric, goal, axis, first if comparable else None, earlier, deadline, slow)

    def _path(self, trial: Trial) -> halving.Path:
        if trial.folder not in self.paths:
            rows: list[dict[str, Any]] = []
            if (self.journal.folder / trial.folder / "curve.csv").is_file():
                curve = reader.load(self.journal.folder / trial.folder).curve
                rows = [{str(key): value for key, value in row.items()} for row in curve.to_dict("records")]
            metric, goal = (str(self.record.question[key]) for key in ("metric", "goal"))
            self.paths[trial.folder] = halving.path_of(rows, metric, goal, COSTS[self.question.cost]) if rows else []
        return self.paths[trial.folder]

    def _widen(self, level: int) -> None:
        """Widen, once, the range of a key whose best value is at its edge."""
        if level < BEFORE_WIDENING:
            return
        for method in self.record.methods:
            trial = next(iter(trial_ranking.ranked(self.record, method)), None)
            if trial is None or method.out is not None:
                continue
            for key, side in spaces.edges(method.space, trial.values).items():
                wider = spaces.widened(method.space[key], side) if key not in method.widened else None
                if wider is not None:
                    method.space[key] = wider
                    method.widened.append(key)


def _has(method: Method, level: int) -> bool:
    return any(trial.number == level for trial in method.trials)
