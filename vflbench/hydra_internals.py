"""All that vflbench uses of Hydra beside its documented interface, each part with its reason.

It was checked with the releases VERIFIED. With another one tests/test_hydra_internals.py fails, and says what to check.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import itertools
import os
import pickle
import re
import sys
import threading
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra import version
from hydra._internal import defaults_list
from hydra._internal.config_loader_impl import ConfigLoaderImpl, get_overrides_dirname
from hydra._internal.config_repository import ConfigRepository
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_config_search_path, get_args_parser
from hydra.core.config_search_path import ConfigSearchPath, SearchPathQuery
from hydra.core.default_element import InputDefault, ResultDefault
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Glob, IntervalSweep, Quote, QuotedString, RangeSweep, Sweep
from hydra.core.override_parser.types import Override as HydraOverride
from hydra.core.plugins import Plugins
from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, configure_log, run_job, setup_globals
from hydra.errors import HydraException
from hydra.plugins.config_source import ConfigResult, ConfigSource
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, RunMode, TaskFunction
from omegaconf import DictConfig, open_dict

from vflbench import registry
from vflbench.config import tuned
from vflbench.config.source import SCHEME, Source

__all__ = ["Glob", "HydraException", "Override", "RangeSweep", "Sweep"]  # types that other modules use
VERIFIED = ("1.3.2", "1.3.8")


# --- what is composed is remembered -----------------------------------------------------------------------------------
# Hydra parses some 25 files for every configuration that it composes, and we compose that of a run again and again.
# It has no place for a cache, so its repository and loader are replaced. Copies are made with pickle, which takes a
# tenth of the time of `copy.deepcopy`.

_parsed: dict[tuple[str, str, str], bytes] = {}  # (source, path, text) -> what Hydra makes of it, in this process
_merged: dict[tuple[Any, ...], bytes] = {}  # files -> the configuration that they make together, in this process
VARIED = ("model/", "dataset/", "algorithm/")  # these groups stand last


class Merged(ResultDefault):
    """Stands in the list of files for those that are merged already."""

    def __init__(self, key: tuple[Any, ...]) -> None:
        super().__init__("hydra/config")
        self.key = key


def _interpolation_map(overrides: Any, defaults: list[InputDefault], *how: Any) -> DictConfig | None:
    """As Hydra's, which makes one for each file: only where a line of its defaults refers to another."""
    needed = any(not one.is_self() and one.is_interpolation() for one in defaults)
    found: DictConfig | None = _hydras_interpolation_map(overrides, defaults, *how) if needed else None
    return found


_hydras_interpolation_map = defaults_list._create_interpolation_map
defaults_list._create_interpolation_map = _interpolation_map  # type: ignore[assignment]
version._get_version = functools.cache(version._get_version)  # it is asked for each line of a defaults list


class Repository(ConfigRepository):
    """Hydra's own, which remembers what it found, listed and loaded; no file comes or goes during a session."""

    def __deepcopy__(self, memo: Any) -> Repository:
        return copy.copy(self)  # Hydra copies it for every configuration, and may give the copy other sources

    def initialize_sources(self, config_search_path: ConfigSearchPath) -> None:
        super().initialize_sources(config_search_path)
        self._found: dict[Any, Any] = {}

    def load_config(self, config_path: str) -> ConfigResult | None:
        loaded: ConfigResult | None = pickle.loads(self.pickled(config_path))
        return loaded

    def pickled(self, config_path: str) -> bytes:
        """What `load_config` returns."""
        source = self._find_object_source(config_path=config_path, object_type=ObjectType.CONFIG)
        key, remembered = ("load", config_path, ""), self._found
        if source is not None and source.scheme() == "file":
            text = Path(source.path, ConfigSource._normalize_file_name(config_path)).read_text(encoding="utf-8")
            key, remembered = (repr(source), config_path, text), _parsed
        if key not in remembered:
            remembered[key] = pickle.dumps(super().load_config(config_path=config_path))
        found: bytes = remembered[key]
        return found

    def get_group_options(self, group_name: str, results_filter: ObjectType | None = ObjectType.CONFIG) -> list[str]:
        base = super().get_group_options
        return list(self._once(("options", group_name, results_filter), lambda: base(group_name, results_filter)))

    def _find_object_source(self, config_path: str, object_type: ObjectType | None) -> ConfigSource | None:
        base = super()._find_object_source
        found: ConfigSource | None = self._once(
            ("source", config_path, object_type), lambda: base(config_path, object_type)
        )
        return found

    def _once(self, key: Any, make: Any) -> Any:
        if key not in self._found:
            self._found[key] = make()
        return self._found[key]


