"""What is searched: `SEARCH` in the cards of a method and its mechanism, or a user's file; the points that are tried.

A space has, for a key of the run, a list of choices or a range `{low, high, log, int}`. A range may say how far it may
be widened: `least`, `most`; and which values of other keys make it count: `where`. Keys of an option that the space may
choose (codec.fraction of codec: [none, topk]) count where it is chosen. The first point is the shipped setting. The
others are those of a scrambled Sobol sequence: the same unit cube for every method, whatever the values of its axes
mean. A point is known from the space, the seed and its number alone. So a search that goes on tries what it would have
tried.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from vflbench import config, registry
from vflbench.cards.privacy.keys import SEARCH as OF_MECHANISMS
from vflbench.choosing.commands import written
from vflbench.choosing.disclosure import violation
from vflbench.choosing.question import Question
from vflbench.config.typed import options_with
from vflbench.defaults import filled
from vflbench.types import Problem, RunConfig, VflbenchError, refuse, searchable, searched

FOLDER = "search"
MECHANISM = "privacy"  #: the group of mechanisms, and the user's file with their keys
ALLOWED = "must be a list of choices, or {low: 0.001, high: 0.1, log: true, int: false}"
EDGE = 0.05  # of a range, at each end: a best value there widens it
Space = dict[str, Any]


def read(option: str, config_dir: str | None = None, registered: str | None = None) -> Space:
    """The space of a method; empty where there is none: then what is shipped or typed is tried.

    An option file of the user's that has no space has that of its algorithm, `registered`.

    Raises
    ------
    VflbenchError : the user's file cannot be read.
    ConfigError : a key's range or choices are none.
    """
    for name in dict.fromkeys(filter(None, (option, registered))):
        if (own := _own(name, config_dir)) is not None:
            return own
        if shipped := _of_card("algorithm", name):
            return shipped
    return {}


def _own(name: str, config_dir: str | None) -> Space | None:
    """The space in a file of the user's; None where there is none. Raises as `read`."""
    if not config_dir or not (path := Path(config_dir).expanduser() / FOLDER / f"{name}.yaml").is_file():
        return None
    try:
        values: Any = OmegaConf.to_container(OmegaConf.load(path))  # 3e-05 is a number, as in Hydra's files
    except (yaml.YAMLError, UnicodeDecodeError, OSError, OmegaConfBaseException) as error:
        raise VflbenchError(f"{path} cannot be read: {str(error).splitlines()[0]}") from error
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        raise VflbenchError(f"{path} must have keys with their ranges")
    refuse([Problem(f"{path.name} {key}", given, ALLOWED) for key, given in values.items() if not searchable(given)])
    return values


def _of_card(group: str, name: str) -> Space:
    """What the card of an option says is searched with it."""
    found = vars(registry.card(group, name)) if name in registry.entries(group) else {}
    return {key: searched(given) for key, given in found.get("SEARCH", {}).items()}


def _of_mechanisms(names: Iterable[str], config_dir: str | None) -> Space:
    """What is searched with mechanisms; a file of the user's says it for all of them."""
    if (own := _own(MECHANISM, config_dir)) is not None:
        return own
    shared = {key: searched(given) for key, given in OF_MECHANISMS.items()}
    return shared | {key: given for name in names for key, given in _of_card(MECHANISM, name).items()}


def applicable(option: str, run: RunConfig, question: Question) -> Space:
    """The part of the spaces that a configuration has, without what the question fixes or does not allow."""
    fixed = {word.partition("=")[0] for word in question.words}
    found: Space = {}
    spaces = read(option, question.config_dir, run.algorithm.name)
    mechanisms = (*spaces.get(MECHANISM, ()), run.privacy.name)
    spaces = {**spaces, **_of_mechanisms(mechanisms, question.config_dir)}
    spaces = {key: given for key, given in spaces.items() if key not in fixed}
    for key, given in spaces.items():
        ours = has(run, key)
        if _idle(run, key) or not (ours or _offers(spaces, key)):
            continue
        if isinstance(given, list) and ours:
            others = {other: choices for other, choices in spaces.items() if other != key}
            given = [value for value in given if _goes(_with(run, key, value, question), others, question)]
        if not isinstance(given, list) or len(given) > 1:
            found[key] = given
    return {key: given for key, given in found.items() if has(run, key) or _offers(found, key)}


