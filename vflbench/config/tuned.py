"""Values that were searched for: `tuned/ALGORITHM.yaml` in a folder of options, an entry for each data set.

bank:                                   # with noise of a mechanism: `bank/label_dp`, which counts instead there
  found: best validation auroc of 12 trials, seed 0, on 2026-11-27
  algorithm.lr: 0.00786

A file `tuned/ALGORITHM/DATASET.yaml` of a user's, as an older vflbench wrote it, counts too.
"""

from __future__ import annotations

import dataclasses
import functools
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf, open_dict

from vflbench import registry
from vflbench.defaults import NUMBER
from vflbench.types import VflbenchError

PRIVATE = "private"  # what the options with the noise of a mechanism begin with
FOUND = "found"  # the key that says where the values come from


@dataclasses.dataclass(frozen=True)
class Entry:
    """Tuned values."""

    file: Path
    name: str  # of the entry
    values: dict[str, Any]  # key -> value
    found: str = ""  # where they come from


def find(folder: Path, asked: str) -> Entry | None:
    """The values in a folder of options for `ALGORITHM/DATASET`, or for `private/PRIVACY/ALGORITHM/DATASET`.

    Each of the three may have slashes: it is the name of a user's file.

    Raises
    ------
    VflbenchError : the file is no mapping of entries.
    """
    place, parts = folder / "tuned", tuple(asked.split("/"))
    for first in range(2, len(parts)) if parts[0] == PRIVATE else (0,):
        for last in range(first + 1, len(parts)):
            noise, algorithm, dataset = ("/".join(part) for part in (parts[1:first], parts[first:last], parts[last:]))
            file, name = place / f"{algorithm}.yaml", f"{dataset}/{noise}" if noise else dataset
            if file.is_file() and name in (entries := read(file)):
                held = dict(entries[name])
                found = str(held.pop(FOUND, ""))
                return Entry(file, name, flat(held), found)
    older = place / f"{asked}.yaml"
    if len(parts) > 1 and older.is_file():
        return Entry(older, asked, flat(_parsed(str(older), _text(older))))
    return None


def read(file: Path) -> dict[str, dict[str, Any]]:
    """The entries of a file, by name. Raises VflbenchError where it holds none, or cannot be read."""
    return _entries(file, _text(file))


def _entries(file: Path, text: str) -> dict[str, dict[str, Any]]:
    entries = _parsed(str(file), text)
    if not all(isinstance(one, dict) for one in entries.values()):
        raise _none(str(file))
    return {str(name): {str(key): value for key, value in one.items()} for name, one in entries.items()}


def written(file: Path, name: str, found: str, values: Mapping[str, Any]) -> str:
    """The text of the file with this entry in it; the others, their comments and line ends are as they were.

    Without `found` it only tells, before a search, whether the file can take the entry.

    Raises
    ------
    VflbenchError : the file is not written as ours are, so the entry would spoil it.
    """
    before = _text(file) if file.exists() else ""
    held = _entries(file, before)
    own = {FOUND: found, **flat(values)}
    entry = yaml.dump({name: own}, Dumper=_Dumper, sort_keys=False, width=1 << 30, allow_unicode=True)
    lines = before.splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    first, last = _lines(before, name) if name in held else (len(lines), len(lines))
    text = "".join([*lines[:first], entry, *lines[last:]])
    try:
        whole = _entries(file, text) == {**held, name: own}
    except VflbenchError:
        whole = False
    if not whole:
        how = f"add this one by hand:\n{entry}" if found else "write it so, or choose another --out DIR"
        raise VflbenchError(f"{file}: is not a list of entries in lines of their own; {how}")
    return text


class _Dumper(yaml.SafeDumper):
    """Puts quotes round texts that Hydra would read as numbers, as 1e5, and round breaks, which PyYAML would fold."""

    def text(self, value: str) -> yaml.ScalarNode:
        return self.represent_scalar("tag:yaml.org,2002:str", value, '"' if len(value.splitlines()) > 1 else None)


_Dumper.add_representer(str, _Dumper.text)
_Dumper.add_implicit_resolver("tag:yaml.org,2002:float", NUMBER, list("-+.0123456789"))


def _lines(text: str, name: str) -> tuple[int, int]:
    """The first line of an entry, and that after its last; comments at the margin above the next are the next's."""
    whole: Any = yaml.compose(text, yaml.SafeLoader)
    keys = [key for key, _ in whole.value]
    number = next(number for number, key in enumerate(keys) if key.value == name)
    lines, first = text.splitlines(), keys[number].start_mark.line
    last = keys[number + 1].start_mark.line if number + 1 < len(keys) else len(lines)
    while not lines[last - 1].strip() or lines[last - 1].startswith("#"):
        last -= 1
    return first, last


def _text(file: Path) -> str:
    try:
        return file.read_bytes().decode()  # read_text would change line ends
    except (OSError, UnicodeDecodeError) as error:
        raise VflbenchError(f"{file}: cannot be read: {error}") from None


@functools.lru_cache(maxsize=256)
def _parsed(file: str, text: str) -> dict[Any, Any]:
    """The content of a file as Hydra reads it, in a tenth of the time; to look at."""
    stream = io.StringIO(text)
    stream.name = file  # errors in it name it
    try:
        found = yaml.load(stream, FastLoader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        said = " ".join(str(error).split())
        raise VflbenchError(said if file in said else f"{file}: {said}") from None
    if not isinstance(found, dict | None):
        raise _none(file)
    return found or {}


def _none(file: str) -> VflbenchError:
    return VflbenchError(f"{file}: holds no tuned values; an entry is DATASET: {{algorithm.lr: 0.1}}")


class FastLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """As OmegaConf's: 1e-5 is a number, a date is a text, and no key may be there twice, no value in itself."""

    def construct_document(self, node: yaml.Node) -> Any:
        """As `SafeLoader`'s."""
        self.deep_construct = True  # else PyYAML makes values that hold themselves
        return super().construct_document(node)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> Any:
        """As `SafeLoader`'s."""
        names = [key.value for key, _ in node.value]
        for name in names:
            if names.count(name) > 1:
                raise yaml.constructor.ConstructorError(None, None, f"{name} is there twice", node.start_mark)
        return super().construct_mapping(node, deep)


FastLoader.yaml_implicit_resolvers = {
    first: [(tag, form) for tag, form in forms if not tag.endswith(":timestamp")]
    for first, forms in FastLoader.yaml_implicit_resolvers.items()
}
FastLoader.add_implicit_resolver("tag:yaml.org,2002:float", NUMBER, list("-+.0123456789"))


def flat(values: Any, above: str = "") -> dict[str, Any]:
    """Nested values by their whole keys."""
    found = dict[str, Any]()
    for key, value in values.items():
        nested = isinstance(value, Mapping) and value
        found |= flat(value, f"{above}{key}.") if nested else {f"{above}{key}": value}
    return found


def of_this_model(cfg: DictConfig, entry: Entry | None) -> None:
    """Take keys of another network, which the values in `entry` may have, out of the configuration."""
    name, models = OmegaConf.select(cfg, "model.name"), registry.model_entries()
    for key in entry.values if entry and name in models else ():
        group, _, leaf = key.partition(".")
        if group == "model" and leaf not in _keys(name) and any(leaf in _keys(other) for other in models):
            with open_dict(cfg):
                cfg.model.pop(leaf, None)  # a key of no network is an error, which is told


def _keys(model: str) -> set[str]:
    return {field.name for field in dataclasses.fields(registry.option_config("model", model))}
