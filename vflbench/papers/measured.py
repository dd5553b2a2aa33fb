"""The results of a figure's runs: a row per setting, averaged over seeds."""

import functools
import itertools
import json
import math
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from vflbench import registry
from vflbench.data import sources
from vflbench.results.folder import PER, curve_columns, score_of, splits
from vflbench.results.identity import flat
from vflbench.results.reader import Run
from vflbench.results.texts import guarantee
from vflbench.types import VflbenchError

TRAIN_LOSS = "train_loss"  # a target for the training loss instead of the metric
Target = float | str | Mapping[str, float | str]
LEAST_SQUARES = "least_squares+"  # a target: the RMSE of least squares on the join, plus the number after it
ALONE = "alone+"  # a target: so large a share of the way from label owner alone to centralised
LOCAL = "local_sgd*"  # a target: so large a share of what workers reach that send nothing; see `beyond_local`

# Column -> what it is, with its unit. For each there is `<column>_sd`, the sample standard deviation over seeds.
COLUMNS = {
    "selected": "test metric at the round that validation chose; without validation, at the end",
    "final": "test metric at the end",
    "averaged": "test metric of the averaged model, selected by validation",
    "excess": "test metric at the end minus that of the compared run of the same seed",
    "updates": "updates of the model",
    "epochs": "epochs",
    "megabytes": "sent, MB",
    "ship_it_megabytes": "the data themselves, sent once, MB",
    "times_ship_it": "sent, as a multiple of the data themselves",
    "predict_megabytes": f"sent for {PER:,} predictions, MB",
    "alone": "test metric of the label owner alone (boosted trees)",
    "others": "test metric of all columns but the label owner's, if they had labels (boosted trees)",
    "centralised": "test metric of one party with all columns (boosted trees)",
    "gain": "gain of all columns over the better of alone and others",
    "messages": "messages",
    "vectors": "vectors sent",
    "cost": "weighted cost, MB: bytes, client-server ones times the network's ratio",
    "communication_seconds": "communication time, s",
    "idle_seconds": "time in which no party computes, s",
    "seconds_per_epoch": "communication time of an epoch, s",
    "running_seconds": "running time, virtual s",
    "utilisation": "share of the cores' time that they computed",
    "waiting_seconds": "seconds of an epoch in which a worker waited",
    "staleness": "steps between an embedding and its gradient (mean of the last epoch), or a model and its update",
    "epsilon": "epsilon at the end",
    "classical_epsilon": "epsilon at the end by the moments accountant's bound, as papers of 2016 to 2019 have it",
    "success_rate": "share of entries that the attack recovered",
    "floor": "the same of the best constant guess",
    "advantage": "entries that the attack recovered beyond the best constant guess, share",
    "r2": "R squared of what the attack recovered",
    "seconds_to_target": "communication time until the target, s",
    "running_seconds_to_target": "running time until the target, virtual s",
    "megabytes_to_target": "sent until the target, MB",
    "cost_to_target": "weighted cost until the target, MB",
    "updates_to_target": "iterations until the target",
    "vectors_to_target": "vectors sent until the target",
    "epsilon_to_target": "epsilon at the target",
    "gap": "relative gap to the optimum at the end",
    "train_loss": "training loss at the end",
    "wall_seconds": "time that a run took here, s",
}
_TO_TARGET = {
    **{"seconds_to_target": ("communication_seconds", 1.0), "running_seconds_to_target": ("virtual_seconds", 1.0)},
    **{
        "megabytes_to_target": ("bytes", 1e-6),
        "cost_to_target": ("cost", 1e-6),
        "updates_to_target": ("iterations", 1.0),
    },
    **{"vectors_to_target": ("vectors", 1.0), "epsilon_to_target": ("epsilon", 1.0)},
}
COUNTED = ("completed", "target_reached", "budget", "diverged")


def columns(wanted: Iterable[str] = ()) -> dict[str, str]:
    """Column -> what it is: COLUMNS, and those of `wanted` for a place of the curve or an easier target."""
    found = dict(COLUMNS)
    for column in wanted:
        what, _, number = column.rpartition("_easier_")
        if f"{what}_target" in _TO_TARGET and number.isdigit():
            found[column] = COLUMNS[f"{what}_target"].replace("the target", f"easier target {number}")
        elif place := at(column):
            found[column] = f"test metric at {place[0]} {place[1]:g}"
    return found


def to_easier(count: int) -> list[str]:
    """The columns of so many easier targets: megabytes_to_easier_1, ..."""
    spent = ("seconds", "megabytes", "epsilon")
    return [f"{what}_to_easier_{number}" for number in range(1, count + 1) for what in spent]


