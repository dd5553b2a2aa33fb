"""What can be chosen: algorithms, data sets, models and options of other groups.

They are found in their folders and by the entry points of installed packages. The facts of a name are literals, which
`ast` reads from the source. A module is imported only when it is chosen: `vflbench list` stays fast, and one broken
module does not stop the others.
"""

import contextlib
import functools
import importlib
import importlib.metadata
import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar

from vflbench import contracts
from vflbench.source_text import excerpt, literal, path_of, sha256_of
from vflbench.types import (
    AlgorithmInfo,
    DatasetInfo,
    Exposed,
    OptionInfo,
    VflbenchError,
    closest,
)

ROOT = Path(__file__).resolve().parent
# Open groups: their folders, whose last parts name the entry points. Our networks are only YAML, launchers are Hydra's.
GROUPS = {
    **{"attack": "attacks", "privacy": "privacy", "codec": "federation/codecs", "accounting": "federation/accountings"},
    "protection": "federation/protections",
    **{"topology": "federation/topologies", "network": "federation/networks", "launcher": "runner/launchers"},
    "logger": "runner/loggers",
}
CHECKS: dict[str, Callable[[ModuleType], None]] = {
    **{group: functools.partial(contracts.check_option, group) for group in GROUPS},
    **{"algorithm": contracts.check_algorithm, "dataset": contracts.check_dataset, "model": lambda module: None},
}
log = logging.getLogger(__name__)
Info = TypeVar("Info")


@dataclass(frozen=True)
class Entry(Generic[Info]):
    """A registered name: its facts, its module, and whether another package has it."""

    info: Info
    module: str
    plugin: bool = False


def algorithms() -> dict[str, AlgorithmInfo]:
    """Every algorithm by name, in alphabetical order."""
    return {name: entry.info for name, entry in algorithm_entries().items()}


def datasets() -> dict[str, DatasetInfo]:
    """Every data set by name, in alphabetical order."""
    return {name: entry.info for name, entry in dataset_entries().items()}


def load_algorithm(name: str) -> ModuleType:
    """The module of algorithm `name`, which keeps the contract `contracts.Algorithm`.

    Raises
    ------
    VflbenchError : there is no such algorithm, its module cannot be imported, or it breaks the contract.
    """
    return _load("algorithm", name)


def load_dataset(name: str) -> ModuleType:
    """The module of data set `name`, which keeps `contracts.Dataset`; raises as `load_algorithm`."""
    return _load("dataset", name)


def load_option(group: str, name: str) -> ModuleType:
    """The module of option `name` of an open group (GROUPS), which keeps its contract; raises as `load_algorithm`."""
    return _load(group, name)


def options(group: str, algorithm: AlgorithmInfo, own: tuple[str, ...]) -> tuple[str, ...]:
    """The options of an open group that `algorithm` goes with: its `own`, and those of other packages that name it."""
    if group == "privacy" and own == ("none",):  # calls no mechanism: another package's would protect nothing
        return own
    return (
        *own,
        *(
            name
            for name, entry in option_entries(group).items()
            if entry.plugin and algorithm.name in entry.info.algorithms
        ),
    )


def option_config(group: str, name: str, whole: bool = True) -> Any:
    """The dataclass of option `name`'s keys, of any group; the group's own for an option without a module.

    Without the `whole` module it is made from the source, where that works: it has the same fields, and torch is not
    imported. Raises as `load_algorithm`.
    """
    if (kind := contracts.OPTIONS.get(group)) and (
        kind.bare == name or (kind.bare == "*" and name not in option_entries(group))
    ):
        return kind.keys
    if not whole and (module := _module(group, name)) not in sys.modules:
        with contextlib.suppress(Exception):  # importing the module below then raises what is wrong
            return excerpt(module).make("Config")
    return _load(group, name).Config


def exposed(name: str) -> tuple[Exposed, ...]:
    """The EXPOSES of an algorithm, read from its source where that works; raises as `load_algorithm`."""
    with contextlib.suppress(Exception):  # loading the module below then raises what is wrong
        read: tuple[Exposed, ...] = excerpt(algorithm_entries()[name].module).make("EXPOSES")
        return read
    loaded: tuple[Exposed, ...] = load_algorithm(name).EXPOSES
    return loaded


def chosen(entry: Exposed, keys: Mapping[str, Any]) -> bool:
    """Whether `keys` have a value that the entry of EXPOSES asks for; a key that is not there has any.

    `convex` says whether the problem is convex.
    """
    if getattr(entry, "convex", False) and not keys.get("convex", True):
        return False
    return not entry.when or keys.get(*entry.when[:2]) in entry.when[1:]


def config_dir() -> Path:
    """The folder of the options that come with vflbench: inside the installed package, else the repository's."""
    return ROOT / "conf" if (ROOT / "conf").is_dir() else ROOT.parent / "conf"


