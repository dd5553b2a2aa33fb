"""A sweeper that adapts drives `vflbench -m`: it gets each job's objective, and chooses the next job by it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import weakref
from pathlib import Path

import pytest

from tests.every import few_fast
from vflbench import cli, config
from vflbench.federation.simulated.engine import SimulatedEngine
from vflbench.types import ConfigError

HERE = Path(__file__).resolve().parent / "sweeper"
FLAGS = ["-m", "--config-dir", str(HERE / "conf")]
CHOSEN = ["hydra/sweeper=golden_section", "objective=metric", "algorithm.lr=interval(1e-3,1)"]
TASK = ["algorithm=vfl", "dataset=bank", "dataset.source=synthetic", "dataset.samples=600", "algorithm.batch_size=64"]


def plan(*overrides: str, sweep: bool = True) -> config.Plan:
    words = [*TASK, *overrides]
    with config.session(words, str(HERE / "conf")) as hydra:
        return config.plan(hydra, words, sweep)


@pytest.mark.slow
def test_a_sweeper_that_adapts_has_no_list_of_jobs() -> None:
    found = plan(*CHOSEN, "hydra.sweeper.jobs=3")
    assert (found.sweeper, found.jobs, found.swept) == ("golden_section", [], {"algorithm.lr"})
    assert found.shared == [*TASK, *CHOSEN, "hydra.sweeper.jobs=3"]
    assert plan("objective=metric", "seed=1,2").sweeper == "basic"


@pytest.mark.parametrize(
    ("words", "told"),
    few_fast(
        [
            (["objective=metrik"], r"objective=metrik: must be one of .*, or null\. Did you mean 'metric'"),
            (
                ["objective=null"],
                "objective=null: hydra/sweeper=golden_section chooses jobs by what they return: bytes_to_",
            ),
            (["objective=seconds_to_target"], "objective=seconds_to_target: needs a target"),
            (["dry_run=true"], "dry_run=true: hydra/sweeper=golden_section lists no jobs before they run"),
            (["algorithm.lr=interval(-1,1)"], r"algorithm\.lr=-1\.0: must be greater than 0"),
            (["algorithm.batch_size=interval(1.5,3)"], r"algorithm\.batch_size=1\.5: must be an integer"),
            (["algorithm.lrr=interval(0,1)"], r"algorithm\.lrr=interval\(0,1\): unknown key; .*'algorithm\.lr'"),
            (["hydra.sweeper.job=3"], r"hydra\.sweeper\.job=3: Could not override .* not in 'hydra\.sweeper'|struct"),
            (["hydra.sweeper.jobs={_target_:os.system}"], r"hydra\.sweeper\.jobs=.*: is not supported"),
            (["hydra/sweeper=golden_sektion"], r"unknown sweeper; there are: basic, .*Did you mean 'golden_section'"),
        ],
        3,
    ),
)
def test_what_is_wrong_is_told_before_any_job(words: list[str], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        plan(*CHOSEN, *words)


@pytest.mark.slow
def test_a_cost_up_to_a_target_needs_one() -> None:
    for sweep, more in ((False, ()), (True, ("seed=1,2",))):
        with pytest.raises(ConfigError, match=r"objective=bytes_to_target: needs a target to count up to: give target"):
            plan("objective=bytes_to_target", *more, sweep=sweep)
    assert plan("objective=bytes_to_target", "target=0.7,0.8").jobs
    with pytest.raises(ConfigError, match="objective=metric,bytes_to_target: holds for the whole sweep"):
        plan("objective=metric,bytes_to_target")
    with pytest.raises(ConfigError, match="lists its values"):
        plan("objective=metric", "algorithm.lr=interval(0.1,1)")


@pytest.mark.slow
def test_a_golden_section_search_finds_the_learning_rate(tmp_path: Path) -> None:
    """It gets floats, `inf` where a target is not reached, and its last jobs are nearer to the best than its first."""
    words = [
        *TASK,
        "floor=none",
        "plot=none",
        "engine.threads=1",
        "rounds=8",
        "target=0.7",
        "objective=bytes_to_target",
    ]
    words += ["hydra/sweeper=golden_section", "algorithm.lr=interval(1e-4,1)", "hydra.sweep.dir=s"]
    paths = {"PYTHONPATH": os.pathsep.join((str(HERE.parents[1]), str(HERE), os.environ.get("PYTHONPATH", "")))}
    done = subprocess.run(
        [sys.executable, "-m", "vflbench", *FLAGS, *words],
        cwd=tmp_path,
        env={**os.environ, **paths},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    tried = [tuple(map(float, line.split())) for line in (tmp_path / "s" / "tried.txt").read_text().splitlines()]
    rates, values = zip(*tried, strict=True)
    assert len(tried) == 6 and min(values[2:]) < min(values[:2]), tried
    for number, value in enumerate(values):
        status = json.loads((tmp_path / "s" / str(number) / "summary.json").read_text())["status"]
        assert (value < float("inf")) == (status == "target_reached")
    best = values.index(min(values))
    assert f"objective bytes_to_target: best {values[best]:.6g}, of job {best}" in done.stdout
    assert f"[{best + 1}] vfl bank algorithm.lr={rates[best]!r}: target_reached" in done.stdout
    assert "jobs  algorithm.lr" in done.stdout and "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_sweep_without_a_sweeper_says_which_job_was_best(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small = ["algorithm=stcd", "algorithm.parties=3", "dataset=ridge", "dataset.samples=40", "dataset.features=24"]
    small += ["topology=path", "plot=none", f"hydra.sweep.dir={tmp_path / 's'}", "objective=metric"]
    monkeypatch.chdir(tmp_path)
    assert cli.command(["-m", *small, "rounds=1,3"]) == 0
    out = capsys.readouterr().out
    gaps = [json.loads((tmp_path / "s" / str(n) / "summary.json").read_text())["metric"]["final"] for n in (0, 1)]
    assert gaps[1] < gaps[0] and f"objective metric: best {gaps[1]:.6g}, of job 1" in out


@pytest.mark.slow
def test_a_sweep_in_one_process_forgets_the_runs_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parties and data are in cycles: each run left 140 MB of 60,000 rows behind, until nothing was left."""
    made: list[weakref.ref[SimulatedEngine]] = []
    begin = SimulatedEngine.__init__

    def recorded(engine: SimulatedEngine, *arguments: object, **keys: object) -> None:
        made.append(weakref.ref(engine))
        begin(engine, *arguments, **keys)  # type: ignore[arg-type]

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(SimulatedEngine, "__init__", recorded)
    monkeypatch.setattr("vflbench.cli.job._due", 0.0)
    monkeypatch.setattr("vflbench.cli.job.SHARE", 1e9)  # after each of them, however short
    assert cli.command(["-m", *TASK, "epochs=1", "seed=0,1,2", "floor=none", "plot=none"]) == 0
    assert len(made) == 3 and made[0]() is None and made[1]() is None
