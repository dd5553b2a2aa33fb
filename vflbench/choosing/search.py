"""The search: trials level by level, the same number for every method, and the final's runs.

Trial 0 of a method is its shipped setting. Level k has trial k of every method, cheapest first, so that a budget that
ends lowers the number for all alike. A trial is an ordinary run in its own folder. It ends at the target, at a bound
on what it may send, or at a rung of the halving. The bound loses nothing: what has spent 1.5 times the best cost to the
target known so far cannot win any more, where that best shows no more and has the same mechanism.

All that is known is in the record, written after each run. A search that goes on does what it would have done.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vflbench import config, registry
from vflbench.choosing import baselines, disclosure, halving, spaces, trial_ranking
from vflbench.choosing.formatting import missed, time_left
from vflbench.choosing.question import Question
from vflbench.choosing.record import CUT, Excluded, Method, Record, Trial, final_folder, slug
from vflbench.choosing.worker_pool import Backend, Task, WorkerPool
from vflbench.results import reader, selection
from vflbench.results.pricing import Charged
from vflbench.results.texts import human_bytes
from vflbench.types import ConfigError, VflbenchError

MARGIN = 1.5  # times the best cost to the target: second places are known, too
FINAL_MARGIN = 3.0  # times what the best setting took on the tuning seed: another seed may take longer
SHARE = 0.6  # of the budget, for trials, where finals or runs with further seeds follow
SLICE = 0.25  # of the time that is left for trials, for one of them: no method takes the time of all others
MEASURING = 0.15  # of the budget, for what a round of each method sends
MOST_TRIALS = 32  # of a method, where only the budget ends the search
BEFORE_WIDENING = 3  # trials of a method
AXES = {"bytes": "bytes", "seconds": "virtual_seconds", "weighted": "cost"}
LIMITS = {"bytes": "max_bytes", "seconds": "max_virtual_seconds"}  # key of a run that bounds a cost
QUIET = ("floor=none", "plot=none")


class Search:
    """One search in its folder; `entering` are the methods of a new one."""

    def __init__(self, question: Question, folder: Path, record: Record, entering: list[Method], work: Backend) -> None:
        self.question, self.folder, self.record, self.entering = question, folder, record, entering
        self.work, self.report, self.workers = work, work.report, WorkerPool(question.jobs, work.executor)
        self.began = time.time() - record.spent_seconds
        self.paths: dict[str, halving.Path] = {}  # of trials' folders
        self.share = SHARE if question.finals or question.seeds > 1 else 1.0  # of the budget, for trials

    # --- the whole ------------------------------------------------------------------------------------------------

    def run(self) -> Record:
        """Search, and train the final's runs; the record is written as it grows."""
        try:
            with self.workers:
                if not self.record.methods:
                    self._enter()
                if not self._final_began():
                    self._reopen()
                    self._trials()
                    self._repeat()
                    self._choose()
                elif (self.question.trials or 0) > (each := self.record.trials_each):
                    self._note(f"settings stay, as a final has begun: methods are compared on {each} trials each")
                cut = any(note.startswith(CUT) for note in self.record.notes)
                self.record.status = "finals" if self.question.finals else "out of budget" if cut else "complete"
                if self.question.finals:
                    self._finals()
        except KeyboardInterrupt:
            searching, self.record.status = self.record.status == "searching", "interrupted"
            if searching and self.record.methods:
                self._choose()  # the best so far; a search that goes on chooses anew
            raise
        finally:
            if self.record.methods:
                self._write()
        return self.record

    def _final_began(self) -> bool:
        """Whether a run of the final has begun: then the settings that were chosen stay."""
        folders = [*self.record.running, *(folder for method in self.record.methods for folder in method.finals)]
        return any(folder.startswith("finals/") for folder in folders)

    def _reopen(self) -> None:
        """Trials go on, with what a smaller budget left out; a method whose shipped setting fails stays out."""
        self.record.status = "searching"
        self._forget(CUT)
        for method in self.record.methods:
            method.best, method.edges = None, []
            if not any(trial.number == 0 and trial.status == "failed" for trial in method.trials):
                method.out = None

    def _write(self) -> None:
        self.record.spent_seconds = time.time() - self.began
        self.record.write(self.folder)

    def _deadline(self, share: float) -> float | None:
        return None if self.question.budget is None else self.began + share * self.question.budget

    def _over(self, share: float) -> bool:
        deadline = self._deadline(share)
        return deadline is not None and time.time() >= deadline

    def _note(self, text: str) -> None:
        if text and text not in self.record.notes:
            self.record.notes.append(text)

    def _forget(self, beginning: str) -> None:
        self.record.notes = [note for note in self.record.notes if not note.startswith(beginning)]

    # --- who enters -----------------------------------------------------------------------------------------------

    def _enter(self) -> None:
        """Order those that enter by what they are expected to send; those that the data refuse are excluded."""
        record, methods = self.record, self.entering
        self.report(f"what a round sends of each of {len({method.algorithm for method in methods})} algorithms")
        unit = "seconds" if self.question.cost == "seconds" else "bytes"
        refused: dict[str, dict[str, Any]] = {}
        for task, found in self.workers.carry_out(self._measured(methods), self.work.measure):
            if "error" in found:
                refused[task.about.algorithm] = found
                continue
            record.question |= {"metric": found["metric"], "goal": found["goal"]}
            if found["floor"]:
                record.floor = found["floor"]
            self._note(found.get("large_delta", ""))
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
                self._note(f"{method.name} has no key to search: one setting is tried")
        record.methods = sorted(entered, key=lambda method: math.inf if method.expected is None else method.expected)
        self._write()

    def _measured(self, methods: list[Method]) -> Iterator[Task]:
        """A round of each algorithm, with the first of its mechanisms; the first one computes floor and ceiling."""
        first = {method.algorithm: method for method in reversed(methods)}
        for number, name in enumerate(dict.fromkeys(method.algorithm for method in methods)):
            if number and self._over(MEASURING):
                return
            words = [*first[name].words, *self._of_question(self.question.seed), "plot=none"]
            yield Task(([*words, *(["floor=none"] if number else [])],), first[name])

    def _planned(self, words: list[str]) -> Any:
        with config.session(words, self.question.config_dir) as hydra:
            run = config.plan(hydra, words).config
        assert run is not None
        return run

    def _of_question(self, seed: int) -> list[str]:
        target = self.question.target
        return [f"seed={seed}", *([f"target={target!r}"] if target is not None else [])]

    # --- trials ---------------------------------------------------------------------------------------------------

    @property
    def _goal(self) -> str:
        return str(self.record.question["goal"])

    def _trials(self) -> None:
        self._leave_out_slow()
        level = self.record.trials_each
        while level < (self.question.trials or MOST_TRIALS) and not self._over(self.share):
            self._widen(level)  # not after the last one: then the edge is said
            whole = True
            for task, failure in self.workers.carry_out(self._level(level), self.work.train):
                whole &= self._trial_ended(task, failure)
            whole &= all(self._has(method, level) for method in self._tuned(level))
            if not whole:
                break
            level += 1
            self.record.trials_each = level
            self._write()
            if not any(method.space and method.out is None for method in self.record.methods):
                break
        self._say_what_budget_cut()

    def _leave_out_slow(self) -> None:
        """A method that the budget does not even take to its first evaluation is not begun."""
        most = SLICE * self.share * (math.inf if self.question.budget is None else self.question.budget)
        for method in self.record.methods:
            wall = method.wall_seconds or 0.0
            if not method.trials and method.out is None and wall > most:
                method.out = (
                    f"the budget is too small: its first evaluation would take about {wall:.0f} s here, "
                    f"and a trial has {most:.0f} s"
                )

    def _say_what_budget_cut(self) -> None:
        each, asked = self.record.trials_each, self.question.trials
        begun = max((len(method.trials) for method in self.record.methods), default=0)
        if not each:
            late = [method.name for method in self.record.methods if not method.trials and method.out is None]
            self._note(f"{CUT} ended before every method was tried once" + (f": not {', '.join(late)}" if late else ""))
        elif begun > each:
            self._note(f"{CUT} ended during trial {each + 1}, so it was discarded: methods are compared on {each} each")
        if asked is not None and each < asked and self._over(self.share):
            self._note(
                f"{CUT} was too small for {asked} trial{'s' * (asked != 1)}: methods are compared on {each} each"
            )

    def _tuned(self, level: int) -> list[Method]:
        """The methods that have a trial at a level, cheapest first."""
        return [method for method in self.record.methods if method.out is None and (not level or method.space)]

    def _has(self, method: Method, level: int) -> bool:
        return any(trial.number == level for trial in method.trials)

    def _level(self, level: int) -> Iterator[Task]:
        """The trials of a level that are not there yet; each is decided on when it can begin."""
        for method in self._tuned(level):
            if self._has(method, level):
                continue
            if self._over(self.share):
                return
            task = self._trial(method, level)
            if task is not None:
                yield task

    def _trial(self, method: Method, level: int) -> Task | None:
        """A trial to train, less values that do not go with others; None where it is refused: that counts as one."""
        folder = f"trials/{slug(method)}/{level}"
        values = spaces.point(method.space, self.question.seed, level) if level else {}
        began, run = time.time() - self.began, None
        while run is None:
            base = [*method.words, *spaces.in_words(values), *self._of_question(self.question.seed), *QUIET]
            try:
                run = self._planned(base)
            except ConfigError as error:
                if (fewer := spaces.without(values, error.problems, method.space)) == values:
                    reason = "; ".join(str(problem).rstrip(".") for problem in error.problems)
                    failed = Trial(level, values, folder, "failed", False, None, None, None, began, 0.0, reason)
                    self._keep(method, failed)
                    return None
                values = fewer
        values = values or spaces.defaults(run, method.space)
        shows = disclosure.disclosed(run)
        begun = self.record.running.get(folder)
        words = begun["words"] if begun else [*base, *self._bound(method, shows)]
        about = {"method": method, "number": level, "values": values, "shows": shows, "began": began}
        return self._task(folder, words, self._halving(method, level), about)

    def _task(self, folder: str, words: list[str], halt: halving.Halving, about: Any) -> Task:
        """A run to train, noted as begun; it goes on where it was stopped, or anew where time had ended it."""
        begun = self.record.running.get(folder)
        again = ["overwrite=true"] if begun and begun.get("late") else ["resume=true"]
        self.record.running[folder] = {"words": words}
        self._write()
        return Task(([*words, *again], str(self.folder / folder), halt), about)

    def _bound(self, method: Method, shows: list[str]) -> list[str]:
        """The override that ends a trial which cannot win: what shows no more, with its mechanism, took less."""
        key = LIMITS.get(self.question.cost)
        costs = [
            cost
            for other in self.record.methods
            if other.privacy == method.privacy
            for trial in other.trials
            if trial.reached and (cost := trial.cost(self.question.cost)) is not None
            if disclosure.no_more(trial.shows, shows)
        ]
        least = min(costs, default=0.0)
        return [f"{key}={MARGIN * least!r}"] if key and least else []

    def _halving(self, method: Method, level: int) -> halving.Halving:
        """What may end a trial: time, and other settings of its method that are better at equal cost."""
        axis = AXES[self.question.cost]
        earlier = [self._path(trial) for trial in method.trials if trial.number < level]
        first = earlier[0][-1][0] if earlier and earlier[0] else None
        deadline = self._deadline(self.share)
        once = registry.algorithms()[method.registered].one_shot
        slow = None if deadline is None or once else time.time() + SLICE * (deadline - time.time())
        comparable = self.question.prune and level > 0 and axis != "cost" and not once
        return halving.Halving(
            str(self.record.question["metric"]), self._goal, axis, first if comparable else None,
            earlier, deadline, slow,
        )  # fmt: skip

    def _path(self, trial: Trial) -> halving.Path:
        if trial.folder not in self.paths:
            rows: list[dict[str, Any]] = []
            if (self.folder / trial.folder / "curve.csv").is_file():
                curve = reader.load(self.folder / trial.folder).curve
                rows = [{str(key): value for key, value in row.items()} for row in curve.to_dict("records")]
            metric, axis = str(self.record.question["metric"]), AXES[self.question.cost]
            self.paths[trial.folder] = halving.path_of(rows, metric, self._goal, axis) if rows else []
        return self.paths[trial.folder]

    def _trial_ended(self, task: Task, failure: str) -> bool:
        """Keep a trial; False where time ended it, so that it is none."""
        about = task.about
        method, (folder, run) = about["method"], self._found(task)
        if run is not None and run.summary.get("reason") == halving.LATE:
            self.record.running[folder]["late"] = True
            self._write()
            return False
        wall = time.time() - self.began - about["began"]
        how = Trial(about["number"], about["values"], folder, "failed", False, None, None, None, about["began"], wall)
        how.reason, how.shows, how.seed = failure or None, about["shows"], about.get("seed")
        if run is not None:
            self._judge(how, run)
        self.record.running.pop(folder, None)
        self._keep(method, how)
        return True

    def _found(self, task: Task) -> tuple[str, reader.Run | None]:
        """The folder of a task's run, relative to the record's, and the run; None where it has not ended."""
        place = Path(task.arguments[1])
        run = reader.load(place) if (place / "summary.json").is_file() else None
        if run is not None and (place / "manifest.json").is_file():
            self.record.check_experiment(run.manifest)
        return place.relative_to(self.folder).as_posix(), run

    def _judge(self, trial: Trial, run: reader.Run) -> None:
        """Status, metric and costs of a trial, from its run."""
        summary, target = run.summary, self.question.target
        trial.status, trial.reason = summary["status"], summary.get("reason")
        if trial.status == "budget":
            trial.status = halving.PRUNED
            if str(trial.reason).startswith(tuple(LIMITS.values())):
                lost = f"{MARGIN:g} times the least cost so far: it cannot win any more"
                again = f"{FINAL_MARGIN:g} times what its setting took with the first seed"
                trial.reason = f"it spent more than {lost if trial.seed is None else again}"
        if trial.status == "failed" or not len(run.curve):
            return
        trial.wall_seconds = max(trial.wall_seconds, summary["wall_seconds"])
        place = selection.reached(run, target) if target is not None else None
        trial.reached = place is not None
        column = selection.judged(run)
        if column is not None and len(values := run.curve[column].dropna()):
            trial.metric = float(values.max() if self._goal == "max" else values.min())
        trial.sent = float(summary["bytes"]["total"])
        trial.bytes, trial.seconds, trial.weighted = (spent(run, axis, place) for axis in AXES.values())

    def _keep(self, method: Method, trial: Trial) -> None:
        trials = method.trials if trial.seed is None else method.repeats
        trials.append(trial)
        trials.sort(key=lambda one: (one.number, one.seed or 0))
        if trial.number == 0 and trial.seed is None and trial.status == "failed":
            method.out = f"its shipped setting fails: {trial.reason}"
        self._write()
        which = f"trial {trial.number}" + (f", seed {trial.seed}" if trial.seed is not None else "")
        self.report(f"[{which}] {method.name}: {self._in_words(trial)}{time_left(self.question.budget, self.began)}")

    def _in_words(self, trial: Trial) -> str:
        metric = self.record.question["metric"]
        value = f"{metric} {trial.metric:.4g}" if trial.metric is not None else "no value"
        cost = trial.cost(self.question.cost)
        amount = "" if cost is None else human_bytes(int(cost)) if self.question.cost == "bytes" else f"{cost:.4g}"
        if trial.status == "failed":
            return f"failed ({trial.reason})"
        if trial.reached:
            return f"{value}, reached with {amount}"
        return f"{value} after {amount}, {trial.status}" + (f" ({trial.reason})" if trial.reason else "")

    # --- further seeds --------------------------------------------------------------------------------------------

    def _repeat(self) -> None:
        """Train the most promising settings with further seeds, over which the mean decides."""
        for task, failure in self.workers.carry_out(self._repeats(), self.work.train):
            self._trial_ended(task, failure)
        if self._unrepeated():
            self._note(f"{CUT} ended before every promising setting was trained with every seed")

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
            if self._over(1.0):
                return
            values = spaces.in_words(trial.values) if trial.number else []
            words = [*method.words, *values, *self._of_question(seed), *self._at_most(trial), *QUIET]
            about = {"method": method, "number": trial.number, "values": trial.values, "seed": seed}
            about |= {"shows": trial.shows, "began": time.time() - self.began}
            yield self._task(f"{trial.folder}-seed{seed}", words, self._until_the_end(), about)

    def _until_the_end(self) -> halving.Halving:
        """What ends a run only where the time of the whole search is over."""
        return halving.Halving("", "max", "bytes", None, [], self._deadline(1.0))

    # --- the best -------------------------------------------------------------------------------------------------

    def _best(self, method: Method) -> Trial | None:
        return trial_ranking.best(self.record, method)

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

    def _choose(self) -> None:
        """The best setting of each method, and who comes to the final."""
        ended = "the search was stopped" if self.record.status == "interrupted" else f"{CUT} ended"
        for method in self.record.methods:
            trial = self._best(method)
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
                trial = self._best(method)
                assert trial is not None
                method.out = missed(method.trials, trial)
        self._write()

    # --- the final ------------------------------------------------------------------------------------------------

    def _floor(self) -> None:
        """Alone and centralised, where no learner of tables can tell."""
        for task, failure in self.workers.carry_out(
            baselines.tasks(self.record, self.question, self.folder), self.work.train
        ):
            if not failure and (run := self._found(task)[1]) is not None:
                self.record.floor[task.about] = baselines.level(run)
                self._write()

    def _finals(self) -> None:
        self._floor()
        finalists = trial_ranking.finalists(self.record)
        for task, failure in self.workers.carry_out(self._final_tasks(finalists), self.work.train):
            method, (folder, run) = task.about, self._found(task)
            if run is not None and run.summary.get("reason") == halving.LATE:
                self.record.running[folder]["late"] = True
                self._write()
                continue
            self.record.running.pop(folder, None)
            if run is not None and not failure:
                method.finals = sorted({*method.finals, folder}, key=reader.natural)
            else:
                self._note(f"{folder} failed: {failure}")
            self._write()
            status = run.summary["status"] if run is not None else failure
            self.report(
                f"[final] {method.name}, {Path(folder).name}: {status}{time_left(self.question.budget, self.began)}"
            )
        late = [folder for folder, begun in self.record.running.items() if begun.get("late")]
        cut = (not finalists and self._over(self.share)) or (self.record.missing() and (late or self._over(1.0)))
        self.record.status = "out of budget" if cut else "complete"

    def _final_tasks(self, finalists: list[Method]) -> Iterator[Task]:
        for method in finalists:
            for seed in self.record.question["seeds"]:
                folder = final_folder(method, seed)
                if folder in method.finals:
                    continue
                if self._over(1.0):
                    return
                words = [*self.setting(method), *self._of_question(seed), *self._at_most(self._best(method))]
                yield self._task(folder, [*words, "plot=none"], self._until_the_end(), method)

    def setting(self, method: Method) -> list[str]:
        """The overrides of a method's best setting, without seed and target."""
        trial = self._best(method)
        return [*method.words, *(spaces.in_words(trial.values) if trial is not None and trial.number else [])]

    def _at_most(self, trial: Trial | None) -> list[str]:
        """The override that ends a run of a trial's setting with another seed, if it takes much more than the trial."""
        key = LIMITS.get(self.question.cost)
        cost = trial.cost(self.question.cost) if trial is not None and trial.reached else None
        return [f"{key}={FINAL_MARGIN * cost!r}"] if key and cost else []


# --- pieces -----------------------------------------------------------------------------------------------------------


def spent(run: reader.Run, axis: str, place: int | None) -> float | None:
    """What a run took, to a place of its curve or in all, with alignment and predictions; None where it has none."""
    values = run.curve[axis].to_numpy(dtype=float)
    found = float(values[place] if place is not None else values[-1])
    return None if found != found else found + Charged().more(run, axis)
