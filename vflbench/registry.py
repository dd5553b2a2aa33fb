"""What can be chosen: algorithms, data sets, models and options of other groups.

Each has a *card*: a plain module, without torch or NumPy, with its facts, its keys and the rules between them. Ours are
in vflbench/cards, which mirrors the package: the card of vflbench/privacy/gdp.py is vflbench/cards/privacy/gdp.py.
Other packages announce theirs by entry points, and may write card and program as one module. Cards are imported; a
module with programs is imported only when it is chosen, and one broken plug-in does not stop the others.
"""

import functools
import importlib
import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass, replace
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar

from vflbench import contract_checks, contracts
from vflbench.defaults import ROOMS
from vflbench.defaults import config_dir as config_dir
from vflbench.types import (
    AlgorithmInfo,
    DatasetInfo,
    Exposed,
    OptionInfo,
    VflbenchError,
    closest,
    module_name,
)

ROOT = Path(__file__).resolve().parent
CARDS = ROOT / "cards"
# Open groups: their folders, whose last parts name the entry points.
GROUPS = {group: room for group, room in ROOMS.items() if group not in ("algorithm", "dataset", "model")}
CHECKS: dict[str, Callable[[ModuleType, ModuleType], None]] = {
    **{group: functools.partial(contract_checks.check_option, group) for group in GROUPS},
    "algorithm": contract_checks.check_algorithm,
    "dataset": contract_checks.check_dataset,
    "model": lambda card, module: None,
}
log = logging.getLogger(__name__)
Info = TypeVar("Info")


@dataclass(frozen=True)
class Entry(Generic[Info]):
    """A registered name: its facts, its card, and whether another package has it."""

    info: Info
    card: str  # the name of a module
    plugin: bool = False

    @property
    def module(self) -> str:
        """The name of the module with its programs; a plug-in's is its card."""
        return module_name(self.card)


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
    if entry_points() is None:  # then cards of ours need not be imported
        return own
    return (
        *own,
        *(
            name
            for name, entry in option_entries(group).items()
            if entry.plugin and algorithm.name in entry.info.algorithms
        ),
    )


def option_config(group: str, name: str) -> Any:
    """The dataclass of option `name`'s keys, of any group; the group's own for an option without a card.

    Torch is not imported for it, unless by a plug-in. Raises as `load_algorithm`.
    """
    if (kind := contracts.OPTIONS.get(group)) and (
        kind.bare == name or (kind.bare == "*" and name not in option_entries(group))
    ):
        return kind.keys
    return card(group, name).Config


def card(group: str, name: str) -> ModuleType:
    """The card of option `name`, which for a plug-in is its module; raises as `load_algorithm`."""
    entry = _entry(group, name)
    return _load(group, name) if entry.plugin else importlib.import_module(entry.card)


def exposed(name: str) -> tuple[Exposed, ...]:
    """The EXPOSES of an algorithm; raises as `load_algorithm`."""
    found: tuple[Exposed, ...] = card("algorithm", name).EXPOSES
    return found


def chosen(entry: Exposed, keys: Mapping[str, Any]) -> bool:
    """Whether `keys` have a value that the entry of EXPOSES asks for; a key that is not there has any.

    `convex` says whether the problem is convex.
    """
    if getattr(entry, "convex", False) and not keys.get("convex", True):
        return False
    return not entry.when or keys.get(*entry.when[:2]) in entry.when[1:]


def fit(algorithm: AlgorithmInfo, dataset: DatasetInfo) -> str | None:
    """The first layout of `algorithm` that `dataset` can give; None where there is none."""
    return next((layout for layout in algorithm.layouts if layout in dataset.layouts), None)


# --- the rooms --------------------------------------------------------------------------------------------------------


@functools.cache
def entry_points() -> Any:
    """What installed packages announce, read once; None where none of them names us."""
    if not _announced():
        return None
    import importlib.metadata

    return importlib.metadata.entry_points()


