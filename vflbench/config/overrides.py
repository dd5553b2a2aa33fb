"""Checks each typed word: it can be read, names an option, may be a sweep, and may set a key of Hydra's own.

Hydra would take any of its keys `hydra.*` and groups `hydra/*`. Some run code (`_target_`, the classes of log
handlers), some write files of their own, others end in a traceback when a job starts. Option files in a user's
--config-dir are the user's own program: anything may stand there, and what Hydra cannot do is reported in one line.
"""

import contextlib
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from vflbench import registry
from vflbench.config import text_values
from vflbench.config.composition import compose
from vflbench.config.grammar import Glob, HydraException, Override, RangeSweep, Sweep, line, values_of
from vflbench.config.hydra import Session
from vflbench.config.source import Source
from vflbench.config.typed import LARGEST, OPEN, as_typed, convert_typed
from vflbench.types import ConfigError, Mbps, Milliseconds, Problem, VflbenchError, closest

# Key of all links of both kinds -> its type, the key of one kind, by what to divide.
LINK_KEYS: dict[str, tuple[Any, str, int]] = {
    "network.latency_ms": (Milliseconds, "latency_ms", 1),
    "network.bandwidth_mbps": (Mbps | None, "bandwidth_gbps", 1000),
}
SECRET = re.compile(r"://[^/\s@]*:[^/\s@]+@")
BASIC = "basic"  # Hydra's own sweeper, which tries all combinations
MOST_JOBS = 10_000  # of one sweep
DIRS = ("hydra.run.dir", "hydra.sweep.dir", "hydra.sweep.subdir")
LOGS = ("hydra.job_logging.root.level", "hydra.hydra_logging.root.level")
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


