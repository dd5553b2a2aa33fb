"""Trials of a method, best first; which get further seeds, and which methods get confirmation runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vflbench.choosing.halving import PRUNED
from vflbench.choosing.record import Method, Record, Trial

SHARE = 3  # of the trials, one in so many is trained with further seeds
LEAST = 2
NEAREST = 3  # methods that come to the final where none reaches the target


@dataclass(frozen=True)
class Scored:
    """A trial with what its runs had on average, one for each seed."""

    trial: Trial
    seeds: int
    reached: bool  #: the target, with every seed
    metric: float
    cost: float | None  #: to the target, or spent without reaching it


def best(record: Record, method: Method) -> Trial | None:
    """The best trial: by the mean over its seeds, once all promising ones have all seeds; None where none has a value.

    Until then, and where none of the promising ones has a value with every seed, by the first seed alone.
    """
    asked = promising(record, method) if record.repeats else []
    repeated = [runs for trial in method.trials if len(runs := runs_of(record, method, trial)) > 1]
    whole = asked and all(any(trial is runs[0] for runs in repeated) for trial in asked)
    found = [one.trial for one in _ranked(record, repeated)] if whole else []
    failed = [runs[0] for runs in repeated] if whole else []
    return next((trial for trial in [*found, *ranked(record, method)] if trial in found or trial not in failed), None)


def ranked(record: Record, method: Method) -> list[Trial]:
    """The trials that have a value, by the first seed alone, best first."""
    return [one.trial for one in _ranked(record, [[trial] for trial in method.trials])]


def finalists(record: Record) -> list[Method]:
    """The methods of the final, cheapest first; where none reached the target, those that came nearest."""
    found = [(method, trial) for method in record.methods if method.out is None and (trial := best(record, method))]
    there = [(trial.cost(record.question["cost"]) or 0.0, method) for method, trial in found if trial.reached]
    if there:
        return [method for _, method in sorted(there, key=lambda pair: pair[0])]
    sign = -1 if record.question["goal"] == "max" else 1
    return [method for method, _ in sorted(found, key=lambda pair: sign * (pair[1].metric or 0.0))[:NEAREST]]


def promising(record: Record, method: Method) -> list[Trial]:
    """As many as a third of the trials, at least two: the best by the first seed of those that did not end early."""
    there = ranked(record, method)
    return [trial for trial in there if trial.status != PRUNED][: max(LEAST, -(-len(there) // SHARE))]


def runs_of(record: Record, method: Method, trial: Trial) -> list[Trial]:
    """The trial, with its repeats where all of them are there."""
    repeats = [one for one in method.repeats if one.number == trial.number]
    return [trial, *repeats] if len(repeats) == len(record.repeats) else [trial]


def mean(values: Sequence[float | None]) -> float | None:
    """The mean; None where a value is missing."""
    there = [value for value in values if value is not None]
    return sum(there) / len(values) if len(there) == len(values) else None


def _ranked(record: Record, trials: list[list[Trial]]) -> list[Scored]:
    """The trials that have a value, by their runs, best first: those of complete levels, or all where none is."""
    each = record.trials_each
    counting = [runs for runs in trials if not each or runs[0].number < each]
    scored = [one for runs in counting if (one := _scored(record, runs)) is not None]
    return sorted(scored, key=lambda one: _order(record, one))


def _order(record: Record, one: Scored) -> tuple[bool, float, int]:
    """The least cost to the target first; where it is not reached, the best metric."""
    there = one.reached and one.cost is not None
    sign = -1 if record.question["goal"] == "max" else 1
    return not there, one.cost if there and one.cost is not None else sign * one.metric, one.trial.number


def _scored(record: Record, runs: list[Trial]) -> Scored | None:
    metric = mean([None if run.status == "diverged" else run.metric for run in runs])
    cost = mean([run.cost(record.question["cost"]) for run in runs])
    return None if metric is None else Scored(runs[0], len(runs), all(run.reached for run in runs), metric, cost)