def at(column: str) -> tuple[str, float] | None:
    """(epoch, 8.0) for at_epoch_8; None for another kind of column."""
    found = re.fullmatch(r"at_([a-z_]+)_(\d+(?:\.\d+)?)", column)
    return (found[1], float(found[2])) if found and found[1] in curve_columns("") else None


def table(
    runs: Sequence[Run],
    keys: Sequence[str],
    targets: Mapping[str, Target],
    wanted: Iterable[str] = (),
    against: Mapping[str, Any] | None = None,
    absent: Iterable[Mapping[str, Any]] = (),
    easier: Sequence[Mapping[str, Target]] = (),
) -> list[dict[str, Any]]:
    """A row per setting.

    Parameters
    ----------
    runs : only those that ended, well or diverged, are used.
    keys : dotted configuration keys in which settings differ.
    targets : metric -> what the validation metric must reach (or data set -> that), or train_loss -> what the training
        loss must reach; else a run's own target counts. For `local_sgd*0.5` local SGD must be among `runs`.
    wanted : columns beyond COLUMNS, as in `columns`.
    against : `excess` compares with the run of the same seed and setting, but for these keys.
    absent : configurations of wanted runs that are not there; a setting that has only these has no seeds.
    easier : targets on the way to that of `targets`, for the columns of `to_easier`.

    Returns
    -------
    list : rows with `keys`, data_source, data_lacks (what partial data lack, if nothing is made up), guarantee (what
        epsilon is about, or None), seeds, diverged, reached (seeds that reached the target), and the columns with their
        spread; by_seed, seed -> column -> value; and missing, the wanted seeds that are not there. A value that was not
        measured is NaN; a target that not all seeds reached is infinite.

    Raises
    ------
    VflbenchError : two runs of one setting have the same seed, since the figure's keys lack one in which they differ.
    """
    shown = columns(wanted)
    groups: dict[tuple[str, ...], list[Run]] = defaultdict(list)
    for run in runs:
        if run.status in COUNTED:
            groups[tuple(map(str, setting(run, keys).values()))].append(run)
    missing: dict[tuple[str, ...], list[Mapping[str, Any]]] = defaultdict(list)
    for config in absent:
        missing[tuple(map(str, _values(config, keys).values()))].append(config)
    rows, local = list[dict[str, Any]](), defaultdict[tuple[Any, int], list[Run]](list)
    for run in itertools.chain(*groups.values()):
        if run.summary["algorithm"] == "local_sgd":
            local[_pool(run)].append(run)
    measures = {
        (*name, run.summary["seed"]): numbers(run, targets, shown, local[_pool(run)], easier)
        for name, own in groups.items()
        for run in own
    }
    for name, own in groups.items():
        seeds = [run.summary["seed"] for run in own]
        _refuse_twice(own, seeds, keys)
        found = [measures[*name, seed] for seed in seeds]
        other = [str(against.get(key, value)) for key, value in zip(keys, name, strict=True)] if against else []
        for seed, one in zip(seeds, found, strict=True):
            if (*other, seed) in measures:
                one["excess"] = one["final"] - measures[*other, seed]["final"]
        rows.append(_row(own, keys, shown, dict(zip(seeds, found, strict=True)), missing.pop(name, [])))
    return [*rows, *(_row_without_runs(configs, keys, shown) for configs in missing.values())]


def _refuse_twice(own: Sequence[Run], seeds: Sequence[int], keys: Sequence[str]) -> None:
    """Raise VflbenchError where two runs of one setting have the same seed."""
    if len(set(seeds)) < len(seeds):
        folders = " and ".join(str(run.folder) for run in own if seeds.count(run.summary["seed"]) > 1)
        raise VflbenchError(f"{folders} differ in more than {', '.join(keys)}: add what differs to the figure's `keys`")


def _row_without_runs(
    configs: Sequence[Mapping[str, Any]], keys: Sequence[str], shown: Iterable[str]
) -> dict[str, Any]:
    """The row of a setting of which no run is there."""
    row = {**_values(configs[0], keys), "data_source": None, "seeds": 0, "diverged": 0, "reached": 0}
    return row | {"missing": [config["seed"] for config in configs], "by_seed": {}} | dict.fromkeys(shown, math.nan)


