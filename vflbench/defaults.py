"""The keys of an option: their types and ranges are in a class of its card, their values and comments in `conf/`.

So each is written once, where people look for it: what Hydra reads is what the class has by default. A class may still
give a key a default, as those of plug-ins do, which need no file in `conf/`.
"""

import copy
import dataclasses
import functools
import inspect
import re
import sys
import textwrap
import typing
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

ROOT = Path(__file__).resolve().parent
# The groups whose options have cards, and their rooms. Our networks are only YAML, launchers are Hydra's.
ROOMS = {
    **{"algorithm": "algorithms", "dataset": "data", "model": "models", "attack": "attacks", "privacy": "privacy"},
    **{"codec": "federation/codecs", "accounting": "federation/accountings", "protection": "federation/protections"},
    **{"topology": "federation/topologies", "network": "federation/networks"},
    **{"launcher": "runner/launchers", "logger": "runner/loggers"},
}
NUMBER = re.compile(r"[-+]?\d[\d_]*(\.\d*)?[eE][-+]?\d+$")  # 3e-05, which is a text for PyYAML and a number for Hydra
PRESETS = re.compile(r"^presets:.*\n((?:[ #].*\n|\n)*)", re.MULTILINE)  # the end of a figure's file
PRESET = re.compile(r"^([\w/.-]+):[ \t]*(?:#.*)?\n", re.MULTILINE)  # the line with a preset's name
MARGIN = re.compile(r"^[^\s#].*\n", re.MULTILINE)  # a line that is not indented
Keys = TypeVar("Keys")
_like: dict[type, tuple[str, ...]] = {}  # class -> the files that `from_conf` was told


@functools.cache
def config_dir() -> Path:
    """The folder of the options that come with vflbench: inside the installed package, else the repository's."""
    return ROOT / "conf" if (ROOT / "conf").is_dir() else ROOT.parent / "conf"


@functools.lru_cache(maxsize=256)
def presets(text: str) -> dict[str, str]:
    """What the text of a figure's file says of each of its presets, which are cut out: to parse it all takes long."""
    found = PRESETS.search(text + "\n")
    inside = textwrap.dedent(re.sub(r"^#.*\n", "", found[1], flags=re.MULTILINE)) if found else ""
    if ("presets" in text and not inside.strip()) or not all(map(PRESET.fullmatch, MARGIN.findall(inside))):
        return _parsed_presets(text)
    _, *parts = PRESET.split(inside)
    return {name: textwrap.dedent(own) for name, own in zip(parts[::2], parts[1::2], strict=True)}


def _parsed_presets(text: str) -> dict[str, str]:
    """As `presets`, of a file that is written in another way than ours are."""
    import yaml  # takes 20 ms

    try:
        whole: typing.Any = yaml.compose(text, yaml.SafeLoader)
    except yaml.YAMLError:  # told, with its place, where the figure is drawn
        return {}
    nodes = {key.value: value for key, value in whole.value} if isinstance(whole, yaml.MappingNode) else {}
    inside = nodes.get("presets")
    pairs = inside.value if isinstance(inside, yaml.MappingNode) else []
    return {key.value: yaml.serialize(value, Dumper=yaml.SafeDumper) for key, value in pairs}


@typing.dataclass_transform(kw_only_default=True, field_specifiers=(dataclasses.field,))
def from_conf(*like: str) -> Callable[[type[Keys]], type[Keys]]:
    """Make a class of annotated keys a dataclass whose defaults are read from `conf/` when they are needed.

    Parameters
    ----------
    like : the files with the values of a class that belongs to no option, as of the keys that a family shares: a
        plug-in that inherits them, and says nothing else, has these. Without it: of the option whose card it is in.
    """

    def decorated(kind: type[Keys]) -> type[Keys]:
        bases = [base for base in reversed(kind.__mro__[1:]) if base in _like]
        own, _like[kind] = inspect.get_annotations(kind), like
        kind.__annotations__ = {
            key: wanted for base in (*bases, kind) for key, wanted in inspect.get_annotations(base).items()
        }
        for name in kind.__annotations__:
            if name not in own or name not in vars(kind):
                setattr(kind, name, dataclasses.field(default_factory=functools.partial(_default, kind, name)))
        for name, method in {"__init__": _fill, "__eq__": _equals, "__repr__": _shown, "__hash__": None}.items():
            setattr(kind, name, method)  # to generate them for each class takes half of the time of `vflbench list`
        return dataclasses.dataclass(init=False, eq=False, repr=False)(kind)

    return decorated


