"""The question of a search: the words of `vflbench choose` and `vflbench tune`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from vflbench import config, registry
from vflbench.choosing import duration, remote_executors
from vflbench.config import text_values
from vflbench.plots import demands
from vflbench.types import DIVISORS, DatasetInfo, Problem, closest, refuse

COSTS = {"bytes": "bytes", "seconds": "virtual_seconds", "weighted": "cost"}  # what counts -> its column of a curve
SEEDS = 3  # of the finals
MISSING = "(missing)"  # stands for the value of a word that was not typed
#: groups and keys that a run has, and that are the question's: the same for every method
GROUPS = ("dataset", "network", "topology", "privacy", "protection", "accounting", "compute", "engine")
KEYS = ("data_root", "device", "predictions", "rounds", "epochs", "eval_every", "scale", "checkpoint_every")
METHODS = ("algorithm", "model", "codec")  #: groups of a method: tune keeps what is typed, choose searches
DIVISION = tuple(f"algorithm.{key}" for key in DIVISORS)
RESOURCE = "launcher."  # begins a key that the launcher is told: launcher.partition=gpu
SHIPPED = "tuned@_global_=none"  # no values that somebody has searched for
SHIPPED_PRIVATE = "tuned/private@_global_=none"  # none for a mechanism either


@dataclass
class Question:
    """A command line, checked."""

    words: list[str]  #: overrides of every run
    dataset: str  #: the option: an option file of the user's may be called anything, `data` knows its name
    target: float | None
    cost: str = "bytes"
    demand: str | None = None
    budget: float | None = None  #: seconds
    trials: int | None = None
    jobs: int = 1
    launcher: str = "joblib"  #: where runs are trained: remote_executors.LAUNCHERS
    resources: dict[str, Any] = field(default_factory=dict)  #: what the launcher is told
    address: str = "local"  #: of the Ray cluster of launcher=ray: local, auto or HOST:PORT
    seed: int = 0
    algorithms: list[str] | None = None  #: options, in the order of their names; None: all of the registry
    out: Path | None = None
    resume: bool = False
    overwrite: bool = False
    prune: bool = True  #: settings that are behind others at equal cost end early
    seeds: int = 1  #: of the most promising trials
    finals: bool = True  #: whether the best settings are trained with fresh seeds at the end
    config_dir: str | None = None
    epsilon: float | None = None
    mechanism: str | None = None  #: that was typed

    @cached_property
    def data(self) -> DatasetInfo | None:
        """The data set in the registry; None where no option leads to one, which the plan of a run says."""
        with config.session(self.words, self.config_dir) as hydra:
            return registry.datasets().get(config.name_of(hydra, "dataset", self.dataset) or "")

    @property
    def identity(self) -> dict[str, Any]:
        """The parts by which two questions are the same; budget and trials may change when a search is resumed."""
        words = sorted(self.words, key=lambda word: word.partition("="))  # a group before its keys
        return {
            **{"words": words, "dataset": self.dataset, "target": self.target, "cost": self.cost},
            **{"demand": self.demand, "epsilon": self.epsilon, "seed": self.seed, "algorithms": self.algorithms},
            "seeds": [self.seed + number for number in range(1, SEEDS + 1)] if self.finals else [],
            "repeats": [self.seed + number for number in range(1, self.seeds)],
            "prune": self.prune,
            "config_dir": self.config_dir,  # has spaces, and perhaps methods
        }

    def asked(self) -> dict[str, Any]:
        """As the record has it."""
        more = {"budget_seconds": self.budget, "trials": self.trials}
        return {**self.identity, **more}


def own_words(verb: str) -> list[str]:
    """The keys of a question that no run has."""
    own = ["trials", "jobs", "cost", "seed", "algorithm", "target", "budget", "resume", "overwrite", "launcher"]
    return [*own, *(["demand", "out"] if verb == "choose" else ["prune", "seeds"])]


def parse(words: Sequence[str], verb: str, config_dir: str | None = None) -> Question:
    """The question of a command line.

    Raises
    ------
    ConfigError : every word that is unknown, and every value that cannot be.
    """
    own = own_words(verb)
    groups = GROUPS if verb == "choose" else (*GROUPS, *METHODS)
    problems: list[Problem] = []
    given: dict[str, str] = {}
    kept: list[str] = []
    resources: dict[str, Any] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if equals and key.startswith(RESOURCE) and key != RESOURCE:
            try:
                resources[key.removeprefix(RESOURCE)] = yaml.safe_load(value)
            except yaml.YAMLError:
                problems.append(Problem(key, value, "is no value"))
        elif equals and key in own:
            if key in given:
                problems.append(Problem(key, value, "is given twice"))
            given[key] = _of_environment(key, value, problems)
        elif equals and (key.split(".")[0] in groups or key in KEYS or key in DIVISION):
            if any(other.partition("=")[0] == key for other in kept):
                problems.append(Problem(key, value, "is given twice"))
            kept.append(word)
            if "," in value and value[0] not in "[{'\"":
                problems.append(Problem(key, value, f"several values: {verb} asks one question: start it for each"))
        else:
            problems.append(_unknown(key, value, equals, own, verb))
    typed = {word.partition("=")[0]: word.partition("=")[2] for word in kept}
    question = Question(kept, typed.get("dataset", "cora"), None, config_dir=config_dir, finals=verb == "choose")
    question.cost = _cost(given, problems)
    question.mechanism = typed.get("privacy")
    question.epsilon = _number(typed.get("privacy.epsilon"))
    problems += _private(typed, question.epsilon)
    question.target = _target(given, verb, problems)
    question.trials = _count(given, "trials", problems)
    question.jobs = _count(given, "jobs", problems) or 1
    question.address = typed.get("engine.address", "local")
    question.launcher, question.resources = _launcher(given, typed, resources, problems), resources
    if question.launcher == "ray":  # the address is that of the search's cluster: runs are simulated
        question.words = [word for word in kept if not word.startswith("engine.address=")]
    question.seed = _count(given, "seed", problems, 0) or 0
    question.budget = _seconds(given.get("budget"), problems)
    question.demand = _demand(given.get("demand"), problems)
    question.algorithms = _algorithms(given.get("algorithm"), config_dir, problems)
    question.out = Path(given["out"]) if given.get("out") else None
    question.resume, question.overwrite = (_flag(given, key, problems) for key in ("resume", "overwrite"))
    question.seeds = _count(given, "seeds", problems) or 1
    question.prune = "prune" not in given or _flag(given, "prune", problems)
    if not {"budget", "trials"} & given.keys():
        allowed = "say how long it may take, or how many configurations of each method it tries: budget=30m or trials=8"
        problems.append(Problem("budget", MISSING, allowed))
    refuse(told_once(problems))
    return question


def _of_environment(key: str, value: str, problems: list[Problem]) -> str:
    """The value of a word of the question's own; ${oc.env:NAME} is what the variable says."""
    try:
        return str(text_values.resolved(value))
    except ValueError as unset:
        problems.append(Problem(key, value, str(unset)))
        return value