# Key -> (what it may be, whether a value is that).
HYDRA_KEYS: dict[str, tuple[str, Callable[[Any], bool]]] = {
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
# Group of tuned values -> what names one.
TUNED = {"tuned": "ALGORITHM/DATASET", "tuned/private": "PRIVACY/ALGORITHM/DATASET"}
LAUNCHER = "hydra.launcher."  # its keys are the launcher's own
SWEEPER = "hydra.sweeper."  # likewise, of a sweeper other than Hydra's basic one
# The only key of joblib's: with threads and other backends, jobs would share what Hydra keeps once in a process.
JOBLIB = LAUNCHER + "n_jobs"
# Group -> options of Hydra's that do not work here.
HYDRA_GROUPS: dict[str, tuple[str, ...]] = {
    "hydra/launcher": (),
    "hydra/sweeper": (),
    "hydra/callbacks": (),
    "hydra/job_logging": ("default",),  # writes a log file of its own into the run's folder
    "hydra/hydra_logging": (),
}


def parse(hydra: Session, overrides: Sequence[str], problems: list[Problem]) -> list[Override]:
    """The overrides that can be read; for each of the others a problem is added to `problems`."""
    parsed = []
    for text in overrides:
        key, equals, value = text.partition("=")
        if SECRET.search(text):  # before anything is written: Hydra keeps overrides in files
            key, value = (SECRET.sub("://***@", part) for part in (key, value))
            refused = "a password must not be in a URL, which is written to files: name its variable with password_env"
        elif text.startswith("~"):
            refused = "cannot be removed: every key and group has a value; set another one with key=value"
        elif not equals:
            refused = "needs a value, as in key=value"
        else:
            try:
                override = hydra.parse(text)
                if not (refused := _unlisted(override)):
                    parsed.append(override)
            except (HydraException, ValueError) as error:  # ValueError: a number of thousands of digits
                refused = f"cannot be read ({str(error).splitlines()[0]}); quote the value if it has special characters"
        if refused:
            problems.append(Problem(key, value, refused))
    return parsed


def _unlisted(override: Override) -> str:
    """Why the values of a sweep cannot be listed; empty where they can, and for what is no sweep."""
    value = override.value()
    if isinstance(value, RangeSweep):
        start, stop, step = (end for end in (value.start, value.stop, value.step) if end is not None)
        if not all(abs(end) < LARGEST for end in (start, stop, step)) or not step:
            return "a range must have two finite ends and a step that is not 0: range(0,10) or range(0,1,0.1)"
        if not 0 < (stop - start) / step <= MOST_JOBS:
            return f"a range must have at least one value and at most {MOST_JOBS}"
    if isinstance(value, Glob) and not values_of(override):
        return "matches no option"
    if _holds_sweep(values_of(override) if override.is_discrete_sweep() else value):
        return "range(...), interval(...), choice(...) and glob(...) stand alone: list their values, as in 0,1,2"
    return ""


def _holds_sweep(value: Any) -> bool:
    """Whether a sweep stands inside a list or a mapping: Hydra reads that, and cannot run it."""
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(isinstance(one, Sweep | Glob) or _holds_sweep(one) for one in inside)


def for_all_links(hydra: Session, overrides: Sequence[str]) -> list[str]:
    """The overrides with `network.latency_ms` and `network.bandwidth_mbps` as keys of both kinds of links.

    In a sweep the second kind refers to the first one, so that both have the same value. What is wrong stays as it is:
    `link_problems` says why.
    """
    typed = parse(hydra, overrides, [])
    wrong = {line(override) for override, _ in link_problems(typed)}
    known = {line(o): o for o in typed if o.key_or_group in LINK_KEYS and line(o) not in wrong}
    found: list[str] = []
    for text in overrides:
        found += link_words(known[text]) if text in known else [text]
    return found


def link_words(override: Override) -> list[str]:
    """An override of LINK_KEYS, which has no fault, as one of each kind of links."""
    kind, leaf, divisor = LINK_KEYS[override.key_or_group]
    given = line(override).partition("=")[2]
    if divisor > 1:
        numbers = [convert_typed(kind, v, "", []) for v in values_of(override)]
        values = [None if v is None else float(Decimal(str(v)) / divisor) for v in numbers]
        given = ",".join(map(str, map(as_typed, values)))
    same = f"${{network.client_server.{leaf}}}" if override.is_sweep_override() else given
    return [f"network.client_server.{leaf}={given}", f"network.client_client.{leaf}={same}"]


def link_problems(typed: Iterable[Override]) -> Iterator[tuple[Override, Problem]]:
    """What is wrong with overrides of LINK_KEYS: a value, or another override of the same links."""
    typed = list(typed)
    for override in typed:
        if (key := override.key_or_group) not in LINK_KEYS:
            continue
        kind, leaf, _ = LINK_KEYS[key]
        value, problems = line(override).partition("=")[2], list[Problem]()
        links = [f"network.{links}" for links in ("client_server", "client_client")]
        same = [o.key_or_group for o in typed if o.key_or_group in (*links, *(f"{name}.{leaf}" for name in links))]
        if override.is_add() or (override.is_sweep_override() and not override.is_discrete_sweep()):
            problems = [Problem(key, value, f"must be one value or a list of values: {key}=50 or {key}=50,100")]
        elif same:
            allowed = f"is for both kinds of links, and {', '.join(dict.fromkeys(same))} is given too: use one"
            problems = [Problem(key, value, allowed)]
        else:
            for one in values_of(override):
                convert_typed(kind, one, key, problems)
        for problem in problems:
            yield override, problem


def merge(first: list[Override], later: list[Override]) -> list[Override]:
    """Both lists in one; a later override replaces an earlier one of the same key, as in Hydra's sweeper."""
    return list({override.get_key_element(): override for override in [*first, *later]}.values())


def first_values(hydra: Session, typed: list[Override], algorithms: int) -> list[Override]:
    """The overrides with shorter sweeps: the first `algorithms` algorithms, and one value of every other key."""
    narrow = []
    for override in typed:
        if override.is_discrete_sweep():
            count = algorithms if override.key_or_group == "algorithm" else 1
            values = itertools.islice(override.sweep_string_iterator(), count)
            override = hydra.parse(f"{override.get_key_element()}={','.join(values)}")
        narrow.append(override)
    return narrow


def options(hydra: Session, group: str) -> list[str]:
    """The options of a config group, those of other packages too."""
    own = group.removeprefix("hydra/")
    plugins = {name for name, entry in (registry.entries(own) if own in OPEN else {}).items() if entry.plugin}
    return sorted({*hydra.options(group), *plugins})


def option_problems(hydra: Session, override: Override) -> list[Problem]:
    """A problem for each option that the override names and that does not exist, or that tuned values would confuse."""
    group = override.key_or_group
    if group in TUNED:
        return _tuned_problems(hydra, override)
    if group not in hydra.groups() or override.package is not None or override.is_delete():
        return []
    known = options(hydra, group)
    found = [
        value for value in values_of(override) if value not in known and not (value is None and group == "experiment")
    ]
    problems = [
        Problem(group, as_typed(v), f"unknown {group}; there are: {', '.join(known)}", closest(str(v), known))
        for v in found
    ]
    noises = tuple(f"/{noise}" for noise in options(hydra, "privacy")) if group == "dataset" else ()
    taken = "ends in the name of a mechanism, as the entry of tuned values with its noise: rename the file"
    return [*problems, *(Problem(group, v, taken) for v in values_of(override) if str(v).endswith(noises))]


def _tuned_problems(hydra: Session, override: Override) -> list[Problem]:
    """A problem for each text behind `tuned@_global_=` that names no entry, as vfl/bank does."""
    sources = [one for one in hydra.loader.get_sources() if isinstance(one, Source)]
    allowed = f"names no tuned values; none, or {TUNED[override.key_or_group]}, as in conf/tuned"
    wanted = [as_typed(value) for value in values_of(override) if value != "none"]
    return [
        Problem(override.get_key_element(), value, allowed)
        for value in wanted
        if not any(source.found(f"{override.key_or_group}/{value}") for source in sources)
    ]


def sweep_problems(override: Override, sweeping: bool, adaptive: bool = False) -> list[Problem]:
    """Why an override of several values cannot be swept; `adaptive`: the sweeper chooses values between two ends."""
    key, value = override.key_or_group, line(override).partition("=")[2]
    if not override.is_sweep_override():
        return []
    if not sweeping:
        return [
            Problem(
                key,
                value,
                "several values are a sweep: add -m (write a list as [a,b], and quote a text with a comma)",
            )
        ]
    if override.is_hydra_override():
        return [Problem(key, value, "cannot be swept")]
    if key.split(".")[0] in ("dry_run", "resume", "overwrite", "plot", "floor", "objective", "logger"):
        return [Problem(key, value, "holds for the whole sweep: give one value")]
    if key == "experiment":  # each preset has its own sweep, which Hydra would drop silently
        return [Problem(key, value, "presets are started one at a time")]
    if not override.is_discrete_sweep():
        return [] if adaptive else [Problem(key, value, "a sweep lists its values: choice(...), range(...) or a,b")]
    twice = [one for one, count in Counter(_same(one) for one in values_of(override)).items() if count > 1]
    return [Problem(key, value, f"has {', '.join(twice)} twice: list each value once")] if twice else []


def _same(value: Any) -> str:
    """The value as it is typed, equal for values that make the same run: 1.0 is 1, and a variable is what it says."""
    with contextlib.suppress(ValueError):  # a variable that is not set is told with the value
        value = text_values.resolved(value)
    whole = isinstance(value, float) and value.is_integer() and abs(value) < LARGEST
    return str(as_typed(int(value) if whole else value))


def combinations(hydra: Session, typed: list[Override]) -> Iterator[DictConfig]:
    """The configuration of every combination of options, without values; for an unknown option, its closest match."""
    fixed = [line(o) for o in typed if o.is_hydra_override() and not o.is_sweep_override()]
    choices = []
    for override in typed:
        if override.key_or_group not in hydra.groups():
            continue
        if override.package is not None or override.is_delete():
            fixed.append(line(override))
            continue
        known = options(hydra, override.key_or_group)
        values = values_of(override) if override.is_discrete_sweep() or not override.is_sweep_override() else []
        found = dict.fromkeys(v if v is None or v in known else closest(str(v), known) for v in values)
        if of_one := [f"{override.get_key_element()}={v}" for v in found if v is not None]:
            choices.append(of_one)
    for chosen in itertools.product(*choices):
        yield compose(hydra, [*fixed, *chosen], sweep=True)


# --- Hydra's own keys -------------------------------------------------------------------------------------------------


def hydra_problems(typed: Iterable[Override]) -> Iterator[tuple[Override, Problem]]:
    """What is wrong with overrides of `hydra.*` and `hydra/*` that have one value.

    Hydra itself checks the types, and the names of options.
    """
    own = [override for override in typed if override.is_hydra_override() and not override.is_sweep_override()]
    chosen = {override.key_or_group: override.value() for override in own}
    joblib, adaptive = chosen.get("hydra/launcher") == "joblib", chosen.get("hydra/sweeper", BASIC) != BASIC
    for override in own:
        if (found := _hydra_problem(override, joblib, adaptive)) is not None:
            yield override, found


def _hydra_problem(override: Override, joblib: bool, adaptive: bool) -> Problem | None:
    key, shown, value = override.key_or_group, line(override).partition("=")[2], override.value()
    if "/" in key and override.package is None and key in HYDRA_GROUPS:
        unsupported = "writes files of its own into run folders: use stderr, stdout, none or disabled"
        return Problem(key, shown, unsupported) if value in HYDRA_GROUPS[key] else None
    rule, holds = HYDRA_KEYS.get(key, ("", None))
    if holds is not None:
        return None if holds(value) else Problem(key, shown, rule)
    if (
        key.startswith((LAUNCHER, SWEEPER) if adaptive else LAUNCHER)
        and "_target_" not in shown
        and not any(part.startswith("_") for part in key.split("."))
        and not (joblib and key.startswith(LAUNCHER) and key != JOBLIB)
    ):
        return None
    allowed = [*HYDRA_KEYS, JOBLIB if joblib else LAUNCHER + "KEY", *HYDRA_GROUPS]
    allowed += [SWEEPER + "KEY"] if adaptive else []
    return Problem(
        key, shown, f"is not supported on the command line; there are: {', '.join(allowed)}", closest(key, allowed)
    )


def folder_of(cfg: DictConfig, key: str) -> Path:
    """The folder that `hydra.run.dir`, `hydra.sweep.dir` or `hydra.sweep.subdir` names in a composed configuration.

    Raises
    ------
    ConfigError : it refers to a key that is not there, or it is empty, which would mean the current folder.
    """
    try:
        found = str(OmegaConf.select(cfg, key, throw_on_missing=True))
    except OmegaConfBaseException as error:
        branch, _, leaf = key.rpartition(".")
        unresolved: Any = OmegaConf.to_container(OmegaConf.select(cfg, branch), resolve=False)
        raise ConfigError([Problem(key, unresolved[leaf], f"cannot be resolved ({first_line(error)})")]) from error
    if not found.strip():
        raise ConfigError([Problem(key, repr(found), "must name a folder")])
    return Path(found)


def first_line(error: BaseException) -> str:
    """The first line of an error's message, without the full stop."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__).rstrip(".")


@contextlib.contextmanager
def refusing() -> Iterator[None]:
    """Turn an error of Hydra's own work into one line.

    Jobs raise nothing here. What fails is logging, a callback or a launcher that a file of the user's sets up.

    Raises
    ------
    VflbenchError : has Hydra's key, where Hydra names it, and the reason.
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
