"""Checks a module against its contract when it is loaded: each violation is one line, with file, found and expected."""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import typing
from collections.abc import Callable, Collection, Iterator
from types import ModuleType
from typing import Any

from vflbench.contracts import (
    LAYOUTS,
    OPTIONS,
    Algorithm,
    AlgorithmHooks,
    Dataset,
    DatasetHooks,
)
from vflbench.types import (
    ASSUMED,
    DIVISORS,
    FORMS,
    KINDS,
    SCORED,
    TIMES,
    UNITS,
    AlgorithmInfo,
    DatasetInfo,
    Exposed,
    Implied,
    Interval,
    OptionInfo,
    RunConfig,
    Sent,
    Tolerates,
    Unit,
    VflbenchError,
    messages,
    rules,
    searchable,
    searched,
)

MISSPELT = 0.85  # a function whose name is at least so similar to a hook's is taken for a misspelt hook


def check_algorithm(card: ModuleType, programs: ModuleType | None = None) -> None:
    """Raise VflbenchError where a card and its programs break the contract `Algorithm`: a line for each violation.

    They may be one module: then `programs` is None.
    """
    module = _together(card, programs)
    problems = [*_members(module, Algorithm, AlgorithmHooks), *_literals(module, "ALGORITHM", AlgorithmInfo)]
    problems += _misplaced(card, programs)
    if not problems:
        problems += _facts(module)
        problems += _config(module, {"name": str, "default_rounds": int}, (module.ALGORITHM.name,))
        problems += _exposed(module.ALGORITHM, module.EXPOSES)
    if not problems:
        problems += _keys(module.ALGORITHM, module.Config)
        problems += _searched(module, "algorithm", {key.name for key in dataclasses.fields(RunConfig)} - {"algorithm"})
    _raise(module, problems)


def check_dataset(card: ModuleType, programs: ModuleType | None = None) -> None:
    """As `check_algorithm`, for the contract `Dataset`."""
    module = _together(card, programs)
    problems = [*_members(module, Dataset, DatasetHooks), *_literals(module, "DATASETS", DatasetInfo)]
    if not problems:
        for info in module.DATASETS:
            problems += _layouts(module, f"DATASETS {info.name}", info.layouts)
        problems += _config(module, {"name": str}, [info.name for info in module.DATASETS])
    _raise(module, problems)


def check_option(group: str, card: ModuleType, programs: ModuleType | None = None) -> None:
    """As `check_algorithm`, for the contract of an open group."""
    kind, module = OPTIONS[group], _together(card, programs)
    problems = [*_members(module, kind.protocol, kind.hooks), *_literals(module, "OPTIONS", OptionInfo)]
    problems += _misplaced(card, programs)
    if not problems:
        for info in module.OPTIONS:
            problems += _among(f"OPTIONS {info.name} units", info.units, typing.get_args(Unit))
    if not problems and kind.keys is not None:
        problems += _config(module, typing.get_type_hints(kind.keys), [info.name for info in module.OPTIONS])
        if not problems and module.Config.__module__ != card.__name__:
            where = module.Config.__module__
            problems += [f"Config is one of {where}: it must be a class of this file, by which an option is found"]
        if not problems and group == "privacy":
            problems += _searched(module, group, set())
    _raise(module, problems)


def _together(card: ModuleType, programs: ModuleType | None) -> ModuleType:
    """What both define, as one module."""
    if programs is None or programs is card:
        return card
    both = ModuleType(programs.__name__)
    vars(both).update({**vars(card), **vars(programs)})
    if "check" in vars(card):
        vars(both)["check"] = rules(card)
    return both


def _misplaced(card: ModuleType, programs: ModuleType | None) -> Iterator[str]:
    """A hook `check` beside programs, where a card is a file of its own."""
    if programs is not None and programs is not card and "check" in vars(programs):
        yield f"check is never called: it must be in the card, {card.__name__}"


def _raise(module: ModuleType, problems: list[str]) -> None:
    if problems:
        raise VflbenchError("\n".join(f"{module.__file__}: {text}" for text in dict.fromkeys(problems)))


