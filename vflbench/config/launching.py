"""The jobs of a sweep: Hydra's launchers do them, or a function of ours, or a launcher of another package.

Hydra starts only launchers of its namespace `hydra_plugins`: beside our entry point, a package would also need a class
there. So while a sweep lasts, `Plugins.instantiate_launcher` is ours (Hydra 1.3). That is public; that it can be
replaced is not said anywhere.
"""

import contextlib
import functools
import pickle
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from hydra.core.plugins import Plugins
from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, configure_log, run_job, setup_globals
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict

from vflbench import registry

OWN_LAUNCHER = "vflbench.config.launching.OwnLauncher"  # `_target_` of those of other packages


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
        """What the job returned."""
        setup_globals()
        Singleton.set_state(self.shared.state)
        keys: dict[str, Any] = {"job_dir_key": "hydra.sweep.dir", "job_subdir_key": "hydra.sweep.subdir"}
        done = run_job(self.shared.task, self.config, hydra_context=self.shared.context, **keys)
        done.cfg = done.hydra_cfg = None  # not needed, and they cannot be sent to another process
        return done


Tell = Callable[[Any], Any]  # what a job returned -> what its sweeper gets
Launch = Callable[[list[Job], Any], list[JobReturn]]  # jobs, the launcher's keys -> what each returned, in their order


class OwnLauncher(Launcher):
    """Makes jobs of what a sweeper asks for, and lets a function do them."""

    def __init__(self, do: Launch, keys: Any) -> None:
        self.do, self.keys = do, keys

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Keep what the jobs need."""
        self.context, self.task, self.config = hydra_context, task_function, config

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """What each job returned, in their order."""
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


@contextlib.contextmanager
def launchers(do: Launch | None, tell: Tell, done: list[Any]) -> Iterator[Plugins]:
    """Hydra's plug-ins, which start launchers of other packages too for as long as this lasts.

    Parameters
    ----------
    do : does the jobs in place of any of Hydra's launchers.
    tell : makes of what a job returned, which goes to `done`, what its sweeper gets.
    """
    plugins = Plugins.instance()
    hydras = plugins.instantiate_launcher

    def instantiate(hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> Launcher:
        keys = {str(key): value for key, value in config.hydra.launcher.items()}
        made: Launcher
        if keys.pop("_target_") == OWN_LAUNCHER:
            name = keys["name"]
            launch = registry.load_option("launcher", name).launch
            made = OwnLauncher(launch, registry.option_config("launcher", name)(**keys))
        elif do is not None:
            made = OwnLauncher(do, keys)
        else:
            made = hydras(hydra_context, task_function, config)
        made.setup(hydra_context=hydra_context, task_function=task_function, config=config)
        vars(made)["launch"] = functools.partial(_launch, made.launch, tell, done)
        return made

    vars(plugins)["instantiate_launcher"] = instantiate
    try:
        yield plugins
    finally:
        del vars(plugins)["instantiate_launcher"]


def _launch(launch: Callable[..., Any], tell: Tell, done: list[Any], *batch: Any, **how: Any) -> Sequence[JobReturn]:
    """What `launch` returns, as `tell` makes it; what jobs returned goes to `done`."""
    returned: Sequence[JobReturn] = launch(*batch, **how)
    for job in returned:
        done.append(job.return_value)
        job.return_value = tell(done[-1])
    return returned


def in_order(launcher: Launcher, cfg: DictConfig, jobs: list[list[str]]) -> None:
    """Launch the jobs in batches, as Hydra's basic sweeper does, which writes multirun.yaml too."""
    folder = Path(str(cfg.hydra.sweep.dir))
    folder.mkdir(parents=True, exist_ok=True)
    OmegaConf.save(cfg, folder / "multirun.yaml")
    size = cfg.hydra.sweeper.max_batch_size or len(jobs)
    for first in range(0, len(jobs), size):
        launcher.launch(jobs[first : first + size], initial_job_idx=first)