def told_once(problems: list[Problem]) -> list[Problem]:
    """The first problem of each word, and what is missing where the word was not typed at all: all else is made up."""
    refused = {one.key for one in problems if one.value != MISSING}
    first = [*{(one.key, one.value): one for one in reversed(problems)}.values()][::-1]
    return [one for one in first if one.value != MISSING or one.key not in refused]


def check_tune(words: Sequence[str]) -> list[Problem]:
    """What is wrong with the words of `tune`, which is about one method and one data set."""
    typed = {key: value for key, _, value in (word.partition("=") for word in words)}
    problems, names = [], typed.get("algorithm")
    if not names or "," in names:
        problems.append(Problem("algorithm", names or MISSING, "name one method"))
    if "dataset" not in typed:
        problems.append(Problem("dataset", MISSING, "name the data set"))
    if "privacy.epsilon" in typed and "privacy" not in typed:
        problems.append(Problem("privacy", MISSING, "name the mechanism: each has values of its own"))
    return problems


def _unknown(key: str, value: str, equals: str, own: list[str], verb: str) -> Problem:
    known = [*own, *GROUPS, *KEYS, *(DIVISION if verb == "choose" else METHODS[1:])]
    if not equals:
        return Problem(key, "", "needs a value, as in key=value", closest(key, known))
    if key == "hydra/launcher":
        return Problem(key, value, f"of sweeps; here: launcher={value} jobs=2", "launcher")
    if verb == "choose" and key in ("seeds", "prune"):
        return Problem(key, value, "is a word of `vflbench tune`; choose ends with three fresh seeds of each method")
    if key.split(".")[0] in METHODS:
        return Problem(key, value, "belongs to a method: choose searches for it")
    return Problem(key, value, f"unknown key; `vflbench {verb}` accepts: {', '.join(known)}", closest(key, known))


