"""Where a value comes from: default < tuned < adapted to the data < preset < typed; the last that has a key counts.

A default is in our option file or the user's, a tuned value in `tuned/ALGORITHM.yaml`, a preset is `experiment=NAME`.
What adapts to the data has no file: `vflbench.adapt` changes defaults and tuned values that nobody typed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from vflbench.config import tuned
from vflbench.config.loader import tuned_values
from vflbench.config.source import SCHEME, Source
from vflbench.defaults import config_dir
from vflbench.types import ADAPTABLE

# A line of an option file: a key, its value, and behind `#` what it is for.
LINE = re.compile(r"^(?P<indent> *)(?P<key>[\w@.]+):(?: +(?P<value>[^#]*?))?(?:\s*#\s*(?P<comment>.*))?$")


@dataclass(frozen=True)
class Layer:
    """Values of one file, or those that were typed."""

    name: str  # default, tuned, preset or typed
    values: Mapping[str, Any]  # whole key, or group -> value, or option
    file: Path | None = None  # None: typed
    note: str = ""  # of tuned values: their entry, and where they come from

    @property
    def ours(self) -> bool:
        """Whether the file comes with vflbench."""
        return self.file is not None and self.file.is_relative_to(config_dir())

    @property
    def place(self) -> str:
        """The file in words; of ours below `conf/`."""
        if self.file is None:
            return "the command line"
        return f"conf/{self.file.relative_to(config_dir())}" if self.ours else str(self.file)


def layers(hydra: DictConfig) -> list[Layer]:
    """The layers of a configuration, by its node `hydra`, the first first.

    Options that a plug-in's class describes have no file, and so no layer.
    """
    places = [one for one in hydra.runtime.config_sources if one["schema"] == SCHEME]
    sources = [Source(one.provider, f"{SCHEME}://{one.path}") for one in places]
    choices = {str(group): option for group, option in hydra.runtime.choices.items() if option is not None}
    plain = [group for group in choices if not re.search("[/@]", group) and group != "experiment"]
    found = list(_read(sources, "config", "default"))
    for group in sorted(plain, key=("algorithm").__eq__):  # an algorithm's file may choose options of other groups
        found += _read(sources, f"{group}/{choices[group]}", "default")
    for _, entry in tuned_values(hydra, sources):
        note = f"{entry.name}: {entry.found}" if entry.found else entry.name
        found.append(Layer("tuned", entry.values, entry.file, note))
    if "experiment" in choices:
        found += _read(sources, f"experiment/{choices['experiment']}", "preset")
    typed: Any = OmegaConf.to_container(hydra.overrides.task)
    words = {word.lstrip("+").partition("=")[0]: word.partition("=")[2] for word in typed}
    preset = {key: str(value) for one in found if one.name == "preset" for key, value in one.values.items()}
    own = {
        key: value for key, value in words.items() if value not in preset.get(key, "").split(",")
    }  # a job's are in it
    return [*found, Layer("typed", own)]


def _read(sources: Iterable[Source], path: str, name: str) -> Iterator[Layer]:
    """The layers of an option's file, and of those that it is made from."""
    source = next((one for one in sources if one.is_config(path)), None)
    if source is None:
        return
    loaded, group, chosen = source.load_config(path), path.rpartition("/")[0], dict[str, Any]()
    values: Any = OmegaConf.to_container(loaded.config)
    package = loaded.header.get("package") or group.replace("/", ".")
    above = "" if package in ("_global_", "") else f"{package}."
    for entry in values.pop("defaults", []):
        if isinstance(entry, Mapping):
            for word, option in entry.items():
                chosen[re.sub(r"^(optional |override |/)*", "", str(word)).partition("@")[0]] = option
        elif entry != "_self_":
            yield from _read(sources, entry[1:] if entry.startswith("/") else f"{group}/{entry}", name)
    swept = OmegaConf.select(loaded.config, "hydra.sweeper.params") or {}
    values.pop("hydra", None)
    own = {f"{above}{key}": value for key, value in tuned.flat(values).items()}
    yield Layer(name, {**chosen, **own, **swept}, source.file(path))


def origins(hydra: DictConfig) -> dict[str, Layer]:
    """Key -> the layer that its value comes from, but for what is adapted to the data."""
    return {key: layer for layer in layers(hydra) for key in layer.values}


def untyped(hydra: DictConfig) -> frozenset[str]:
    """The keys of ADAPTABLE whose values are vflbench's own: nobody typed or wrote other ones."""
    found = origins(hydra)
    ours = [key for key in ADAPTABLE if key in found and found[key].name in ("default", "tuned") and found[key].ours]
    return frozenset(ours)


def told(hydra: DictConfig) -> dict[str, dict[str, str]]:
    """Key -> its layer and file, for each value that is no default; a run's manifest has them."""
    return {
        key: {"layer": layer.name, "from": layer.place} | ({"note": layer.note} if layer.note else {})
        for key, layer in sorted(origins(hydra).items())
        if layer.name != "default"
    }


def meaning(file: Path, key: str) -> str:
    """What the comment behind a key in an option file says; `key` without the file's group."""
    above: list[str] = []
    for line in file.read_text(encoding="utf-8").splitlines():
        if (found := LINE.match(line)) and not line.lstrip().startswith("- "):
            above = [*above[: len(found["indent"]) // 2], found["key"]]
            if ".".join(above) == key:
                return found["comment"] or ""
    return ""
