"""Methods, best first: the runs that judge each, and what they took to the target."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vflbench.choosing.formatting import label
from vflbench.choosing.question import COSTS
from vflbench.choosing.record import Method, Record
from vflbench.plots import demands, running_time
from vflbench.results import reader, selection
from vflbench.results.compare import Paired, middle, paired
from vflbench.results.pricing import Charged
from vflbench.results.reader import Run
from vflbench.results.selection import Setting
from vflbench.types import ENDED_WELL, VflbenchError

CHARGED = Charged()  # alignment, setup, and as many predictions as each run says


@dataclass
class Contender:
    """A method with the runs that judge it."""

    method: Method
    runs: list[Run]
    setting: Setting | None  #: of its runs; None without any
    seen: demands.Seen | None
    of: int  #: seeds that every method should have
    why: str | None = None  #: why it is not ranked
    lost: list[str] = field(default_factory=list)  #: why a run of it does not count
    tuned: bool = False  #: its runs are those of tuning, since there are no finals

    @property
    def name(self) -> str:
        """As in the record."""
        return self.method.name

    @property
    def label(self) -> str:
        """The algorithm as its paper calls it, and the mechanism where there is one."""
        return label(self.method.algorithm, self.method.privacy)

    def spent(self, axis: str, target: float) -> dict[int, float]:
        """Seed -> what it took to reach `target`, one of COSTS or a curve's column; without seeds that did not."""
        column, found = COSTS.get(axis, axis), {}
        for run in self.runs:
            place = selection.reached(run, target)
            if place is not None and (value := CHARGED.spent(run, column, place)) is not None:
                found[int(run.summary["seed"])] = value
        return found

    def best(self) -> list[float]:
        """The best judged value of each run."""
        return [value for run in self.runs if (value := selection.best(run)) is not None]


@dataclass(frozen=True)
class Ranked:
    """A method's place among those that are compared."""

    contender: Contender
    spent: Mapping[int, float]  #: seed -> what it took
    behind: Paired | None  #: beside the first, where both reached the target in every seed

    @property
    def share(self) -> float:
        """Of the seeds, those that reached the target."""
        return len(self.spent) / self.contender.of

    @property
    def value(self) -> float | None:
        """The geometric mean of what it took."""
        return middle(list(self.spent.values())) if self.spent else None


def contenders(folder: Path, record: Record) -> list[Contender]:
    """Every method that has finals; where none has, every method by its best trial."""
    finals = any(method.finals for method in record.methods)
    seeds = record.question.get("seeds") if finals else None
    found = []
    for method in record.methods:
        runs, lost = [], list[str]()
        for name in method.finals if finals else _tuned(method, record):
            try:
                runs.append(_checked(folder / name))
            except VflbenchError as error:
                lost.append(str(error))
        if runs or lost:
            setting = selection.settings(runs)[0] if runs else None
            if setting is not None:
                setting.runs = runs
            seen = None if setting is None else demands.seen(setting)
            found.append(Contender(method, runs, setting, seen, 0, lost=lost, tuned=not finals))
    most = max((len(one.runs) + len(one.lost) for one in found), default=1)
    for one in found:
        one.of = max(most, len(seeds or ()))
        one.why = _why_not(one, record.question)
    return found


def _tuned(method: Method, record: Record) -> list[str]:
    """The run of a method's best trial; of one that came to no choice, its best by the metric, of complete levels."""
    if method.best is not None:
        return [trial.folder for trial in method.trials if trial.number == method.best]
    levels, sign = max(record.trials_each, 1), 1 if record.question["goal"] == "max" else -1
    scored = [trial for trial in method.trials if trial.metric is not None and trial.number < levels]
    best = max(scored, key=lambda trial: (trial.reached, sign * (trial.metric or 0.0)), default=None)
    return [best.folder] if best else []


def _checked(folder: Path) -> Run:
    """The run, if it can be judged.

    Raises
    ------
    VflbenchError : it cannot; the message says why.
    """
    run = reader.load(folder)
    if run.status not in ENDED_WELL:
        why = f": {run.summary['reason']}" if run.status and run.summary["reason"] else ""
        raise VflbenchError(f"{folder.name} is {run.status or 'not finished'}{why}")
    if not len(run.curve):
        raise VflbenchError(f"{folder.name} has no evaluation")
    run.check_curve()
    _ = run.manifest
    return run


