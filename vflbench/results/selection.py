"""Runs side by side: which can be compared, how they differ, and which setting validation chooses."""

import itertools
import json
import math
import os
import shlex
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from vflbench.results import experiment, inventory
from vflbench.results.folder import splits
from vflbench.results.identity import flat, identifying
from vflbench.results.reader import Run, load, natural
from vflbench.types import ENDED_WELL, TRAINING_METRIC, VflbenchError

# Keys that a preset derives from others (for equal updates): they are named only where no other key differs.
DERIVED = ("rounds", "epochs", "eval_every", "target", "max_bytes", "max_virtual_seconds", "checkpoint_every", "scale")
# Groups for the conditions under which a method ran: compared over all methods. Others are compared within a method.
CONDITIONS = ("dataset", "network", "privacy", "accounting", "attack", "data_root", "data", "source", "semantics")
# A search may choose keys of the algorithm, but not these, by which the data are divided.
DIVISION = ("algorithm.name", "algorithm.parties", "algorithm.workers", "algorithm.parts")


# --- which runs -------------------------------------------------------------------------------------------------------


@dataclass
class Collected:
    """Runs that can be drawn, in the order of their paths, and a note on each one that was left out."""

    runs: list[Run]
    notes: list[str]


def collect(paths: Iterable[str | Path]) -> Collected:
    """The runs at or below `paths`; `notes` name those that cannot be read or did not end well.

    Raises
    ------
    VflbenchError : a path is no folder, or no run is below any of them.
    """
    folders: dict[Path, Path] = {}
    for path in map(Path, paths):
        if not path.is_dir():
            raise VflbenchError(f"{path} is no folder: name a run's folder, or one with runs below it")
        below = {file.parent for file in inventory.found_below(path, "manifest.json", "summary.json")}
        for folder in sorted(below, key=lambda found: natural(str(found))):
            folders.setdefault(folder.resolve(), folder)
    if not folders:
        raise VflbenchError(
            f"no run at or below {', '.join(map(str, paths))}: a run's folder has a manifest.json and a summary.json"
        )
    found, seen = Collected([], []), dict[tuple[str, int], Run]()
    for folder in folders.values():
        run = load(folder)
        try:
            if why := _left_out(run):
                found.notes.append(f"{folder} is left out: {why}")
                continue
            key = (
                json.dumps(
                    [identifying(run.manifest["config"]), experiment.facts_of(run), _environment(run)], sort_keys=True
                ),
                run.summary["seed"],
            )
        except VflbenchError as damaged:
            found.notes.append(f"{folder} is left out: {damaged}")
            continue
        if run.manifest["config"] and key in seen:
            found.notes.append(
                f"{folder} is left out: it has the configuration, the data and the seed of {seen[key].folder}"
            )
            continue
        seen[key] = run
        found.runs.append(run)
    found.notes += filter(None, [experiment.from_before(found.runs)])
    return found


def _left_out(run: Run) -> str | None:
    """Why a run is not drawn."""
    if run.status is None:
        return "it has not ended (no summary.json); continue it with resume=true"
    if run.status not in ENDED_WELL:
        return f"status {run.status}" + (f": {run.summary['reason']}" if run.summary["reason"] else "")
    if not len(run.curve):
        return "curve.csv has no evaluation"
    name = run.summary["metric"]["name"]
    if f"{splits(name)[-1]}_{name}" not in run.curve:
        return f"curve.csv has no {name}, which summary.json names"
    run.check_curve()
    _ = run.manifest, run.overrides  # raises where they are damaged
    return None


def _environment(run: Run) -> str | None:
    """The manifest's hash of values from the environment; the configuration has only their names."""
    return run.manifest.get("environment") if (run.folder / "manifest.json").is_file() else None


def unlike(runs: Sequence[Run]) -> list[list[Run]]:
    """The `runs` that can share a picture: equal data, file by file, equal semantics version, equal metric."""
    panels: dict[tuple[Any, ...], list[Run]] = defaultdict(list)
    for run in runs:
        s, alike = run.summary, experiment.comparable(experiment.facts_of(run))
        data = s["dataset"], s["data_variant"], s["data_source"], s.get("data_lacks"), alike
        panels[*data, s["metric"]["name"], s["metric"]["goal"]].append(run)
    return list(panels.values())


def apart(groups: Sequence[Sequence[Run]]) -> list[str]:
    """What tells groups of runs apart that differ in nothing else: their folder, else what differs in their data."""
    folders = [[str(run.folder.resolve().parent) for run in runs] for runs in groups]
    root = os.path.commonpath(itertools.chain(*folders))
    places = [os.path.relpath(os.path.commonpath(own), root) for own in folders]
    facts = experiment.split([runs[0] for runs in groups])
    named = [place != os.curdir and places.count(place) == 1 for place in places]
    return [place if own else ", ".join(other) for place, own, other in zip(places, named, facts, strict=True)]


# --- settings ---------------------------------------------------------------------------------------------------------


