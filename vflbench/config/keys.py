"""Which keys a run has, and of what types: those of its options are known by their names."""

from __future__ import annotations

import dataclasses
import re
import typing
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from vflbench import registry
from vflbench.config.typed import convert_dataclass, convert_value, fields_of, shown
from vflbench.contracts import OPTIONS
from vflbench.hydra_internals import Override, line, values_of
from vflbench.types import ConfigError, Problem, RunConfig, closest

HYDRAS = {"launcher": "hydra/launcher"}  # open groups that Hydra has itself
KEYED = tuple(group for group, kind in OPTIONS.items() if kind.keys is not None and group not in HYDRAS)  # of a run, with keys
OPEN = ("algorithm", "dataset", *KEYED, *HYDRAS)  # groups that other packages may add to
UNTYPED = ("algorithm", "dataset", "model", *KEYED)  # their dataclass belongs to the chosen option


def kinds_of(values: Mapping[str, Any], whole: bool = True) -> dict[str, Any]:
    """Type of every root key; of an option whose name nobody knows, Any. `whole`: as `registry.option_config`."""
    kinds = dict(fields_of(RunConfig))
    for key in UNTYPED:
        name = values[key].get("name") if isinstance(values.get(key), dict) else None
        if isinstance(name, str) and name in _names(key):
            kinds[key] = registry.option_config(key, name, whole)
        else:
            kinds[key] = OPTIONS[key].keys if key in KEYED and (key not in values or OPTIONS[key].bare == "*") else Any
    return kinds


def _names(key: str) -> tuple[str, ...]:
    """The options of one of UNTYPED that have a module; `none` is one where it may be chosen."""
    if key == "model":
        return tuple(registry.model_modules())
    return (*(["none"] if key in KEYED and OPTIONS[key].bare == "none" else []), *registry.entries(key))


def lists(values: Mapping[str, Any], key: str) -> bool:
    """Whether a configuration has the dotted `key`."""
    inside: Any = values
    for part in key.split("."):
        if not isinstance(inside, dict) or part not in inside:
            return False
        inside = inside[part]
    return True


def value_problems(override: Override, values: Mapping[str, Any], kinds: Mapping[str, Any], groups: frozenset[str]) -> list[Problem]:
    """What is wrong with a `key=value` for a configuration `values` of types `kinds`."""
    key, parts = override.key_or_group, override.key_or_group.split(".")
    if override.package is not None:
        return []  # a group that Hydra does not know, or `tuned`: its to refuse
    typed = line(override).partition("=")[2]
    kind: Any = None
    inside: Any = values
    for depth, part in enumerate(parts):
        fields = kinds if depth == 0 else fields_of(typing.cast(type, kind)) if dataclasses.is_dataclass(kind) else {}
        if depth and (kind is Any or typing.get_origin(kind) in (dict, list, tuple)):
            return []  # open below here
        listed = [name for name in fields if not isinstance(inside, dict) or name in inside]
        if part not in (fields if override.is_add() or override.is_force_add() else listed):
            where = ".".join(parts[:depth])
            owner = f"{where}={inside.get('name')}" if isinstance(inside, dict) and inside.get("name") else where
            if part in groups and depth == 0:  # a group that is not set, e.g. a model for an algorithm that takes none
                return [Problem(key, typed, f"no {part} is chosen")]
            having = _options_with(where, part) if depth == 1 and (part in fields or where in KEYED) else []
            if part in fields or having:
                if isinstance(inside, dict) and inside.get("name") in having:  # an option file of the user's need not list every key
                    return [Problem(key, typed, f"your file of {owner} does not list this key: write it there, or +{line(override)}")]
                others = f"; {', '.join(having)} {'has' if len(having) == 1 else 'have'} it" if having else ""
                return [Problem(key, typed, f"{owner or 'this configuration'} has no such key{others}")]
            has = f"{owner} has: {', '.join(n for n in listed if n != 'name')}" if depth else "see vflbench --help"
            return [Problem(key, typed, f"unknown key; {has}", _closest_key(parts, depth, listed, kinds))]
        kind, inside = fields[part], inside.get(part) if isinstance(inside, dict) else None
    if override.is_delete():  # a default that no file shows would take its place
        return [Problem(f"~{key}", typed, "cannot be removed: a run has a value for every key; null is one for some")]
    problems: list[Problem] = []
    for value in values_of(override) if not override.is_sweep_override() or override.is_discrete_sweep() else []:
        if not (isinstance(value, str) and "${" in value):
            convert_value(kind, value, key, problems)
    return problems


def _options_with(group: str, key: str) -> list[str]:
    """The options of vflbench's own in `group` that list `key`."""
    files = sorted((registry.config_dir() / group).glob("*.yaml"))
    return [path.stem for path in files if re.search(rf"^{key}:", path.read_text(encoding="utf-8"), re.MULTILINE)]


def _closest_key(parts: list[str], depth: int, listed: Iterable[str], kinds: Mapping[str, Any]) -> str | None:
    """A key that the user may have meant: beside the one typed, else of the same last name, else the most similar anywhere."""
    if beside := closest(parts[depth], listed):
        return ".".join((*parts[:depth], beside, *parts[depth + 1 :]))
    known = list(_dotted(kinds))
    return next((k for k in known if k.split(".")[-1] == parts[-1]), None) or closest(".".join(parts), known)


def _dotted(kinds: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for name, kind in kinds.items():
        yield prefix + name
        if dataclasses.is_dataclass(kind):
            yield from _dotted(fields_of(typing.cast(type, kind)), f"{prefix}{name}.")


def to_config(values: Mapping[str, Any]) -> RunConfig:
    """The dataclasses of a composed configuration.

    Raises ConfigError: unknown keys, missing and mistyped values, and those outside their range.
    """
    config, problems = convert_run(values, kinds_of(values))
    if problems or config is None:
        raise ConfigError(problems)
    return config


def convert_run(values: Mapping[str, Any], kinds: Mapping[str, Any]) -> tuple[RunConfig | None, list[Problem]]:
    """A composed configuration as dataclasses, None where anything is wrong with it, and what that is."""
    problems: list[Problem] = []
    values = {"model": None, **values}  # an algorithm without a model leaves the group out
    for key in UNTYPED:
        if kinds[key] is Any and not (key == "model" and values[key] is None):
            name = values[key].get("name") if isinstance(values.get(key), dict) else None
            allowed = f"names no {key}; there are: {', '.join(_names(key))}"
            problems.append(Problem(f"{key}.name", shown(name), allowed, closest(str(name), _names(key))))
    values |= {group: _of_none(group, values[group]) for group in KEYED if group in values}
    config = convert_dataclass(RunConfig, values, "", problems, kinds)
    return (None if problems else config), problems


def _of_none(group: str, given: Any) -> Any:
    """`given`, where it is `none` without the keys of the group's other options: a preset sets those for a sweep that tries both."""
    own = fields_of(OPTIONS[group].keys).keys()
    if not isinstance(given, Mapping) or given.get("name") != "none" or given.keys() <= own:
        return given
    others = {key for name in registry.option_entries(group) for key in fields_of(registry.option_config(group, name, whole=False))}
    return {key: value for key, value in given.items() if key in own or key not in others}
