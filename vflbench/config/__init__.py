"""From what the user typed to a `RunConfig`, with every problem found before any work.

Hydra composes; the checks are ours, because Hydra stops at the first problem. `plan` checks each override (of a sweep,
each value), then turns the composed configuration into dataclasses. Last it asks whether algorithm, data set, model,
topology and privacy fit together. Problems of names, types and ranges are reported together. Where a name is wrong, no
module with programs is imported: the types of keys are in the cards.
"""

import functools
import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, get_args

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from vflbench import registry
from vflbench.config import layers
from vflbench.config import overrides as words
from vflbench.config.composition import (
    UNCOMPOSED,
    compose,
    configurations,
    from_environment,
    name_of,
    own_options,
    plain,
    session,
    settle,
    without_secrets,
)
from vflbench.config.fit import check, objective_problems
from vflbench.config.grammar import Override, expand, line, quoted, values_of
from vflbench.config.hydra import Session
from vflbench.config.overrides import folder_of, for_all_links, refusing
from vflbench.config.refused import Judged
from vflbench.config.typed import (
    HYDRAS,
    convert,
    convert_dataclass,
    convert_run,
    kinds_of,
    lists,
    to_config,
    value_problems,
)
from vflbench.registry import config_dir
from vflbench.types import (
    ConfigError,
    Objective,
    Problem,
    RunConfig,
    VflbenchError,
    closest,
    refuse,
    rules_of,
)

__all__ = [
    "Plan",
    "check",
    "check_hydra_keys",
    "checked",
    "compose",
    "config_dir",
    "configurations",
    "convert",
    "convert_run",
    "folder_of",
    "for_all_links",
    "from_environment",
    "kinds_of",
    "layers",
    "name_of",
    "of_dataset",
    "own_options",
    "plain",
    "plan",
    "profiles",
    "quoted",
    "refusing",
    "session",
    "settle",
    "to_config",
    "without_secrets",
]
# Launcher of a sweep -> the extra of vflbench that installs it.
LAUNCHERS = {"joblib": "parallel", "submitit_local": "slurm", "submitit_slurm": "slurm"}


@dataclass
class Plan:
    """What a command line asks for, checked."""

    cfg: DictConfig  # one run: its configuration; a sweep: what its jobs share; `hydra` included
    config: RunConfig | None  # one run's, None for a sweep
    jobs: list[list[str]] | None  # a sweep's jobs as overrides, in Hydra's order; None for one run
    swept: frozenset[str]  # keys that differ between jobs
    shared: list[str] = field(default_factory=list)  # of a sweep's overrides, those that go with `cfg`, swept ones too
    left_out: list[str] = field(default_factory=list)  # in words: keys that some of a sweep's methods do not have
    sweeper: str = words.BASIC  # Hydra's; another one chooses jobs as it goes, so `jobs` is empty


