"""Hydra at the door: a session composes configurations, runs a job or a sweep, and shows what Hydra shows.

All of it is Hydra's public interface, with one class beside: launchers are set up with a HydraContext, which needs
Hydra's `Callbacks`, and those are nowhere public (Hydra 1.3).
"""

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import hydra
from hydra._internal.callbacks import Callbacks
from hydra.core.config_search_path import ConfigSearchPath, SearchPathQuery
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins
from hydra.core.utils import configure_log, run_job
from hydra.plugins.search_path_plugin import SearchPathPlugin
from hydra.types import HydraContext, RunMode, TaskFunction
from omegaconf import DictConfig, OmegaConf

from vflbench.config import launching
from vflbench.config.grammar import Override
from vflbench.config.loader import Loader
from vflbench.config.source import SCHEME, Source

NAME, VERSION_BASE = "vflbench", "1.3"
HIDDEN = {"hydra", "tuned", "figure"}  # groups that nobody chooses from
_one_thread = threading.RLock()
_folders: list[tuple[str, Path]] = []  # of the session: our options, and before them the user's


class Folders(SearchPathPlugin):
    """Lets Hydra look for options in the session's folders, in the last first."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Put the folders before Hydra's own."""
        before = "main"
        for provider, folder in _folders:
            search_path.prepend(provider, f"{SCHEME}://{folder}", SearchPathQuery(provider=before))
            before = provider


class Session:
    """What Hydra knows of our options, and those of a user's folder."""

    def __init__(self, folder: Path, prepare: Callable[[], None]) -> None:
        self.folder = folder
        self.loader = Loader(GlobalHydra.instance().config_loader(), prepare)
        self._parser = OverridesParser.create(config_loader=self.loader)

    def composed(self, overrides: Sequence[str], sweep: bool = False) -> DictConfig:
        """The configuration, `hydra` included; from now on `${hydra:...}` refers to it."""
        mode = RunMode.MULTIRUN if sweep else RunMode.RUN
        cfg = self.loader.load_configuration("config", list(overrides), mode, validate_sweep_overrides=not sweep)
        OmegaConf.set_readonly(cfg.hydra, True)
        known: Any = HydraConfig.instance()
        known.cfg = cfg  # its `set_config` makes a copy first, of which a command would make five
        return cfg

    def groups(self) -> frozenset[str]:
        """The config groups that can be chosen from."""
        return frozenset(self.loader.get_group_options("", ObjectType.GROUP)) - HIDDEN

    def options(self, group: str) -> list[str]:
        """The options of a config group, those in folders below it as `folder/option`."""
        inner = self.loader.get_group_options(group, ObjectType.GROUP)
        found = [f"{folder}/{name}" for folder in inner for name in self.options(f"{group}/{folder}")]
        return [*self.loader.get_group_options(group), *found]

    def parse(self, text: str) -> Override:
        """One override.

        Raises
        ------
        HydraException : it cannot be read.
        ValueError : a number of thousands of digits.
        """
        override = self._parser.parse_override(text)
        override.config_loader = self.loader  # to list what `glob(*)` means
        return Override(override)

    def start(self, task: TaskFunction, overrides: list[str], log: bool) -> Any:
        """What `task` returns for the configuration, in the folder that Hydra makes; `log`: Hydra sets up logging."""
        cfg = self.composed(overrides)
        if log:
            configure_log(cfg.hydra.hydra_logging, cfg.hydra.verbose)
        how: dict[str, Any] = {"job_dir_key": "hydra.run.dir", "job_subdir_key": None, "configure_logging": log}
        return run_job(task, cfg, hydra_context=self._context(), **how).return_value

    def sweep(
        self,
        task: TaskFunction,
        overrides: list[str],
        jobs: list[list[str]],
        do: launching.Launch | None,
        tell: launching.Tell,
    ) -> list[Any]:
        """What `task` returns for each job of a sweep; `do` does them in place of Hydra's launcher.

        The `jobs` take the place of those of Hydra's basic sweeper, which would all have the same keys, whatever their
        options are. Another sweeper chooses them by what `tell` makes of what is returned.
        """
        cfg = self.composed(overrides, sweep=True)
        configure_log(cfg.hydra.hydra_logging, cfg.hydra.verbose)
        done: list[Any] = []
        with launching.launchers(do, tell, done) as plugins:
            if str(cfg.hydra.sweeper["_target_"]).endswith(".BasicSweeper"):
                launching.in_order(plugins.instantiate_launcher(self._context(), task, cfg), cfg, jobs)
            else:
                sweeper = plugins.instantiate_sweeper(hydra_context=self._context(), task_function=task, config=cfg)
                given: Any = OmegaConf.to_container(cfg.hydra.overrides.task)
                sweeper.sweep(arguments=given)
        return done

    def _context(self) -> HydraContext:
        return HydraContext(config_loader=self.loader, callbacks=Callbacks())  # none: safety.py refuses them

    def show(self, args: list[str]) -> None:
        """Print what Hydra answers to the flags `--hydra-help`, `--shell-completion`, `--info` and `--cfg`."""
        before, sys.argv = sys.argv, [NAME, *args]  # not `python`, of `python -m vflbench`
        GlobalHydra.instance().clear()
        try:
            hydra.main(str(self.folder), "config", VERSION_BASE)(_nothing)()
        except SystemExit as end:
            if end.code:
                raise
        finally:
            sys.argv = before


def _nothing(_: DictConfig) -> None:
    """The task of a command line that only shows something."""


@contextlib.contextmanager
def session(folder: Path, user_dir: Path | None, prepare: Callable[[], None]) -> Iterator[Session]:
    """A Hydra that knows the options in `folder`, and in `user_dir` before those.

    Afterwards the state of another Hydra application in this process (a user's own program) is as it was: Hydra has
    only one state for all. So another thread waits until this one is done.
    """
    with _one_thread:
        yield from _session(folder, user_dir, prepare)


def _session(folder: Path, user_dir: Path | None, prepare: Callable[[], None]) -> Iterator[Session]:
    for plugin in (Source, Folders):
        Plugins.instance().register(plugin)
    before = GlobalHydra.instance().hydra, HydraConfig.instance().cfg, [*_folders]
    GlobalHydra.instance().clear()
    _folders[:] = [("vflbench", folder), *([] if user_dir is None else [("command-line", user_dir)])]
    try:
        with hydra.initialize_config_dir(str(folder), NAME, VERSION_BASE):
            yield Session(folder, prepare)
    finally:
        GlobalHydra.instance().hydra, HydraConfig.instance().cfg, _folders[:] = before
