"""Where a value comes from: default < tuned < adapted to the data < preset < typed; the last that has a key counts.

A default is in our option file or the user's, a tuned value in `tuned/ALGORITHM.yaml`, a preset is `experiment=NAME`.
What adapts to the data has no file: `vflbench.adapt` changes defaults and tuned values that nobody typed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from vflbench.config import grammar, tuned
from vflbench.config.overrides import LINK_KEYS, link_words
from vflbench.config.source import SCHEME, Source
from vflbench.defaults import config_dir
from vflbench.types import ADAPTABLE

# A line of an option file: a key, its value, and behind `#` what it is for.
LINE = re.compile(r"^(?P<indent> *)(?P<key>[\w@.]+):(?: +(?P<value>[^#]*?))?(?:\s*#\s*(?P<comment>.*))?$")
# An entry of a list of defaults: flags, whether it is no group in the file's own one, the group or file, the package.
WORD = re.compile(r"((?:(?:optional|override) +)*)(/?)([^@]*)(?:@(.*))?")


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
    choices = {str(group): option for group, option in hydra.runtime.choices.items()}
    found = list(_Files(sources, choices).layers("config"))
    typed: Any = OmegaConf.to_container(hydra.overrides.task)
    own = dict[str, Any]()
    for key, text in (word.lstrip("+").split("=", 1) for word in typed if "=" in word):
        presets = [str(one.values[key]) for one in found if one.name == "preset" and key in one.values]
        if not any(text in (preset, *grammar.texts(key, preset)) for preset in presets):  # a job has them too
            own |= tuned.flat({key: grammar.mapping(key, text) or text})
    return [*found, Layer("typed", own)]


class _Files:
    """The files of a configuration, from the folders and the chosen options."""

    def __init__(self, sources: Sequence[Source], choices: Mapping[str, Any]) -> None:
        self.sources = sources
        self.choices = choices  # group, or group@package -> option
        self.added = {group: option for group, option in choices.items() if not group.startswith("hydra/")}

    def layers(self, path: str, package: str = "", fixed: bool = False, name: str = "default") -> Iterator[Layer]:
        """The layers of a file, and of those in its list of defaults, in the order in which Hydra merges them.

        Parameters
        ----------
        package : what the keys of the file belong to, unless its header says more; `fixed`: whatever that says.
        name : of the layer, unless the file's group says more.
        """
        source = next((one for one in self.sources if one.is_config(path)), None)
        if source is None:
            return
        (values, header), entry, file = source.contents(path), source.found(path), source.file(path)
        place = header.get("package")
        package = package if fixed or place is None else _joined(f"_global_.{place}")
        name = "tuned" if entry else "preset" if path.startswith("experiment/") else name
        note = ": ".join(filter(None, (entry.name, entry.found))) if entry else ""
        entries, root = values.pop("defaults", []), path == "config"
        chosen = dict(_chosen(entries, root))
        swept = dict[str, Any]()
        if values.pop("hydra", None):
            config: Any = source.load_config(path).config
            swept = _of_jobs(OmegaConf.select(config, "hydra.sweeper.params") or {})
        own = tuned.flat({package: values} if package else values)
        for one in entries if "_self_" in entries else [*entries, "_self_"]:
            if one == "_self_":
                yield Layer(name, {**(chosen if root else {}), **own, **swept}, file, note)
            else:
                for inner in self._included(one, path.rpartition("/")[0], package):
                    yield from self.layers(*inner, name)
        for group in [*self.added] if root else ():  # `+group=option`
            for inner in self._included({group: self.added.get(group)}, "", ""):
                yield from self.layers(*inner, name)
        if chosen and not root:
            yield Layer(name, chosen, file, note)

    def _included(self, entry: Any, group: str, above: str) -> Iterator[tuple[str, str, bool]]:
        """The files that an entry of a list of defaults includes, with their packages, and whether it says these.

        Parameters
        ----------
        group, above : those of the file with the list.
        """
        for word, option in entry.items() if isinstance(entry, Mapping) else [(str(entry), "")]:
            flags, root, inner, package = WORD.fullmatch(str(word)).groups()  # type: ignore[union-attr]
            folder = inner if option != "" else inner.rpartition("/")[0]
            whole = "/".join(filter(None, ("" if root else group, inner)))
            default = whole.replace("/", ".")
            if package and "_group_" in package:
                package = f"_global_.{package.replace('_group_', default)}"
            place = _joined(above, {"_here_": "", None: folder.replace("/", ".")}.get(package, package))
            if "override" in flags:
                continue
            if option != "" and not isinstance(option, list):
                key = whole if place == default else f"{whole}@{place or '_global_'}"
                self.added.pop(key, None)
                option = self.choices.get(key, option)
            for one in option if isinstance(option, list) else [option]:
                if one is not None:
                    named = "/".join(filter(None, (whole, str(one))))
                    named = re.sub(r"\$\{([^}]*)\}", lambda found: str(self.choices.get(found[1])), named)
                    yield named, place, package is not None


def _of_jobs(params: Mapping[str, Any]) -> dict[str, Any]:
    """What a preset sweeps, by the keys that its jobs have: `network.latency_ms` is one of each kind of links."""
    found = dict[str, Any]()
    for key, value in params.items():
        override = grammar.parsed(f"{key}={value}") if key in LINK_KEYS else None
        words = [] if override is None else link_words(override)
        found |= dict(word.split("=", 1) for word in words) or {key: value}
    return found


def _joined(*packages: str) -> str:
    """A package inside another one; `_global_` is inside none."""
    return ".".join(filter(None, packages)).rpartition("_global_")[2].lstrip(".")


def _chosen(entries: Iterable[Any], root: bool) -> Iterator[tuple[str, Any]]:
    """The groups for which a list of defaults says the option, in the file config.yaml or instead of that."""
    for entry in entries:
        for word, option in entry.items() if isinstance(entry, Mapping) else ():
            flags, _, group, package = WORD.fullmatch(str(word)).groups()  # type: ignore[union-attr]
            if "override" in flags or (root and package is None):
                yield group, option


def origins(hydra: DictConfig) -> dict[str, Layer]:
    """Key -> the layer that its value comes from, but for what is adapted to the data."""
    return {key: layer for layer in layers(hydra) for key in layer.values}


def untyped(hydra: DictConfig) -> frozenset[str]:
    """The keys of ADAPTABLE whose values are vflbench's own: nobody typed or wrote other ones."""
    found = origins(hydra)
    ours = [key for key in ADAPTABLE if key in found and found[key].name in ("default", "tuned") and found[key].ours]
    return frozenset(ours)


def changed_keys(hydra: DictConfig) -> dict[str, dict[str, str]]:
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