def _why_not(one: Contender, question: Mapping[str, Any]) -> str | None:
    """Why a method is not ranked, whatever the others are."""
    if one.seen is None:
        return f"none of its runs counts: {one.lost[0]}"
    if not any(run.summary["bytes"]["total"] or CHARGED.more(run, "bytes") for run in one.runs):
        return "it sends nothing: it is a line to compare with, no federation"
    if all(selection.judged(run) is None for run in one.runs):
        return "it has no validation rows: its target would be judged by test rows"
    if question["cost"] == "seconds" and not all(map(running_time.may_be_shown, one.runs)):
        return "its running time is a prediction that real processes did not confirm"
    wanted = demands.wanted(question.get("demand"))
    if wanted is not None and (unmet := demands.unmet(one.seen, wanted, noise(question))):
        return unmet
    if (limit := question.get("epsilon")) is not None:
        if one.seen.epsilon is None:
            return "it has no epsilon"
        if one.seen.epsilon > limit * (1 + 1e-9):
            return f"its epsilon, {one.seen.epsilon:.4g}, is above {limit:g}"
    return None


def noise(question: Mapping[str, Any]) -> float:
    """The epsilon up to which noise hides what is sent."""
    epsilon = question.get("epsilon")
    return demands.NOISE if epsilon is None else float(epsilon)


def kinds(found: Sequence[Contender], question: Mapping[str, Any]) -> list[tuple[str | None, list[Contender]]]:
    """Those that are ranked together, with their guarantee; the first kind gives the answer.

    There is one, without a guarantee, where no epsilon is asked for and none differs. Of several kinds the first is one
    of which a method reaches the target in every seed, or in any; then one that covers the transcript; then the
    cheapest, and of those that cost as much that which shows least.
    The `why` of the others says that they are of another kind.
    """
    pool = [one for one in found if one.why is None]
    if not pool or (question.get("epsilon") is None and len({one.seen.guarantee for one in pool if one.seen}) < 2):
        return [(None, pool)] if pool else []
    by_kind: dict[str, list[Contender]] = {}
    for one in pool:
        by_kind.setdefault((one.seen.guarantee if one.seen else None) or "", []).append(one)

    def disclosed(row: Ranked) -> tuple[str, ...]:
        return (row.contender.seen.clear if row.contender.seen else None) or ()

    def order(kind: str) -> tuple[bool, bool, bool, float, int]:
        first = rank(by_kind[kind], question["cost"], float(question["target"]), question["goal"])[0]
        least = math.inf if first.value is None else first.value
        return first.share < 1, not first.share, "covers the transcript" not in kind, least, len(disclosed(first))

    every = sorted(by_kind, key=order)
    for kind in every[1:]:
        for one in by_kind[kind]:
            one.why = f"its epsilon is of another kind, and is not compared: {kind}"
    return [(kind, by_kind[kind]) for kind in every]


def rank(pool: Sequence[Contender], axis: str, target: float, goal: str) -> list[Ranked]:
    """Best first: by the share of seeds that reach `target`, then by what that takes, then by the judged metric."""
    spent = [one.spent(axis, target) for one in pool]
    return ordered(pool, spent, 1 if goal == "max" else -1)


def ordered(pool: Sequence[Contender], spent: Sequence[Mapping[int, float]], sign: int) -> list[Ranked]:
    """As `rank`, from what each method took."""

    def key(row: Ranked) -> tuple[float, float, float]:
        best = row.contender.best()
        value = row.value
        return -row.share, float("inf") if value is None else value, -sign * sum(best) / len(best) if best else 0.0

    rows = sorted((Ranked(one, took, None) for one, took in zip(pool, spent, strict=True)), key=key)
    whole = rows and rows[0].share == 1
    return [
        Ranked(
            row.contender, row.spent, paired(rows[0].spent, row.spent) if whole and place and row.share == 1 else None
        )
        for place, row in enumerate(rows)
    ]
