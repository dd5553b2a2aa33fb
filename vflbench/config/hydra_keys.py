"""Hydra's own keys, `hydra.*` and `hydra/*`: which of them a command line may set, and to what.

Hydra would take any. Some run code (`_target_`, the classes of log handlers), some write to files of their own, others end in a traceback
when a job starts. Option files in a user's --config-dir are the user's own program: there anything may stand, and what Hydra cannot do
with it is told in one line.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from vflbench.hydra_internals import Override, line
from vflbench.types import ConfigError, Problem, VflbenchError, closest

DIRS = ("hydra.run.dir", "hydra.sweep.dir", "hydra.sweep.subdir")
LOGS = ("hydra.job_logging.root.level", "hydra.hydra_logging.root.level")
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


# Key -> (what it may be, whether a value is that).
KEYS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    **dict.fromkeys(DIRS, ("must name a folder", lambda value: _is_text(value) or type(value) in (int, float))),
    "hydra.mode": ("must be RUN or MULTIRUN", ("RUN", "MULTIRUN").__contains__),
    "hydra.verbose": (
        "must be true, false, a logger's name or a list of them",
        lambda value: isinstance(value, bool) or all(map(_is_text, value if isinstance(value, list) else [value])),
    ),
    "hydra.sweeper.max_batch_size": (
        "must be a number of jobs, at least 1, or null",
        lambda value: value is None or (type(value) is int and value > 0),
    ),
    **dict.fromkeys(LOGS, (f"must be one of {', '.join(LEVELS)}", LEVELS.__contains__)),
}
LAUNCHER = "hydra.launcher."  # its keys are the launcher's own
JOBLIB = LAUNCHER + "n_jobs"  # of joblib's alone: threads and other backends share what Hydra keeps once in a process
# Group -> options of Hydra's that do not work here; None: the group is not for command lines. A user's own option is another one.
GROUPS: dict[str, tuple[str, ...]] = {
    "hydra/launcher": (),
    "hydra/callbacks": (),
    "hydra/job_logging": ("default",),  # writes a log file of its own into the run's folder
    "hydra/hydra_logging": (),
}


def problems(typed: Iterable[Override]) -> Iterator[tuple[Override, Problem]]:
    """What is wrong with overrides of `hydra.*` and `hydra/*` that have one value; Hydra itself checks names of options and types."""
    own = [override for override in typed if override.is_hydra_override() and not override.is_sweep_override()]
    joblib = any(override.key_or_group == "hydra/launcher" and override.value() == "joblib" for override in own)
    for override in own:
        if (found := _problem(override, joblib)) is not None:
            yield override, found


def _problem(override: Override, joblib: bool) -> Problem | None:
    key, shown, value = override.key_or_group, line(override).partition("=")[2], override.value()
    if "/" in key and override.package is None and key in GROUPS:
        unsupported = "writes files of its own into run folders: use stderr, stdout, none or disabled"
        return Problem(key, shown, unsupported) if value in GROUPS[key] else None
    rule, holds = KEYS.get(key, ("", None))
    if holds is not None:
        return None if holds(value) else Problem(key, shown, rule)
    if key.startswith(LAUNCHER) and not any(part.startswith("_") for part in key.split(".")) and not (joblib and key != JOBLIB):
        return None
    allowed = [*KEYS, JOBLIB if joblib else LAUNCHER + "KEY", *GROUPS]
    return Problem(key, shown, f"is not supported on the command line; there are: {', '.join(allowed)}", closest(key, allowed))


def folder(cfg: DictConfig, key: str) -> Path:
    """The folder that `hydra.run.dir`, `hydra.sweep.dir` or `hydra.sweep.subdir` names in a composed configuration.

    Raises ConfigError: it refers to something that is not there, or is empty: that would be the folder where the user stands.
    """
    try:
        found = str(OmegaConf.select(cfg, key, throw_on_missing=True))
    except OmegaConfBaseException as error:
        branch, _, leaf = key.rpartition(".")
        written = OmegaConf.to_container(OmegaConf.select(cfg, branch), resolve=False)[leaf]  # type: ignore[call-overload,index]
        raise ConfigError([Problem(key, written, f"cannot be resolved ({first_line(error)})")]) from error
    if not found.strip():
        raise ConfigError([Problem(key, repr(found), "must name a folder")])
    return Path(found)


def first_line(error: BaseException) -> str:
    """What an error says, in one line without a full stop."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__).rstrip(".")


@contextlib.contextmanager
def refusing() -> Iterator[None]:
    """Around what Hydra does alone; jobs raise nothing here: what fails is logging, a callback or a launcher, by a file of the user's.

    Raises VflbenchError: names Hydra's key, where it says which, and the reason.
    """
    try:
        yield
    except (VflbenchError, OSError):
        raise
    except Exception as error:
        key = getattr(error, "full_key", None)
        reasons = [first_line(e) for e in (error, error.__cause__) if e is not None]
        where = f"{key}: " if key else ""
        raise VflbenchError(f"Hydra cannot do that: {where}{': '.join(reasons)}") from error