@dataclass
class Setting:
    """Runs that differ only in the seed; `differs` has the keys in which other settings differ from them."""

    algorithm: str
    differs: dict[str, Any]
    runs: list[Run]
    config: dict[str, Any] = field(default_factory=dict)  # dotted names; without the seed

    @cached_property
    def metric(self) -> str:
        """The metric's name."""
        return str(self.runs[0].summary["metric"]["name"])

    @property
    def words(self) -> str:
        """`differs` in one line."""
        return in_words(self.differs)

    @property
    def seeds(self) -> list[int]:
        """The seeds of its runs, in their order."""
        return [run.summary["seed"] for run in self.runs]

    def scores(self, which: str) -> np.ndarray:
        """`final`, `selected` or `selected_validation` of every run that has a finite one, (runs,)."""
        values = (run.summary["metric"][which] for run in self.runs)
        return np.array([value for value in values if value is not None and math.isfinite(value)], dtype=float)


def in_words(values: Mapping[str, Any]) -> str:
    """Keys and values in one line."""
    return " · ".join(
        f"{key.removeprefix('algorithm.').removesuffix('.name')}={value}" for key, value in values.items()
    )


def settings(runs: Sequence[Run]) -> list[Setting]:
    """The settings of the runs of one panel, in the order of their first run."""
    configs = [
        {key: value for key, value in flat(identifying(run.manifest["config"])).items() if key != "seed"}
        | (experiment.facts_of(run) or {})
        for run in runs
    ]
    values: dict[tuple[Any, ...], set[str]] = defaultdict(set)
    places = [_places(run.summary["algorithm"], config) for run, config in zip(runs, configs, strict=True)]
    for config, place in zip(configs, places, strict=True):
        for key, value in config.items():
            values[place[key]].add(repr(value))
    varied = [
        [key for key in config if len(values[place[key]]) > 1] for config, place in zip(configs, places, strict=True)
    ]
    found: dict[str, Setting] = {}
    for run, config, keys in zip(runs, configs, varied, strict=True):
        identity = json.dumps([run.summary["algorithm"], config, _environment(run)], sort_keys=True, default=str)
        if identity not in found:
            found[identity] = Setting(run.summary["algorithm"], {key: config[key] for key in keys}, [], config)
        found[identity].runs.append(run)
    return _shortened(list(found.values()))


