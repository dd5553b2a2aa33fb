"""Functions that our loggers share."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vflbench.results.identity import flat
from vflbench.runner.logs import LoggedRun


def folder_of(config: Any, run: LoggedRun, own: bool) -> Path:
    """The folder in which a logger writes: the run's logs, or the key `dir`; `own`: in it, one for this run."""
    if config.dir is None:
        return run.folder
    return Path(config.dir).expanduser().absolute() / (f"{run.name}-{run.token}" if own else "")


def numbers(values: Mapping[str, Any]) -> dict[str, float]:
    """The finite numbers of a summary, by their dotted names."""
    found = {key: value for key, value in flat(values).items() if isinstance(value, int | float)}
    return {key: value for key, value in found.items() if not isinstance(value, bool) and math.isfinite(value)}


def texts(values: Mapping[str, Any]) -> dict[str, str]:
    """The texts of a summary, by their dotted names."""
    return {key: value for key, value in flat(values).items() if isinstance(value, str)}