class Loader(ConfigLoaderImpl):
    """Hydra's own, over `Repository`; it calls `prepare` here and in each process that a launcher sends it to."""

    def __init__(self, config_search_path: ConfigSearchPath, prepare: Callable[[], None]) -> None:
        super().__init__(config_search_path)
        self.repository = Repository(config_search_path)
        self.prepare = prepare
        self.__setstate__({})

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in vars(self).items() if key not in ("_composed", "_options", "_overrides")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._composed = functools.lru_cache(maxsize=256)(self._compose)
        self._options = functools.lru_cache(maxsize=256)(self._compose_options)
        self._overrides = OverridesParser.create()
        self.prepare()

    def load_configuration(
        self,
        config_name: str | None,
        overrides: list[str],
        run_mode: RunMode,
        from_shell: bool = True,
        validate_sweep_overrides: bool = True,
    ) -> DictConfig:
        how = (config_name, tuple(overrides), run_mode, from_shell, validate_sweep_overrides)
        composed: DictConfig = pickle.loads(self._composed(how, os.getcwd()))  # it has the current folder in it
        return composed

    def _compose(self, how: tuple[Any, ...], folder: str) -> bytes:
        name, overrides, *rest = how
        return pickle.dumps(super().load_configuration(name, list(overrides), *rest))

    def _load_configuration_impl(
        self, config_name: str | None, overrides: list[str], run_mode: RunMode, *how: Any, **more: Any
    ) -> DictConfig:
        """The options are composed once, which takes longest; the values are then set by Hydra's own function."""
        parsed = self._overrides.parse_overrides(overrides)
        values = [one for one in parsed if not self.repository.group_exists(one.key_or_group)]
        mixed = any(one not in values and isinstance(one.value(), dict) for one in parsed)
        if mixed or any(one.key_or_group.startswith(("hydra.job", "hydra.searchpath")) for one in values):
            cfg: DictConfig = super()._load_configuration_impl(config_name, overrides, run_mode, *how, **more)
            return cfg
        if more.get("validate_sweep_overrides", True):
            self.validate_sweep_overrides_legal(parsed, run_mode, more.get("from_shell", True))
        options = tuple(one.input_line for one in parsed if one not in values)
        cfg = pickle.loads(self._options(config_name, options, run_mode))
        self._apply_overrides_to_config([one for one in values if not one.is_sweep_override()], cfg)
        lines = {own: [one.input_line for one in parsed if one.is_hydra_override() is own] for own in (True, False)}
        cfg.hydra.overrides.hydra, cfg.hydra.overrides.task = lines[True], lines[False]
        cfg.hydra.runtime.cwd = os.getcwd()
        named, own = cfg.hydra.job.config.override_dirname, [one for one in parsed if not one.is_hydra_override()]
        cfg.hydra.job.override_dirname = get_overrides_dirname(own, named.exclude_keys, named.item_sep, named.kv_sep)
        return cfg

    def _compose_options(self, name: str | None, options: tuple[str, ...], mode: RunMode) -> bytes:
        return pickle.dumps(super()._load_configuration_impl(name, list(options), mode, True, False))

    def _compose_config_from_defaults_list(self, defaults: list[ResultDefault], repo: Any) -> DictConfig:
        """What comes first is seldom another, Hydra's own files and ours up to the model: its sum is remembered."""
        noisy = [one for one in defaults if str(one.config_path).startswith("tuned/private/")]
        defaults = [
            one for one in defaults if not noisy or one in noisy or not str(one.config_path).startswith("tuned/")
        ]
        first = list(itertools.takewhile(lambda one: not str(one.config_path).startswith(VARIED), defaults))
        key = tuple((repr(one), repo.delegate.pickled(one.config_path)) for one in first)
        if key not in _merged:
            _merged[key] = pickle.dumps(super()._compose_config_from_defaults_list(first, repo))
        cfg: DictConfig = super()._compose_config_from_defaults_list([Merged(key), *defaults[len(first) :]], repo)
        for one in defaults:
            found = [source.found(str(one.config_path)) for source in repo.get_sources() if isinstance(source, Source)]
            tuned.of_this_model(cfg, next(filter(None, found), None))
        return cfg

    def _load_single_config(self, default: ResultDefault, repo: Any) -> ConfigResult:
        if isinstance(default, Merged):
            return ConfigResult("hydra", "", pickle.loads(_merged[default.key]), {})
        loaded: ConfigResult = super()._load_single_config(default, repo)
        return loaded

    def get_group_options(
        self,
        group_name: str,
        results_filter: ObjectType | None = ObjectType.CONFIG,
        config_name: str | None = None,
        overrides: list[str] | None = None,
    ) -> list[str]:
        """As Hydra's, which parses the configuration anew each time."""
        if overrides:
            return list(super().get_group_options(group_name, results_filter, config_name, overrides))
        return self.repository.get_group_options(group_name, results_filter)


