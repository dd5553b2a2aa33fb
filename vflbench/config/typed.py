"""The keys of a run with their types, and plain values converted to them.

Each value that is missing, unknown, mistyped or out of range becomes a `Problem`.
"""

import dataclasses
import functools
import itertools
import math
import re
import sys
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from vflbench import registry
from vflbench.config import text_values
from vflbench.config.grammar import Override, line, values_of
from vflbench.contracts import OPTIONS
from vflbench.defaults import filled
from vflbench.types import ConfigError, Problem, Range, RunConfig, closest

HYDRAS = {"launcher": "hydra/launcher"}  # open groups that are Hydra's own
# open groups of a run whose options have keys
KEYED = tuple(group for group, kind in OPTIONS.items() if kind.keys is not None and group not in HYDRAS)
OPEN = ("algorithm", "dataset", *KEYED, *HYDRAS)  # groups that other packages may add to
UNTYPED = ("algorithm", "dataset", "model", *KEYED)  # their dataclass belongs to the chosen option
# Ranges of keys that many algorithms' own Config has; the range of any other key is written with its type.
SHARED: dict[str, Range] = {
    **{f"algorithm.{key}": Range(at_least=1) for key in ("parties", "parts", "workers", "local_steps", "batch_size")},
    "algorithm.layers": Range(at_least=1, at_most=1000),
    "algorithm.lr": Range(above=0),
    "algorithm.interval": Range(at_least=1e-6, at_most=1e6),
    "algorithm.deadline": Range(at_most=1e6),
}
CHOICES = {"dataset.source": ("auto", "real", "synthetic")}
SMALLEST, LARGEST = 1e-30, 1e30  # size of any number that is not 0: floats of 32 bits end near here
DEVICE = re.compile(r"auto|cpu|cuda(:\d+)?")


def kinds_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """Type of every root key; Any for an option of unknown name."""
    kinds = {key: kind for key, kind in fields_of(RunConfig).items() if key != "untyped"}
    for key in UNTYPED:
        name = values[key].get("name") if isinstance(values.get(key), dict) else None
        if isinstance(name, str) and name in _names(key):
            kinds[key] = registry.option_config(key, name)
        else:
            kinds[key] = OPTIONS[key].keys if key in KEYED and (key not in values or OPTIONS[key].bare == "*") else Any
    return kinds


def _names(key: str) -> tuple[str, ...]:
    """The options of a group of UNTYPED: those with a module, and `none` where it may be chosen."""
    if key == "model":
        return tuple(registry.model_entries())
    return (*(["none"] if key in KEYED and OPTIONS[key].bare == "none" else []), *registry.entries(key))


def lists(values: Mapping[str, Any], key: str) -> bool:
    """Whether a configuration has the dotted `key`."""
    inside: Any = values
    for part in key.split("."):
        if not isinstance(inside, dict) or part not in inside:
            return False
        inside = inside[part]
    return True


def value_problems(
    override: Override,
    values: Mapping[str, Any],
    kinds: Mapping[str, Any],
    groups: frozenset[str],
    adaptive: bool = False,
    guessed: bool = False,
) -> list[Problem]:
    """What is wrong with a `key=value` for a configuration `values` of types `kinds`.

    `adaptive`: a sweeper may choose between two ends. `guessed`: nobody knows which keys stand beside this one, as the
    option that has them was refused; only the value is judged, where the key is there.
    """
    key, parts = override.key_or_group, override.key_or_group.split(".")
    if override.package is not None:
        return []  # a group that Hydra does not know, or `tuned`: Hydra refuses it
    kind: Any = None
    inside: Any = values
    for depth, part in enumerate(parts):
        fields = kinds if depth == 0 else fields_of(typing.cast(type, kind)) if dataclasses.is_dataclass(kind) else {}
        if depth and (kind is Any or typing.get_origin(kind) in (dict, list, tuple)):
            return []  # open below here
        listed = [name for name in fields if not isinstance(inside, dict) or name in inside]
        if part not in (fields if override.is_add() else listed):
            if guessed:
                return []
            typed = line(override).partition("=")[2]
            if part in groups and depth == 0:  # a group that is not set, e.g. a model for an algorithm that takes none
                return [Problem(key, typed, f"no {part} is chosen")]
            if (allowed := _unlisted_key(line(override), parts, depth, inside, part in fields)) is not None:
                return [Problem(key, typed, allowed)]
            if depth and any(typing.get_origin(each) is dict for each in typing.get_args(kind)):
                above = ".".join(parts[:depth])
                return [Problem(key, typed, f"{above} takes all its keys at once: {above}={{{part}: {typed}}}")]
            owner = _owner(parts[:depth], inside)
            own = ", ".join(n for n in listed if n != "name")
            has = (f"{owner} has: {own}" if own else f"{owner} has no keys") if depth else "see vflbench --help"
            near = _closest_key(parts, depth, listed, kinds) if own or not depth else ""
            return [Problem(key, typed, f"unknown key; {has}", near)]
        kind, inside = fields[part], inside.get(part) if isinstance(inside, dict) else None
    if override.is_delete():  # a default that no file shows would replace it
        allowed = "cannot be removed: a run has a value for every key; some may be null"
        return [Problem(f"~{key}", line(override).partition("=")[2], allowed)]
    problems: list[Problem] = []
    listed_values = adaptive or not override.is_sweep_override() or override.is_discrete_sweep()
    words = [*override.sweep_string_iterator()] if override.is_discrete_sweep() else [line(override).partition("=")[2]]
    for value, word in itertools.zip_longest(values_of(override), words) if listed_values else []:
        convert_typed(kind, value if word is None else text_values.as_typed(kind, value, word), key, problems)
    return problems