def _row(
    runs: Sequence[Run],
    keys: Sequence[str],
    shown: Iterable[str],
    by_seed: dict[Any, dict[str, float]],
    missing: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """The row of one setting, of its `runs` and what `numbers` says of each; `missing`: its wanted runs."""
    found, first = by_seed.values(), runs[0].summary
    sources = {run.summary["data_source"] for run in runs}
    source = next((kind for kind in ("synthetic", "partial", "real") if kind in sources), None)
    short = [run.summary.get("data_lacks") for run in runs if run.summary["data_source"] == "partial"]
    # of partial data that lack nothing parts are made up
    lacks = "; ".join(sorted({str(lack) for lack in short})) if source == "partial" and all(short) else ""
    row: dict[str, Any] = {**setting(runs[0], keys), "metric": first["metric"]["name"], "data_source": source}
    row |= {**({"data_lacks": lacks} if lacks else {}), "guarantee": guarantee(first["privacy"])}
    row |= {"seeds": len(runs), "diverged": sum(run.status == "diverged" for run in runs)}
    row |= {"missing": [config["seed"] for config in missing], "by_seed": by_seed}
    row["reached"] = sum(math.isfinite(one["megabytes_to_target"]) for one in found)
    for column in shown:
        row[column], row[f"{column}_sd"] = moments([one[column] for one in found if not math.isnan(one[column])])
    return row


def moments(values: Sequence[float]) -> tuple[float, float]:
    """Mean and sample standard deviation; NaN without values, and an infinite mean where any value is."""
    if not values or math.inf in values:
        return (math.inf if values else math.nan), math.nan
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else math.nan


def setting(run: Run, keys: Sequence[str]) -> dict[str, Any]:
    """The run's values of `keys`, lists as text, and `-` for a key that its options do not have."""
    return _values(run.manifest["config"], keys)


def _values(config: Mapping[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    values = flat(config)
    before = "privacy.epsilon" not in values and values.get("privacy.mu", "-") is None  # infinity was null
    if before or values.get("privacy.mu") == "inf":
        values["privacy.mu"] = math.inf
    return {key: str(values[key]) if isinstance(values.get(key), list) else values.get(key, "-") for key in keys}


def _pool(run: Run) -> tuple[Any, int]:
    """Runs of methods with workers that have the same rows: their number, and the seed."""
    return setting(run, ["algorithm.workers"])["algorithm.workers"], run.summary["seed"]


def numbers(
    run: Run,
    targets: Mapping[str, Target],
    shown: Iterable[str] = COLUMNS,
    local: Sequence[Run] = (),
    easier: Sequence[Mapping[str, Target]] = (),
) -> dict[str, float]:
    """The columns `shown` of one run; NaN where it has none. `local`: local SGD's runs on the same rows."""
    summary, curve = run.summary, run.curve
    metric, sign = summary["metric"]["name"], 1 if summary["metric"]["goal"] == "max" else -1
    found: dict[str, Any] = dict.fromkeys(shown, math.nan)
    found |= {"selected": score_of(summary["metric"]), "averaged": score_of(summary.get("averaged_model") or {})}
    found |= {"final": summary["metric"]["final"], "epochs": summary["epochs"]}
    found |= {"updates": curve["iterations"].iloc[-1] if len(curve) else math.nan}
    found |= {"megabytes": summary["bytes"]["total"] / 1e6, "cost": summary["cost"] / 1e6}
    found |= {key: summary[key] for key in ("messages", "vectors", "wall_seconds")}
    found |= {key: summary[key] for key in ("communication_seconds", "idle_seconds")}
    found |= {"running_seconds": summary["virtual_seconds"], "epsilon": summary["privacy"]["epsilon"]}
    found["classical_epsilon"] = summary["privacy"].get("classical_epsilon")
    found |= {key: summary.get(key) for key in ("utilisation", "waiting_seconds")}
    found["staleness"] = summary.get("staleness", summary.get("staleness_passive_1"))
    found |= _beside(summary)
    found |= {key: summary["attack"].get(key) for key in ("success_rate", "floor", "r2") if "attack" in summary}
    if None not in (found["success_rate"], found["floor"]):
        found["advantage"] = found["success_rate"] - found["floor"]
    if summary["epochs"] and summary["communication_seconds"] is not None:
        found["seconds_per_epoch"] = summary["communication_seconds"] / summary["epochs"]
    if f"train_{metric}" in curve and len(curve):
        found["gap"] = curve[f"train_{metric}"].iloc[-1]
    if len(curve):
        found["train_loss"] = curve["train_loss"].iloc[-1]
    for column in found:
        if place := at(column):
            passed = curve[curve[place[0]].astype("float64") >= place[1] - 1e-9]
            found[column] = passed[f"{splits(metric)[-1]}_{metric}"].iloc[0] if len(passed) else math.nan
    for number, goals in enumerate([targets, *easier]):
        goal = target(run, goals, local, own=not number)
        if goal is None:
            continue
        judged, upwards = (TRAIN_LOSS, -1) if TRAIN_LOSS in goals else (f"{splits(metric)[0]}_{metric}", sign)
        reached = curve[upwards * curve[judged] >= upwards * goal]
        for column, (source, unit) in _TO_TARGET.items():
            column = column.replace("target", f"easier_{number}") if number else column
            if column in found and curve[source].notna().any():  # no epsilon, no communication time
                found[column] = reached[source].iloc[0] * unit if len(reached) else math.inf
    return {key: math.nan if value is None else float(value) for key, value in found.items()}


def _beside(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Of one run: floor and ceiling of its data, and what predictions take; None for what is not known."""
    predict = (summary.get("phases") or {}).get("predict")
    found: dict[str, Any] = {name: summary.get(name, {}).get("value") for name in ("alone", "others", "centralised")}
    if None not in found.values():
        upwards = 1 if summary["metric"]["goal"] == "max" else -1
        better = max(upwards * found["alone"], upwards * found["others"])
        found["gain"] = upwards * found["centralised"] - better
    found["times_ship_it"] = summary.get("times_ship_it")
    for column, entry in (("ship_it_megabytes", summary.get("ship_it")), ("predict_megabytes", predict)):
        found[column] = entry["bytes"] / 1e6 if entry else None
    return found


def target(run: Run, targets: Mapping[str, Target], local: Sequence[Run] = (), own: bool = True) -> float | None:
    """What the run must reach: the figure's target, else (`own`) that of its configuration; None without a target."""
    config = run.manifest["config"]
    value = targets.get(TRAIN_LOSS, targets.get(run.summary["metric"]["name"]))
    if isinstance(value, Mapping):
        value = value.get(config["dataset"]["name"])
    if value is None and own:
        value = config.get("target")
    if isinstance(value, str) and value.startswith(ALONE):
        alone, centralised = (run.summary.get(name, {}).get("validation") for name in ("alone", "centralised"))
        if alone is None or centralised is None:
            return None
        return float(alone + float(value.removeprefix(ALONE)) * (centralised - alone))
    if isinstance(value, str) and value.startswith(LOCAL):
        return beyond_local(local, float(value.removeprefix(LOCAL)), TRAIN_LOSS in targets) if local else None
    if isinstance(value, str):
        best = least_squares(
            json.dumps(config["dataset"], sort_keys=True), run.summary["seed"], config.get("data_root")
        )
        return best + float(value.removeprefix(LEAST_SQUARES))
    return None if value is None else float(value)


def beyond_local(local: Sequence[Run], share: float, training: bool) -> float:
    """A target that takes communication: no worker gets there with its own rows.

    Parameters
    ----------
    local : runs of local SGD, the best evaluation of which counts.
    share : below 1, of its lowest training loss (`training`), or of its fewest errors on the validation rows.
    """
    metric, larger = local[0].summary["metric"]["name"], local[0].summary["metric"]["goal"] == "max"
    column = TRAIN_LOSS if training else f"{splits(metric)[0]}_{metric}"
    values = np.concatenate([run.curve[column].to_numpy(float) for run in local])
    if training or not larger:
        return float(share * np.nanmin(values))
    return float(1 - share * (1 - np.nanmax(values)))


@functools.lru_cache
def least_squares(dataset: str, seed: int, root: str | None) -> float:
    """RMSE on the validation rows of least squares on the join of the training rows: what a linear model can reach.

    `dataset` is that part of a manifest's configuration, as JSON.
    """
    values = json.loads(dataset)
    keys = registry.option_config("dataset", values["name"])(**values)
    task = registry.load_dataset(keys.name).load(keys, "aligned", 1, seed, sources.data_root(root))

    def joined(blocks: Any, start: int = 0, end: int | None = None) -> Any:
        parts = [block[start:end] for block in blocks]
        return np.concatenate([*parts, np.ones((len(parts[0]), 1))], axis=1).astype(np.float64)

    gram, right, size = 0.0, 0.0, 200_000  # in pieces: a join of millions of rows in float64 is large
    for start in range(0, len(task.labels), size):
        x = joined(task.features, start, start + size)
        gram, right = gram + x.T @ x, right + x.T @ task.labels[start : start + size]
    best = np.linalg.lstsq(gram, right, rcond=None)[0]
    errors = joined(task.held_out_features["val"]) @ best - task.held_out_labels["val"]
    return float(np.sqrt(np.mean(np.square(errors))))