def _launcher(
    given: Mapping[str, str], typed: Mapping[str, str], resources: Mapping[str, Any], problems: list[Problem]
) -> str:
    name = given.get("launcher", "joblib")
    if name not in remote_executors.LAUNCHERS:
        allowed = f"where runs are trained, one of: {', '.join(remote_executors.LAUNCHERS)}"
        problems.append(Problem("launcher", name, allowed, closest(name, remote_executors.LAUNCHERS)))
        return name
    problems += remote_executors.check(name, resources, typed.get("engine.address", "local"))
    if name == "ray" and typed.get("engine") == "ray":
        allowed = "with engine=ray the parties of each run are processes of Ray already: joblib or submitit_*"
        problems.append(Problem("launcher", name, allowed))
    return name


def _number(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None


def _private(typed: Mapping[str, str], epsilon: float | None) -> list[Problem]:
    """What is wrong with words of privacy, as long as no mechanism is typed, whose own check would say it."""
    mechanism, keys = typed.get("privacy", "none"), [key for key in typed if key.startswith("privacy.")]
    if mechanism != "none" or not keys:
        return []
    if "privacy" in typed:
        return [Problem(keys[0], typed[keys[0]], "privacy=none has no noise: leave privacy=none out")]
    if "privacy.epsilon" not in typed:
        allowed = "asks nothing by itself: give privacy.epsilon=4 too, or a mechanism with privacy="
        return [Problem(keys[0], typed[keys[0]], allowed)]
    if epsilon is None or not 0 < epsilon < math.inf:
        return [Problem("privacy.epsilon", typed["privacy.epsilon"], "must be a number above 0")]
    return []


def _cost(given: dict[str, str], problems: list[Problem]) -> str:
    cost = given.get("cost", "bytes")
    if cost not in COSTS:
        problems.append(Problem("cost", cost, f"must be one of {', '.join(COSTS)}", closest(cost, COSTS)))
    return cost


def _target(given: dict[str, str], verb: str, problems: list[Problem]) -> float | None:
    text, found = given.get("target"), _number(given.get("target"))
    if text is None and verb == "choose":
        problems.append(Problem("target", MISSING, "say what must be reached on validation rows: target=0.8"))
    elif text is not None and (found is None or not math.isfinite(found)):
        problems.append(Problem("target", text, "must be a number"))
    return found


def _count(given: dict[str, str], key: str, problems: list[Problem], least: int = 1) -> int | None:
    text = given.get(key)
    if text is None:
        return None
    if not text.isdecimal() or int(text) < least:
        problems.append(Problem(key, text, f"must be a whole number of at least {least}"))
        return None
    return int(text)


def _seconds(text: str | None, problems: list[Problem]) -> float | None:
    if text is None:
        return None
    if (found := duration.read(text)) is None:
        minutes = f"{text}m"  # where only the unit is missing
        near = minutes if duration.read(minutes) else None
        problems.append(Problem("budget", text, duration.ALLOWED, near))
    return found


def _demand(text: str | None, problems: list[Problem]) -> str | None:
    keys = [key for key, _, _ in demands.LADDER]
    if text is not None and text not in keys:
        said = "; ".join(f"{key} ({words})" for key, words, _ in demands.LADDER)
        problems.append(Problem("demand", text, f"what others may see, one of: {said}", closest(text, keys)))
    return text


def _algorithms(text: str | None, config_dir: str | None, problems: list[Problem]) -> list[str] | None:
    if text is None:
        return None
    names = sorted(name.strip() for name in text.split(","))
    known = dict.fromkeys([*registry.algorithms(), *config.own_options("algorithm", config_dir)])
    problems += [
        Problem("algorithm", name, f"unknown algorithm; there are: {', '.join(known)}", closest(name, known))
        for name in names
        if name not in known
    ]
    return names


def _flag(given: dict[str, str], key: str, problems: list[Problem]) -> bool:
    text = given.get(key, "false")
    if text not in ("true", "false"):
        problems.append(Problem(key, text, "must be true or false"))
    return text == "true"