def _members(module: ModuleType, protocol: type, hooks: type) -> Iterator[str]:
    """Names that are missing, functions that do not take their arguments, hooks whose names are misspelt."""
    required = _functions(protocol)
    known = required | _functions(hooks)
    for name in typing.get_type_hints(protocol):
        if name not in vars(module):
            yield f"{name} is missing: {_first_line(protocol)}"
    for name, expected in known.items():
        function = vars(module).get(name)
        if function is None:
            if name in required:
                yield f"{name}{_parameters(expected)} is missing: {_first_line(expected)}"
            continue
        if not _takes(function, expected):
            has = f"takes {_parameters(function)}" if callable(function) else "is no function"
            yield f"{name} {has}, and is called as {name}{_parameters(expected)}"
    for name, value in vars(module).items():
        own = inspect.isfunction(value) and value.__module__ == module.__name__ and not name.startswith("_")
        meant = difflib.get_close_matches(name, known, n=1, cutoff=MISSPELT)
        if own and meant and meant[0] not in vars(module) and _takes(value, known[meant[0]]):
            yield f"{name} is never called. Did you mean {meant[0]!r}?"


def _takes(function: Any, expected: Callable[..., Any]) -> bool:
    """Whether `function` can be called as `expected` is: as many arguments, and none with the name of another."""
    wanted = list(inspect.signature(expected).parameters)
    try:
        bound = inspect.signature(function).bind(*wanted).arguments
    except (TypeError, ValueError):
        return False
    swapped = any(name in wanted and name != given for name, given in bound.items())
    return not swapped and not inspect.iscoroutinefunction(function)


def _literals(module: ModuleType, name: str, kind: type) -> Iterator[str]:
    """A line where `name` is not what the registry reads: one `kind` for an algorithm, else a tuple of them."""
    found = vars(module).get(name)
    if name == "ALGORITHM":
        if not isinstance(found, kind):
            yield f"ALGORITHM must be an {kind.__name__}(...)"
    elif not (isinstance(found, tuple) and found and all(isinstance(info, kind) for info in found)):
        yield f"{name} must be a tuple of {kind.__name__}(...), at least one"


def _functions(protocol: type) -> dict[str, Callable[..., Any]]:
    every = [named for kind in reversed(protocol.__mro__) for named in vars(kind).items()]
    return {name: value.__func__ for name, value in every if isinstance(value, staticmethod)}


def _parameters(function: Callable[..., Any]) -> str:
    try:
        return f"({', '.join(inspect.signature(function).parameters)})"
    except ValueError:  # of a built-in class
        return "other arguments"


def _first_line(documented: Any) -> str:
    return str(inspect.getdoc(documented)).partition("\n")[0]


def _facts(module: ModuleType) -> Iterator[str]:
    info: AlgorithmInfo = module.ALGORITHM
    yield from _layouts(module, "ALGORITHM", info.layouts)
    yield from _among("ALGORITHM reports", info.reports, SCORED)
    yield from _among("ALGORITHM assumes", info.assumes, tuple(ASSUMED))
    if not info.reports:
        yield f"ALGORITHM reports is empty: what is scored must be some of {', '.join(SCORED)}"
    if "parameters" in info.reports and info.layouts != ("sharded",):
        yield "ALGORITHM reports parameters: whole models are scored only on sharded data"
    for case, known in typing.get_type_hints(Tolerates).items():
        yield from _among(f"ALGORITHM tolerates {case}", (getattr(info.tolerates, case),), typing.get_args(known))
    if info.tolerates.late != "waits" and not info.time_dependent:
        yield f"ALGORITHM tolerates late={info.tolerates.late!r}, which depends on time: time_dependent=True"


def _layouts(module: ModuleType, what: str, given: tuple[str, ...]) -> Iterator[str]:
    """Layouts that nobody knows; another package may have one of its own."""
    if any(name in LAYOUTS for name in given) or module.__name__.startswith("vflbench."):
        yield from _among(f"{what} layouts", given, LAYOUTS)


def _among(what: str, given: tuple[str, ...], known: tuple[str, ...]) -> Iterator[str]:
    yield from (f"{what} has {name!r}: there are {', '.join(known)}" for name in given if name not in known)