def _offers(space: Space, key: str) -> bool:
    """Whether an option that the space may choose has the key."""
    group, _, leaf = key.partition(".")
    return bool(leaf) and group in space and not {*options_with(group, leaf)}.isdisjoint(space[group])


def counting(values: Mapping[str, Any], space: Space) -> dict[str, Any]:
    """The values without keys of options that they do not choose, or that other values make idle."""
    chosen = {key: [value] for key, value in values.items() if "." not in key}
    return {
        key: value
        for key, value in values.items()
        if key.split(".")[0] not in chosen or "." not in key or _offers(chosen, key)
        if all(values.get(other, wanted) == wanted for other, wanted in _where(space.get(key)).items())
    }


def _where(given: Any) -> dict[str, Any]:
    """The values of other keys with which a range counts."""
    return given.get("where", {}) if isinstance(given, dict) else {}


def _with(run: RunConfig, key: str, value: Any, question: Question) -> RunConfig:
    """The configuration with another value of a key."""
    group, _, leaf = key.partition(".")
    if not leaf:
        chosen = _option(group, value, question) if dataclasses.is_dataclass(getattr(run, group)) else value
        return dataclasses.replace(run, **{group: chosen})
    return dataclasses.replace(run, **{group: dataclasses.replace(getattr(run, group), **{leaf: value})})


def _option(group: str, option: str, question: Question) -> Any:
    """The keys of an option that a space may choose. Raises VflbenchError or ConfigError: there is no such option."""
    if group in registry.GROUPS and option not in config.own_options(group, question.config_dir):
        return filled(registry.option_config(group, option), name=option)
    with config.session([f"{group}={option}"], question.config_dir) as hydra:
        keys = config.plain(config.compose(hydra, [f"{group}={option}"]))[group]
    found, problems = config.convert(registry.option_config(group, str(keys.get("name"))), keys)
    refuse(problems)
    return found


def _goes(run: RunConfig, others: Space, question: Question) -> bool:
    """Whether a setting fits together, itself or with another choice, and shows no more than is asked."""
    choices = [(key, value) for key, given in others.items() if isinstance(given, list) for value in given]
    more = (_with(run, key, value, question) for key, value in choices if has(run, key))
    return any(violation(one, question) is None and not config.check(one) for one in (run, *more))


def without(values: Mapping[str, Any], problems: Iterable[Problem], space: Space) -> dict[str, Any]:
    """The values but choices that have a problem, and their keys: each goes with some other value of its space."""
    keys = tuple(f"{problem.key}." for problem in problems if isinstance(space.get(problem.key), list))
    return {key: value for key, value in values.items() if not f"{key}.".startswith(keys)}


def _idle(run: RunConfig, key: str) -> bool:
    """Whether a key changes nothing: edge_rr clips rows only where they get noise."""
    return key == "privacy.clip" and has(run, "privacy.row_epsilon") and run.privacy.row_epsilon is None


def has(run: RunConfig, key: str) -> bool:
    """Whether a configuration has the key."""
    group, _, leaf = key.partition(".")
    place = getattr(run, group, None)
    if leaf and group == "codec":  # all have the field `feedback`, but not all take it
        return run.codec.name in options_with(group, leaf)
    return hasattr(run, group) if not leaf else place is not None and hasattr(place, leaf)


