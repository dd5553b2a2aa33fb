"""Plain values as what a dataclass asks for: every one that is missing, unknown, of another type or out of its range is told."""

from __future__ import annotations

import dataclasses
import functools
import math
import re
import sys
import types
import typing
from collections.abc import Mapping
from typing import Any

from vflbench import registry
from vflbench.types import Problem, Range, closest

# Keys of many algorithms' and data sets' own Config, by name; what another key may be stands with its type.
SHARED: dict[str, Range] = {
    **{f"algorithm.{key}": Range(at_least=1) for key in ("parties", "parts", "workers", "local_steps", "batch_size")},
    "algorithm.layers": Range(at_least=1, at_most=1000),
    "algorithm.lr": Range(above=0),
    "algorithm.interval": Range(at_least=1e-6, at_most=1e6),
    "algorithm.deadline": Range(at_most=1e6),
}
CHOICES = {"dataset.source": ("auto", "real", "synthetic")}
SMALLEST, LARGEST = 1e-30, 1e30  # of any number that is not 0: those of 32 bits end near here
DEVICE = re.compile(r"auto|cpu|cuda(:\d+)?")


@functools.cache
def fields_of(kind: type) -> dict[str, Any]:
    """Field name -> type of a dataclass."""
    hints = typing.get_type_hints(kind, include_extras=True)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def convert(kind: Any, values: Mapping[str, Any]) -> tuple[Any, list[Problem]]:
    """`values` as the dataclass `kind`, and what is wrong with them: where anything is, the first means nothing."""
    problems: list[Problem] = []
    return convert_dataclass(kind, values, "", problems), problems


def convert_dataclass(kind: Any, values: Any, prefix: str, problems: list[Problem], kinds: Mapping[str, Any] | None = None) -> Any:
    """As `convert_value`; `kinds`: the types of the fields, where they are not those of the dataclass."""
    fields = fields_of(kind) if kinds is None else kinds
    if not isinstance(values, Mapping):
        problems.append(Problem(prefix.rstrip("."), shown(values), f"must have the keys {', '.join(fields)}"))
        return None
    for key in values:
        if key not in fields:
            has = ", ".join(name for name in fields if name != "name")
            problems.append(Problem(f"{prefix}{key}", shown(values[key]), f"unknown key; there are: {has}", closest(str(key), fields)))
    needed = [f.name for f in dataclasses.fields(kind) if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING]
    lacking = [name for name in needed if name not in values]
    problems += [Problem(prefix + name, "(missing)", "needs a value") for name in lacking]
    given = {n: convert_value(k, values[n], prefix + n, problems) for n, k in fields.items() if n in values}
    return None if lacking else kind(**given)


_SCALARS = {int: "an integer", float: "a number", bool: "true or false", str: "text (quote it)"}


def convert_value(kind: Any, value: Any, key: str, problems: list[Problem]) -> Any:
    """`value` as a `kind`; where it is none, or out of its range, a problem is added and the return value means nothing."""
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
            problems.append(Problem(key, shown(value), f"must be one of {', '.join(map(str, args))}", closest(str(value), map(str, args))))
    elif kind is int or kind is bool:
        if type(value) is not kind:
            problems.append(Problem(key, shown(value), f"must be {_SCALARS[kind]}"))
        elif abs(value) >= 2**63:
            problems.append(Problem(key, value, "is too large for an integer of 64 bits"))
    elif kind is float:
        finite = isinstance(value, int | float) and abs(value) <= sys.float_info.max  # an integer may have thousands of digits
        if isinstance(value, bool) or not finite:
            problems.append(Problem(key, shown(value), "must be a number"))
        else:
            value = float(value)
    elif kind is str:
        if isinstance(value, int | float) and not isinstance(value, bool):
            value = str(value)  # an unquoted 1 or 100 where a name is wanted
        elif not isinstance(value, str):
            problems.append(Problem(key, shown(value), f"must be {_SCALARS[str]}"))
    return value


def _convert_union(args: tuple[Any, ...], value: Any, key: str, problems: list[Problem]) -> Any:
    if value is None and types.NoneType in args:
        return None
    kinds = [kind for kind in args if kind is not types.NoneType]
    tries: list[list[Problem]] = []
    for kind in kinds:
        tries.append([])
        result = convert_value(kind, value, key, tries[-1])
        if not tries[-1]:
            return result
    if len(kinds) == 1 or not all(isinstance(kind, type) for kind in kinds):
        problems += [dataclasses.replace(p, allowed=f"{p.allowed}, or null") if types.NoneType in args else p for p in tries[0]]
    else:
        allowed = " or ".join(_SCALARS.get(kind, kind.__name__) for kind in kinds) + (" or null" if types.NoneType in args else "")
        problems.append(Problem(key, shown(value), f"must be {allowed}"))
    return None


def _convert_container(origin: Any, args: tuple[Any, ...], value: Any, key: str, problems: list[Problem]) -> Any:
    if origin is dict:
        if not isinstance(value, Mapping):
            problems.append(Problem(key, shown(value), "must be of the form {name: value}"))
            return None
        return {k: convert_value(args[1] if args else Any, item, f"{key}.{k}", problems) for k, item in value.items()}
    if not isinstance(value, list | tuple):
        problems.append(Problem(key, shown(value), "must be a list: [a,b]"))
        return None
    fixed = origin is tuple and args and args[-1] is not ...
    if fixed and len(value) != len(args):
        problems.append(Problem(key, shown(value), f"must have {len(args)} entries"))
        return None
    kinds = args if fixed else (args[0] if args else Any,) * len(value)
    return origin(convert_value(kind, item, f"{key}[{i}]", problems) for i, (kind, item) in enumerate(zip(kinds, value, strict=True)))


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


def shown(value: Any) -> Any:
    """As a user would type it."""
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else value
