"""How often each method was tried. What is said of all methods holds for those that were tried as often."""

from __future__ import annotations

from typing import Any

from vflbench.choosing.formatting import label
from vflbench.choosing.halving import PRUNED, SLOW
from vflbench.choosing.record import Method, Record


def count(record: Record) -> dict[str, Any]:
    """Trials and confirmation runs of the methods, for the answer.

    Returns
    -------
    `trials` : those of every complete level.
    `as_often` : names of the methods that were tried as often as any.
    `less` : the others, each with `name`, `label` and, in words, how `often`.
    `ended` : of `as_often`, those of which a trial was ended before it reached the target.
    """
    levels = max(record.trials_each, 1)  # of a first level that is not complete, those that are there count
    found: dict[str, Any] = {"trials": record.trials_each, "as_often": [], "less": [], "ended": []}
    for method in record.methods:
        if (often := _less(record, method, levels)) is None:
            found["as_often"].append(method.name)
            if any(trial.status == PRUNED and not trial.reached for trial in method.trials):
                found["ended"].append(method.name)
        else:
            called = label(method.algorithm, method.privacy)
            found["less"].append({"name": method.name, "label": called, "often": often})
    return found


def in_words(tried: dict[str, Any]) -> str:
    """Which methods were tried less often; empty where none was."""
    less = tried["less"]
    if not less:
        return ""
    named = ", ".join(f"{one['label']} ({one['often']})" for one in less)
    return f"{len(less)} method{'s were' if len(less) > 1 else ' was'} tried less often: {named}."


def _less(record: Record, method: Method, levels: int) -> str | None:
    """How much less often than others a method was tried; None: as often, or with all settings that it has."""
    wanted = levels if method.space else 1
    trials = [trial for trial in method.trials if trial.number < wanted]
    cut = sum(trial.reason == SLOW and not trial.reached for trial in trials)
    if len(trials) - cut < wanted:
        early = f", {cut} cut short by the budget" if cut else ""
        return f"{len(trials)} of {wanted} trials{early}" if trials else "not at all"
    finals, seeds = len(method.finals), len(record.question["seeds"])
    confirmed = any(one.finals for one in record.methods) and method.out is None and record.status != "complete"
    return f"{finals} of {seeds} confirmation runs" if confirmed and finals < seeds else None