class _Findings:
    """The problems of a command line, each once, and the overrides that have any."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.faulty: list[Override] = []

    def note(self, problems: Iterable[Problem], override: Override | None = None) -> None:
        """Add the problems; `override` is the one that has them."""
        for problem in problems:
            if problem not in self.problems:
                self.problems.append(problem)
            if override is not None and override not in self.faulty:
                self.faulty.append(override)


class _Lacking:
    """The keys that some methods of a sweep have and others do not: these run without them."""

    def __init__(
        self, hydra: Session, typed: list[Override], of_run: list[Override], every: list[dict[str, Any]], allowed: bool
    ) -> None:
        self.hydra, self.allowed = hydra, allowed
        groups = hydra.groups()
        self.swept = [o.key_or_group for o in typed if o.key_or_group in groups and o.is_sweep_override()]
        keys = {o.key_or_group for o in of_run}
        self.somewhere = {key for key in keys if any(lists(values, key) for values in every)}
        self.words: list[str] = []
        self._keys: dict[tuple[str, ...], set[str]] = {}  # options of the swept groups -> keys that they lack

    def notes(self, override: Override, composed: DictConfig, values: Mapping[str, Any]) -> bool:
        """Whether the key of an override is in another combination of the sweep's options, and not in this one."""
        key = override.key_or_group
        if not self.allowed or key not in self.somewhere or lists(values, key):
            return False
        choices, group = composed.hydra.runtime.choices, key.split(".")[0]
        chosen = tuple(str(choices[name]) for name in self.swept)
        self._keys.setdefault(chosen, set()).add(key)
        if group in self.swept:
            why = f"{group}={choices[group]}, which has no such key"
        else:
            named = " ".join(f"{name}={option}" for name, option in zip(self.swept, chosen, strict=True))
            lacks = f"{group}={choices.get(group)} has no such key" if values.get(group) else f"it has no {group}"
            why = f"{named}: {lacks}"
        self.words += [text for text in [f"{line(override)} is left out of {why}"] if text not in self.words]
        return True

    def without(self, jobs: list[list[str]]) -> list[list[str]]:
        """The jobs without the keys that they lack; those that become one job are done once."""
        if not self._keys:
            return jobs
        kept: dict[tuple[str, ...], None] = {}
        for number, job in enumerate(jobs):
            given = {o.key_or_group: (o, word) for word in job for o in [self.hydra.parse(word)]}
            lacks = self._keys.get(tuple(str(given[name][0].value()) for name in self.swept), set())
            left = tuple(word for key, (_, word) in given.items() if key not in lacks)
            kept.setdefault(left if len(left) < len(job) else (*left, f"#{number}"))
        return [[word for word in job if not word.startswith("#")] for job in kept]


def plan(
    hydra: Session,
    overrides: Sequence[str],
    multirun: bool = False,
    algorithms: int | None = None,
    loading: bool = True,
) -> Plan:
    """Check every override, in a sweep every value of it.

    Parameters
    ----------
    algorithms : shorten a sweep to its first so many algorithms, and to the first value of every other key.
    loading : without it no module is imported: their keys are read from their sources.

    Raises
    ------
    ConfigError : all problems.
    VflbenchError : Hydra refuses what our checks let pass.
    """
    found, groups = _Findings(), hydra.groups()
    typed = words.parse(hydra, overrides, found.problems)
    for override, problem in (*words.hydra_problems(typed), *words.link_problems(typed)):
        found.note([problem], override)
    typed = [override for override in typed if override.key_or_group not in words.LINK_KEYS]
    base = _first_combination(hydra, typed, found)
    sweeping = multirun or (base.hydra.mode is not None and base.hydra.mode.name == "MULTIRUN")
    sweeper = str(base.hydra.runtime.choices["hydra/sweeper"]) if sweeping else words.BASIC
    adaptive, given = sweeper != words.BASIC, typed
    if sweeping:
        typed = _with_preset(hydra, base, typed, found, adaptive)
    for override in typed:
        found.note(words.sweep_problems(override, sweeping, adaptive), override)
    unknown = [override for override in typed if words.option_problems(hydra, override)]
    for override in unknown:
        found.note(words.option_problems(hydra, override), override)
    wanted = typed if algorithms is None else words.first_values(hydra, typed, algorithms)
    known = [
        o for o, original in zip(wanted, typed, strict=True) if original not in found.faulty or original in unknown
    ]
    of_run = [o for o in typed if not o.is_hydra_override() and o.key_or_group not in groups]
    every = list(words.combinations(hydra, known)) if sweeping else [base]
    plains = [plain(composed) for composed in every]
    lacking = _Lacking(hydra, typed, of_run, plains, sweeping and loading and not adaptive)
    judged = Judged(found.problems, (o.key_or_group for o in typed))
    misnamed = not loading or bool(found.problems) or any(o.key_or_group not in lacking.somewhere for o in of_run)
    overridden = {o.key_or_group for o in typed}
    for composed, values in zip(every, plains, strict=True):
        kinds = kinds_of(values)
        _note_values(of_run, composed, values, found, lacking, judged, kinds=kinds, groups=groups, adaptive=adaptive)
        if sweeping and not unknown:  # the option files themselves; a single run's are converted as a whole below
            found.note(p for p in convert_run(values, kinds)[1] if p.key not in overridden)
    if sweeping or unknown:
        refuse(found.problems)
        if adaptive:
            return _adaptive_plan(hydra, typed, given, sweeper)
        return _sweep_plan(hydra, typed, wanted, lacking)
    whole = not (misnamed and found.problems)
    judged = Judged(found.problems, judged.typed)
    sound = [line(o) for o in typed if o not in found.faulty and not judged.unknown(o.key_or_group)]
    return _run_plan(hydra, sound, whole, base, plains[0], found, judged)


