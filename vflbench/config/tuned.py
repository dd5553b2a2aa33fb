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
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf, open_dict

from vflbench import registry
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
                return Entry(file, name, held, str(held.pop(FOUND, "")))
    older = place / f"{asked}.yaml"
    if len(parts) > 1 and older.is_file():
        return Entry(older, asked, _flat(OmegaConf.to_container(_parsed(str(older), _text(older)))))
    return None


def read(file: Path) -> dict[str, dict[str, Any]]:
    """The entries of a file, by name. Raises VflbenchError where it holds none."""
    entries = OmegaConf.to_container(_parsed(str(file), _text(file)))
    if not isinstance(entries, dict) or not all(isinstance(one, dict) for one in entries.values()):
        raise VflbenchError(f"{file}: holds no tuned values; an entry is DATASET: {{algorithm.lr: 0.1}}")
    return {str(name): {str(key): value for key, value in one.items()} for name, one in entries.items()}


def written(file: Path, name: str, found: str, values: Mapping[str, Any]) -> str:
    """The text of the file with this entry in it; the others are as they were."""
    entry = yaml.safe_dump({name: {FOUND: found, **_flat(values)}}, sort_keys=False, width=1000, allow_unicode=True)
    before = _text(file) if file.is_file() else ""
    own = re.compile(rf"^(['\"]?){re.escape(name)}\1:.*\n(?:[ #].*\n|\n(?=[ \n]))*", re.MULTILINE)
    if own.search(before):
        return own.sub(lambda _: entry, before, count=1)
    return before + ("\n" if before and not before.endswith("\n") else "") + entry


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8")


@functools.lru_cache(maxsize=256)
def _parsed(file: str, text: str) -> Any:
    """The content of a file as OmegaConf reads it, to look at; numbers are as in Hydra's files."""
    stream = io.StringIO(text)
    stream.name = file  # errors in it name it
    return OmegaConf.load(stream)


def _flat(values: Any, above: str = "") -> dict[str, Any]:
    """Nested values by their whole keys."""
    found = dict[str, Any]()
    for key, value in values.items():
        inside = _flat(value, f"{above}{key}.") if isinstance(value, Mapping) else {f"{above}{key}": value}
        found |= inside
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
