"""What a module must have to be an algorithm, a data set or an option of another group; checked when it is loaded.

This holds for our modules, each with its card, and for a user's. Each protocol says what a module must define, its
`...Hooks` what it may define beside that. Each violation is one line, with the file, what it has and what is expected.
"""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import typing
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

from vflbench.types import (
    ASSUMED,
    DIVISORS,
    FORMS,
    KINDS,
    SCORED,
    TIMES,
    UNITS,
    AlgorithmInfo,
    CodecConfig,
    DatasetInfo,
    Exposed,
    Implied,
    Interval,
    LinkConfig,
    NetworkConfig,
    OptionConfig,
    OptionInfo,
    PrivacyConfig,
    Problem,
    RunConfig,
    Sent,
    Tolerates,
    Unit,
    VflbenchError,
    messages,
    searchable,
    searched,
)

if TYPE_CHECKING:
    import numpy as np
    import torch
    from torch import Tensor

    from vflbench.attacks.transcript import Message, Watch
    from vflbench.data.tasks import Task
    from vflbench.federation.accounting import Payload
    from vflbench.federation.party import PartySpec
    from vflbench.privacy.mechanisms import Facts
    from vflbench.runner.logs import LoggedRun

LAYOUTS = ("aligned", "graph", "relational", "sharded")  # data/tasks
MISSPELT = 0.85  # a function whose name is at least so similar to a hook's is taken for a misspelt hook


class Algorithm(Protocol):
    """An algorithm's module.

    `Config` is a dataclass of `name`, `default_rounds` and the algorithm's own keys, each with a default; those of ours
    are in `conf/` (defaults.py).
    """

    ALGORITHM: AlgorithmInfo
    EXPOSES: tuple[Exposed, ...]
    Config: type

    @staticmethod
    def parties(task: Any, config: RunConfig) -> dict[str, PartySpec]:
        """The parties by name, in their order, each with its program and its own data.

        Raises
        ------
        ConfigError : a configuration that these data rule out.
        """


class AlgorithmHooks(Protocol):
    """What an algorithm may also define."""

    SEARCH: dict[str, Any]  #: what is searched: a key of the run -> a tuple of choices, or a types.Interval

    @staticmethod
    def check(config: RunConfig) -> list[Problem]:
        """What is wrong with the configuration, across keys, before any data is loaded."""

    @staticmethod
    def decide(task: Any, config: RunConfig) -> tuple[RunConfig, dict[str, Any]]:
        """The configuration with what the algorithm chooses once it sees the data; and that choice, for the summary."""

    @staticmethod
    def most(task: Any, config: RunConfig) -> dict[str, int]:
        """The largest values of its keys that these data allow: a larger default is cut to them."""

    @staticmethod
    def devices(task: Any, config: RunConfig) -> tuple[str, ...]:
        """What its parties can compute on with these data, of types.DEVICES; without this hook: on all of them."""

    @staticmethod
    def max_releases(config: RunConfig, rounds: int) -> int:
        """How often one row of a party is released at most; a target epsilon is calibrated to it."""


class Dataset(Protocol):
    """A data set's module; `Config` is a dataclass of `name` and its own keys, each with a default."""

    DATASETS: tuple[DatasetInfo, ...]
    Config: type

    @staticmethod
    def load(config: Any, layout: str, parties: int, seed: int, root: Path | None) -> Task:
        """The task in one of the layouts that DATASETS names; `root` is data_root, None where none was given.

        Raises
        ------
        DataError : files are missing or malformed.
        """


class DatasetHooks(Protocol):
    """What a data set may also define."""

    @staticmethod
    def most_parties(config: Any, layout: str, root: Path | None) -> int | None:
        """Between how many parties it can be divided at most, where `check` cannot know that; None: any number."""

    @staticmethod
    def check(config: Any, layout: str, parties: int) -> list[Problem]:
        """What is wrong with its keys, before anything is read."""

    @staticmethod
    def load_own(config: Any, layout: str, parties: int, seed: int, root: Path | None, task: Any, index: int) -> Task:
        """The `task`, which has no features yet, with those of part `index` only.

        With engine=ray each party's files are then read in its own process.
        """


class Option(Protocol):
    """A module of an open group; `Config` is a dataclass of `name` and its own keys, each with a default."""

    OPTIONS: tuple[OptionInfo, ...]
    Config: type


class OptionHooks(Protocol):
    """What every option may also define."""

    @staticmethod
    def check(config: Any) -> list[Problem]:
        """What is wrong with its keys, before any work."""


class Attack(Option, Protocol):
    """What an adversary finds out from the messages that it received."""

    @staticmethod
    def watch(task: Any, config: RunConfig, hubs: list[str]) -> Watch:
        """Whose messages are kept; `hubs` are the parties that hold data, in the order of the task's parts."""

    @staticmethod
    def attack(view: Iterable[Message], task: Any, config: RunConfig, hubs: list[str]) -> dict[str, Any]:
        """What it finds in the messages, for the summary; the task has the truth, only for the score."""


class AttackHooks(OptionHooks, Protocol):
    """What an attack may also define."""

    @staticmethod
    def check_task(task: Any, config: RunConfig) -> list[Problem]:
        """Why it cannot be tried on this task."""


class Codec(Option, Protocol):
    """How an array of numbers is compressed; `Config` has the keys of `types.CodecConfig`."""

    @staticmethod
    def encode(values: Tensor, rng: np.random.Generator, config: Any) -> tuple[Tensor, ...]:
        """What is sent, and charged by the ledger, for (n,) floats, n > 0; `rng` is the sender's."""

    @staticmethod
    def decode(sent: tuple[Tensor, ...], size: int, dtype: torch.dtype, config: Any) -> Tensor:
        """What the receiver makes of what was sent: (size,) floats of `dtype`."""