def _note_values(
    of_run: list[Override],
    composed: DictConfig,
    values: dict[str, Any],
    found: _Findings,
    lacking: _Lacking,
    judged: Judged,
    **how: Any,
) -> None:
    """Note what is wrong with the values that a run's keys are given, in one combination of a sweep's options."""
    for override in of_run:
        problems = value_problems(override, values, guessed=judged.unknown(override.key_or_group), **how)
        told = override in found.faulty and override.key_or_group not in lacking.somewhere  # once is enough
        if not told and not (problems and lacking.notes(override, composed, values)):
            found.note(problems, override)


def of_dataset(hydra: Session, overrides: Sequence[str]) -> Any:
    """The keys of the data set that `overrides` name, with their types; its own `check` is not asked.

    Raises
    ------
    ConfigError : what is wrong with the overrides.
    """
    found, groups = _Findings(), hydra.groups()
    typed = words.parse(hydra, overrides, found.problems)
    for override in typed:
        found.note(words.sweep_problems(override, sweeping=False), override)
        found.note(words.option_problems(hydra, override), override)
    refuse(found.problems)
    values = plain(_first_combination(hydra, typed, found))
    kinds = kinds_of(values)
    for override in typed:
        if override.key_or_group not in groups:
            found.note(value_problems(override, values, kinds, groups), override)
    refuse(found.problems)
    values = plain(compose(hydra, [line(override) for override in typed]))
    config, problems = convert(kinds["dataset"], values["dataset"])
    refuse([replace(problem, key=f"dataset.{problem.key}") for problem in problems])
    return config


def _with_preset(
    hydra: Session, base: DictConfig, typed: list[Override], found: _Findings, adaptive: bool
) -> list[Override]:
    """The overrides of a sweep, those of its preset too. Raises ConfigError where they make too many jobs."""
    composed: Any = OmegaConf.to_container(base.hydra.sweeper)
    preset = composed.get("params") or {}
    if adaptive:  # it may describe keys in a way of its own, which only it can check
        texts = preset if isinstance(preset, dict) else {}
        preset = {key: value for key, value in texts.items() if not isinstance(value, dict | list)}
    swept = words.for_all_links(hydra, [f"{key}={value}" for key, value in preset.items()])
    of_preset = words.parse(hydra, swept, found.problems)
    merged = words.merge(of_preset, typed)
    if adaptive:
        return merged
    if (jobs := math.prod(len(values_of(o)) for o in merged if o.is_discrete_sweep())) > words.MOST_JOBS:
        allowed = f"is {jobs} jobs, at most {words.MOST_JOBS} are started together: give fewer values"
        raise ConfigError([*found.problems, Problem("the sweep", " ".join(map(line, merged)), allowed)])
    return merged


def _sweep_plan(hydra: Session, typed: list[Override], wanted: list[Override], lacking: _Lacking) -> Plan:
    """The plan of a sweep whose overrides have no fault; its jobs are those of the `wanted` values."""
    groups = hydra.groups()
    options = [o for o in typed if o.is_hydra_override() or o.key_or_group in groups]
    # What the jobs share is composed with the default of a group that is swept: that may lack keys that they have.
    values = plain(compose(hydra, [line(o) for o in options if not o.is_sweep_override()], sweep=True))
    shared = [o for o in typed if o in options or o.is_add() or lists(values, o.key_or_group)]
    cfg = compose(hydra, [line(o) for o in shared if not o.is_sweep_override()], sweep=True)
    refuse([*_launcher_problems(cfg), *_objective_problems(cfg, typed)])
    jobs = lacking.without(expand(o for o in wanted if not o.is_hydra_override()))
    swept = frozenset(o.key_or_group for o in typed if o.is_sweep_override())
    return Plan(cfg, None, jobs, swept, [line(o) for o in shared], lacking.words)


