"""Defaults that adapt to the data: the number of parties, the rows of a batch, the workers of split learning.

Only what nobody typed is changed (`RunConfig.untyped`). Each change is told in a line, and the manifest has it.
"""

import dataclasses
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vflbench import registry
from vflbench.types import AlgorithmInfo, RunConfig, VflbenchError, division, hook

MOST_PARTIES = 64  # that are tried where the default is too small
log = logging.getLogger(__name__)


def parties(config: RunConfig, info: AlgorithmInfo, root: Path | None = None) -> RunConfig:
    """The configuration with as many parties as the data set can be divided between.

    The largest such number below the default is taken, else the smallest above it; where there is none, and where the
    number was typed, nothing changes. `root` is data_root.
    """
    data = registry.datasets()[config.dataset.name]
    module, layout = registry.load_dataset(data.name), registry.fit(info, data)
    default = division(config.algorithm)
    check = hook(module, "check")
    if "algorithm.parties" not in config.untyped or layout is None or check is None:
        return config
    most = default
    if limit := hook(module, "most_parties"):
        try:
            most = min(default, limit(config.dataset, layout, root) or default)
        except (VflbenchError, OSError):  # told when the data are loaded
            return config
    if most == default and not _divides(check(config.dataset, layout, default)):
        return config
    tried = [*range(most, 0, -1), *range(default + 1, MOST_PARTIES + 1)]
    found = next((number for number in tried if not check(config.dataset, layout, number)), default)
    return _with(config, {"algorithm.parties": found})


def number(config: RunConfig, parties: int) -> RunConfig:
    """The configuration with the number of parties that the loaded data have, where it is a default."""
    default = _value(config, "algorithm.parties")
    changes = "algorithm.parties" in config.untyped and default not in (None, parties)
    return _with(config, {"algorithm.parties": parties}) if changes else config


def _divides(problems: list[Any]) -> bool:
    """Whether some of the problems may be due to the number of parties."""
    return any(problem.key in ("algorithm.parties", "dataset.files", "dataset.columns") for problem in problems)


def sizes(config: RunConfig, most: Mapping[str, int]) -> RunConfig:
    """The configuration with keys of the algorithm that are at most as large as the data allow.

    Parameters
    ----------
    most : key -> the largest value.
    """
    keys = {key: int(value) for key, value in most.items() if key in config.untyped}
    return _with(config, {k: v for k, v in keys.items() if (_value(config, k) or 0) > v})


def changes(before: RunConfig, after: RunConfig) -> dict[str, dict[str, int]]:
    """Key -> its default and what is used, for each key that was adapted; told in a line each."""
    found = {}
    for key in sorted(before.untyped):
        default, used = _value(before, key), _value(after, key)
        if default != used:
            found[key] = {"default": default, "used": used}
            log.warning("%s=%s: its default, %s, does not fit %s", key, used, default, before.dataset.name)
    return found


def _value(config: RunConfig, key: str) -> Any:
    return vars(config.algorithm).get(key.removeprefix("algorithm."))


def _with(config: RunConfig, values: Mapping[str, int]) -> RunConfig:
    """The configuration with other values of the algorithm's keys."""
    own = {key.removeprefix("algorithm."): value for key, value in values.items()}
    return dataclasses.replace(config, algorithm=dataclasses.replace(config.algorithm, **own)) if own else config