def convert_typed(kind: Any, value: Any, key: str, problems: list[Problem]) -> Any:
    """As `convert_value`, of what was typed: it may refer to environment variables, and to other keys.

    The latter are known when the configuration is composed; such a value is returned as it is.
    """
    try:
        found = text_values.resolved(value)
    except ValueError as unset:
        problems.append(Problem(key, value, str(unset)))
        return None
    if isinstance(found, str) and "${" in found:
        return found
    own: list[Problem] = []
    converted = convert_value(kind, found, key, own)
    named = f"{value} (the text {found!r})" if found is not value else None
    problems += own if named is None else [dataclasses.replace(one, value=named) for one in own]
    return converted


def _unlisted_key(typed: str, parts: list[str], depth: int, inside: Any, is_field: bool) -> str | None:
    """Why `parts[depth]`, a key that options of its group have, is not in the chosen one; None for an unknown key."""
    where, key = ".".join(parts[:depth]), parts[depth]
    having = options_with(where, key) if depth == 1 and (is_field or where in KEYED) else []
    if not is_field and not having:
        return None
    owner = _owner(parts[:depth], inside)
    if isinstance(inside, dict) and inside.get("name") in having:  # an option file of the user's may leave keys out
        return f"your file of {owner} does not list this key: write it there, or +{typed}"
    others = f"; {', '.join(having)} {'has' if len(having) == 1 else 'have'} it" if having else ""
    return f"{owner or 'this configuration'} has no such key{others}"


def _owner(above: list[str], inside: Any) -> str:
    """The option whose keys are `inside`, as group=name; the keys `above` where it has no name."""
    where = ".".join(above)
    return f"{where}={inside.get('name')}" if isinstance(inside, dict) and inside.get("name") else where


def options_with(group: str, key: str) -> list[str]:
    """The options of vflbench's own in `group` that list `key`."""
    files = sorted((registry.config_dir() / group).glob("*.yaml"))
    return [path.stem for path in files if re.search(rf"^{key}:", path.read_text(encoding="utf-8"), re.MULTILINE)]


def _closest_key(parts: list[str], depth: int, listed: Iterable[str], kinds: Mapping[str, Any]) -> str | None:
    """The key that the user may have meant: one beside it, else one of the same last name, else the most similar."""
    if beside := closest(parts[depth], listed):
        return ".".join((*parts[:depth], beside, *parts[depth + 1 :]))
    known = list(_dotted(kinds))
    return next((k for k in known if k.split(".")[-1] == parts[-1]), None) or closest(".".join(parts), known)


