"""Floor and ceiling beside the methods of a picture or a table: ship it, label owner alone, centralised.

What they are is said in runner/task_baselines.py; here they are read from runs' summaries. Older runs have none.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from vflbench.results import selection
from vflbench.results.folder import score_of
from vflbench.results.identity import flat, identifying
from vflbench.results.reader import Run
from vflbench.results.texts import human_bytes
from vflbench.types import DIVISORS, TRAINING_METRIC

NAMES = {"alone": "label owner alone", "centralised": "centralised"}
# Methods that are the line where every party has labels.
METHODS = {"alone": ("standalone_gnn", "local_sgd"), "centralised": ("centralized_gnn", "centralized_sgd")}
INK = "#333333"
BEYOND = 1.5  # times the largest x of the curves: a line further right would squeeze them
NOTHING = {"rmse": 0.02}  # a gain below this share of the value without the party is nothing ...
LITTLE = 0.01  # ... of a share, such as accuracy, below this difference


@dataclass(frozen=True)
class Baselines:
    """Floor and ceiling of one division of the data, over its seeds."""

    words: str  # what differs from other divisions of the same picture
    bytes: float
    largest: float  # bytes of the sender that sends most
    seconds: float | None  # None: the runs' networks differ, or there was none
    form: str
    levels: dict[str, tuple[float, float | None]]  # of NAMES -> mean, and standard deviation of several seeds
    validation: dict[str, float]  # the same on validation rows: the mean
    learners: dict[str, str]
    why: str  # where a level is missing
    brings: dict[str, tuple[float, float]]  # party -> mean value without it, mean gain
    seeds: int


def by_division(runs: Sequence[Run]) -> list[Baselines]:
    """Floor and ceiling of each division of the data among `runs`, of one data set and metric."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        if run.summary.get("ship_it", {}).get("bytes"):
            groups.setdefault(json.dumps(_division(run), sort_keys=True, default=str), []).append(run)
    divisions = [flat(json.loads(key)) for key in groups]
    varied = [key for key in divisions[0] if any(d.get(key) != divisions[0][key] for d in divisions)] if groups else []
    return [
        _baselines(own, runs, " ".join(f"{key}={division.get(key)}" for key in varied))
        for own, division in zip(groups.values(), divisions, strict=True)
    ]


def _division(run: Run) -> dict[str, Any]:
    """The keys that decide how the run's data are divided; of a default that was adapted to the data, what was used."""
    config = identifying(run.manifest["config"])
    used = {key.removeprefix("algorithm."): values["used"] for key, values in run.summary.get("adapted", {}).items()}
    algorithm = {**config["algorithm"], **used}
    parts = next((algorithm[key] for key in DIVISORS if key in algorithm), 1)  # as types.division
    if parts is None:  # as many as the data make
        parts = len(run.summary.get("brings", {})) or None
    return {"dataset": config["dataset"], "parties": parts}


def _baselines(own: Sequence[Run], every: Sequence[Run], words: str) -> Baselines:
    by_seed = {run.summary["seed"]: run.summary for run in reversed(own)}
    shipped = [summary["ship_it"] for summary in by_seed.values()]
    seconds = {(run.summary["seed"], run.summary["ship_it"]["seconds"]) for run in own}
    found, learners, why = dict[str, tuple[float, float | None]](), dict[str, str](), ""
    held: dict[str, float] = {}
    for name in NAMES:
        entries = [summary[name] for summary in by_seed.values() if name in summary]
        values = [entry["value"] for entry in entries if entry.get("value") is not None]
        learner = next((entry["learner"] for entry in entries if entry.get("learner")), "")
        if known := [entry["validation"] for entry in entries if entry.get("validation") is not None]:
            held[name] = float(np.mean(known))
        if not values:
            why = next((entry["why"] for entry in entries if entry.get("why")), "")
            methods = [run for run in every if run.summary["algorithm"] in METHODS[name]]
            values = [score for run in methods if (score := score_of(run.summary["metric"])) is not None]
            learner = methods[0].summary["algorithm"] if methods else ""
        if values:
            spread = float(np.std(values, ddof=1)) if len(values) > 1 else None
            found[name], learners[name] = (float(np.mean(values)), spread), learner
    parties = dict.fromkeys(party for summary in by_seed.values() for party in summary.get("brings", {}))
    brings = {}
    for party in parties:
        entries = [s["brings"][party] for s in by_seed.values() if party in s.get("brings", {})]
        without, gain = (float(np.mean([entry[key] for entry in entries])) for key in ("without", "gain"))
        brings[party] = without, gain
    return Baselines(
        words,
        float(np.mean([one["bytes"] for one in shipped])),
        float(np.mean([one["largest"] for one in shipped])),
        float(np.mean([at for _, at in seconds]))
        if len(seconds) == len(by_seed) and all(at is not None for _, at in seconds)
        else None,
        shipped[0]["form"],
        found,
        held,
        learners,
        "" if len(found) == len(NAMES) else why,
        brings,
        len(by_seed),
    )