def fit(algorithm: AlgorithmInfo, dataset: DatasetInfo) -> str | None:
    """The first layout of `algorithm` that `dataset` can give; None where there is none."""
    return next((layout for layout in algorithm.layouts if layout in dataset.layouts), None)


# --- the rooms --------------------------------------------------------------------------------------------------------


@functools.cache
def entry_points() -> Any:
    """What installed packages announce, read once: to look for it takes 20 ms."""
    return importlib.metadata.entry_points()


@functools.cache
def algorithm_entries() -> dict[str, Entry[AlgorithmInfo]]:
    """Every algorithm with its module; the family of ours is the folder that they are in."""
    found = _collect(AlgorithmInfo, "algorithms", "ALGORITHM", "vflbench.algorithms")
    families = {
        name: entry.info.family if entry.plugin else entry.module.split(".")[-2] for name, entry in found.items()
    }
    return {name: replace(entry, info=replace(entry.info, family=families[name])) for name, entry in found.items()}


@functools.cache
def dataset_entries() -> dict[str, Entry[DatasetInfo]]:
    """Every data set with its module."""
    return _collect(DatasetInfo, "data", "DATASETS", "vflbench.datasets")


@functools.cache
def option_entries(group: str) -> dict[str, Entry[OptionInfo]]:
    """Every option of an open group with its module, without `none`."""
    return _collect(OptionInfo, GROUPS[group], "OPTIONS", f"vflbench.{Path(GROUPS[group]).name}")


def entries(group: str) -> dict[str, Entry[Any]]:
    """Every name of a group that other packages may add to, with its module."""
    if group == "algorithm":
        return algorithm_entries()
    return dataset_entries() if group == "dataset" else option_entries(group)


def plugin_sources(values: Mapping[str, Any]) -> dict[str, str]:
    """The SHA-256 of the source of each plug-in that a configuration chooses and that decides what a run computes."""
    found = {}
    for group in ("algorithm", "dataset", *GROUPS):
        option = values.get(group)
        name = str(option.get("name") if isinstance(option, Mapping) else option)
        entry = entries(group).get(name) if group not in ("launcher", "logger") else None
        if entry is not None and entry.plugin:
            found[f"{group} {name}"] = sha256_of(entry.module)
    return found


@functools.cache
def model_modules() -> dict[str, str]:
    """The module of every model."""
    return {name: module for module, path in _room("models") for name in literal(path, "MODEL_NAMES") or ()}


def _collect(kind: type[Info], room: str, variable: str, group: str) -> dict[str, Entry[Info]]:
    found: dict[str, Entry[Info]] = {}
    read = [(module, literal(path, variable), False) for module, path in _room(room)]
    read += [(module, value, True) for module, value in _plugins(group, variable)]
    for module, value, plugin in read:
        for info in value if isinstance(value, tuple) else (value,):
            if not isinstance(info, kind):
                continue
            name: str = info.name  # type: ignore[attr-defined]
            if name in found:
                raise VflbenchError(f"the name {name!r} is taken twice: by {found[name].module} and by {module}")
            found[name] = Entry(info, module, plugin)
    return dict(sorted(found.items()))


def _room(room: str) -> Iterator[tuple[str, Path]]:
    for path in sorted((ROOT / room).rglob("*.py")):
        yield ".".join(("vflbench", *path.relative_to(ROOT).with_suffix("").parts)), path


def _plugins(group: str, variable: str) -> Iterator[tuple[str, Any]]:
    """Modules that installed packages announce under the entry point `group`, with what each assigns to `variable`.

    The parent package is imported, the module is not. One that cannot be read is left out with a warning.
    """
    for module in sorted({point.module for point in entry_points().select(group=group)}):
        try:
            value = literal(path_of(module), variable)
        except Exception as error:  # another package's code: whatever it raises must not stop ours
            log.warning("the plugin %s is left out: %s", module, error)
        else:
            yield module, value


def _module(group: str, name: str) -> str:
    known = model_modules() if group == "model" else {other: entry.module for other, entry in entries(group).items()}
    if name not in known:
        hint = closest(name, known)
        raise VflbenchError(
            f"there is no {group} {name!r}"
            + (f"; did you mean {hint!r}?" if hint else f"; there are: {', '.join(known)}")
        )
    return known[name]


def _load(group: str, name: str) -> ModuleType:
    return _checked(_module(group, name), CHECKS[group])


@functools.cache
def _checked(module: str, check: Callable[[ModuleType], None]) -> ModuleType:
    try:
        found = importlib.import_module(module)
    except (ImportError, SyntaxError) as error:
        raise VflbenchError(f"{module} cannot be imported: {error}") from error
    check(found)
    return found