def _config(module: ModuleType, required: dict[str, type], names: Collection[str]) -> Iterator[str]:
    """Required keys that Config lacks, keys without a default, a default name that is not among `names`."""
    config = module.Config
    # a dataclass that it inherits from does not count its own keys
    if not (isinstance(config, type) and "__dataclass_fields__" in vars(config)):
        yield "Config must be a dataclass: add @dataclass"
        return
    types = typing.get_type_hints(config)
    for key, kind in required.items():
        if types.get(key) != kind:
            yield f"Config must have the key {key}, of type {kind.__name__ if isinstance(kind, type) else kind}"
    fields = {field.name: field for field in dataclasses.fields(config)}
    bare = [key for key, field in fields.items() if field.default is field.default_factory]  # both are MISSING
    if bare:
        yield f"Config must have a default for every key; {', '.join(bare)} has none"
    elif (name := config().name) not in names:
        yield f"Config has name={name!r} by default: it must be {' or '.join(names)}"


def _keys(info: AlgorithmInfo, config: type) -> Iterator[str]:
    """Keys that ALGORITHM names and Config lacks, or a `divided_by` that is not the key that counts parties."""
    keys = typing.get_type_hints(config)
    having = tuple(key for key in DIVISORS if key in keys)
    if having[:1] != (() if info.divided_by is None else (info.divided_by,)):
        has = " and ".join(having) or f"none of {', '.join(DIVISORS)}"
        whole = "" if having else ": all data would be one party's"
        yield f"ALGORITHM says divided_by={info.divided_by!r}, and Config has {has}{whole}"
    elif having and keys[having[0]] not in (int, int | None):  # null: as many as the data set has
        yield f"Config must have the key {having[0]}, of type int"


def _searched(module: ModuleType, group: str, others: set[str]) -> Iterator[str]:
    """Entries of SEARCH that are no key of the Config or of `others`, other groups, or nothing that can be searched."""
    space = vars(module).get("SEARCH", {})
    if not isinstance(space, dict):
        yield "SEARCH must be a dict of keys with tuples of choices or Interval(low, high)"
        return
    own = tuple(f"{group}.{key.name}" for key in dataclasses.fields(module.Config))
    yield from _among("SEARCH", tuple(key for key in space if str(key).partition(".")[0] not in others), own)
    for key, given in space.items():
        if not searchable(searched(given)):
            yield f"SEARCH {key} is {given!r}: it must be a tuple of at least two choices, or Interval(low, high)"
        elif isinstance(given, Interval) and given.where:
            yield from _among(f"SEARCH {key} where", tuple(given.where), tuple(space))


def _exposed(info: AlgorithmInfo, exposes: tuple[Exposed, ...]) -> Iterator[str]:
    if not (isinstance(exposes, tuple) and all(isinstance(entry, Exposed) for entry in exposes)):
        yield "EXPOSES must be a tuple of Sent(tag, sender, receiver, kind, about), Implied(...) and Given(...)"
        return
    known = tuple(dict.fromkeys(entry.tag for entry in messages(exposes)))
    for entry in exposes:
        name = entry.tag if isinstance(entry, Sent) else type(entry).__name__
        if entry.kind not in KINDS:
            yield f"EXPOSES {name}: kind is {entry.kind!r}; there are {', '.join(KINDS)}"
        elif entry.unit is not None:
            yield from _among(f"EXPOSES {name} unit", (entry.unit,), typing.get_args(Unit))
            if entry.unit == UNITS[entry.kind]:
                yield f"EXPOSES {name}: unit={entry.unit!r} is that of {entry.kind}: leave it out"
        if isinstance(entry, Implied):
            yield from _among(f"EXPOSES {name} of {entry.kind}", entry.tags, known)
        if not isinstance(entry, Sent):
            continue
        if not (isinstance(entry.keys, tuple) and all(isinstance(key, str) for key in entry.keys)):
            yield f"EXPOSES {name}: keys is {entry.keys!r}: it must be a tuple of names"
        if not (isinstance(entry.form, tuple) and len(entry.form) in (1, 3) and entry.form[0] in FORMS):
            yield f"EXPOSES {name}: form is {entry.form!r}: (form,) or (form, key, value) of {', '.join(FORMS)}"
        if not isinstance(entry.times, int) and entry.times not in TIMES:
            yield f"EXPOSES {name}: times is {entry.times!r}; there are {', '.join(TIMES)}, or a number"
    if info.implies_nothing and any(isinstance(entry, Implied) for entry in exposes):
        yield "ALGORITHM says implies_nothing, and EXPOSES has Implied: remove one of them"
    yield from _among("ALGORITHM remembered", info.remembered, known)
