"""Hydra's launchers of sweeps: how many jobs run side by side, and how many threads each may have."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from vflbench.types import ConfigError, Problem

if TYPE_CHECKING:
    from omegaconf import DictConfig

DIED = RuntimeError  # what joblib and submitit raise where a job's process ends without a result
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
YEAR = 525_600  # minutes


@dataclass
class Launcher:
    """Hydra's launcher of a sweep: `with launcher:` gives its jobs, which inherit the environment, their threads."""

    name: str  # Hydra's
    folder: Path  # the sweep's
    width: int | None = None  # jobs side by side on this machine; None where they run elsewhere
    overrides: list[str] = field(default_factory=list)  # for Hydra, after the user's
    before: dict[str, str | None] = field(default_factory=dict)  # THREADS in the environment before

    @property
    def hears(self) -> bool:
        """Whether what jobs print comes to this process' streams; submitit keeps it in files."""
        return not self.name.startswith("submitit")

    def __enter__(self) -> Launcher:
        """Give each job cores // jobs threads, unless the user's environment says how many.

        More threads than cores slow each other down.
        """
        if self.width is not None:
            import joblib

            threads = os.environ.get(THREADS[0], str(max(joblib.cpu_count() // self.width, 1)))
            self.before = {name: os.environ.get(name) for name in THREADS}
            for name in THREADS:
                os.environ.setdefault(name, threads)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        for name, value in self.before.items():
            if value is None:
                os.environ.pop(name, None)

    def last_words(self, error: RuntimeError) -> str:
        """What to say where a job's process has died.

        It waits until the other jobs that submitit has started on this machine have ended.
        """
        if self.name == "submitit_local":
            # each has the number of the process that watches the job, a child of this one
            for place in (self.folder / ".submitit").glob("*"):
                with contextlib.suppress(ValueError, ChildProcessError):
                    os.waitpid(int(place.name), 0)
        logs = "" if self.hears else f"; its last words are below {self.folder / '.submitit'}"
        reason = next(iter(str(error).strip().splitlines()), "killed, or out of memory")
        return f"the process of a job has ended without a result ({type(error).__name__}: {reason}){logs}"


def of(cfg: DictConfig, jobs: int, overrides: Sequence[str]) -> Launcher:
    """The launcher of a sweep of so many jobs, by its composed configuration and what the user typed.

    Raises
    ------
    ConfigError
        The number of processes is 0.
    """
    launcher = Launcher(str(cfg.hydra.runtime.choices["hydra/launcher"]), Path(str(cfg.hydra.sweep.dir)))
    if launcher.name not in ("joblib", "submitit_local"):
        return launcher
    import joblib

    if launcher.name == "joblib":
        wanted = int(cfg.hydra.launcher.n_jobs)
        if not wanted:
            raise ConfigError(
                [Problem("hydra.launcher.n_jobs", wanted, "must be a number of processes; -1: one for each core")]
            )
        side_by_side = joblib.effective_n_jobs(wanted)
    else:
        # submitit starts a whole batch at once: as many jobs as there are cores, unless the user sets the number. There
        # is no queue that must know how long a job may take.
        side_by_side = cfg.hydra.sweeper.max_batch_size or joblib.cpu_count()
        launcher.overrides.append(f"hydra.sweeper.max_batch_size={side_by_side}")
        if not any(text.startswith("hydra.launcher.timeout_min=") for text in overrides):
            launcher.overrides.append(f"hydra.launcher.timeout_min={YEAR}")
    launcher.width = min(side_by_side, jobs)
    return launcher