def _adaptive_plan(hydra: Session, typed: list[Override], given: list[Override], sweeper: str) -> Plan:
    """The plan of a sweep whose `sweeper` chooses the jobs.

    `typed` has its own search space too, which it knows: it gets only what was `given`.
    """
    cfg = compose(hydra, [line(o) for o in given if not o.is_sweep_override()], sweep=True)
    problems = [*_launcher_problems(cfg), *_objective_problems(cfg, typed)]
    if cfg.objective is None:
        allowed = f"hydra/sweeper={sweeper} chooses jobs by what they return: {', '.join(get_args(Objective))}"
        problems.append(Problem("objective", "null", allowed))
    if cfg.dry_run:
        problems.append(Problem("dry_run", "true", f"hydra/sweeper={sweeper} lists no jobs before they run"))
    refuse(problems)
    swept = frozenset(o.key_or_group for o in typed if o.is_sweep_override())
    return Plan(cfg, None, [], swept, [line(o) for o in given], sweeper=sweeper)


def _objective_problems(cfg: DictConfig, typed: list[Override]) -> list[Problem]:
    """What is wrong with a sweep's objective; a target that is swept is one."""
    swept = any(o.key_or_group == "target" and o.is_sweep_override() for o in typed)
    return [] if swept else objective_problems(cfg.objective, cfg.target)


def _run_plan(
    hydra: Session,
    sound: list[str],
    whole: bool,
    base: DictConfig,
    values: dict[str, Any],
    found: _Findings,
    judged: Judged,
) -> Plan:
    """The plan of one run from its `sound` overrides. Raises ConfigError: all problems, those found before too.

    Parameters
    ----------
    whole : False: the run will not start, so its values are set in what is composed already.
    base, values : the configuration of options alone, and its values.
    """
    composed: Any = OmegaConf.to_container(base.hydra.overrides)
    same = sorted([*composed["hydra"], *composed["task"]]) == sorted(sound)  # options alone
    cfg = compose(hydra, sound) if whole and not same else base
    if not whole:
        values = next(configurations(hydra, [sound]))[1]
    elif cfg is not base:
        values = plain(cfg)
    config, mistyped = convert_run(values, kinds_of(values))
    found.note(mistyped)
    if config is not None:
        config = replace(config, untyped=layers.untyped(cfg.hydra))
        found.note(check(judged.without(config), whole))
    if found.problems or config is None:
        raise ConfigError(found.problems)
    return Plan(cfg, config, None, frozenset())


def _first_combination(hydra: Session, typed: list[Override], found: _Findings) -> DictConfig:
    """The configuration of the overrides without a fault, without values; of several options it takes the first."""
    groups = hydra.groups()
    single = [o for o in typed if o not in found.faulty and (not o.is_sweep_override() or o.key_or_group in groups)]
    try:
        return next(words.combinations(hydra, single))
    except ConfigError:
        raise
    except VflbenchError:
        for override, problem in _uncomposed(hydra, single):
            found.note([problem], override)
        return next(words.combinations(hydra, [o for o in single if o not in found.faulty]))


def _launcher_problems(cfg: DictConfig) -> list[Problem]:
    """What is wrong with the keys of a launcher of another package; Hydra checks those of its own."""
    name = cfg.hydra.runtime.choices["hydra/launcher"]
    if name not in registry.option_entries("launcher"):
        return []
    try:
        given: Any = OmegaConf.to_container(cfg.hydra.launcher, resolve=True)
    except OmegaConfBaseException as error:
        key = str(error.full_key or HYDRAS["launcher"])
        unresolved: Any = OmegaConf.to_container(cfg.hydra.launcher)
        return [Problem(key, unresolved[key.split(".")[-1]], words.first_line(error))]
    keys = {key: value for key, value in given.items() if key != "_target_"}
    problems: list[Problem] = []
    config = convert_dataclass(registry.option_config("launcher", name), keys, "hydra.launcher.", problems)
    rules = None if problems else rules_of(config)
    return rules(config) if rules else problems


