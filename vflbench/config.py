"""From what the user typed to a `RunConfig`: every problem is found before any work, and all of them are told together.

Hydra composes; the checks are ours, because Hydra stops at the first problem. `plan` walks the overrides (of a whole sweep), then
`to_config` turns a composed configuration into dataclasses, and `check` asks whether algorithm, data set, model, topology and
privacy fit together.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import math
import operator
import os
import re
import sys
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vflbench import hydra_keys, registry
from vflbench.contracts import OPTIONS
from vflbench.federation import delays
from vflbench.types import (
    AlgorithmInfo,
    ConfigError,
    Problem,
    Range,
    RunConfig,
    VflbenchError,
    closest,
    division,
    hook,
    module_of,
    refuse,
    rounds_per_epoch,
)

if TYPE_CHECKING:
    from hydra._internal.hydra import Hydra
    from hydra.core.config_loader import ConfigLoader
    from hydra.core.override_parser.types import Override
    from omegaconf import DictConfig

# Keys of many algorithms' and data sets' own Config, by name; what another key may be stands with its type.
SHARED: dict[str, Range] = {
    **{f"algorithm.{key}": Range(at_least=1) for key in ("parties", "parts", "workers", "local_steps", "batch_size")},
    "algorithm.layers": Range(at_least=1, at_most=1000),
    "algorithm.lr": Range(above=0),
    "algorithm.interval": Range(at_least=1e-6, at_most=1e6),
    "algorithm.deadline": Range(at_most=1e6),
}
CHOICES = {"dataset.source": ("auto", "real", "synthetic")}
SMALLEST, LARGEST = 1e-30, 1e30  # of any number that is not 0: those of 32 bits end near here
DEVICE = re.compile(r"auto|cpu|cuda(:\d+)?")
SECRET = re.compile(r"://[^/\s@]*:[^/\s@]+@")
LAUNCHERS = {"joblib": "parallel", "submitit_local": "slurm", "submitit_slurm": "slurm"}  # of sweeps, and the extra that has each
MOST_JOBS = 10_000  # of one sweep
UNCOMPOSED = "the configuration cannot be composed: "
HYDRAS = {"launcher": "hydra/launcher"}  # open groups that Hydra has itself
KEYED = tuple(group for group, kind in OPTIONS.items() if kind.keys is not None and group not in HYDRAS)  # of a run, with keys
OPEN = ("algorithm", "dataset", *KEYED, *HYDRAS)  # groups that other packages may add to
UNTYPED = ("algorithm", "dataset", "model", *KEYED)  # their dataclass belongs to the chosen option


def config_dir() -> Path:
    """The folder of the options that come with vflbench: inside the installed package, else the repository's."""
    here = Path(__file__).resolve().parent
    return here / "conf" if (here / "conf").is_dir() else here.parent / "conf"


# --- Hydra ----------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def session(overrides: Iterable[str] = (), user_dir: str | Path | None = None) -> Iterator[Hydra]:
    """A Hydra that knows our options, those in `user_dir` and those of plugins that `overrides` may choose.

    Leaves another Hydra application's state in this process (a user's own program) as it was.
    """
    from hydra import version
    from hydra._internal.hydra import Hydra
    from hydra._internal.utils import create_config_search_path
    from hydra.core.config_search_path import SearchPathQuery
    from hydra.core.global_hydra import GlobalHydra
    from hydra.core.hydra_config import HydraConfig

    from vflbench import hydra_cache

    register_resolvers()
    path = create_config_search_path(str(config_dir()))
    if user_dir is not None:
        folder = Path(user_dir).expanduser().absolute()
        if not folder.is_dir():
            raise VflbenchError(f"--config-dir {user_dir}: there is no such folder")
        if (folder / "config.yaml").exists():
            raise VflbenchError(f"--config-dir {user_dir}: its config.yaml would take the place of ours; give options in group folders")
        path.prepend("command-line", f"file://{folder}", SearchPathQuery(provider="main"))  # an option of the user's wins
    version.setbase("1.3")
    _store_plugins(list(overrides))
    before, before_config = GlobalHydra.instance().hydra, HydraConfig.instance().cfg
    GlobalHydra.instance().clear()
    try:
        hydra = Hydra("vflbench", hydra_cache.Loader(path, register_resolvers))
        GlobalHydra.instance().initialize(hydra)
        yield hydra
    finally:
        GlobalHydra.instance().hydra = before
        HydraConfig.instance().cfg = before_config