_one_thread = threading.RLock()


# --- a session --------------------------------------------------------------------------------------------------------


class Session(Hydra):
    """Hydra's own class: `hydra.main` reads sys.argv and ends the process, `hydra.compose` neither runs nor sweeps."""

    config_loader: Loader

    def composed(self, overrides: Sequence[str], sweep: bool = False) -> DictConfig:
        """The configuration, `hydra` included; from now on `${hydra:...}` refers to it."""
        mode = RunMode.MULTIRUN if sweep else RunMode.RUN
        how = {"with_log_configuration": False, "validate_sweep_overrides": not sweep}
        cfg = self.compose_config("config", list(overrides), run_mode=mode, **how)
        HydraConfig.instance().set_config(cfg)
        return cfg

    def groups(self) -> frozenset[str]:
        """The config groups that can be chosen from."""
        found = self.config_loader.get_group_options("", results_filter=ObjectType.GROUP)
        return frozenset(found) - {"hydra", "tuned", "search", "figure"}

    def options(self, group: str) -> list[str]:
        """The options of a config group, those in folders below it as `folder/option`."""
        inner = self.config_loader.get_group_options(group, results_filter=ObjectType.GROUP)
        found = [f"{folder}/{name}" for folder in inner for name in self.options(f"{group}/{folder}")]
        return [*self.config_loader.get_group_options(group, results_filter=ObjectType.CONFIG), *found]

    @functools.cached_property
    def _parser(self) -> OverridesParser:
        return OverridesParser.create(config_loader=self.config_loader)

    def parse(self, text: str) -> Override:
        """One override.

        Raises
        ------
        HydraException : it cannot be read.
        ValueError : a number of thousands of digits.
        """
        override = self._parser.parse_override(text)
        override.config_loader = self.config_loader  # to list what `glob(*)` means
        return Override(override)

    def start(self, task: TaskFunction, overrides: list[str], log: bool) -> Any:
        """What `task` returns for the configuration, in the folder that Hydra makes; `log`: Hydra sets up logging."""
        return self.run("config", task, overrides, with_log_configuration=log).return_value

    def sweep(
        self, task: TaskFunction, overrides: list[str], jobs: list[list[str]], do: Launch | None, tell: Tell
    ) -> list[Any]:
        """What `task` returns for each job of a sweep; `do` does them in place of Hydra's launcher.

        The `jobs` are for Hydra's own sweeper; another one chooses them by what `tell` makes of what is returned.
        """
        done: list[Any] = []
        with _own_plugins(jobs, do, tell, done):
            self.multirun("config", task, overrides)
        return done

    def show(self, flags: Namespace, parser: ArgumentParser) -> None:
        """Print what Hydra answers to `--hydra-help`, `--shell-completion`, `--info` or `--cfg`."""
        if flags.hydra_help:
            self.hydra_help("config", args_parser=parser, args=flags)
        elif flags.shell_completion:
            before = sys.argv
            sys.argv = ["vflbench", *before[1:]]  # not `python`, of `python -m vflbench`
            try:
                self.shell_completion("config", flags.overrides)
            finally:
                sys.argv = before
        elif flags.info is not None:
            self.show_info(flags.info, "config", flags.overrides)
        else:
            self.show_cfg("config", flags.overrides, flags.cfg, flags.package, flags.resolve)


@contextlib.contextmanager
def session(folder: Path, user_dir: Path | None, prepare: Callable[[], None]) -> Iterator[Session]:
    """A Hydra that knows the options in `folder`, and in `user_dir` before those.

    Afterwards the state of another Hydra application in this process (a user's own program) is as it was: Hydra has
    only one state for all. So another thread waits until this one is done.
    """
    with _one_thread:
        yield from _session(folder, user_dir, prepare)