def checked(values: Mapping[str, Any], untyped: frozenset[str] = frozenset()) -> RunConfig:
    """As `to_config`, and everything fits together; `untyped` as in RunConfig. Raises ConfigError."""
    config = replace(to_config(values), untyped=untyped)
    refuse(check(config))
    return config


def check_hydra_keys(hydra: Session, overrides: Sequence[str]) -> None:
    """Raise ConfigError, with all problems, where a command line sets a key of Hydra's that it may not."""
    refuse([problem for _, problem in words.hydra_problems(words.parse(hydra, overrides, []))])


def _uncomposed(hydra: Session, typed: list[Override]) -> list[tuple[Override, Problem]]:
    """The overrides of Hydra's own configuration that do not compose: each is tried alone, beside the other keys."""
    others = [o for o in typed if not o.is_hydra_override()]
    next(words.combinations(hydra, others))  # raises where Hydra's own configuration is not at fault
    problems, sound = [], list[Override]()
    for override in sorted(typed, key=lambda o: "/" not in o.key_or_group):  # options first: further keys are theirs
        if override.is_hydra_override():
            try:
                next(words.combinations(hydra, [*others, *sound, override]))
                sound += [override] if "/" in override.key_or_group else []
            except VflbenchError as error:
                key, value = override.key_or_group, line(override).partition("=")[2]
                reason, hint = str(error).removeprefix(UNCOMPOSED).rstrip("."), None
                known = words.options(hydra, key) if key in (HYDRAS["launcher"], "hydra/sweeper") else []
                if key == HYDRAS["launcher"] and value in LAUNCHERS:
                    reason = f"needs a package that is not installed: pip install 'vflbench[{LAUNCHERS[value]}]'"
                elif known and value not in known:
                    unknown = f"unknown {key.partition('/')[2]}; there are: {', '.join(known)}"
                    reason, hint = unknown, closest(value, known)
                problems.append((override, Problem(key, value, reason, hint)))
    return problems


def profiles(hydra: Session, overrides: Sequence[str]) -> list[tuple[dict[str, Any], dict[str, Any] | None]]:
    """What finished runs are to be priced by.

    Parameters
    ----------
    overrides : of `network`, `network.<key>` and `accounting` only.

    Returns
    -------
    list : for every combination of the values typed: those values (key -> value), and the composed `network`; None
        where no `network=` is typed.

    Raises
    ------
    ConfigError : all problems.
    """
    problems: list[Problem] = []
    allowed = (
        "re-pricing changes network, its keys, and accounting; "
        "with another value of this key it is another run: train it"
    )
    foreign = [
        o for o in words.parse(hydra, overrides, []) if o.key_or_group.split(".")[0] not in ("network", "accounting")
    ]
    for key, value in ((o.key_or_group, line(o).partition("=")[2]) for o in foreign):
        problems.append(Problem(key, value, allowed, closest(key, ("network", "accounting"))))
    if not overrides:
        problems.append(
            Problem(
                "network", "(missing)", "name what to price by: network=us_us, network.timing=round, accounting=..."
            )
        )
    try:
        jobs = (
            plan(hydra, [text for text in overrides if text not in map(line, foreign)], True, loading=False).jobs or []
        )
    except ConfigError as error:
        raise ConfigError([*problems, *error.problems]) from None
    refuse(problems)
    return [_profile(plain(compose(hydra, job, sweep=True)), job) for job in jobs]


def _profile(values: dict[str, Any], job: list[str]) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Of one job: the values that it sets, and its network, None where it names none."""
    keys = [text.partition("=")[0].lstrip("+") for text in job]
    found = {key: functools.reduce(operator.getitem, key.split("."), values) for key in keys if key != "network"}
    named = dict(text.split("=", 1) for text in job).get("network")
    return ({} if named is None else {"network": named}) | found, None if named is None else values["network"]