def _fill(self: Any, /, *values: Any, **given: Any) -> None:
    """The `__init__` of a class of keys, which are given in their order or by name."""
    fields = {one.name: one for one in dataclasses.fields(self)}
    given |= {name: value for name, value in zip(fields, values, strict=False) if name not in given}
    unknown, kind = [*given.keys() - fields.keys(), *values[len(fields) :]], type(self).__name__
    if unknown:
        raise TypeError(f"{kind}.__init__() got an unexpected argument {unknown[0]!r}")
    for name, one in fields.items():
        if name not in given and one.default_factory is one.default:  # both are MISSING
            raise TypeError(f"{kind}.__init__() lacks the argument {name!r}")
        make: Any = one.default_factory
        setattr(self, name, given[name] if name in given else one.default if make is dataclasses.MISSING else make())
    if hasattr(self, "__post_init__"):
        self.__post_init__()


def _equals(self: object, other: object) -> bool:
    return type(self) is type(other) and vars(self) == vars(other)


def _shown(self: object) -> str:
    return f"{type(self).__name__}({', '.join(f'{key}={value!r}' for key, value in vars(self).items())})"


def filled(kind: type[Keys], /, **given: Any) -> Keys:
    """An option's keys: those that are given, and the others as the option's file in `conf/` has them."""
    known: Any = kind
    read = [one.name for one in dataclasses.fields(known) if isinstance(one.default_factory, functools.partial)]
    for option in _options(known) if known in _like else ():
        if option.rpartition("/")[2] == given.get("name"):
            given = {key: _value(known, option, key) for key in read if key in _read(option)} | given
    return kind(**given)


def _default(kind: type, key: str) -> Any:
    """The value of a key that nobody gave."""
    for option in _options(kind):
        if key in _read(option):
            return _value(kind, option, key)
    raise TypeError(f"{kind.__module__}.{kind.__name__}: no file in conf/ has the key {key}")


def _value(kind: type, option: str, key: str) -> Any:
    value, wanted = copy.deepcopy(_read(option)[key]), _hints(kind)[key]
    return float(value) if type(value) is int and float in (wanted, *typing.get_args(wanted)) else value


_hints = functools.cache(typing.get_type_hints)


@functools.cache
def _options(kind: type) -> tuple[str, ...]:
    """The files with the values of a class: of the options in whose card it is, then what its bases are like."""
    card = sys.modules[kind.__module__]
    group = next((group for group, room in ROOMS.items() if f"{_room(card)}/".startswith(f"{room}/")), "")
    ours = card.__name__.startswith("vflbench.cards.") and not _like[kind]
    own = tuple(f"{group}/{name}" for name in names_of(card)) if ours else ()
    return own + tuple(option for base in kind.__mro__ for option in _like.get(base, ()))


def _room(card: ModuleType) -> str:
    return card.__name__.removeprefix("vflbench.cards.").rpartition(".")[0].replace(".", "/")


def names_of(card: ModuleType) -> tuple[str, ...]:
    """The names of the options whose card it is."""
    found = vars(card)
    if "ALGORITHM" in found:
        return (found["ALGORITHM"].name,)
    return tuple(found.get("MODEL_NAMES", ())) or tuple(
        info.name for info in (*found.get("DATASETS", ()), *found.get("OPTIONS", ()))
    )


@functools.cache
def _read(option: str) -> dict[str, Any]:
    """An option file of ours; `option` is a group and a name, `algorithm/glasu`."""
    import yaml  # takes 20 ms

    loader: Any = type("Loader", (getattr(yaml, "CSafeLoader", yaml.SafeLoader),), {})
    loader.add_implicit_resolver("tag:yaml.org,2002:float", NUMBER, list("-+.0123456789"))
    text = (config_dir() / f"{option}.yaml").read_text(encoding="utf-8")
    found: dict[str, Any] = yaml.load(text, loader)
    return found