def _session(folder: Path, user_dir: Path | None, prepare: Callable[[], None]) -> Iterator[Session]:
    Plugins.instance().register(Source)
    path = create_config_search_path(str(folder))
    path.prepend("vflbench", f"{SCHEME}://{folder}", SearchPathQuery(provider="main"))
    if user_dir is not None:
        # an option of the user's takes precedence
        path.prepend("command-line", f"{SCHEME}://{user_dir}", SearchPathQuery(provider="vflbench"))
    version.setbase("1.3")
    before, before_config = GlobalHydra.instance().hydra, HydraConfig.instance().cfg
    GlobalHydra.instance().clear()
    try:
        hydra = Session("vflbench", Loader(path, prepare))
        GlobalHydra.instance().initialize(hydra)
        yield hydra
    finally:
        GlobalHydra.instance().hydra = before
        HydraConfig.instance().cfg = before_config


def flags_parser(usage: str) -> ArgumentParser:
    """Hydra's parser of its flags, so that they need not be listed twice."""
    parser: ArgumentParser = get_args_parser()
    parser.prog, parser.usage = "vflbench", usage
    return parser


# --- overrides --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Override:
    """One override: the members of Hydra's own class that vflbench uses, since Hydra documents none of them."""

    parsed: HydraOverride

    @property
    def key_or_group(self) -> str:
        """The key, without `+` or `~`, and without its package."""
        return self.parsed.key_or_group

    @property
    def package(self) -> str | None:
        """The package, as in `group@package=option`."""
        return self.parsed.package

    def value(self) -> Any:
        """The value; of a sweep an object of Hydra's."""
        return self.parsed.value()

    def get_key_element(self) -> str:
        """The key as it was typed."""
        return self.parsed.get_key_element()

    def sweep_string_iterator(self) -> Iterator[str]:
        """The values of a discrete sweep, as they were typed."""
        return self.parsed.sweep_string_iterator()

    def is_add(self) -> bool:
        """Whether it is `+key=value` or `++key=value`."""
        return self.parsed.is_add() or self.parsed.is_force_add()

    def is_delete(self) -> bool:
        """Whether it is `~key`."""
        return self.parsed.is_delete()

    def is_sweep_override(self) -> bool:
        """Whether it has several values."""
        return self.parsed.is_sweep_override()

    def is_discrete_sweep(self) -> bool:
        """Whether it lists its values."""
        return self.parsed.is_discrete_sweep()

    def is_hydra_override(self) -> bool:
        """Whether it belongs to Hydra's own configuration."""
        return self.parsed.is_hydra_override()


def line(override: Override) -> str:
    """The override as it was typed."""
    return override.parsed.input_line or ""


def values_of(override: Override) -> list[Any]:
    """Every value that the override gives its key, of an interval its ends; Hydra's own iterator leaves quotes."""
    if override.is_discrete_sweep():
        return [override.parsed._convert_value(value) for value in override.parsed.sweep_iterator()]
    value = override.value()
    return [value.start, value.end] if isinstance(value, IntervalSweep) else [value]


def expand(overrides: Iterable[Override]) -> list[list[str]]:
    """A sweep's jobs, as Hydra's sweeper makes them, so that they are checked and counted before any starts."""
    batches: list[list[list[str]]] = BasicSweeper.split_arguments([override.parsed for override in overrides], None)
    return batches[0]


def quoted(key: str, text: str | Sequence[str]) -> str:
    """The override that gives `key` exactly this text, or texts; only Hydra's grammar knows what needs quotes."""
    texts = [text] if isinstance(text, str) else text
    escaped = (re.sub(r"(\\*)\$\{", r"\1\1\\${", one) for one in texts)  # or OmegaConf would look for what is named so
    words = [QuotedString(one, Quote.single).with_quotes() for one in escaped]
    return f"{key}={words[0]}" if isinstance(text, str) else f"{key}=[{','.join(words)}]"


# --- launchers of other packages (contracts.Launcher) -----------------------------------------------------------------
# Hydra starts only launchers of its namespace `hydra_plugins`: beside our entry point, a package would also need a
# class there.