def _places(algorithm: str, config: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
    """For each key, what runs must share for it to be compared: its group's option, and the method.

    Conditions are compared over all methods.
    """
    found: dict[str, tuple[Any, ...]] = {}
    for key in config:
        group = key.split(".")[0]
        option = None if key == f"{group}.name" else config.get(f"{group}.name")
        found[key] = (key, option, None if group in CONDITIONS else algorithm)
    return found


def _shortened(found: list[Setting]) -> list[Setting]:
    """Leave derived keys out of `differs` where other keys differ too."""
    alike: dict[str, list[Setting]] = defaultdict(list)
    for setting in found:
        others = {key: value for key, value in setting.differs.items() if key not in DERIVED}
        alike[json.dumps([setting.algorithm, others], default=str)].append(setting)
    for group in alike.values():
        for setting in group:
            peers = [other.differs for other in group]
            setting.differs = {
                key: value
                for key, value in setting.differs.items()
                if key not in DERIVED or any(peer.get(key) != value for peer in peers)
            }
    return found


def differing(found: Sequence[Setting]) -> dict[str, list[Any]]:
    """Every key whose value differs between settings: its value in each, None where a setting has no such key."""
    keys = dict.fromkeys(key for setting in found for key in setting.config)
    table = {key: [setting.config.get(key) for setting in found] for key in keys}
    return {
        key: row
        for key, row in table.items()
        if len({repr(value) for value, setting in zip(row, found, strict=True) if key in setting.config}) > 1
    }


# --- the target -------------------------------------------------------------------------------------------------------


def judged(run: Run) -> str | None:
    """The column that a target is judged by: validation, or training for a convex problem, never test."""
    name = run.summary["metric"]["name"]
    column = f"train_{name}" if name == TRAINING_METRIC else f"val_{name}"
    return column if column in run.curve and run.curve[column].notna().any() else None


def best(run: Run) -> float | None:
    """The best value of the judged metric; None where there is none."""
    if (column := judged(run)) is None:
        return None
    values = run.curve[column]
    return float(values.max() if run.summary["metric"]["goal"] == "max" else values.min())


def reached(run: Run, target: float, column: str | None = None) -> int | None:
    """Place in the curve of the first evaluation at which the judged metric has reached `target`; None if none has.

    It is judged by `column`; None: the one that `judged` names.
    """
    column = column or judged(run)
    if column is None:
        return None
    values = run.curve[column].to_numpy(dtype=float)
    hit = values >= target if run.summary["metric"]["goal"] == "max" else values <= target
    return int(hit.argmax()) if hit.any() else None


def target(found: Sequence[Setting]) -> tuple[float | None, str]:
    """A target for these settings, and where it comes from.

    It is the runs' own, else one that three quarters of the settings reach; None without validation.
    """
    given = [
        run.manifest["config"]["target"]
        for s in found
        for run in s.runs
        if isinstance(run.manifest["config"].get("target"), int | float)
    ]
    if given:
        return float(max(set(given), key=given.count)), "the runs' target"
    best, goal = [], found[0].runs[0].summary["metric"]["goal"]
    for setting in found:
        scores = [run.curve[column].to_numpy(dtype=float) for run in setting.runs if (column := judged(run))]
        ends = [np.nanmax(own) if goal == "max" else np.nanmin(own) for own in scores]
        if ends:
            best.append(min(ends) if goal == "max" else max(ends))  # its worst seed
    if not best:
        return None, "no validation split: a target would be judged on test data"
    value = float(sorted(best, reverse=goal == "min")[len(best) // 4])
    who = "three quarters of the settings reach" if len(best) > 1 else "it reaches"
    what = "in training" if found[0].metric == TRAINING_METRIC else "on validation"
    return _rounded(value, down=goal == "max"), f"what {who} {what}, in every seed"


def _rounded(value: float, down: bool) -> float:
    """`value` with two digits, rounded to the side that is easier to reach."""
    if value == 0 or not math.isfinite(value):
        return value
    step = 10.0 ** (math.floor(math.log10(abs(value))) - 1)
    return float(f"{(math.floor if down else math.ceil)(round(value / step, 6)) * step:.2g}")


# --- selection --------------------------------------------------------------------------------------------------------


@dataclass
class Choice:
    """The setting that validation chooses in a group, or why it can choose none."""

    group: str
    candidates: int
    setting: Setting | None
    validation: np.ndarray  # the best score of each seed of that setting
    why: str
    command: str | None


def choose(found: Sequence[Setting]) -> list[Choice]:
    """The selected setting of each group: settings of a group differ only in hyper-parameters.

    Settings are compared by the validation metric at the round that validation chose, as a mean over seeds. One with
    fewer seeds than others (a run failed or diverged) is no candidate. Test values are not used.
    """
    groups: dict[str, list[Setting]] = defaultdict(list)
    for setting in found:
        conditions = {key: value for key, value in setting.config.items() if not searched(key)}
        groups[json.dumps([setting.algorithm, conditions], sort_keys=True, default=str)].append(setting)
    return [_choice(group) for group in groups.values()]


def searched(key: str) -> bool:
    """Whether `key` is a hyper-parameter that validation may choose."""
    group = key.split(".")[0]
    return key not in DIVISION and (
        group in ("algorithm", "model") or key in ("rounds", "epochs", "eval_every", "checkpoint_every")
    )


def _choice(group: list[Setting]) -> Choice:
    """The choice among the settings of one group."""
    first = group[0].runs[0].summary
    shared = {key: value for key, value in group[0].differs.items() if not searched(key)}
    name = " · ".join(filter(None, [group[0].algorithm, in_words(shared)]))
    nothing = np.array([])
    scored = [s for s in group if len(s.scores("selected_validation")) == len(s.runs)]
    if not scored:
        return Choice(
            name,
            len(group),
            None,
            nothing,
            "no validation split: nothing can be chosen without looking at test data",
            None,
        )
    most = max(len(s.runs) for s in scored)
    candidates = [s for s in scored if len(s.runs) == most]
    sign = 1 if first["metric"]["goal"] == "max" else -1
    best = max(candidates, key=lambda s: sign * s.scores("selected_validation").mean())
    fewer = len(group) - len(candidates)
    why = (
        f"best validation {first['metric']['name']} of {len(candidates)} "
        f"setting{'s' if len(candidates) != 1 else ''}, mean over {most} "
    )
    why += f"seed{'s' if most != 1 else ''}" + (f"; {fewer} with fewer seeds left out" if fewer else "")
    return Choice(name, len(group), best, best.scores("selected_validation"), why, rerun(best))


def rerun(setting: Setting, network: bool = True) -> str | None:
    """The command that trains a setting again with all its seeds; None where the run's overrides are not known.

    Without `network` it leaves the network to whoever adds it.
    """
    run = setting.runs[0]
    if (kept := overrides(run, network)) is None:
        return None
    flags = ["-m"] if len(setting.runs) > 1 else []
    if named := config_dir(run):
        flags += ["--config-dir", named]
    return shlex.join(["vflbench", *flags, *kept, f"seed={','.join(str(seed) for seed in sorted(setting.seeds))}"])


def overrides(run: Run, network: bool = True) -> list[str] | None:
    """What was typed for the run and decides what it computes, without its seed; None where it is not known."""
    if run.overrides is None:
        return None
    dropped = (
        "seed=",
        "hydra.",
        "resume=",
        "overwrite=",
        "plot=",
        "floor=",
        "objective=",
        "logger=",
        "logger.",
        *(() if network else ("network=", "network.")),
    )
    return [word for word in run.overrides if not word.lstrip("+~'\"").startswith(dropped)]


def config_dir(run: Run) -> str | None:
    """The folder of options that the run's command names."""
    command = run.manifest.get("command")
    try:
        words = shlex.split(command or "")
    except ValueError:
        return None
    for word, following in zip(words, [*words[1:], ""], strict=False):
        if word == "--config-dir":
            return following
        if word.startswith("--config-dir="):
            return word.partition("=")[2]
    return None