class Protection(Option, Protocol):
    """How what is added up is hidden from who adds it up; it may be priced only."""

    @staticmethod
    def slots(config: Any, terms: int, numbers: int) -> int:
        """How many groups of `numbers` a ciphertext holds, if up to `terms` ciphertexts are added up."""

    @staticmethod
    def seal(config: Any, values: np.ndarray, slots: int) -> np.ndarray:
        """What is sent, and charged by the ledger, of (m, k) numbers, `slots` rows of them in a ciphertext."""

    @staticmethod
    def unseal(sealed: np.ndarray, values: int, numbers: int, dtype: type, slots: int) -> np.ndarray:
        """The (values, numbers) that were sealed."""

    @staticmethod
    def seconds(config: Any, encrypted: int = 0, decrypted: int = 0, added: int = 0, multiplied: int = 0) -> float:
        """What so many operations on ciphertexts take."""


class Mechanism(Option, Protocol):
    """What the owner of data does to what it sends; `Config` has the keys of `types.PrivacyConfig`."""

    @staticmethod
    def make(config: Any, facts: Facts) -> Any:
        """The mechanism of one party, of a client; None where it protects nothing of a client's.

        It has `spent`, `state_dict`, `load_state_dict`, and the methods that its algorithms call.

        Raises
        ------
        ConfigError : it does not go with the facts of the run.
        """


class MechanismHooks(OptionHooks, Protocol):
    """What a mechanism may also define."""

    SEARCH: dict[str, Any]  #: what is searched with it: as an algorithm's, of its own keys (`privacy.clip`)

    @staticmethod
    def make_server(config: Any, facts: Facts) -> Any:
        """The mechanism of a server, which has the labels; as `make`. Without this hook only clients have one."""

    @staticmethod
    def check_labels(config: Any, labels: np.ndarray, classes: int) -> list[Problem]:
        """Why it cannot add noise to these labels; `classes` is 0 for a regression."""


class Topology(Option, Protocol):
    """Who may talk to whom."""

    @staticmethod
    def edges(config: Any, servers: list[str], clients: list[str], seed: int) -> Iterable[tuple[str, str]]:
        """The pairs that may exchange messages, in any order, also those of a server with its clients.

        Raises
        ------
        ConfigError : keys that these parties rule out.
        """


class Network(Option, Protocol):
    """The links; `Config` has the keys of `types.NetworkConfig`, whose `links` take precedence over this."""

    @staticmethod
    def link(config: Any, kind: str, pair: str) -> LinkConfig:
        """The link `pair` ("src->dst"), the same at every call; `kind` is client_server or client_client."""


class Launcher(Option, Protocol):
    """Where and when the jobs of a sweep run."""

    @staticmethod
    def launch(jobs: list[Callable[[], Any]], config: Any) -> list[Any]:
        """Call each job, here or pickled in another process, and return their results in order.

        Raises
        ------
        RuntimeError : a job ends without a result.
        """


class Logger(Option, Protocol):
    """Who is told of a run while it trains."""

    @staticmethod
    def start(config: Any, run: LoggedRun) -> Any:
        """What logs one run, with `log(row)` for each evaluation and `finish(summary)` at the end."""


class Accounting(Protocol):
    """What every message of a ledger costs; an option of this group has no keys."""

    OPTIONS: tuple[OptionInfo, ...]

    @staticmethod
    def price(rows: np.ndarray, payload: Payload) -> np.ndarray:
        """Bytes charged for each message, (n,); `rows` is a whole ledger, (n, 10), by federation.ledger.COLUMN."""


class AccountingHooks(Protocol):
    """What an accounting may also define."""

    @staticmethod
    def seconds(rows: np.ndarray, payload: Payload, network: NetworkConfig) -> dict[int, float]:
        """Communication time charged for each round, instead of the engine's."""

    @staticmethod
    def price_before(rows: np.ndarray, payload: Payload) -> np.ndarray:
        """Bytes charged for each message before the run, (n,): alignment, and what the method assumes.

        Without this hook they are free.
        """


def check_algorithm(card: ModuleType, programs: ModuleType | None = None) -> None:
    """Raise VflbenchError where a card and its programs break the contract `Algorithm`: a line for each violation.

    They may be one module: then `programs` is None.
    """
    module = _together(card, programs)
    problems = [*_members(module, Algorithm, AlgorithmHooks), *_literals(module, "ALGORITHM", AlgorithmInfo)]
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


@dataclasses.dataclass(frozen=True)
class Kind:
    """What the options of an open group are."""

    protocol: type
    hooks: type = OptionHooks
    keys: type | None = OptionConfig  # every Config has them; None: its options have no keys
    bare: str = "none"  # the option that has only these keys, and no module; *: any that has a YAML


OPTIONS = {
    "attack": Kind(Attack, AttackHooks),
    "codec": Kind(Codec, keys=CodecConfig),
    "protection": Kind(Protection),
    "accounting": Kind(Accounting, AccountingHooks, keys=None),
    "privacy": Kind(Mechanism, MechanismHooks, PrivacyConfig),
    "topology": Kind(Topology, bare=""),
    "network": Kind(Network, keys=NetworkConfig, bare="*"),
    "launcher": Kind(Launcher, bare="*"),
    "logger": Kind(Logger),
}


# --- what is wrong ----------------------------------------------------------------------------------------------------


def _together(card: ModuleType, programs: ModuleType | None) -> ModuleType:
    """What both define, as one module."""
    if programs is None or programs is card:
        return card
    both = ModuleType(programs.__name__)
    vars(both).update({**vars(card), **vars(programs)})
    return both


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