OWN_LAUNCHER = "vflbench.hydra_internals.OwnLauncher"  # `_target_` of theirs


class Shared:
    """What all jobs of a sweep take along: Hydra's context, the task, and what Hydra keeps once in a process.

    It is pickled once for all of them, and unpickled once by a process that does several.
    """

    def __init__(self, context: HydraContext, task: TaskFunction, state: dict[Any, Any]) -> None:
        self.context, self.task, self.state = context, task, state

    @functools.cached_property
    def _pickled(self) -> bytes:
        import cloudpickle  # what Hydra keeps has local functions

        pickled: bytes = cloudpickle.dumps((self.context, self.task, self.state))
        return pickled

    def __reduce__(self) -> tuple[Any, ...]:
        return _shared, (self._pickled,)


@functools.lru_cache(maxsize=1)
def _shared(pickled: bytes) -> Shared:
    return Shared(*pickle.loads(pickled))


class Job:
    """One of a sweep's jobs: call it, in any process, to do it."""

    def __init__(self, shared: Shared, config: DictConfig) -> None:
        self.shared, self.config = shared, config

    def __call__(self) -> JobReturn:
        setup_globals()
        Singleton.set_state(self.shared.state)
        done = run_job(
            hydra_context=self.shared.context, task_function=self.shared.task, config=self.config,
            job_dir_key="hydra.sweep.dir", job_subdir_key="hydra.sweep.subdir",
        )  # fmt: skip
        done.cfg = done.hydra_cfg = None  # not needed, and they cannot be sent to another process
        return done


Tell = Callable[[Any], Any]  # what a job returned -> what its sweeper gets
Launch = Callable[[list[Job], Any], list[JobReturn]]  # jobs, the launcher's keys -> what each returned, in their order


class OwnLauncher(Launcher):
    """Makes jobs of what Hydra's sweeper asks for, and lets a function do them."""

    def __init__(self, do: Launch, keys: Any) -> None:
        self.do, self.keys = do, keys

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.context, self.task, self.config = hydra_context, task_function, config

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        setup_globals()
        shared = Shared(self.context, self.task, Singleton.get_state())
        jobs = []
        for number, overrides in enumerate(job_overrides, start=initial_job_idx):
            cfg = self.context.config_loader.load_sweep_config(self.config, list(overrides))
            with open_dict(cfg):
                cfg.hydra.job.id = f"{cfg.hydra.job.name}_{number}"
                cfg.hydra.job.num = number
            jobs.append(Job(shared, cfg))
        done = self.do(jobs, self.keys)
        configure_log(self.config.hydra.hydra_logging, self.config.hydra.verbose)
        return done


def _launch(launch: Callable[..., Any], tell: Tell, done: list[Any], *batch: Any, **how: Any) -> Sequence[JobReturn]:
    """What `launch` returns, as `tell` makes it; what jobs returned goes to `done`."""
    returned: Sequence[JobReturn] = launch(*batch, **how)
    for job in returned:
        done.append(job.return_value)
        job.return_value = tell(done[-1])
    return returned


@contextlib.contextmanager
def _own_plugins(jobs: list[list[str]], do: Launch | None, tell: Tell, done: list[Any]) -> Iterator[None]:
    """Let Hydra start `OwnLauncher` too, for as long as this lasts; `do` takes the place of any other launcher.

    Its sweeper makes the `jobs`; those of its own would all have the same keys, whatever their options are.
    """
    plugins = Plugins.instance()
    start = plugins._instantiate

    def start_or_own(config: DictConfig) -> Any:
        keys = {str(key): value for key, value in config.items()}
        target = keys.pop("_target_", None)
        if target == OWN_LAUNCHER:
            name = keys["name"]
            launch = registry.load_option("launcher", name).launch
            made: Any = OwnLauncher(launch, registry.option_config("launcher", name)(**keys))
        else:
            made = OwnLauncher(do, keys) if do is not None and str(target).endswith("Launcher") else start(config)
        if isinstance(made, Launcher):
            vars(made)["launch"] = functools.partial(_launch, made.launch, tell, done)
        if str(target).endswith("BasicSweeper"):
            made.split_arguments = lambda _, size: list(BasicSweeper.split_overrides_to_chunks(jobs, size))
        return made

    plugins._instantiate = start_or_own  # type: ignore[method-assign]
    try:
        yield
    finally:
        plugins._instantiate = start  # type: ignore[method-assign]
