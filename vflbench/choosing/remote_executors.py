"""Executors that train the runs of a search in jobs of submitit or tasks of Ray, not in processes of its own.

Other machines need vflbench, the data and the folder of the search under the same paths.
"""

from __future__ import annotations

import contextlib
import importlib.util
import math
import os
import re
import shutil
import signal
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, Self

from vflbench.types import Problem, VflbenchError, closest

JOB = {
    "name": str,
    "timeout_min": int,
    "mem_gb": float,
    "cpus_per_task": int,
    "gpus_per_node": int,
    "stderr_to_stdout": bool,
}
SLURM = {
    **dict.fromkeys(("partition", "qos", "account", "constraint", "exclude", "gres", "comment"), str),
    **dict.fromkeys(("mem_per_gpu", "mem_per_cpu"), str),
    **{"cpus_per_gpu": int, "gpus_per_task": int, "additional_parameters": dict, "setup": list},
}
#: launcher -> what it may be told, by launcher.KEY=VALUE, and the type of that; joblib: processes of this machine
LAUNCHERS: dict[str, dict[str, type]] = {
    "joblib": {},
    "submitit_local": JOB,
    "submitit_slurm": {**JOB, **SLURM},
    "ray": {"num_cpus": float, "num_gpus": float, "memory": float, "resources": dict, "accelerator_type": str},
}
EXTRAS = {"joblib": "parallel", "submitit": "slurm"}
ADDRESS = re.compile(r"local|auto|[\w.-]+:\d+")  # of a Ray cluster
LOOK = 0.2  # s between two looks at a job
GENTLE = 2  # interrupts of a task of Ray, before its process is ended
AGAIN = 10.0  # s after which a job is interrupted again: submitit lets a signal pass while it begins


class DiedError(RuntimeError):
    """What was to do a piece of work has ended without a result."""