def _announced() -> bool:
    """Whether an installed package may name us; importlib.metadata would take a third of `vflbench list` to say so."""
    if any(hasattr(finder, "find_distributions") for finder in sys.meta_path if finder is not PathFinder):
        return True
    for place in map(Path, sys.path):
        with suppress(OSError):  # nobody may read it
            if place.suffix == ".egg" or place.is_file():  # archives
                return True
            if any(b"[vflbench." in file.read_bytes() for file in place.glob("*-info/entry_points.txt")):
                return True
    return False


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
            found[f"{group} {name}"] = sha256_of(entry.card)
    return found


@functools.cache  # the code that a process runs is what it has imported, whatever changes later
def sha256_of(module: str) -> str:
    """The SHA-256 of a plug-in's source, with all of the package that it is in.

    Raises
    ------
    ImportError : there is no such module.
    """
    import hashlib
    from importlib.util import find_spec

    spec = find_spec(module)
    if spec is None or spec.origin is None:
        raise ImportError("there is no such module")
    path = Path(spec.origin)
    whole = path.parent if path.name == "__init__.py" else path
    if depth := module.count("."):
        whole = whole.parents[depth - 1]
    content = hashlib.sha256()
    for file in sorted(whole.rglob("*.py")) if whole.is_dir() else [whole]:
        content.update(file.relative_to(whole).as_posix().encode() + b"\0" + file.read_bytes())
    return content.hexdigest()


@functools.cache
def model_entries() -> dict[str, Entry[str]]:
    """Every model with its card; no package adds to them."""
    return {name: Entry(name, card.__name__) for card in _cards("models") for name in vars(card).get("MODEL_NAMES", ())}


def _collect(kind: type[Info], room: str, variable: str, group: str) -> dict[str, Entry[Info]]:
    found: dict[str, Entry[Info]] = {}
    for card, plugin in (*((card, False) for card in _cards(room)), *((card, True) for card in _plugins(group))):
        value = vars(card).get(variable, ())
        for info in value if isinstance(value, tuple) else (value,):
            if not isinstance(info, kind):
                continue
            name: str = info.name  # type: ignore[attr-defined]
            if name in found:
                raise VflbenchError(f"the name {name!r} is taken twice: by {found[name].card} and by {card.__name__}")
            found[name] = Entry(info, card.__name__, plugin)
    return dict(sorted(found.items()))


def _cards(room: str) -> Iterator[ModuleType]:
    for path in sorted((CARDS / room).rglob("*.py")):
        yield importlib.import_module(".".join(("vflbench", *path.relative_to(ROOT).with_suffix("").parts)))


def _plugins(group: str) -> Iterator[ModuleType]:
    """The modules that packages announce under the entry point `group`; of broken ones, left out, it warns."""
    points = entry_points()
    for name in sorted({point.module for point in points.select(group=group)} if points is not None else ()):
        try:
            with redirect_stdout(sys.stderr):  # what it prints is not what was asked for
                found = importlib.import_module(name)
        except (Exception, SystemExit) as error:  # another package's code: whatever it raises must not stop ours
            log.warning("the plugin %s is left out: %s", name, error)
        else:
            yield found


def _entry(group: str, name: str) -> Entry[Any]:
    known = model_entries() if group == "model" else entries(group)
    if name not in known:
        hint = closest(name, known)
        raise VflbenchError(
            f"there is no {group} {name!r}"
            + (f"; did you mean {hint!r}?" if hint else f"; there are: {', '.join(known)}")
        )
    return known[name]


def _load(group: str, name: str) -> ModuleType:
    entry = _entry(group, name)
    return _checked(entry.card, entry.module, CHECKS[group])


@functools.cache
def _checked(card: str, module: str, check: Callable[[ModuleType, ModuleType], None]) -> ModuleType:
    try:
        found = importlib.import_module(module)
    except (ImportError, SyntaxError) as error:
        raise VflbenchError(f"{module} cannot be imported: {error}") from error
    check(importlib.import_module(card), found)
    return found
