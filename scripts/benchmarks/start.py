"""The command itself: until it answers, until a first job ends, and what each further job of a sweep costs."""

import importlib.util
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.common import ratio, say

TOY = ["algorithm=stcd", "algorithm.parties=3", "dataset=ridge", "dataset.samples=40", "dataset.features=24"]
TOY += ["topology=path", "rounds=2"]
JOBS = 20


def start() -> None:
    for args in (["--help"], ["list"]):
        seconds = statistics.median(_timed(*args)[1] for _ in range(5))
        say(f"start: CPU seconds of vflbench {' '.join(args)} (under 1)", f"{seconds:.2f}", seconds < 1)
    for name, words in {"dry_run=true": ["dry_run=true"], "a first job of 2 rounds": []}.items():
        timings = [_timed(*TOY, *words) for _ in range(5)]
        seconds, cpu = map(statistics.median, zip(*timings, strict=True))
        say(f"start: seconds of {name} (under 3)", f"{seconds:.2f}   ({cpu:.2f} of CPU)", seconds < 3)


def sweep() -> None:
    seconds, cpu = _swept()
    say(f"sweep: seconds of {JOBS} toy jobs (under 12)", f"{seconds:.2f}   ({cpu:.2f} of CPU)", seconds < 12)
    further = [(_swept("plot=none")[1] - _swept("plot=none", jobs=2)[1]) / (JOBS - 2) for _ in range(3)]
    each = statistics.median(further)
    say("sweep: CPU seconds of a further job (under 0.3)", f"{each:.3f}", each < 0.3)
    for launcher in ("joblib", "submitit"):
        if importlib.util.find_spec(f"hydra_plugins.hydra_{launcher}_launcher") is None:
            say(f"sweep: {launcher}", "left out: pip install 'vflbench[parallel,slurm]'")
            return
    name = f"sweep: {JOBS} toy jobs by submitit_local over joblib"
    ratio(
        name,
        lambda: _swept("hydra/launcher=submitit_local")[0],
        lambda: _swept("hydra/launcher=joblib")[0],
        most=2,
        pairs=3,
        unit=(1, "s"),
    )


def _swept(*words: str, jobs: int = JOBS) -> tuple[float, float]:
    """Seconds, and CPU seconds, of a sweep of toy jobs."""
    return _timed("-m", *TOY, f"seed=range(0,{jobs})", *words)


def _timed(*args: str) -> tuple[float, float]:
    """Seconds, and CPU seconds with those of its processes, of the command in an empty folder."""
    command = [sys.executable, "-m", "vflbench", *args]
    path = os.pathsep.join(filter(None, (str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH"))))
    with tempfile.TemporaryDirectory() as folder:
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run(
            command, cwd=folder, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.DEVNULL, check=True
        )
        seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
