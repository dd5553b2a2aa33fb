"""Launchers of other packages (contracts.Launcher), as Hydra starts them."""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Iterator, Sequence
from typing import Any

from hydra.core.plugins import Plugins
from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, configure_log, run_job, setup_globals
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, open_dict

from vflbench import registry
from vflbench.hydra_keys import OWN_LAUNCHER


class Job:
    """One of a sweep's jobs: calling it, in whatever process, does it."""

    def __init__(self, context: HydraContext, task: TaskFunction, config: DictConfig, state: dict[Any, Any]) -> None:
        self.context, self.task, self.config, self.state = context, task, config, state

    def __call__(self) -> JobReturn:
        setup_globals()
        Singleton.set_state(self.state)
        done = run_job(
            hydra_context=self.context, task_function=self.task, config=self.config,
            job_dir_key="hydra.sweep.dir", job_subdir_key="hydra.sweep.subdir",
        )  # fmt: skip
        done.cfg = done.hydra_cfg = None  # nobody asks, and they do not go from process to process
        return done

    def __reduce__(self) -> tuple[Any, ...]:
        """With cloudpickle: what Hydra keeps has local functions."""
        import cloudpickle

        return _job, (cloudpickle.dumps(self.__dict__),)


def _job(pickled: bytes) -> Job:
    return Job(**pickle.loads(pickled))


class OwnLauncher(Launcher):
    """Makes jobs of what Hydra's sweeper asks for, and has the option `name` do them."""

    def __init__(self, name: str, **keys: Any) -> None:
        self.module = registry.load_option("launcher", name)
        self.keys = self.module.Config(name=name, **keys)

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.context, self.task, self.config = hydra_context, task_function, config

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        setup_globals()
        jobs = []
        for number, overrides in enumerate(job_overrides, start=initial_job_idx):
            cfg = self.context.config_loader.load_sweep_config(self.config, list(overrides))
            with open_dict(cfg):
                cfg.hydra.job.id = f"{cfg.hydra.job.name}_{number}"
                cfg.hydra.job.num = number
            jobs.append(Job(self.context, self.task, cfg, Singleton.get_state()))
        done: list[JobReturn] = self.module.launch(jobs, self.keys)
        configure_log(self.config.hydra.hydra_logging, self.config.hydra.verbose)
        return done


@contextlib.contextmanager
def known_to_hydra() -> Iterator[None]:
    """Hydra starts launchers of its own namespace `hydra_plugins` alone, and here ours as well."""
    plugins = Plugins.instance()
    start = plugins._instantiate

    def start_or_own(config: DictConfig) -> Any:
        keys = {str(key): value for key, value in config.items()}
        return OwnLauncher(**keys) if keys.pop("_target_", None) == OWN_LAUNCHER else start(config)

    plugins._instantiate = start_or_own  # type: ignore[method-assign]
    try:
        yield
    finally:
        plugins._instantiate = start  # type: ignore[method-assign]