def register_resolvers() -> None:
    """Teach OmegaConf the `${name:...}` of our options."""
    from omegaconf import OmegaConf

    # Presets compare at equal updates: rounds: ${idiv:480,${algorithm.local_steps}}. At least 1.
    OmegaConf.register_new_resolver("idiv", lambda a, b: max(a // b, 1), replace=True)
    # A value per option: lr: ${by:${model.name},{gcn:0.003,gcnii:0.03}}.
    # An option without a value takes the first: what the algorithm cannot run with is refused later, by name.
    OmegaConf.register_new_resolver("by", lambda option, values: values.get(option, next(iter(values.values()))), replace=True)
    # A measured constant: delays: ${profile:${compute.file},delays}; so a run's manifest has the constants, not only a path.
    OmegaConf.register_new_resolver("profile", delays.measured, replace=True)


def _store_plugins(overrides: list[str]) -> None:
    """Give a plugin's option a configuration from its dataclass's defaults; a YAML of the same name wins over it."""
    from hydra.core.config_store import ConfigStore

    anything = any("*" in text or text.lstrip("+").startswith("experiment=") for text in overrides)
    for open_group in OPEN:
        group, entries = HYDRAS.get(open_group, open_group), registry.entries(open_group)
        typed = [word for text in overrides if text.startswith(f"{group}=") for word in text.partition("=")[2].split(",")]
        meant = {closest(word, entries) for word in typed if word not in entries}  # an unknown option stands as its closest match
        for name, entry in entries.items():
            if not entry.plugin or not (anything or name in meant or any(name in text for text in overrides)):
                continue
            node: dict[str, Any] = {**dataclasses.asdict(registry.option_config(open_group, name)(name=name)), "name": name}
            wanted = [(g, getattr(entry.info, f)) for g, f in (("model", "models"), ("topology", "topologies")) if group == "algorithm"]
            defaults = [{f"override /{g}@_global_.{g}": allowed[0]} for g, allowed in wanted if allowed]
            if open_group == "launcher":
                node["_target_"] = hydra_keys.OWN_LAUNCHER
            ConfigStore.instance().store(group=group, name=name, node={"defaults": ["_self_", *defaults], **node}, provider="vflbench")


def compose(hydra: Hydra, overrides: Sequence[str], sweep: bool = False) -> DictConfig:
    """The composed configuration, `hydra` included. Raises VflbenchError: with Hydra's own words, where it refuses."""
    import yaml
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode

    try:
        mode = RunMode.MULTIRUN if sweep else RunMode.RUN
        how = {"with_log_configuration": False, "validate_sweep_overrides": not sweep}
        cfg = hydra.compose_config("config", list(overrides), run_mode=mode, **how)
    except Exception as error:  # beside its own errors, Hydra fails assertions and conversions on what was typed
        texts = [str(error), str(error.__cause__ or "")]
        reasons = texts if isinstance(error, yaml.YAMLError) else [text.strip().partition("\n")[0] for text in texts]
        raise VflbenchError(UNCOMPOSED + " ".join(filter(None, reasons))) from error
    HydraConfig.instance().set_config(cfg)  # `${hydra:...}` is looked up there
    return cfg


def configurations(hydra: Hydra, jobs: Iterable[Sequence[str]]) -> Iterator[tuple[list[str], dict[str, Any]]]:
    """Each of a sweep's jobs with its configuration as plain data.

    Composing takes a sixth of a second, so jobs that differ in values alone, not in options, share what is composed, with each other and
    with `plan`; their values are set as Hydra itself does it.
    """
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from omegaconf import OmegaConf, open_dict

    groups, parser = _groups(hydra.config_loader), OverridesParser.create(config_loader=hydra.config_loader)
    for job in jobs:
        typed = parser.parse_overrides(list(job))
        own = [o for o in typed if _sets_value(o, groups)]
        cfg = compose(hydra, [_line(o) for o in typed if o not in own], sweep=True)
        with open_dict(cfg):
            for override in own:
                OmegaConf.update(cfg, override.key_or_group, override.value())
        yield list(job), plain(cfg)


def _sets_value(override: Override, groups: frozenset[str]) -> bool:
    """Whether it is key=value, of a value that is there and no option."""
    return not (
        override.key_or_group in groups
        or override.package is not None
        or override.is_hydra_override()
        or override.is_delete()
        or override.is_add()
        or override.is_force_add()
    )


def plain(cfg: DictConfig) -> dict[str, Any]:
    """A composed configuration as dicts and lists, interpolations resolved, without `hydra`."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        return {
            str(key): OmegaConf.to_container(cfg[key], resolve=True) if OmegaConf.is_config(cfg[key]) else cfg[key]
            for key in cfg
            if key != "hydra"
        }
    except OmegaConfBaseException as error:
        raise VflbenchError(f"the configuration cannot be resolved: {error}") from error


def from_environment(cfg: DictConfig) -> dict[str, str]:
    """Texts in the configuration that come from the environment, the longest first: text -> `${oc.env:NAME}`. Not those below 4 characters:
    they are no secrets, and stand in other words.
    """
    from omegaconf.resolvers import oc

    found: dict[str, str] = {}

    def resolve(name: str, *default: Any) -> Any:
        value = oc.env(name, *default)
        if name in os.environ and len(os.environ[name]) >= 4:
            found[os.environ[name]] = "${oc.env:" + name + "}"
        return value

    with _environment(resolve):
        plain(cfg)
    return {text: found[text] for text in sorted(found, key=len, reverse=True)}


def without_secrets(cfg: DictConfig) -> dict[str, Any]:
    """`plain`, for files: texts that come from the environment stay `${oc.env:NAME}`."""

    def named(value: Any, place: Any, key: Any) -> Any:
        """`value`, which is what `place` has at `key`."""
        if isinstance(value, dict | list):
            inside = value.items() if isinstance(value, dict) else enumerate(value)
            found = {inner: named(item, place[key], inner) for inner, item in inside}
            return found if isinstance(value, dict) else list(found.values())
        return place[key] if isinstance(value, str) else value  # a number is no secret, and what is computed of one has no name

    values = plain(cfg)
    with _environment(lambda name, *default: "${oc.env:" + name + "}"):
        return {key: named(value, cfg, key) for key, value in values.items()}


@contextlib.contextmanager
def _environment(resolve: Callable[..., Any]) -> Iterator[None]:
    """While `resolve` says what `${oc.env:NAME}` is."""
    from omegaconf import OmegaConf
    from omegaconf.resolvers import oc

    OmegaConf.register_new_resolver("oc.env", resolve, replace=True)
    try:
        yield
    finally:
        OmegaConf.register_new_resolver("oc.env", oc.env, replace=True)


def quoted(key: str, text: str) -> str:
    """The override that gives `key` exactly this text."""
    from hydra.core.override_parser.types import Quote, QuotedString

    return f"{key}={QuotedString(text, Quote.single).with_quotes()}"


# --- what was typed ---------------------------------------------------------------------------------------------------------


@dataclass
class Plan:
    """What a command line asks for, checked."""

    cfg: DictConfig  # one run: its configuration; a sweep: what its jobs share; `hydra` included
    config: RunConfig | None  # one run's, None for a sweep
    jobs: list[list[str]] | None  # a sweep's jobs as overrides, in Hydra's order; None for one run
    swept: frozenset[str]  # keys that differ between jobs


def plan(hydra: Hydra, overrides: Sequence[str], multirun: bool = False, algorithms: int | None = None) -> Plan:
    """Check every override, in a sweep every value of it.

    `algorithms`: of a sweep only so many algorithms are wanted, and one value of every other key, the first ones.
    Raises ConfigError: all problems; VflbenchError: Hydra's, where it refuses what our checks let pass.
    """
    problems: list[Problem] = []
    faulty: list[Override] = []

    def note(found: Iterable[Problem], override: Override | None = None) -> None:
        for problem in found:
            if problem not in problems:
                problems.append(problem)
            if override is not None and override not in faulty:
                faulty.append(override)

    loader = hydra.config_loader
    groups = _groups(loader)
    typed = _parse(overrides, loader, problems)
    for override, found in hydra_keys.problems(typed):
        note([found], override)
    single = [o for o in typed if o not in faulty and (not o.is_sweep_override() or o.key_or_group in groups)]
    try:
        base = next(_combinations(hydra, single, groups))  # of several options the first
    except VflbenchError:
        for override, found in _hydra_problems(hydra, single, groups):
            note([found], override)
        base = next(_combinations(hydra, [o for o in single if o not in faulty], groups))
    sweeping = multirun or (base.hydra.mode is not None and base.hydra.mode.name == "MULTIRUN")
    if sweeping:
        preset = base.hydra.sweeper.get("params") or {}
        typed = _merge(_parse([f"{key}={value}" for key, value in preset.items()], loader, problems), typed)
        if (jobs := math.prod(len(_values(o)) for o in typed if o.is_discrete_sweep())) > MOST_JOBS:
            allowed = f"is {jobs} jobs, at most {MOST_JOBS} are started together: give fewer values"
            raise ConfigError([*problems, Problem("the sweep", " ".join(map(_line, typed)), allowed)])
    for override in typed:
        note(_sweep_problems(override, sweeping), override)
    unknown = [o for o in typed if _option_problems(o, groups, loader)]
    for override in unknown:
        note(_option_problems(override, groups, loader), override)
    overridden = {o.key_or_group for o in typed}
    wanted = typed if algorithms is None else _first(typed, algorithms, loader)
    known = [o for o, whole in zip(wanted, typed, strict=True) if whole not in faulty or whole in unknown]
    for composed in _combinations(hydra, known, groups) if sweeping else [base]:
        values = plain(composed)
        kinds = _kinds(values)
        for override in typed:
            if not override.is_hydra_override() and override.key_or_group not in groups:
                note(_value_problems(override, values, kinds, groups), override)
        if sweeping and not unknown:  # the option files themselves; a single run's are converted as a whole below
            note(p for p in _convert_run(values, kinds)[1] if p.key not in overridden)
    if sweeping or unknown:
        refuse(problems)
        cfg = compose(hydra, [_line(o) for o in typed if not o.is_sweep_override()], sweep=True)
        refuse(_launcher_problems(cfg))
        return Plan(cfg, None, _jobs(wanted), frozenset(o.key_or_group for o in typed if o.is_sweep_override()))
    cfg = compose(hydra, [_line(o) for o in typed if o not in faulty])
    values = plain(cfg)
    config, mistyped = _convert_run(values, _kinds(values))
    note(mistyped)
    if config is not None:
        note(check(config))
    if problems or config is None:
        raise ConfigError(problems)
    return Plan(cfg, config, None, frozenset())


def _launcher_problems(cfg: DictConfig) -> list[Problem]:
    """What is wrong with the keys of a launcher of another package; Hydra checks those of its own."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    name = cfg.hydra.runtime.choices["hydra/launcher"]
    if name not in registry.option_entries("launcher"):
        return []
    try:
        given: Any = OmegaConf.to_container(cfg.hydra.launcher, resolve=True)
    except OmegaConfBaseException as error:
        key = str(error.full_key or HYDRAS["launcher"])
        return [Problem(key, OmegaConf.to_container(cfg.hydra.launcher)[key.split(".")[-1]], hydra_keys.first_line(error))]  # type: ignore[call-overload,index]
    keys = {key: value for key, value in given.items() if key != "_target_"}
    problems: list[Problem] = []
    config = _convert_dataclass(registry.option_config("launcher", name), keys, "hydra.launcher.", problems)
    rules = hook(registry.load_option("launcher", name), "check")
    return problems or (rules(config) if rules else [])


def check_hydra_keys(hydra: Hydra, overrides: Sequence[str]) -> None:
    """Refuse what a command line may not set of Hydra's own configuration. Raises ConfigError: all problems."""
    refuse([problem for _, problem in hydra_keys.problems(_parse(overrides, hydra.config_loader, []))])


def _hydra_problems(hydra: Hydra, typed: list[Override], groups: frozenset[str]) -> list[tuple[Override, Problem]]:
    """Of overrides that do not compose, which of Hydra's own configuration are wrong; asked of Hydra, which knows it, one by one."""
    others = [o for o in typed if not o.is_hydra_override()]
    next(_combinations(hydra, others, groups))  # raises where Hydra's own configuration is not at fault
    problems = []
    for override in typed:
        if override.is_hydra_override():
            try:
                next(_combinations(hydra, [*others, override], groups))
            except VflbenchError as error:
                key, value = override.key_or_group, _line(override).partition("=")[2]
                reason, hint = str(error).removeprefix(UNCOMPOSED).rstrip("."), None
                known = options(hydra.config_loader, key) if key == HYDRAS["launcher"] else []
                if key == HYDRAS["launcher"] and value in LAUNCHERS:
                    reason = f"needs a package that is not installed: pip install 'vflbench[{LAUNCHERS[value]}]'"
                elif known and value not in known:
                    reason, hint = f"unknown launcher; there are: {', '.join(known)}", closest(value, known)
                problems.append((override, Problem(key, value, reason, hint)))
    return problems


def _parse(overrides: Sequence[str], loader: ConfigLoader, problems: list[Problem]) -> list[Override]:
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    parser = OverridesParser.create(config_loader=loader)
    parsed = []
    for text in overrides:
        key, equals, value = text.partition("=")
        if SECRET.search(text):  # before anything is written: Hydra keeps overrides in files
            key, value = (SECRET.sub("://***@", part) for part in (key, value))
            refused = "a password does not belong into a URL, which is written to files: name its variable with password_env"
        elif text.startswith("~"):
            refused = "cannot be removed: every key and group has a value; set another one with key=value"
        elif not equals:
            refused = "needs a value, as in key=value"
        else:
            try:
                override = parser.parse_override(text)
                override.config_loader = loader  # to list what `glob(*)` means
                if not (refused := _unlisted(override)):
                    parsed.append(override)
            except (HydraException, ValueError) as error:  # ValueError: a number of thousands of digits
                refused = f"cannot be read ({str(error).splitlines()[0]}); quote the value if it has special characters"
        if refused:
            problems.append(Problem(key, value, refused))
    return parsed


def _unlisted(override: Override) -> str:
    """Why the values of a sweep cannot be listed, without listing them; of no sweep nothing."""
    from hydra.core.override_parser.types import Glob, RangeSweep

    value = override.value()
    if isinstance(value, RangeSweep):
        start, stop, step = (end for end in (value.start, value.stop, value.step) if end is not None)
        if not all(abs(end) < LARGEST for end in (start, stop, step)) or not step:
            return "a range has two finite ends and a step that is not 0: range(0,10) or range(0,1,0.1)"
        if not 0 < (stop - start) / step <= MOST_JOBS:
            return f"a range has at least one value and at most {MOST_JOBS}"
    if isinstance(value, Glob) and not _values(override):
        return "matches no option"
    return ""


def _line(override: Override) -> str:
    return override.input_line or ""


def _merge(first: list[Override], later: list[Override]) -> list[Override]:
    """As Hydra's sweeper does: an override that comes later replaces one with the same key."""
    return list({override.get_key_element(): override for override in [*first, *later]}.values())


def _jobs(typed: list[Override]) -> list[list[str]]:
    from hydra._internal.core_plugins.basic_sweeper import BasicSweeper

    batches: list[list[list[str]]] = BasicSweeper.split_arguments([o for o in typed if not o.is_hydra_override()], None)
    return batches[0]


def _first(typed: list[Override], algorithms: int, loader: ConfigLoader) -> list[Override]:
    """Overrides whose sweeps have `algorithms` algorithms and one value of every other key."""
    narrow = []
    for override in typed:
        if override.is_discrete_sweep():
            count = algorithms if override.key_or_group == "algorithm" else 1
            values = itertools.islice(override.sweep_string_iterator(), count)
            [override] = _parse([f"{override.get_key_element()}={','.join(values)}"], loader, [])
        narrow.append(override)
    return narrow


def _values(override: Override) -> list[Any]:
    """Every value that the override gives its key."""
    if override.is_discrete_sweep():
        return [override._convert_value(value) for value in override.sweep_iterator()]
    return [override.value()]


def _groups(loader: ConfigLoader) -> frozenset[str]:
    from hydra.core.object_type import ObjectType

    return frozenset(loader.get_group_options("", results_filter=ObjectType.GROUP)) - {"hydra", "tuned", "figure"}


def options(loader: ConfigLoader, group: str) -> list[str]:
    """The options of a config group, those in folders below it as `folder/option`."""
    from hydra.core.object_type import ObjectType

    inner = loader.get_group_options(group, results_filter=ObjectType.GROUP)
    found = [f"{folder}/{name}" for folder in inner for name in options(loader, f"{group}/{folder}")]
    own = group.removeprefix("hydra/")
    plugins = {name for name, entry in (registry.entries(own) if own in OPEN else {}).items() if entry.plugin}
    return sorted({*loader.get_group_options(group, results_filter=ObjectType.CONFIG), *found, *plugins})


def _option_problems(override: Override, groups: frozenset[str], loader: ConfigLoader) -> list[Problem]:
    group = override.key_or_group
    if group not in groups or override.package is not None or override.is_delete():
        return []
    known = options(loader, group)
    found = [value for value in _values(override) if value not in known and not (value is None and group == "experiment")]
    return [Problem(group, _show(v), f"unknown {group}; there are: {', '.join(known)}", closest(str(v), known)) for v in found]


def _sweep_problems(override: Override, sweeping: bool) -> list[Problem]:
    key, value = override.key_or_group, _line(override).partition("=")[2]
    if not override.is_sweep_override():
        return []
    if not sweeping:
        return [Problem(key, value, "several values are a sweep: add -m (for a list write [a,b], for text with a comma quote it)")]
    if override.is_hydra_override():
        return [Problem(key, value, "cannot be swept")]
    if key in ("dry_run", "resume", "overwrite"):
        return [Problem(key, value, "holds for the whole sweep: give one value")]
    if key == "experiment":  # each preset has its own sweep, which Hydra would drop without a word
        return [Problem(key, value, "presets are started one at a time")]
    return [] if override.is_discrete_sweep() else [Problem(key, value, "a sweep lists its values: choice(...), range(...) or a,b")]


def _combinations(hydra: Hydra, typed: list[Override], groups: frozenset[str]) -> Iterator[DictConfig]:
    """The configurations of every combination of options, without the values; an unknown option stands as its closest match."""
    fixed = [_line(o) for o in typed if o.is_hydra_override() and not o.is_sweep_override()]
    lists = []
    for override in typed:
        if override.key_or_group not in groups:
            continue
        if override.package is not None or override.is_delete():
            fixed.append(_line(override))
            continue
        known = options(hydra.config_loader, override.key_or_group)
        values = _values(override) if override.is_discrete_sweep() or not override.is_sweep_override() else []
        found = dict.fromkeys(v if v is None or v in known else closest(str(v), known) for v in values)
        if choices := [f"{override.get_key_element()}={v}" for v in found if v is not None]:
            lists.append(choices)
    for chosen in itertools.product(*lists):
        yield compose(hydra, [*fixed, *chosen], sweep=True)


def profiles(hydra: Hydra, overrides: Sequence[str]) -> list[tuple[dict[str, Any], dict[str, Any] | None]]:
    """What finished runs are to be priced by: for every combination of the values typed, those (key -> value), and the `network` composed.

    `overrides` are of `network`, `network.<key>` and `accounting` alone; the network is None where no option of it is typed.

    Raises ConfigError: all problems.
    """
    problems: list[Problem] = []
    loader = hydra.config_loader
    groups = _groups(loader)
    typed = _merge([], _parse(overrides, loader, problems))
    for override in typed:
        key = override.key_or_group
        if key.split(".")[0] not in ("network", "accounting"):
            allowed = "re-pricing changes network, its keys, and accounting; with another value of this it would be another run: train it"
            problems.append(Problem(key, _line(override).partition("=")[2], allowed, closest(key, ("network", "accounting"))))
            continue
        problems += _sweep_problems(override, True) or _option_problems(override, groups, loader)
    if not typed and not problems:
        problems.append(Problem("network", "(missing)", "name what to price by: network=us_us, network.timing=round, accounting=..."))
    if not any(problem.key == "network" for problem in problems):
        known = [o for o in typed if o.key_or_group.split(".")[0] in ("network", "accounting")]
        for composed in _combinations(hydra, known, groups):
            values = plain(composed)
            kinds = {key: _kinds(values)[key] for key in ("network", "accounting")}
            for override in known:
                if override.key_or_group not in groups:
                    problems += [p for p in _value_problems(override, values, kinds, groups) if p not in problems]
            found: list[Problem] = []
            _convert(kinds["network"], values["network"], "network", found)
            problems += [p for p in found if p not in problems]
    refuse(problems)
    return [_profile(plain(compose(hydra, job, sweep=True)), job) for job in _jobs(typed)]


def _profile(values: dict[str, Any], job: list[str]) -> tuple[dict[str, Any], dict[str, Any] | None]:
    keys = [text.partition("=")[0].lstrip("+") for text in job]
    found = {key: functools.reduce(operator.getitem, key.split("."), values) for key in keys if key != "network"}
    named = dict(text.split("=", 1) for text in job).get("network")
    return ({} if named is None else {"network": named}) | found, None if named is None else values["network"]


# --- types ------------------------------------------------------------------------------------------------------------------


@functools.cache
def _fields(kind: type) -> dict[str, Any]:
    """Field name -> type of a dataclass."""
    hints = typing.get_type_hints(kind, include_extras=True)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def _kinds(values: Mapping[str, Any]) -> dict[str, Any]:
    """Type of every root key; of an option whose name nobody knows, Any."""
    kinds = dict(_fields(RunConfig))
    for key in UNTYPED:
        name = values[key].get("name") if isinstance(values.get(key), dict) else None
        if isinstance(name, str) and name in _names(key):
            kinds[key] = registry.option_config(key, name)
        else:
            kinds[key] = OPTIONS[key].keys if key in KEYED and (key not in values or OPTIONS[key].bare == "*") else Any
    return kinds


def _names(key: str) -> tuple[str, ...]:
    """The options of one of UNTYPED that have a module; `none` is one where it may be chosen."""
    if key == "model":
        return tuple(registry.model_modules())
    return (*(["none"] if key in KEYED and OPTIONS[key].bare == "none" else []), *registry.entries(key))


def _value_problems(override: Override, values: Mapping[str, Any], kinds: Mapping[str, Any], groups: frozenset[str]) -> list[Problem]:
    """What is wrong with a `key=value` for a configuration `values` of types `kinds`."""
    key, parts = override.key_or_group, override.key_or_group.split(".")
    if override.package is not None:
        return []  # a group that Hydra does not know, or `tuned`: its to refuse
    shown = _line(override).partition("=")[2]
    kind: Any = None
    inside: Any = values
    for depth, part in enumerate(parts):
        fields = kinds if depth == 0 else _fields(typing.cast(type, kind)) if dataclasses.is_dataclass(kind) else {}
        if depth and (kind is Any or typing.get_origin(kind) in (dict, list, tuple)):
            return []  # open below here
        listed = [name for name in fields if not isinstance(inside, dict) or name in inside]
        allowed = fields if override.is_add() or override.is_force_add() else listed
        if part not in allowed:
            where = ".".join(parts[:depth])
            owner = f"{where}={inside.get('name')}" if isinstance(inside, dict) and inside.get("name") else where
            if part in groups and depth == 0:  # a group that is not set, e.g. a model for an algorithm that takes none
                return [Problem(key, shown, f"no {part} is chosen")]
            having = _options_with(where, part) if depth == 1 and (part in fields or where in KEYED) else []
            if part in fields or having:
                if isinstance(inside, dict) and inside.get("name") in having:  # an option file of the user's need not list every key
                    return [Problem(key, shown, f"your file of {owner} does not list this key: write it there, or +{_line(override)}")]
                others = f"; {', '.join(having)} {'has' if len(having) == 1 else 'have'} it" if having else ""
                return [Problem(key, shown, f"{owner or 'this configuration'} has no such key{others}")]
            has = f"{owner} has: {', '.join(n for n in listed if n != 'name')}" if depth else "see vflbench --help"
            return [Problem(key, shown, f"unknown key; {has}", _closest_key(parts, depth, listed, kinds))]
        kind, inside = fields[part], inside.get(part) if isinstance(inside, dict) else None
    problems: list[Problem] = []
    if override.is_delete():  # a default that no file shows would take its place
        problems.append(Problem(f"~{key}", shown, "cannot be removed: a run has a value for every key; null is one for some"))
    else:
        for value in _values(override) if not override.is_sweep_override() or override.is_discrete_sweep() else []:
            if not (isinstance(value, str) and "${" in value):
                _convert(kind, value, key, problems)
    return problems


def _options_with(group: str, key: str) -> list[str]:
    """The options of vflbench's own in `group` that list `key`."""
    listed = re.compile(rf"^{key}:", re.MULTILINE)
    return [path.stem for path in sorted((config_dir() / group).glob("*.yaml")) if listed.search(path.read_text(encoding="utf-8"))]


def _closest_key(parts: list[str], depth: int, listed: Iterable[str], kinds: Mapping[str, Any]) -> str | None:
    """A key that the user may have meant: beside the one typed, else of the same last name, else the most similar anywhere."""
    if beside := closest(parts[depth], listed):
        return ".".join((*parts[:depth], beside, *parts[depth + 1 :]))
    known = list(_dotted(kinds))
    return next((k for k in known if k.split(".")[-1] == parts[-1]), None) or closest(".".join(parts), known)


def _dotted(kinds: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for name, kind in kinds.items():
        yield prefix + name
        if dataclasses.is_dataclass(kind):
            yield from _dotted(_fields(typing.cast(type, kind)), f"{prefix}{name}.")


def to_config(values: Mapping[str, Any]) -> RunConfig:
    """The dataclasses of a composed configuration.

    Raises ConfigError: unknown keys, missing and mistyped values, and those outside their range.
    """
    config, problems = _convert_run(values, _kinds(values))
    if problems or config is None:
        raise ConfigError(problems)
    return config


def convert(kind: Any, values: Mapping[str, Any]) -> tuple[Any, list[Problem]]:
    """`values` as the dataclass `kind`, and what is wrong with them: where anything is, the first means nothing."""
    problems: list[Problem] = []
    return _convert_dataclass(kind, values, "", problems), problems


def _convert_run(values: Mapping[str, Any], kinds: Mapping[str, Any]) -> tuple[RunConfig | None, list[Problem]]:
    problems: list[Problem] = []
    values = {"model": None, **values}  # an algorithm without a model leaves the group out
    for key in UNTYPED:
        if kinds[key] is Any and not (key == "model" and values[key] is None):
            name = values[key].get("name") if isinstance(values.get(key), dict) else None
            allowed = f"names no {key}; there are: {', '.join(_names(key))}"
            problems.append(Problem(f"{key}.name", _show(name), allowed, closest(str(name), _names(key))))
    values |= {group: _of_none(group, values[group]) for group in KEYED if group in values}
    config = _convert_dataclass(RunConfig, values, "", problems, kinds)
    return (None if problems else config), problems


def _of_none(group: str, given: Any) -> Any:
    """`given`, where it is `none` without the keys of the group's other options: a preset sets those for a sweep that tries both."""
    if not isinstance(given, Mapping) or given.get("name") != "none" or given.keys() <= _fields(OPTIONS[group].keys).keys():
        return given
    others = {key for name in registry.option_entries(group) for key in _fields(registry.load_option(group, name).Config)}
    return {key: value for key, value in given.items() if key in _fields(OPTIONS[group].keys) or key not in others}


def _convert_dataclass(kind: Any, values: Any, prefix: str, problems: list[Problem], kinds: Mapping[str, Any] | None = None) -> Any:
    fields = _fields(kind) if kinds is None else kinds
    if not isinstance(values, Mapping):
        problems.append(Problem(prefix.rstrip("."), _show(values), f"must have the keys {', '.join(fields)}"))
        return None
    for key in values:
        if key not in fields:
            has = ", ".join(name for name in fields if name != "name")
            problems.append(Problem(f"{prefix}{key}", _show(values[key]), f"unknown key; there are: {has}", closest(str(key), fields)))
    needed = [f.name for f in dataclasses.fields(kind) if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING]
    lacking = [name for name in needed if name not in values]
    problems += [Problem(prefix + name, "(missing)", "needs a value") for name in lacking]
    given = {n: _convert(k, values[n], prefix + n, problems) for n, k in fields.items() if n in values}
    return None if lacking else kind(**given)


_SCALARS = {int: "an integer", float: "a number", bool: "true or false", str: "text (quote it)"}


def _convert(kind: Any, value: Any, key: str, problems: list[Problem]) -> Any:
    """`value` as a `kind`; where it is none, or out of its range, a problem is added and the return value means nothing."""
    if dataclasses.is_dataclass(kind):
        return _convert_dataclass(kind, value, f"{key}.", problems)
    allowed, before = Range(), len(problems)
    if typing.get_origin(kind) is typing.Annotated:
        kind, *notes = typing.get_args(kind)
        allowed = next((note for note in notes if isinstance(note, Range)), allowed)
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin in (list, tuple, dict):
        return _convert_container(origin, args, value, key, problems)
    if allowed.infinite and value == math.inf:
        return math.inf
    if origin in (typing.Union, types.UnionType):
        value = _convert_union(args, value, key, problems)
    else:
        value = _convert_scalar(kind, value, key, problems)
    if len(problems) == before and value is not None:
        refused = allowed.refuses(value) if isinstance(value, int | float) else ""
        problems += [Problem(key, value, refused)] if refused else _range_problems(key, value)
    return value


def _convert_scalar(kind: Any, value: Any, key: str, problems: list[Problem]) -> Any:
    if typing.get_origin(kind) is typing.Literal:
        args = typing.get_args(kind)
        if value not in args:
            problems.append(Problem(key, _show(value), f"must be one of {', '.join(map(str, args))}", closest(str(value), map(str, args))))
    elif kind is int or kind is bool:
        if type(value) is not kind:
            problems.append(Problem(key, _show(value), f"must be {_SCALARS[kind]}"))
        elif abs(value) >= 2**63:
            problems.append(Problem(key, value, "is too large for an integer of 64 bits"))
    elif kind is float:
        finite = isinstance(value, int | float) and abs(value) <= sys.float_info.max  # an integer may have thousands of digits
        if isinstance(value, bool) or not finite:
            problems.append(Problem(key, _show(value), "must be a number"))
        else:
            value = float(value)
    elif kind is str:
        if isinstance(value, int | float) and not isinstance(value, bool):
            value = str(value)  # an unquoted 1 or 100 where a name is wanted
        elif not isinstance(value, str):
            problems.append(Problem(key, _show(value), f"must be {_SCALARS[str]}"))
    return value


def _convert_union(args: tuple[Any, ...], value: Any, key: str, problems: list[Problem]) -> Any:
    if value is None and types.NoneType in args:
        return None
    kinds = [kind for kind in args if kind is not types.NoneType]
    tries: list[list[Problem]] = []
    for kind in kinds:
        tries.append([])
        result = _convert(kind, value, key, tries[-1])
        if not tries[-1]:
            return result
    if len(kinds) == 1 or not all(isinstance(kind, type) for kind in kinds):
        problems += [dataclasses.replace(p, allowed=f"{p.allowed}, or null") if types.NoneType in args else p for p in tries[0]]
    else:
        allowed = " or ".join(_SCALARS.get(kind, kind.__name__) for kind in kinds) + (" or null" if types.NoneType in args else "")
        problems.append(Problem(key, _show(value), f"must be {allowed}"))
    return None


def _convert_container(origin: Any, args: tuple[Any, ...], value: Any, key: str, problems: list[Problem]) -> Any:
    if origin is dict:
        if not isinstance(value, Mapping):
            problems.append(Problem(key, _show(value), "must be of the form {name: value}"))
            return None
        return {k: _convert(args[1] if args else Any, item, f"{key}.{k}", problems) for k, item in value.items()}
    if not isinstance(value, list | tuple):
        problems.append(Problem(key, _show(value), "must be a list: [a,b]"))
        return None
    fixed = origin is tuple and args and args[-1] is not ...
    if fixed and len(value) != len(args):
        problems.append(Problem(key, _show(value), f"must have {len(args)} entries"))
        return None
    kinds = args if fixed else (args[0] if args else Any,) * len(value)
    return origin(_convert(kind, item, f"{key}[{i}]", problems) for i, (kind, item) in enumerate(zip(kinds, value, strict=True)))


def _range_problems(key: str, value: Any) -> list[Problem]:
    choices = CHOICES.get(key) or (key == "accounting" and tuple(registry.option_entries(key)))
    if choices and value not in choices:
        return [Problem(key, value, f"must be one of {', '.join(choices)}", closest(str(value), choices))]
    if (key == "device" or key.startswith("engine.devices.")) and not DEVICE.fullmatch(value):
        return [Problem(key, value, "must be auto, cpu, cuda or cuda:NUMBER", closest(value, ("auto", "cpu", "cuda")))]
    if refused := SHARED.get(key, Range()).refuses(value) if isinstance(value, int | float) else "":
        return [Problem(key, value, refused)]
    if isinstance(value, float) and math.isfinite(value) and value and not SMALLEST <= abs(value) <= LARGEST:
        return [Problem(key, value, f"must be 0, or from {SMALLEST:g} to {LARGEST:g} in size")]
    return []


def _show(value: Any) -> Any:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else value


# --- what fits together -----------------------------------------------------------------------------------------------------


def check(config: RunConfig) -> list[Problem]:
    """What does not fit together: algorithm, data set, model, topology, privacy; then the rooms' and the algorithm's own rules."""
    info = registry.algorithms()[config.algorithm.name]
    data = registry.datasets()[config.dataset.name]
    problems = []
    layout = registry.fit(info, data)
    if layout is None:
        fitting = [name for name, other in registry.datasets().items() if registry.fit(info, other)]
        allowed = f"{info.name} runs on {' or '.join(info.layouts)} data: {', '.join(fitting)}"
        problems.append(Problem("dataset", data.name, allowed))
    chosen = {
        "privacy": (config.privacy.name, registry.options("privacy", info, info.privacy)),
        "attack": (config.attack.name, registry.options("attack", info, info.attacks)),
        "accounting": (config.accounting, registry.options("accounting", info, info.accounting)),
        "topology": (config.topology.name, registry.options("topology", info, info.topologies)),
        "model": (config.model.name if config.model is not None else None, info.models),
    }
    for group, (name, allowed_names) in chosen.items():
        if name not in allowed_names and not (name is None and not allowed_names):
            has = f"{info.name} can have: {', '.join(allowed_names)}" if allowed_names else f"{info.name} takes no {group}"
            if name is None:  # an option file of the user's that does not say
                has += f"; say model={allowed_names[0]}, or `- override /model@_global_.model: {allowed_names[0]}` in its defaults"
            problems.append(Problem(group, _show(name), has))
    if config.epochs is not None and not info.epochs:
        problems.append(Problem("epochs", config.epochs, f"{info.name} counts rounds, not epochs: use rounds"))
    elif config.epochs is not None and config.rounds is not None:
        per_epoch = rounds_per_epoch(config.algorithm)
        length = "an epoch" if per_epoch == 1 else f"1/{per_epoch} of an epoch"
        given = f"a round of {info.name} is {length}, and rounds={config.rounds} is given: use one"
        problems.append(Problem("epochs", config.epochs, given))
    for group in (*KEYED, "model"):
        check_keys = hook(module_of(getattr(config, group)), "check")
        if check_keys and not any(problem.key == group for problem in problems):
            problems += check_keys(getattr(config, group))
    problems += delays.check(config.compute) + _codec_problems(config, info)
    if config.engine.name == "ray":
        from vflbench.federation import ray

        problems += ray.check(config)
    if config.broker.name == "nats":
        from vflbench.federation.ray import nats_broker

        publishers = [name for name, other in registry.algorithms().items() if other.published]
        problems += nats_broker.check(config, info, publishers)
    if check_data := hook(registry.load_dataset(data.name), "check"):
        problems += check_data(config.dataset, layout or data.layouts[0], division(config.algorithm))
    # An algorithm's own rules read the model's keys.
    check_own = hook(registry.load_algorithm(info.name), "check")
    if check_own and not any(problem.key == "model" for problem in problems):
        problems += check_own(config)
    return problems


def _codec_problems(config: RunConfig, info: AlgorithmInfo) -> list[Problem]:
    """Whether the algorithm works with compressed messages, and whether those are charged for what they are."""
    codec = config.codec
    if codec.name == "none":
        return []
    if info.exact:
        return [Problem("codec", codec.name, f"{info.name} takes none: {info.exact}")]
    problems = []
    if config.accounting != "strict":
        allowed = f"accounting={config.accounting} charges every number by a rule of its own, which knows no codec: use accounting=strict"
        problems.append(Problem("codec", codec.name, allowed))
    if codec.feedback and not info.remembered:
        having = ", ".join(name for name, other in registry.algorithms().items() if other.remembered)
        allowed = f"messages of {info.name} are about other rows every time, so there is nothing to remember; these have: {having}"
        problems.append(Problem("codec.feedback", "true", allowed))
    return problems
