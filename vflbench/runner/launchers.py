"""Hydra's launchers of sweeps: how many jobs run side by side, and how many threads each may have."""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from vflbench.runner import interrupts
from vflbench.types import ConfigError, Problem

if TYPE_CHECKING:
    from omegaconf import DictConfig

DIED = RuntimeError  # what joblib and submitit raise where a job's process ends without a result
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
YEAR = 525_600  # minutes


def hide_new_workers() -> None:
    """Hide what joblib says when it begins a process anew whose memory has grown: the jobs go on."""
    warnings.filterwarnings("ignore", "A worker stopped while some jobs were given", UserWarning)


@dataclass
class Launcher:
    """Hydra's launcher of a sweep: `with launcher:` gives its jobs, which inherit the environment, their threads."""

    name: str  # Hydra's
    folder: Path  # the sweep's
    width: int | None = None  # jobs side by side on this machine; None where they run elsewhere
    overrides: list[str] = field(default_factory=list)  # for Hydra, after the user's
    before: dict[str, str | None] = field(default_factory=dict)  # THREADS in the environment before
    do: Callable[[list[Any], Any], list[Any]] | None = None  # does the jobs, instead of Hydra's launcher
    processes: list[int] = field(default_factory=list)  # started by `do`; they pass SIGTERM on

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

    def parallel(self, jobs: list[Any], keys: dict[str, Any]) -> list[Any]:
        """Do the jobs in processes of joblib; the plugin composes each job's configuration again in them.

        Raises
        ------
        RuntimeError
            A process has ended without a result.
        """
        import joblib

        # the plugin's configuration has numbers as texts
        keys = {key: int(value) if str(value).isdigit() else value for key, value in keys.items()}
        keys |= {"backend": "loky", "initializer": interrupts.end_with, "initargs": (os.getpid(),)}
        hide_new_workers()
        done: list[Any] = joblib.Parallel(**keys)(joblib.delayed(job)() for job in jobs)
        return done

    def submit(self, jobs: list[Any], keys: dict[str, Any]) -> list[Any]:
        """Do the jobs in `width` processes of submitit, each of which takes another as long as there is one.

        The plugin gives each job a process of its own, which spends seconds on imports, and starts no other before all
        of a batch have ended.

        Raises
        ------
        RuntimeError
            A process has ended without a result, and the others have done what was left.
        """
        import submitit

        keys = {**keys}  # a sweeper may launch again
        executor = submitit.AutoExecutor(folder=keys.pop("submitit_folder"), cluster="local")
        executor.update_parameters(**keys)
        with tempfile.TemporaryDirectory(prefix="vflbench-") as taken:
            # Ctrl-C is for this process, which passes SIGTERM on; submitit would soon kill what still writes.
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
            try:
                workers = [executor.submit(_work, jobs, taken) for _ in range(min(self.width or 1, len(jobs)))]
                self.processes[:] = [int(worker.job_id) for worker in workers]
            finally:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
            while not all(worker.done() for worker in workers):
                time.sleep(0.05)  # submitit itself looks once a second
            done = dict(pair for worker in workers for task in worker.results() for pair in task)
        return [done[number] for number in range(len(jobs))]

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


def resolve(cfg: DictConfig, jobs: int | None, overrides: Sequence[str]) -> Launcher:
    """The launcher of a sweep of so many jobs, by its composed configuration and what the user typed.

    Parameters
    ----------
    jobs : None where a sweeper chooses them as it goes.

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
        launcher.do = launcher.parallel
    else:
        # As many jobs at once as there are cores, unless the user sets the number.
        # a sweeper that chooses jobs as it goes has no such key, and may start many at once
        basic = hasattr(cfg.hydra.sweeper, "max_batch_size")
        side_by_side = (cfg.hydra.sweeper.max_batch_size if basic else None) or joblib.cpu_count()
        if any(text.lstrip("+").startswith("hydra.launcher.timeout_min=") for text in overrides):
            # A job that may not take longer needs a process of its own, and submitit starts a whole batch at once.
            launcher.overrides += [f"hydra.sweeper.max_batch_size={side_by_side}"] * basic
        else:
            # There is no queue that must know how long a job may take.
            launcher.do = launcher.submit
            launcher.overrides += ["hydra.sweeper.max_batch_size=null"] * basic
            launcher.overrides.append(f"hydra.launcher.timeout_min={YEAR}")
    launcher.width = side_by_side if jobs is None else min(side_by_side, jobs)
    return launcher


def _work(jobs: Sequence[Callable[[], Any]], taken: str) -> list[tuple[int, Any]]:
    """Do jobs that no other process has taken, one after the other; the number and the result of each.

    Parameters
    ----------
    taken : a folder with an empty file for each job that a process has taken.
    """
    interrupts.heed_sigterm()  # submitit lets it pass
    done = []
    for number, job in enumerate(jobs):
        with contextlib.suppress(FileExistsError):
            Path(taken, str(number)).touch(exist_ok=False)
            done.append((number, job()))
    return done