def default(run: RunConfig, key: str) -> Any:
    """The value of a key in the shipped setting."""
    group, _, leaf = key.partition(".")
    value = getattr(run, group)
    return getattr(value, leaf) if leaf else getattr(value, "name", value)


def defaults(run: RunConfig, space: Space) -> dict[str, Any]:
    """The shipped setting of a space's keys, which is at most what the data allow."""
    found = {key: default(run, key) for key in space if has(run, key)}
    for key, given in space.items():
        if isinstance(given, dict) and "most" in given and found.get(key) is not None:
            found[key] = min(found[key], given["most"])
    return counting(found, space)


def limited(space: Space, most: Mapping[str, int]) -> Space:
    """The space without values that the data do not allow: `most` has the largest one of some keys."""
    found = {}
    for key, given in space.items():
        if isinstance(given, dict) and key in most:
            given = {**given, "most": min(given.get("most", math.inf), most[key])}
            given["high"] = min(given["high"], given["most"])
        if not isinstance(given, dict) or given["low"] < given["high"]:
            found[key] = given
    return found


# --- points -----------------------------------------------------------------------------------------------------------


def point(space: Space, seed: int, number: int) -> dict[str, Any]:
    """The values of point `number`, from 1; number 0, the shipped setting, is not of the sequence."""
    if not space:
        return {}
    from scipy.stats.qmc import Sobol  # a second, where nothing else has imported scipy.stats

    # `seed`, not its newer name `rng`, which gives other points
    shares = Sobol(len(space), seed=seed).random_base2((number - 1).bit_length())[number - 1].tolist()
    at = dict(zip(sorted(space), shares, strict=True))
    return counting({key: value_at(given, at[key]) for key, given in space.items()}, space)


def value_at(given: Any, share: float) -> Any:
    """The value of a key at a share of its range, from 0 to 1."""
    if isinstance(given, list):
        return given[min(int(share * len(given)), len(given) - 1)]
    low, high = given["low"], given["high"]
    if given.get("int") and not given.get("log"):
        return min(int(low + share * (high - low + 1)), high)
    found = low * (high / low) ** share if given.get("log") else low + share * (high - low)
    return round(found) if given.get("int") else float(f"{found:.3g}")


def share_of(given: Mapping[str, Any], value: float) -> float:
    """Where in its range a value is, from 0 to 1."""
    low, high = given["low"], given["high"]
    if given.get("log"):
        return math.log(value / low) / math.log(high / low) if value > 0 else 0.0
    return float((value - low) / (high - low))


def edges(space: Space, values: Mapping[str, Any]) -> dict[str, str]:
    """Key -> `low` or `high`, for the values that are at the edge of their range."""
    found = {}
    for key, value in values.items():
        given = space.get(key)
        if isinstance(given, dict) and isinstance(value, int | float):
            share = share_of(given, value)
            if share <= EDGE or share >= 1 - EDGE:
                found[key] = "low" if share <= EDGE else "high"
    return found


def widened(given: Mapping[str, Any], side: str) -> dict[str, Any] | None:
    """The range with half as much again on one side; None where it may not grow there."""
    low, high, whole = given["low"], given["high"], bool(given.get("int"))
    found = dict(given)
    if side == "low":
        lower = low / (high / low) ** 0.5 if given.get("log") else low - (high - low) / 2
        lower = max(lower, given.get("least", -math.inf if not given.get("log") else 0.0), 1 if whole else -math.inf)
        found["low"] = math.ceil(lower) if whole else float(f"{lower:.3g}")
    else:
        upper = high * (high / low) ** 0.5 if given.get("log") else high + (high - low) / 2
        upper = min(upper, given.get("most", math.inf))
        found["high"] = math.floor(upper) if whole else float(f"{upper:.3g}")
    return found if (found["low"], found["high"]) != (low, high) else None


def in_words(values: Mapping[str, Any]) -> list[str]:
    """The overrides of a point."""
    return [f"{key}={written(value)}" for key, value in values.items()]
