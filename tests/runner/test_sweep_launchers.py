"""Sweeps in several processes: who may write where, how many threads a job has, and the same results as one after the
other."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import joblib
import pytest

from tests.conftest import absent
from vflbench.results import inventory, lock
from vflbench.runner import launchers
from vflbench.types import ConfigError

REPOSITORY = Path(__file__).resolve().parents[2]
SMALL = [
    "algorithm=stcd",
    "algorithm.parties=3",
    "dataset=ridge",
    "dataset.samples=40",
    "dataset.features=24",
    "topology=path",
]
FILES = ("curve.csv", "ledger.parquet", "trace.parquet", "model/client_0.safetensors", "model/client_2.safetensors")


def vflbench(*words: str, at: Path, **environment: str) -> subprocess.Popen[str]:
    env = {k: v for k, v in os.environ.items() if k != "VFLBENCH_DATA" and k not in launchers.THREADS}
    command = [sys.executable, "-m", "vflbench", *words]
    path = str(REPOSITORY) + os.pathsep + os.environ.get("PYTHONPATH", "")
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=at, env={**env, "PYTHONPATH": path, **environment}, **pipes)


def test_a_folder_is_one_process_alone(tmp_path: Path) -> None:
    """Another process is told who holds it; a process that is killed holds nothing."""
    code = (
        "import sys, time; from pathlib import Path; from vflbench.results import lock\n"
        "with lock.held(Path(sys.argv[1])): print('held', flush=True); time.sleep(60)"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True, cwd=REPOSITORY
    )
    try:
        assert other.stdout is not None and other.stdout.readline() == "held\n"
        with pytest.raises(lock.Taken, match=f"process {other.pid} on .* is running there"), lock.held(tmp_path):
            pass
    finally:
        other.kill()
        other.wait()
    with lock.held(tmp_path), pytest.raises(lock.Taken, match=f"process {os.getpid()} "), lock.held(tmp_path):
        pass
    assert inventory.foreign(tmp_path) == []


def composed(launcher: str, **keys: Any) -> Any:
    """What `launchers.resolve` reads of a configuration."""
    runtime = SimpleNamespace(choices={"hydra/launcher": launcher})
    sweeper = SimpleNamespace(max_batch_size=keys.pop("max_batch_size", None))
    return SimpleNamespace(
        hydra=SimpleNamespace(
            runtime=runtime, sweep=SimpleNamespace(dir="s"), sweeper=sweeper, launcher=SimpleNamespace(**keys)
        )
    )


def test_jobs_share_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joblib, "cpu_count", lambda: 8)
    monkeypatch.setattr(joblib, "effective_n_jobs", lambda n: 8 if n == -1 else n)
    for name in launchers.THREADS:
        monkeypatch.delenv(name, raising=False)

    def threads(cfg: Any, jobs: int) -> list[str | None]:
        with launchers.resolve(cfg, jobs, []):
            return [os.environ.get(name) for name in launchers.THREADS]

    assert threads(composed("joblib", n_jobs=2), 4) == ["4"] * 3
    assert threads(composed("joblib", n_jobs=-1), 4) == ["2"] * 3, "four jobs leave two cores each"
    assert threads(composed("joblib", n_jobs=-1), 100) == ["1"] * 3
    assert threads(composed("joblib", n_jobs=20), 20) == ["1"] * 3
    assert threads(composed("submitit_local"), 3) == ["2"] * 3
    assert threads(composed("submitit_local", max_batch_size=2), 30) == ["4"] * 3
    assert threads(composed("basic"), 4) == threads(composed("submitit_slurm"), 4) == [None] * 3
    assert not any(name in os.environ for name in launchers.THREADS), "as it was"
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert threads(composed("joblib", n_jobs=2), 4) == ["3"] * 3, "the user's own"
    with pytest.raises(ConfigError, match=r"hydra.launcher.n_jobs=0"):
        launchers.resolve(composed("joblib", n_jobs=0), 4, [])


def test_submitit_starts_no_more_jobs_at_once_than_there_are_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joblib, "cpu_count", lambda: 8)
    warm = launchers.resolve(composed("submitit_local"), 30, [])
    assert (warm.width, warm.do) == (8, warm.submit)
    assert warm.overrides == ["hydra.sweeper.max_batch_size=null", f"hydra.launcher.timeout_min={launchers.YEAR}"]
    assert launchers.resolve(composed("submitit_local", max_batch_size=3), 30, []).width == 3
    # a job that may not take longer has a process of its own
    mine = ["hydra.launcher.timeout_min=5"]
    timed = launchers.resolve(composed("submitit_local", max_batch_size=3), 30, mine)
    assert (timed.overrides, timed.do) == (["hydra.sweeper.max_batch_size=3"], None)


def submitted(at: Path, *ends: int | None, width: int = 2) -> list[int]:
    """The process that did each job; a job with a number in `ends` ends its process with that exit code."""
    pytest.importorskip("submitit")

    def job(number: int, end: int | None) -> int:
        (at / f"job {number}").touch()
        if end is not None:
            os._exit(end)
        return os.getpid()

    launcher = launchers.Launcher("submitit_local", at, width)
    keys = {"submitit_folder": f"{at}/.submitit/%j", "timeout_min": 1, "name": "toy"}
    return launcher.submit([partial(job, number, end) for number, end in enumerate(ends)], keys)


@pytest.mark.slow
def test_a_process_of_submitit_does_job_after_job(tmp_path: Path) -> None:
    processes = submitted(tmp_path, *[None] * 7)
    assert len(processes) == 7 and len(set(processes)) <= 2 and os.getpid() not in processes
    assert len(list((tmp_path / ".submitit").glob("*/*_log.err"))) == 2, "a log for each process"


@pytest.mark.slow
def test_a_process_of_submitit_that_dies_leaves_the_other_jobs_to_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = pytest.importorskip("submitit.core.core")
    monkeypatch.setattr(core.Job, "_results_timeout_s", 0)  # it waits for slow file systems
    with pytest.raises(launchers.DIED, match="has not produced any output"):
        submitted(tmp_path, 9, *[None] * 6)
    assert len(list(tmp_path.glob("job *"))) == 7


# --- whole sweeps -----------------------------------------------------------------------------------------------------

SWEEP = ["-m", *SMALL, "rounds=20", "seed=0,1,2,3", "hydra.sweep.dir=s"]


@pytest.fixture(scope="module")
def one_after_the_other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sweep by Hydra's own launcher, its second job hindered, at as many threads as jobs of the others have."""
    at = tmp_path_factory.mktemp("basic")
    return swept(at, OMP_NUM_THREADS=str(max(joblib.cpu_count() // 2, 1)))


def swept(at: Path, *words: str, **environment: str) -> Path:
    (at / "s" / "1" / "manifest.json").mkdir(parents=True)  # where a file is to be
    for folder in (at / "s", at / "s" / "1"):
        inventory.start(folder)  # of an earlier start: what stands in a folder of the user's is refused
    process = vflbench(*SWEEP, *words, at=at, **environment)
    out, err = process.communicate(timeout=400)
    assert process.returncode == 1, err
    found = [json.loads((at / "s" / str(n) / "summary.json").read_text())["status"] for n in range(4)]
    assert found == ["completed", "failed", "completed", "completed"]
    assert "[3/4] stcd ridge seed=2: train_suboptimality" in out and "Traceback" not in err
    assert "[2/4] stcd ridge seed=1: failed: " in err and "manifest.json" in err and "1 of 4 jobs failed" in err
    table = out[out.index("\njobs ") :].splitlines()
    assert table[2].startswith("0-3       4  3 completed, 1 failed  suboptimality")
    assert (at / "s" / "curve.png").exists()
    return at


def two_at_a_time(launcher: str) -> str:
    return "hydra.launcher.n_jobs=2" if launcher == "joblib" else "hydra.sweeper.max_batch_size=2"


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["joblib", "submitit_local"])
def test_a_sweep_side_by_side_is_the_one_after_the_other(
    launcher: str, one_after_the_other: Path, tmp_path: Path
) -> None:
    """A failing job leaves a status and the rest go on; results to the last bit; a repeated sweep does what is left."""
    if importlib.util.find_spec(f"hydra_plugins.hydra_{launcher.partition('_')[0]}_launcher") is None:
        absent(f"the launcher {launcher} is not installed: pip install 'vflbench[parallel,slurm]'")
    words = [f"hydra/launcher={launcher}", two_at_a_time(launcher)]
    at = swept(tmp_path, *words)
    for job in ("0", "2", "3"):
        for name in FILES:
            assert (at / "s" / job / name).read_bytes() == (one_after_the_other / "s" / job / name).read_bytes(), (
                job,
                name,
            )
    threads = {json.loads((at / "s" / job / "manifest.json").read_text())["threads"] for job in ("0", "2", "3")}
    assert threads == {max(joblib.cpu_count() // 2, 1)}

    before = {job: (at / "s" / job / "summary.json").stat().st_mtime_ns for job in ("0", "2", "3")}
    (at / "s" / "1" / "manifest.json").rmdir()
    again = vflbench(*SWEEP, *words, at=at)
    out, err = again.communicate(timeout=400)
    assert again.returncode == 0, err
    assert out.count("completed, kept") == 3 and "[2/4] stcd ridge seed=1: train_suboptimality" in out
    assert {job: (at / "s" / job / "summary.json").stat().st_mtime_ns for job in before} == before


@pytest.mark.slow
def test_of_two_processes_that_start_the_same_run_one_wins_and_the_other_says_so(tmp_path: Path) -> None:
    both = [vflbench(*SMALL, "rounds=400", "hydra.run.dir=r", at=tmp_path, OMP_NUM_THREADS="1") for _ in range(2)]
    said = [process.communicate(timeout=400) for process in both]
    assert sorted(process.returncode for process in both) == [0, 1], said
    loser = said[[process.returncode for process in both].index(1)][1]
    assert "is running there" in loser or "holds a run that has ended" in loser  # it may have come late
    assert json.loads((tmp_path / "r" / "summary.json").read_text())["status"] == "completed"


@pytest.mark.slow
def test_a_sweep_survives_the_death_of_a_process_of_submitit(tmp_path: Path) -> None:
    """The job that it did is left; the same command does it."""
    pytest.importorskip("submitit")
    words = ["-m", *SMALL, "rounds=400", "seed=0,1,2,3", "hydra.sweep.dir=s", "hydra/launcher=submitit_local"]
    words.append(two_at_a_time("submitit_local"))
    sweep = vflbench(*words, at=tmp_path)
    while not (lists := list(tmp_path.glob("s/*/checkpoint"))):
        assert sweep.poll() is None, sweep.communicate()
        time.sleep(0.01)
    doomed = int(str(inventory.holder(lists[0].parent)).split()[1])
    os.kill(doomed, signal.SIGKILL)
    out, err = sweep.communicate(timeout=400)
    assert sweep.returncode == 1 and "the process of a job has ended without a result" in err, err
    assert "below s/.submitit" in err and "hydra.sweep.dir=s, does what is left" in err
    ended = {place.parent.name for place in tmp_path.glob("s/*/summary.json")}
    assert ended == {"0", "1", "2", "3"} - {lists[0].parent.name}
    again = vflbench(*words, at=tmp_path)
    out, err = again.communicate(timeout=400)
    assert again.returncode == 0 and out.count("completed, kept") == 3, err
