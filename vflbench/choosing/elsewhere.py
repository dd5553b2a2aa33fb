"""Where the runs of a search are trained beside processes of its own: as jobs of submitit, or as tasks of Ray.

Other machines need vflbench, the data and the folder of the search under the same paths.
"""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, Protocol, Self

from vflbench.types import EngineConfig, Problem

LAUNCHERS = ("joblib", "submitit_local", "submitit_slurm", "ray")  # joblib: processes of this machine


EXTRAS = {"joblib": "parallel", "submitit": "slurm"}


class DiedError(RuntimeError):
    """What was to do a piece of work has ended without a result."""


class Place(contextlib.AbstractContextManager["Place"], Protocol):
    """Somewhere that does work; several threads may ask at once."""

    def do(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """Do it, and wait for what it gives. Raises DiedError if it gives nothing."""

    def cancel(self) -> None:
        """Interrupt what is being done: a run writes what it has reached."""


def check(launcher: str) -> list[Problem]:
    """A problem where the package of a launcher is missing."""
    package = launcher.partition("_")[0]
    if importlib.util.find_spec(package) is None:
        extra = EXTRAS.get(package, package)
        return [Problem("launcher", launcher, f"{package} is not installed: pip install 'vflbench[{extra}]'")]
    return []


def of(launcher: str, keys: Mapping[str, Any], address: Literal["local", "auto"], folder: Path) -> Place:
    """The place of a launcher other than joblib.

    Parameters
    ----------
    keys : of submitit (partition, timeout_min ...), or of a task of Ray (num_cpus, num_gpus ...).
    address : of Ray: `auto` is the cluster that runs, `local` one of the search's own.
    folder : the search's; beside it submitit hands over jobs and their logs, in FOLDER.submitit.
    """
    cluster = launcher.removeprefix("submitit_")
    return (
        Tasks(keys, address) if launcher == "ray" else Jobs(cluster, keys, folder.with_name(f"{folder.name}.submitit"))
    )


class Jobs(Place):
    """Each piece of work is a job of submitit, in a process of its own."""

    def __init__(self, cluster: str, keys: Mapping[str, Any], folder: Path) -> None:
        self.cluster, self.keys, self.folder = cluster, dict(keys), folder
        if cluster == "local":
            self.keys.setdefault("timeout_min", 525_600)  # there is no queue that must know it
        self.jobs: list[Any] = []

    def __enter__(self) -> Self:
        import submitit

        self.executor = submitit.AutoExecutor(folder=self.folder, cluster=self.cluster)
        self.executor.update_parameters(**self.keys)
        return self

    def __exit__(self, *_: object) -> None:
        self.jobs.clear()

    def do(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """As `Place.do`."""
        job = self.executor.submit(_heeding, work, *arguments)
        self.jobs.append(job)
        try:
            return job.result()
        except Exception as error:  # submitit's own, by which it tells that a process is gone
            raise DiedError(f"{error} (logs: {self.folder})") from error

    def cancel(self) -> None:
        """As `Place.cancel`."""
        for job in self.jobs:
            with contextlib.suppress(Exception):  # it has ended
                job.cancel()


class Tasks(Place):
    """Each piece of work is a task of Ray."""

    def __init__(self, keys: Mapping[str, Any], address: Literal["local", "auto"]) -> None:
        self.keys, self.address = {"num_cpus": 1 if address == "auto" else 0, "max_retries": 0, **keys}, address
        self.running: set[Any] = set()

    def __enter__(self) -> Self:
        from vflbench.federation.ray.cluster import Cluster

        self.cluster = Cluster(EngineConfig("ray", address=self.address))
        self.cluster.__enter__()
        import ray

        self.task: Any = ray.remote(**self.keys)(_heeding)
        return self

    def __exit__(self, *_: object) -> None:
        self.cluster.__exit__()

    def do(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """As `Place.do`."""
        import ray

        promised = self.task.remote(work, *arguments)
        self.running.add(promised)
        try:
            return ray.get(promised)
        except ray.exceptions.RayError as error:
            raise DiedError(str(error)) from error
        finally:
            self.running.discard(promised)

    def cancel(self) -> None:
        """As `Place.cancel`."""
        import ray

        for promised in list(self.running):
            ray.cancel(promised)


def _heeding(work: Callable[..., Any], *arguments: Any) -> Any:
    from vflbench.runner import interrupts

    interrupts.heed_sigterm()
    return work(*arguments)