# --- in words ---------------------------------------------------------------------------------------------------------


def nothing(baselines: Baselines, metric: str) -> list[str]:
    """Parties that bring nothing, or nearly nothing."""
    return [
        party
        for party, (without, gain) in baselines.brings.items()
        if gain < (NOTHING[metric] * abs(without) if metric in NOTHING else LITTLE)
    ]


def note(runs: Sequence[Run], metric: str) -> str:
    """What each party brings, with a warning where one needs no other, and what gives a line that is missing."""
    found = by_division(runs)
    if len(found) != 1:
        return "Several divisions of the data: floor and ceiling of each are in the table." if found else ""
    return " ".join(filter(None, [_brought(found[0], metric), _advice(found[0], metric, runs), _missing(found[0])]))


def _brought(baselines: Baselines, metric: str) -> str:
    if not baselines.brings:
        return ""
    without = ", ".join(f"without {party} {value:.4g}" for party, (value, _) in baselines.brings.items())
    whole = f"{metric} {baselines.levels['centralised'][0]:.4g} with all columns"
    return f"By {baselines.learners['centralised']}: {whole}, {without}."


def _advice(baselines: Baselines, metric: str, runs: Sequence[Run]) -> str:
    idle = nothing(baselines, metric)
    if not idle:
        return ""
    whole, alone = baselines.levels["centralised"][0], baselines.levels["alone"][0]
    partners = abs(whole - alone) <= (NOTHING[metric] * abs(alone) if metric in NOTHING else LITTLE)
    text = "Partners add nothing here" if partners else f"Nothing is added here by {', '.join(idle)}"
    first = next((run for run in runs if (run.manifest["config"].get("dataset") or {}).get("order") == "file"), None)
    command = selection.rerun(selection.settings([first])[0]) if first is not None else None
    if not command:
        return f"{text}."
    return f"{text}. Where columns are divided otherwise they may: {command} dataset.order=interleaved"


def _missing(baselines: Baselines) -> str:
    lacking = " and ".join(NAMES[name] for name in NAMES if name not in baselines.levels)
    return f"No line for {lacking}: {baselines.why}." if baselines.why else ""


def _name(baselines: Baselines, level: str) -> str:
    """What a level is called."""
    return "each party alone" if baselines.learners.get(level) in METHODS["alone"] else NAMES[level]


# --- in a table -------------------------------------------------------------------------------------------------------