def _dotted(kinds: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """All dotted keys."""
    for name, kind in kinds.items():
        yield prefix + name
        if dataclasses.is_dataclass(kind):
            yield from _dotted(fields_of(typing.cast(type, kind)), f"{prefix}{name}.")


def to_config(values: Mapping[str, Any]) -> RunConfig:
    """The dataclasses of a composed configuration.

    Raises
    ------
    ConfigError : keys that are unknown, values that are missing, mistyped or out of range.
    """
    config, problems = convert_run(values, kinds_of(values))
    if problems or config is None:
        raise ConfigError(problems)
    return config


def convert_run(values: Mapping[str, Any], kinds: Mapping[str, Any]) -> tuple[RunConfig | None, list[Problem]]:
    """A composed configuration as dataclasses, None where it has problems; and its problems."""
    problems: list[Problem] = []
    values = {"model": None, **values}  # an algorithm without a model leaves the group out
    for key in UNTYPED:
        if kinds[key] is Any and not (key == "model" and values[key] is None):
            name = values[key].get("name") if isinstance(values.get(key), dict) else None
            allowed = f"names no {key}; there are: {', '.join(_names(key))}"
            problems.append(Problem(f"{key}.name", as_typed(name), allowed, closest(str(name), _names(key))))
    values |= {group: _of_none(group, values[group]) for group in KEYED if group in values}
    config = convert_dataclass(RunConfig, values, "", problems, kinds)
    return (None if problems else config), problems


def _of_none(group: str, given: Any) -> Any:
    """`given`; of the option `none` without the keys of the group's other options.

    A preset sets those keys for a sweep that tries both.
    """
    own = fields_of(OPTIONS[group].keys).keys()
    if not isinstance(given, Mapping) or given.get("name") != "none" or given.keys() <= own:
        return given
    others = {key for name in registry.option_entries(group) for key in fields_of(registry.option_config(group, name))}
    return {key: value for key, value in given.items() if key in own or key not in others}


# --- values -----------------------------------------------------------------------------------------------------------


@functools.cache
def fields_of(kind: type) -> dict[str, Any]:
    """Field name -> type of a dataclass."""
    hints = typing.get_type_hints(kind, include_extras=True)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def convert(kind: Any, values: Mapping[str, Any]) -> tuple[Any, list[Problem]]:
    """`values` as the dataclass `kind`, and the problems; where there are any, the first means nothing."""
    problems: list[Problem] = []
    return convert_dataclass(kind, values, "", problems), problems


def convert_dataclass(
    kind: Any, values: Any, prefix: str, problems: list[Problem], kinds: Mapping[str, Any] | None = None
) -> Any:
    """As `convert_value`; `kinds`: the types of the fields, where the dataclass has others."""
    fields = fields_of(kind) if kinds is None else kinds
    if not isinstance(values, Mapping):
        problems.append(Problem(prefix.rstrip("."), as_typed(values), f"must have the keys {', '.join(fields)}"))
        return None
    for key in values:
        if key not in fields:
            has = ", ".join(name for name in fields if name != "name")
            problems.append(
                Problem(
                    f"{prefix}{key}", as_typed(values[key]), f"unknown key; there are: {has}", closest(str(key), fields)
                )
            )
    needed = [
        f.name
        for f in dataclasses.fields(kind)
        if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
    ]
    lacking = [name for name in needed if name not in values]
    problems += [Problem(prefix + name, "(missing)", "needs a value") for name in lacking]
    given = {n: convert_value(k, values[n], prefix + n, problems) for n, k in fields.items() if n in values}
    return None if lacking else filled(kind, **given)


_SCALARS = {int: "an integer", float: "a number", bool: "true or false", str: "text (quote it)"}


def convert_value(kind: Any, value: Any, key: str, problems: list[Problem]) -> Any:
    """`value` as a `kind`.

    Where it has another type, or is out of range, a problem is added, and what is returned means nothing.
    """
    value = text_values.read(kind, value) if isinstance(value, str) else value
    if dataclasses.is_dataclass(kind):
        return convert_dataclass(kind, value, f"{key}.", problems)
    allowed, before = Range(), len(problems)
    if typing.get_origin(kind) is typing.Annotated:
        kind, *notes = typing.get_args(kind)
        allowed = next((note for note in notes if isinstance(note, Range)), allowed)
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin in (list, tuple, dict):
        return _convert_container(origin, args, value, key, problems)
    if allowed.infinite and value == math.inf:
        return math.inf
    if origin in (typing.Union, types.UnionType):
        value = _convert_union(args, value, key, problems)
    else:
        value = _convert_scalar(kind, value, key, problems)
    if len(problems) == before and value is not None:
        refused = allowed.refuses(value) if isinstance(value, int | float) else ""
        problems += [Problem(key, value, refused)] if refused else _range_problems(key, value)
    return value


def _convert_scalar(kind: Any, value: Any, key: str, problems: list[Problem]) -> Any:
    if typing.get_origin(kind) is typing.Literal:
        args = typing.get_args(kind)
        if value not in args:
            problems.append(
                Problem(
                    key,
                    as_typed(value),
                    f"must be one of {', '.join(map(str, args))}",
                    closest(str(value), map(str, args)),
                )
            )
    elif kind is int or kind is bool:
        if type(value) is not kind:
            problems.append(Problem(key, as_typed(value), f"must be {_SCALARS[kind]}"))
        elif abs(value) >= 2**63:
            problems.append(Problem(key, value, "is too large for an integer of 64 bits"))
    elif kind is float:
        # an integer may have thousands of digits
        finite = isinstance(value, int | float) and abs(value) <= sys.float_info.max
        if isinstance(value, bool) or not finite:
            problems.append(Problem(key, as_typed(value), "must be a number"))
        else:
            value = float(value)
    elif kind is str:
        if isinstance(value, int | float) and not isinstance(value, bool):
            value = str(value)  # an unquoted 1 or 100 where a name is wanted
        elif not isinstance(value, str):
            problems.append(Problem(key, as_typed(value), f"must be {_SCALARS[str]}"))
    return value


def _convert_union(args: tuple[Any, ...], value: Any, key: str, problems: list[Problem]) -> Any:
    if value is None and types.NoneType in args:
        return None
    kinds = [kind for kind in args if kind is not types.NoneType]
    if isinstance(value, Mapping) and (with_keys := [kind for kind in kinds if dataclasses.is_dataclass(kind)]):
        return convert_dataclass(with_keys[0], value, f"{key}.", problems)
    tries: list[list[Problem]] = []
    for kind in kinds:
        tries.append([])
        result = convert_value(kind, value, key, tries[-1])
        if not tries[-1]:
            return result
    if len(kinds) == 1 or not all(isinstance(kind, type) for kind in kinds):
        problems += [
            dataclasses.replace(p, allowed=f"{p.allowed}, or null") if types.NoneType in args else p for p in tries[0]
        ]
    else:
        allowed = " or ".join(map(_called, kinds)) + (" or null" if types.NoneType in args else "")
        problems.append(Problem(key, as_typed(value), f"must be {allowed}"))
    return None


def _called(kind: type) -> str:
    if dataclasses.is_dataclass(kind):
        return f"{{{next(iter(fields_of(kind)))}: ...}}"
    return _SCALARS.get(kind, kind.__name__)


def _convert_container(origin: Any, args: tuple[Any, ...], value: Any, key: str, problems: list[Problem]) -> Any:
    if origin is dict:
        if not isinstance(value, Mapping):
            problems.append(Problem(key, as_typed(value), "must be of the form {name: value}"))
            return None
        return {k: convert_value(args[1] if args else Any, item, f"{key}.{k}", problems) for k, item in value.items()}
    if not isinstance(value, list | tuple):
        problems.append(Problem(key, as_typed(value), "must be a list: [a,b]"))
        return None
    fixed = origin is tuple and args and args[-1] is not ...
    if fixed and len(value) != len(args):
        problems.append(Problem(key, as_typed(value), f"must have {len(args)} entries"))
        return None
    kinds = args if fixed else (args[0] if args else Any,) * len(value)
    return origin(
        convert_value(kind, item, f"{key}[{i}]", problems)
        for i, (kind, item) in enumerate(zip(kinds, value, strict=True))
    )


def _range_problems(key: str, value: Any) -> list[Problem]:
    choices = CHOICES.get(key) or (key == "accounting" and tuple(registry.option_entries(key)))
    if choices and value not in choices:
        return [Problem(key, value, f"must be one of {', '.join(choices)}", closest(str(value), choices))]
    if (key == "device" or key.startswith("engine.devices.")) and not DEVICE.fullmatch(value):
        return [Problem(key, value, "must be auto, cpu, cuda or cuda:NUMBER", closest(value, ("auto", "cpu", "cuda")))]
    if refused := SHARED.get(key, Range()).refuses(value) if isinstance(value, int | float) else "":
        return [Problem(key, value, refused)]
    if isinstance(value, float) and math.isfinite(value) and value and not SMALLEST <= abs(value) <= LARGEST:
        return [Problem(key, value, f"must be 0, or from {SMALLEST:g} to {LARGEST:g} in size")]
    return []


def as_typed(value: Any) -> Any:
    """The value as a user would type it."""
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else value