class RemoteExecutor(contextlib.AbstractContextManager["RemoteExecutor"], Protocol):
    """Does work in other processes or on other machines; several threads may ask at once."""

    def do(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """Do it, and wait for what it gives. Raises DiedError if it gives nothing."""

    def cancel(self) -> None:
        """Interrupt what is being done: a run writes what it has reached."""


def check(launcher: str, keys: Mapping[str, Any], address: str) -> list[Problem]:
    """What is wrong with a launcher of LAUNCHERS: its package, its cluster, or what it is told.

    Parameters
    ----------
    keys : as typed after `launcher.`.
    address : of the cluster of Ray.
    """
    package, known = launcher.partition("_")[0], LAUNCHERS[launcher]
    if importlib.util.find_spec(package) is None:
        extra = EXTRAS.get(package, package)
        return [Problem("launcher", launcher, f"{package} is not installed: pip install 'vflbench[{extra}]'")]
    if launcher == "submitit_slurm" and shutil.which("srun") is None:
        return [Problem("launcher", launcher, "Slurm is not here: there is no command srun", "submitit_local")]
    if launcher == "ray" and not ADDRESS.fullmatch(address):
        allowed = "with launcher=ray: local (a cluster of the search's own), auto (the one that runs here) or HOST:PORT"
        return [Problem("engine.address", address, allowed, closest(address, ("local", "auto")))]
    problems = []
    for key, value in keys.items():
        name = f"launcher.{key}"
        if launcher == "joblib" or (launcher, address) == ("ray", "local"):
            allowed = "processes of this machine reserve nothing: how many there are is jobs=N"
            problems.append(Problem(name, value, f"{allowed} (launcher={launcher})"))
        elif key not in known:
            allowed = f"unknown; launcher={launcher} is told: {', '.join(known)}"
            problems.append(Problem(name, value, allowed, closest(name, [f"launcher.{one}" for one in known])))
        elif not isinstance(value, (int, float) if known[key] is float else known[key]):
            words = {int: "a whole number", float: "a number", str: "a text", bool: "true or false", list: "a list"}
            problems.append(Problem(name, value, f"must be {words.get(known[key], 'pairs: {a: 1}')}"))
    return problems


def make_executor(launcher: str, keys: Mapping[str, Any], address: str, folder: Path, jobs: int) -> RemoteExecutor:
    """The executor of a launcher other than joblib.

    Parameters
    ----------
    keys : that `check` accepts.
    address : of Ray: `local` is a cluster of the search's own, `auto` the one that runs here; or HOST:PORT.
    folder : the search's; beside it submitit hands over jobs and their logs, in FOLDER.submitit.
    jobs : runs side by side, which share the cores of this machine if they are trained here.
    """
    told = {key: value for key in ("VFLBENCH_DATA", "OMP_NUM_THREADS") if (value := os.environ.get(key))}
    if launcher == "submitit_local" or (launcher, address) == ("ray", "local"):
        told.setdefault("OMP_NUM_THREADS", str(max((os.cpu_count() or 1) // jobs, 1)))
    if launcher == "ray":
        return RayExecutor(keys, address, told)
    return SubmititExecutor(launcher.removeprefix("submitit_"), keys, folder.with_name(f"{folder.name}.submitit"), told)


class SubmititExecutor(RemoteExecutor):
    """Each piece of work is a job of submitit, in a process of its own."""

    def __init__(self, cluster: str, keys: Mapping[str, Any], folder: Path, told: Mapping[str, str]) -> None:
        self.cluster, self.folder, self.told = cluster, folder, told
        self.keys = {key if key in JOB else f"slurm_{key}": value for key, value in keys.items()}
        if cluster == "local":
            self.keys.setdefault("timeout_min", 525_600)  # there is no queue that must know it
        self.ending = threading.Event()

    def __enter__(self) -> Self:
        import submitit

        self.executor = submitit.AutoExecutor(folder=self.folder, cluster=self.cluster)
        self.executor.update_parameters(**self.keys)
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def do(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """As `RemoteExecutor.do`."""
        # Ctrl-C is for the search, which passes SIGTERM on; submitit would soon kill what still writes
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        job = self.executor.submit(_there, os.getcwd(), self.told, work, *arguments)
        interrupted = -math.inf
        while not job.done():
            time.sleep(LOOK)
            if self.ending.is_set() and time.monotonic() - interrupted > AGAIN:
                interrupted = time.monotonic()
                if self.cluster == "local":
                    os.kill(int(job.job_id), signal.SIGTERM)
                else:
                    job.cancel(check=False)
        try:
            return job.result()
        except Exception as error:  # submitit's own, by which it tells that a process is gone
            raise DiedError(f"{error} (logs: {self.folder})") from error

    def cancel(self) -> None:
        """As `RemoteExecutor.cancel`."""
        self.ending.set()


class RayExecutor(RemoteExecutor):
    """Each piece of work is a task of Ray."""

    def __init__(self, keys: Mapping[str, Any], address: str, told: Mapping[str, str]) -> None:
        self.keys: dict[str, Any] = {"num_cpus": 0 if address == "local" else 1, **keys}
        self.address, self.told = address, told
        self.ending = threading.Event()

    def __enter__(self) -> Self:
        from vflbench.federation.ray.cluster import Cluster

        self.cluster = Cluster(self.address)
        self.cluster.__enter__()
        try:
            self._fit()
        except BaseException:
            self.cluster.__exit__()
            raise
        return self

    def _fit(self) -> None:
        """Raise VflbenchError if no machine has what a task reserves: Ray would wait for one for ever."""
        import ray

        untyped: Any = ray
        keys = self.keys
        wanted = {"CPU": keys["num_cpus"], "GPU": keys.get("num_gpus", 0), "memory": keys.get("memory", 0)}
        wanted |= keys.get("resources", {})
        have = [machine["Resources"] for machine in untyped.nodes() if machine["Alive"]]
        if not any(all(own.get(name, 0) >= number for name, number in wanted.items()) for own in have):
            most = ", ".join(f"{name} {max((own.get(name, 0) for own in have), default=0):g}" for name in wanted)
            asked = ", ".join(f"launcher.{key}={value}" for key, value in keys.items())
            raise VflbenchError(f"no machine of the Ray cluster has what a run reserves ({asked}); they have: {most}")
        self.task: Any = ray.remote(max_retries=0, **keys)(_there)

    def __exit__(self, *_: object) -> None:
        self.cluster.__exit__()

    def do(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """As `RemoteExecutor.do`."""
        import ray

        promised = self.task.remote(os.getcwd(), self.told, work, *arguments)
        interrupted, times = -math.inf, 0
        while not ray.wait([promised], timeout=LOOK)[0]:
            # an interrupt can be swallowed, by an import or a callback: so again, and then by force
            if self.ending.is_set() and time.monotonic() - interrupted > AGAIN:
                interrupted, times = time.monotonic(), times + 1
                ray.cancel(promised, force=times > GENTLE)
        try:
            return ray.get(promised)
        except ray.exceptions.RayError as error:
            raise DiedError(str(error)) from error

    def cancel(self) -> None:
        """As `RemoteExecutor.cancel`."""
        self.ending.set()


def _there(folder: str, told: Mapping[str, str], work: Callable[..., Any], *arguments: Any) -> Any:
    """Do work in a remote process, in the folder and with what the environment of the search tells it."""
    from vflbench.runner import interrupts

    interrupts.heed_sigterm()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # Ray's way to cancel; a shell's background ignores it
    os.chdir(folder)
    os.environ.update(told)  # before torch is imported
    return work(*arguments)