def rows(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """A row for each of ship it, alone and centralised of each division.

    Returns
    -------
    rows with name, words, seeds, selected, selected_sd, validation, bytes, seconds, largest and note; None where one
    does not apply.
    """
    found = []
    for baselines in by_division(runs):
        common = {"words": baselines.words, "seeds": baselines.seeds, "largest": None, "validation": None}
        found.append(
            {**common, "name": "ship it", "selected": None, "selected_sd": None, "bytes": baselines.bytes}
            | {"seconds": baselines.seconds, "largest": baselines.largest, "note": baselines.form}
        )
        for key, (value, sd) in baselines.levels.items():
            cost = {"bytes": 0.0, "seconds": 0.0} if key == "alone" else {"bytes": None, "seconds": None}
            found.append(
                {**common, **cost, "name": _name(baselines, key), "selected": value, "selected_sd": sd}
                | {"note": baselines.learners[key], "validation": baselines.validation.get(key)}
            )
    return found


def cells(runs: Sequence[Run], score: Callable[[float | None, float | None, str], str]) -> list[list[str]]:
    """The rows as texts, for the columns of `report.HEADS`; `score` writes a metric with its deviation."""
    metric = runs[0].summary["metric"]["name"]
    return [
        [
            *(row["name"], row["words"], "", score(row["selected"], row["selected_sd"], metric), "–", "–"),
            "–" if row["bytes"] is None else human_bytes(row["bytes"]),
            "–" if row["seconds"] is None else f"{row['seconds']:.4g} s",
            *("–", "–", "–", "–"),
        ]
        for row in rows(runs)
    ]


def page(runs: Sequence[Run], metric: str) -> dict[str, Any]:
    """What the page's script reads (report_page/baselines.js)."""
    return {"bounds": rows(runs), "divisions": len(by_division(runs)), "bound_note": note(runs, metric)}


# --- in a picture -----------------------------------------------------------------------------------------------------


def draw(axes: Axes, runs: Sequence[Run] | Sequence[Mapping[str, Any]], x: str, metric: str, scale: float) -> None:
    """Draw floor and ceiling into a panel whose curves are there.

    Parameters
    ----------
    runs : of the panel; or one summary, of a run that is just written.
    x : the column that the curves are drawn against, divided by `scale`.
    """
    given = [run for run in runs if isinstance(run, Run)]
    found = by_division(given)
    if not given and isinstance(runs[0], Mapping) and _has(runs[0]):
        found = [_baselines_of(runs[0])]
    if len(found) != 1 or metric == "loss":  # several divisions: the report's table has them
        return
    baselines = found[0]
    if metric != TRAINING_METRIC:
        _across(axes, baselines, rising=metric != "rmse")
    place = {
        "bytes": baselines.bytes,
        "communication_seconds": baselines.seconds,
        "virtual_seconds": baselines.seconds,
    }.get(x)
    if place is not None:
        text = f"ship it, {human_bytes(baselines.bytes) if x == 'bytes' else f'{place:.3g} s'}"
        shown = [] if metric == TRAINING_METRIC else [value for value, _ in baselines.levels.values()]
        _upright(axes, place / scale, text, shown)


def _has(summary: Mapping[str, Any]) -> bool:
    return bool(summary.get("ship_it", {}).get("bytes"))


def _baselines_of(summary: Mapping[str, Any]) -> Baselines:
    """Of one run, from its summary."""
    shipped = summary["ship_it"]
    levels: dict[str, tuple[float, float | None]] = {}
    for name in NAMES:
        if (value := (summary.get(name) or {}).get("value")) is not None:
            levels[name] = (value, None)
    costs = shipped["bytes"], shipped["largest"], shipped["seconds"]
    return Baselines("", *costs, shipped["form"], levels, {}, {}, "", {}, 1)


def _across(axes: Axes, baselines: Baselines, rising: bool) -> None:
    """The levels as dashed lines, each labelled at its right end: the higher one above it, the lower one below."""
    ordered = sorted(baselines.levels, key=lambda name: baselines.levels[name][0])
    for place, name in enumerate(ordered):
        value = baselines.levels[name][0]
        axes.axhline(value, color=INK, linestyle=(0, (6, 3)), linewidth=1.1, zorder=1.5)
        low = place == 0 and (len(ordered) > 1 or rising)  # curves end above a lone line
        axes.annotate(
            f"{_name(baselines, name)} {value:.4g}",
            (1.0, value),
            xycoords=("axes fraction", "data"),
            xytext=(-2, -3 if low else 3),
            textcoords="offset points",
            ha="right",
            va="top" if low else "bottom",
            fontsize=8,
            color=INK,
            bbox=BOX,
            zorder=4,
        )


def _upright(axes: Axes, place: float, text: str, levels: Sequence[float]) -> None:
    """Ship it as a dashed line, labelled below, off the `levels`; far beyond the curves it is an arrow at the edge."""
    largest = max((np.max(line.get_xdata(), initial=0) for line in axes.lines if _of_data(axes, line)), default=0)
    axes.get_ylim()  # the final one
    taken = [axes.transAxes.inverted().transform(axes.transData.transform((0, level)))[1] for level in levels]
    free = (at for at in (0.03, 0.13, 0.23, 0.33) if all(abs(at + 0.02 - other) > 0.05 for other in taken))
    height = next(free, 0.03)
    how: dict[str, Any] = {"va": "bottom", "fontsize": 8, "color": INK, "bbox": BOX, "zorder": 4}
    if largest and place > BEYOND * largest:
        axes.annotate(f"{text} →", (1.0, height), xycoords="axes fraction", ha="right", **how)
        return
    axes.axvline(place, color=INK, linestyle=(0, (6, 3)), linewidth=1.6, zorder=1.5)
    right = largest and place > 0.6 * largest
    how |= {"xytext": (-4 if right else 4, 0), "textcoords": "offset points", "ha": "right" if right else "left"}
    axes.annotate(text, (place, height), xycoords=("data", "axes fraction"), **how)


def _of_data(axes: Axes, line: Any) -> bool:
    return bool(line.get_transform() == axes.transData)


BOX = {"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 1.0}
