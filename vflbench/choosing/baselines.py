"""Baselines without a federation, and whether one is needed: the answer begins with them."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from vflbench.choosing.question import Question
from vflbench.choosing.record import Record
from vflbench.choosing.worker_pool import Task
from vflbench.plots import baseline_lines
from vflbench.plots.baseline_lines import NAMES, by_division
from vflbench.results import selection
from vflbench.results.folder import score_of
from vflbench.results.reader import Run

# of data whose every client has labels: what is learnt alone and in one place, where trees cannot tell
REFERENCES = {
    "graph": {"alone": "standalone_gnn", "centralised": "centralized_gnn"},
    "sharded": {"alone": "local_sgd", "centralised": "centralized_sgd"},
}


def tasks(record: Record, question: Question, folder: Path) -> Iterator[Task]:
    """Runs of the methods of REFERENCES that the record has no level of, with their shipped settings."""
    layout = question.data.layouts[0] if question.data else ""
    words = [word for word in record.methods[0].words if not word.startswith(("algorithm=", "privacy"))]
    seed = record.question["seeds"][0]
    for level, name in REFERENCES.get(layout, {}).items():
        if (record.floor.get(level) or {}).get("value") is None:
            own = [f"algorithm={name}", *words, f"seed={seed}", "floor=none", "plot=none", "resume=true"]
            yield Task((own, str(folder / "floor" / name), None), level)


def level(run: Run) -> dict[str, Any]:
    """What a run of `tasks` shows, as an entry of the record's floor."""
    summary, found = run.summary, score_of(run.summary["metric"])
    learner = f"algorithm={summary['algorithm']} with defaults, seed {summary['seed']}"
    return {
        "metric": summary["metric"]["name"],
        "value": found,
        "validation": selection.best(run),
        "learner": learner,
        "why": None,
    }


def lines(record: Record, runs: Sequence[Run], target: float) -> list[dict[str, Any]]:
    """Ship it, the label owner alone and centralised: what the record has, else the runs."""
    rows = _recorded(record.floor) or (baseline_lines.rows(runs) if len(by_division(runs)) == 1 else [])
    goal = record.question["goal"]
    return [
        {
            "name": {"ship it": "ship_it", NAMES["centralised"]: "centralised"}.get(row["name"], "alone"),
            "label": row["name"],
            "validation": row["validation"],
            "test": row["selected"],
            "bytes": row["bytes"],
            "seconds": row["seconds"],
            "reaches": reaches(_level(row), target, goal),
            "note": row["note"],
        }
        for row in rows
    ]


def _recorded(floor: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The record's floor, as `baseline_lines.rows` has it."""
    found = []
    shipped = floor.get("ship_it") or {}
    if shipped.get("bytes"):
        found.append({"name": "ship it", "validation": None, "selected": None, "note": shipped.get("form")})
        found[-1] |= {"bytes": float(shipped["bytes"]), "seconds": shipped.get("seconds")}
    for key, label in NAMES.items():
        entry = floor.get(key) or {}
        if entry.get("value") is not None:
            sent = 0.0 if key == "alone" else None
            found.append({"name": label, "validation": entry.get("validation"), "selected": entry["value"]})
            found[-1] |= {"bytes": sent, "seconds": sent, "note": entry.get("learner")}
    return found


def _level(row: Mapping[str, Any]) -> float | None:
    """The value that a line reaches on validation rows; older runs have only its test value."""
    value: float | None = row["selected"] if row["validation"] is None else row["validation"]
    return value


def reaches(value: float | None, target: float, goal: str) -> bool | None:
    """Whether a value reaches the target; None if there is no value."""
    return None if value is None else value >= target if goal == "max" else value <= target


def verdict(
    lines: Sequence[Mapping[str, Any]], target: float, goal: str, metric: str, best: float | None, even: bool = True
) -> dict[str, Any]:
    """Whether a federation is needed, and whether anyone can reach the target.

    Parameters
    ----------
    best : the methods' best value.
    even : whether all methods were tried as often.

    Returns
    -------
    `kind` : `not needed`, `nobody can`, `needed` or `unknown`; and `words`, empty if there is nothing to say.
    """
    by_name = {line["name"]: line for line in lines}
    alone, whole = by_name.get("alone"), by_name.get("centralised")
    if alone and alone["reaches"]:
        value = f"{metric} {_level_of(alone):.4g}, and {target:g} was asked for"
        words = f"No federation is needed: the label owner alone reaches the target ({value})."
        return {"kind": "not needed", "words": words}
    sign = 1 if goal == "max" else -1
    if whole and whole["reaches"] is False and (best is None or sign * best <= sign * _level_of(whole)):
        value = f"{metric} {_level_of(whole):.4g}, and {target:g} was asked for"
        begin, kind = ("Nobody can: even", "nobody can") if even else ("Even", "unknown")
        return {"kind": kind, "words": f"{begin} all columns in one place do not reach the target ({value})."}
    return {"kind": "needed" if alone else "unknown", "words": ""}


def _level_of(line: Mapping[str, Any]) -> float:
    return float(line["test"] if line["validation"] is None else line["validation"])
