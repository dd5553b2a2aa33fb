"""The command: exit codes, what is said where, run folders, sweeps. The runner is replaced by a stand-in that writes a
run."""

from __future__ import annotations

import datetime
import functools
import importlib
import json
import logging
import os
import re
import subprocess
import sys
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import vflbench
from tests.every import few_fast
from vflbench import cli, config, registry
from vflbench.cli.help import help_text
from vflbench.cli.words import made_up
from vflbench.config.hydra import Session
from vflbench.plots import curves
from vflbench.results import folder as files
from vflbench.results import inventory, lock, reader
from vflbench.results.experiment import SEMANTICS
from vflbench.results.folder import atomic_write, summarise, write_curve, write_json
from vflbench.results.run_schema import validate_summary
from vflbench.types import ConfigError, DataError, DataSource, Metric, VflbenchError

REPOSITORY = Path(__file__).resolve().parents[1]
TOY = ("algorithm=toy", "dataset=toy_graph")
SECRETIVE = 200  # a seed that makes the stand-in fail with the name of its data root
MALFORMED, KILLED, INTERRUPTED, BUG, SYNTHETIC, DISK, DIVERGED, MEMORY, GPU = (
    101,
    102,
    103,
    104,
    105,
    106,
    107,
    108,
    109,
)  # seeds that make the stand-in do so


def stand_in(
    config: Any,
    folder: Path,
    *,
    command: str,
    choices: dict[str, str],
    layers: dict[str, Any],
    plain: dict[str, Any],
    identity: str,
    hidden: dict[str, str],
    info: Any,
    quiet: bool,
    clear: Any,
    draw: Any,
    halt: Any,
) -> Any:
    if config.seed == MALFORMED:
        raise DataError("nodes.csv line 3: no number")
    if config.seed == SECRETIVE:
        raise DataError(f"no data in {config.data_root}")
    if config.seed == DISK:
        raise OSError(28, "No space left on device", str(folder / "ledger.parquet"))
    if config.seed == MEMORY:
        raise MemoryError("Unable to allocate 1.42 PiB for an array")
    if config.seed == GPU:
        raise RuntimeError("CUDA out of memory. Tried to allocate 80 GiB")
    if config.seed == BUG:
        raise RuntimeError("a bug")
    clear()
    known = {"semantics": SEMANTICS, "plugins": registry.plugin_sources(plain)}
    manifest = {"schema": 1, "config": plain, "config_hash": identity, "command": command, **known}
    write_json(folder / "manifest.json", manifest)
    if config.seed == KILLED and not config.resume:
        raise SystemExit(9)
    numbers = {
        "virtual_seconds": 2.0,
        "communication_seconds": 1.0,
        "compute_seconds": 1.0,
        "bytes": 12_345_678,
        "messages": 3,
        "cost": 1.0,
    }
    rows = [{"round": n, **numbers, "val_accuracy": 0.5 + n / 10, "test_accuracy": 0.6 + n / 10} for n in (1, 2)]
    write_curve(folder / "curve.csv", rows, "accuracy")
    summary = summarise(
        status={INTERRUPTED: "interrupted", DIVERGED: "diverged"}.get(config.seed, "completed"),
        reason="the training loss is not finite in round 2" if config.seed == DIVERGED else None,
        algorithm=info.name,
        dataset=choices["dataset"],
        source=DataSource("synthetic" if config.seed == SYNTHETIC else "real"),
        seed=config.seed,
        metric=Metric("accuracy", "max"),
        rows=rows,
        rounds=2,
        bytes_by_tag={"embedding": 12_345_678},
        bytes_by_link={"client_server": 12_345_678},
        messages=3,
        vectors=3,
        cost=1.0,
        communication_seconds=45.123,
        compute_seconds=0.0,
        virtual_seconds=46.0,
        wall_seconds=1.0,
        compute_clock="none",
        timing="causal",
        accounting="strict",
        device="cpu",
    )
    draw(folder, summary)
    write_json(folder / "summary.json", summary)
    return summary


@pytest.fixture
def vfl(
    request: pytest.FixtureRequest, toy: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., int]]:
    """`vflbench` in an empty folder; the exit code."""
    described = lambda config, **_: f"would train {config.algorithm.name}"  # noqa: E731
    for name, function in (("run", stand_in), ("dry_run", described)):
        module = types.ModuleType(f"vflbench.runner.{name}")
        vars(module)[name] = function
        monkeypatch.setitem(sys.modules, module.__name__, module)
    draws = request.node.get_closest_marker("draws")  # a second per picture
    if draws is None or "run" not in draws.args:
        monkeypatch.setattr(curves, "draw_run", lambda folder, _: atomic_write(folder / "curve.png", ""))
    if draws is None or "runs" not in draws.args:
        monkeypatch.setattr(curves, "draw_runs", lambda _, folder: atomic_write(folder / "curve.png", ""))
    monkeypatch.chdir(tmp_path)
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield lambda *args: cli.command([*args])
    root.handlers[:], root.level = handlers, level  # Hydra's would write to this test's closed stderr


def contents(folder: str) -> dict[Path, bytes]:
    """Every file but the list, which tells of every start."""
    return {
        path: path.read_bytes() for path in Path(folder).rglob("*") if path.is_file() and path.name != inventory.NAME
    }


def summary(folder: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(folder, "summary.json").read_text())
    return found


@pytest.mark.draws("run")
def test_the_last_lines_are_the_result_and_the_folder(
    vfl: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert vfl(*TOY, "hydra.run.dir=outputs/a") == 0
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        "test_accuracy 0.8 (selected on validation at round 2) · 12.3 MB · 45.12 s communication · real data",
        f"curve: {Path('outputs/a/curve.png')}",
        f"run folder: {Path('outputs/a')}",
    ]
    assert (
        err == ""
        and Path("outputs/a/curve.png").stat().st_size > 1000
        and Path("outputs/a/.hydra/config.yaml").exists()
    )
    manifest = json.loads(Path("outputs/a/manifest.json").read_text())
    assert manifest["command"] == "vflbench algorithm=toy dataset=toy_graph hydra.run.dir=outputs/a"


def test_made_up_data_is_labelled_in_the_last_line(vfl: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    assert vfl(*TOY, f"seed={SYNTHETIC}") == 0
    lines = capsys.readouterr().out.splitlines()
    assert "SYNTHETIC DATA" in lines[0] and lines[-1].startswith("SYNTHETIC DATA: a made-up twin of toy_graph")
    assert vfl("-m", *TOY, f"seed=0,{SYNTHETIC}") == 0
    assert capsys.readouterr().out.splitlines()[-1] == lines[-1]


def test_configuration_errors(vfl: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    assert vfl("algorithm=toyy", "dataset=toy_graph", "algorithm.local_steps=zero") == 1
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("2 problems") and "Did you mean 'toy'" in err and "must be an integer" in err
    assert not Path("outputs").exists()


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("lst",), "Did you mean 'list'?"),
        (("list", "all"), "vflbench list takes dataset=NAME"),
        (("list", "dataset=bank,energy"), "takes one value of each key: start it once for each"),
        (("data",), "usage: vflbench data status"),
        (("data", "get", "coraa"), "Did you mean 'cora'?"),
        (("--config-dir", "nowhere", "seed=1"), "no such folder"),
        (("--config-name", "x"), "--config-dir"),
        (("--config-dir", "list", "list", "dataset=bank"), "'list' is a command, and comes first: vflbench list ..."),
    ],
)
def test_misuse_is_explained(
    vfl: Callable[..., int], capsys: pytest.CaptureFixture[str], args: tuple[str, ...], said: str
) -> None:
    assert vfl(*args) == 1
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("seed", "said"), [(MALFORMED, "nodes.csv line 3: no number"), (DISK, "ledger.parquet: No space left on device")]
)
def test_a_run_that_cannot_start_leaves_nothing(
    vfl: Callable[..., int], capsys: pytest.CaptureFixture[str], seed: int, said: str
) -> None:
    assert vfl(*TOY, f"seed={seed}", "hydra.run.dir=some/where/out") == 1
    assert f"error: {said}" in capsys.readouterr().err.replace(f"{Path('some/where/out').absolute()}{os.sep}", "")
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize(
    "key",
    few_fast(["hydra.run.dir=.", "hydra.run.dir=", "hydra.run.dir=''", "hydra.run.dir=' '", "hydra.run.dir=sub/.."]),
)
def test_a_folder_with_files_of_the_users_is_refused(
    vfl: Callable[..., int], capsys: pytest.CaptureFixture[str], key: str
) -> None:
    Path("sub").mkdir()
    for name in ("figure.png", "ledger.parquet", "mine.csv", "sub/curve.csv", inventory.NAME):
        Path(name).write_text("mine")
    before = {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}
    for more in (["overwrite=true"], ["resume=true"], [f"seed={MALFORMED}"], []):
        assert vfl(*TOY, key, *more) == 1
        err = capsys.readouterr().err
        assert "hydra.run.dir" in err and (
            ". holds figure.png, files.jsonl, ledger.parquet and 2 more" in err or "must name a folder" in err
        )
    assert vfl("-m", *TOY, "seed=0,1", key.replace("run", "sweep")) == 1
    assert "hydra.sweep.dir" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()} == before


@pytest.mark.slow
def test_a_sweep_and_a_run_do_not_take_each_others_folder(
    vfl: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert vfl(*TOY, "hydra.run.dir=run") == 0
    before = contents("run")
    for more in ([], ["overwrite=true"]):
        assert vfl("-m", *TOY, "seed=0,1", "hydra.sweep.dir=run", *more) == 1
        assert (
            "run holds a run: choose another folder with hydra.sweep.dir" in capsys.readouterr().err
            and contents("run") == before
        )
    assert vfl("-m", *TOY, "seed=0,1", "hydra.sweep.dir=sweep") == 0
    before = contents("sweep")
    for more in ([], ["overwrite=true"], ["resume=true"]):
        assert vfl(*TOY, "hydra.run.dir=sweep", *more) == 1
        assert (
            "of a sweep or figure: choose another folder with hydra.run.dir" in capsys.readouterr().err
            and contents("sweep") == before
        )


@pytest.mark.slow
def test_a_run_without_its_manifest_is_named_and_replaced_on_demand(
    vfl: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert vfl(*TOY, "hydra.run.dir=run") == 0
    atomic_write(Path("run/ledger.parquet"), b"of a real run")  # the stand-in has none
    for name in ("manifest.json", "summary.json"):
        Path("run", name).unlink()
    before = contents("run")
    for more in ([], ["resume=true"]):
        assert vfl(*TOY, "hydra.run.dir=run", *more) == 1
        assert "of a run whose manifest.json is gone" in capsys.readouterr().err and contents("run") == before
    assert vfl(*TOY, "hydra.run.dir=run", "overwrite=true") == 0 and Path("run/manifest.json").is_file()


@pytest.mark.parametrize("inside", few_fast(["checkpoint", "model/mine"]))
def test_a_run_does_not_take_a_folder_of_another_runs(
    vfl: Callable[..., int], capsys: pytest.CaptureFixture[str], inside: str
) -> None:
    assert vfl(*TOY, "hydra.run.dir=run") == 0
    Path("run/checkpoint").mkdir(exist_ok=True)
    before = contents("run")
    assert vfl(*TOY, f"hydra.run.dir=run/{inside}") == 1
    assert "is where the run in run has its files" in capsys.readouterr().err and contents("run") == before
    assert vfl(*TOY, "hydra.run.dir=run/mine") == 0, "beside them it may stand"


def test_a_terminal_that_lacks_a_character_is_no_reason_to_fail() -> None:
    words = [sys.executable, "-c", "import sys; from vflbench import cli; sys.argv = ['vflbench', 'a·b']; cli.main()"]
    done = subprocess.run(
        words, capture_output=True, env={**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}, check=False
    )
    assert done.returncode == 1 and b"Traceback" not in done.stderr and rb"a\xb7b" in done.stderr


@pytest.mark.parametrize("subdir", ["", ".", "..", "../beside"])
def test_a_sweeps_jobs_stay_below_its_folder(
    vfl: Callable[..., int], capsys: pytest.CaptureFixture[str], subdir: str
) -> None:
    assert vfl("-m", *TOY, "seed=0,1", "hydra.sweep.dir=s", f"hydra.sweep.subdir={subdir}") == 1
    assert "hydra.sweep.subdir" in capsys.readouterr().err and list(Path().iterdir()) == []


@pytest.mark.parametrize(("seed", "said"), few_fast([(MEMORY, "1.42 PiB"), (GPU, "80 GiB")]))
def test_too_little_memory_is_no_bug(
    vfl: Callable[..., int], capsys: pytest.CaptureFixture[str], seed: int, said: str
) -> None:
    assert vfl(*TOY, f"seed={seed}", "hydra.run.dir=out") == 1
    err = capsys.readouterr().err
    assert err.startswith("error: out of memory: choose smaller sizes") and said in err and not Path("out").exists()
    assert vfl("-m", *TOY, f"seed={seed},0") == 1
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.slow
def test_a_run_that_diverged_says_so_and_a_sweep_goes_on(
    vfl: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert vfl(*TOY, f"seed={DIVERGED}") == 1
    out, err = capsys.readouterr()
    assert err == "the run diverged: the training loss is not finite in round 2\n" and out.startswith(
        "diverged: the training loss"
    )
    for _ in range(2):  # the second time it is kept
        assert vfl("-m", *TOY, f"seed=0,{DIVERGED}", "hydra.sweep.dir=some") == 0
        assert capsys.readouterr().err.splitlines()[-1] == "1 of 2 jobs diverged"
        assert vfl("-m", *TOY, f"seed={DIVERGED}", "hydra.sweep.dir=all") == 1
        assert capsys.readouterr().err.splitlines()[-1] == "1 of 1 jobs diverged"


@pytest.mark.slow
def test_a_sweep_in_which_nothing_ran(vfl: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    for words in ((), ("dry_run=true",)):
        assert vfl("-m", "algorithm=toy", "dataset=toy_rows", "seed=0,1", *words) == 1
        assert "toy runs on graph data" in capsys.readouterr().out
    assert vfl("-m", "algorithm=toy", "dataset=toy_rows,toy_graph") == 0, "one has run"
    capsys.readouterr()
    assert vfl("-m", "algorithm=toy", "dataset=toy_rows") == 1
    assert capsys.readouterr().err.splitlines()[-1] == "1 of 1 jobs were skipped"


def test_an_unwritable_folder(vfl: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    Path("file").touch()
    assert vfl(*TOY, "hydra.run.dir=file/below") == 1
    assert "hydra.run.dir=file/below: cannot be a folder" in capsys.readouterr().err


@pytest.mark.slow
def test_a_run_that_cannot_start_leaves_an_unfinished_one_as_it_was(vfl: Callable[..., int]) -> None:
    with pytest.raises(SystemExit):
        vfl(*TOY, f"seed={KILLED}", "hydra.run.dir=k")
    before = contents("k")
    assert vfl(*TOY, f"seed={MALFORMED}", "hydra.run.dir=k", "overwrite=true") == 1
    assert contents("k") == before


def test_a_bug_is_told_in_a_line_with_its_log_and_recorded(
    vfl: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert vfl(*TOY, f"seed={BUG}", "hydra.run.dir=out") == 70
    line = "internal error: RuntimeError: a bug. The traceback is in out/error.log; please report it\n"
    assert capsys.readouterr().err == line
    assert "raise RuntimeError" in Path("out/error.log").read_text() and not inventory.foreign(Path("out"))
    recorded = summary("out")
    assert (
        recorded["status"] == "failed"
        and recorded["reason"] == "RuntimeError: a bug"
        and validate_summary(recorded) == []
    )
    assert vfl(*TOY, "hydra.run.dir=out") == 0, "what failed before its first evaluation is no run to protect"
    assert not Path("out/error.log").exists()


def test_an_ended_run_is_refused_before_anything_is_written(
    vfl: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert vfl(*TOY, "hydra.run.dir=a") == 0
    before = contents("a")
    assert vfl(*TOY, "hydra.run.dir=a", "rounds=9") == 1
    assert "overwrite=true" in capsys.readouterr().err
    assert vfl(*TOY, "hydra.run.dir=a", "resume=true") == 0, "a job that is queued twice is no failure"
    assert "a holds a run that has ended (completed): nothing is left to do" in capsys.readouterr().out
    Path("a/notes.txt").touch()
    assert vfl(*TOY, "hydra.run.dir=a", "rounds=9", "overwrite=true") == 1
    assert "a holds notes.txt: not what vflbench wrote there" in capsys.readouterr().err
    Path("a/notes.txt").unlink()
    assert contents("a") == before
    Path("a/curve.csv").write_text("annotated")
    assert vfl(*TOY, "hydra.run.dir=a", "rounds=9", "overwrite=true") == 1
    assert "a holds curve.csv (changed since): not what vflbench wrote there" in capsys.readouterr().err
    Path("a/curve.csv").write_bytes(before[Path("a/curve.csv")])
    assert vfl(*TOY, "hydra.run.dir=a", "rounds=9", "overwrite=true") == 0
    assert json.loads(Path("a/manifest.json").read_text())["config"]["rounds"] == 9


@pytest.mark.slow
def test_a_run_that_goes_on_has_its_way_free(vfl: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        vfl(*TOY, f"seed={KILLED}", "hydra.run.dir=k")
    Path("k/slurm-7.out").touch()
    Path("k/curve.csv").write_text("mine")
    assert vfl(*TOY, f"seed={KILLED}", "hydra.run.dir=k", "resume=true") == 1
    assert (
        "k holds curve.csv: not what vflbench wrote there" in capsys.readouterr().err
        and Path("k/curve.csv").read_text() == "mine"
    )
    Path("k/curve.csv").unlink()
    assert vfl(*TOY, f"seed={KILLED}", "hydra.run.dir=k", "resume=true") == 0 and Path("k/slurm-7.out").exists()
    Path("k", inventory.NAME).unlink()
    assert vfl(*TOY, f"seed={KILLED}", "hydra.run.dir=k", "overwrite=true") == 1
    assert "k holds a run of an older vflbench, which kept no list of its files" in capsys.readouterr().err


def test_an_unfinished_run_is_continued_only_when_asked(
    vfl: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        vfl(*TOY, f"seed={KILLED}", "hydra.run.dir=outputs/k")
    assert vfl(*TOY, f"seed={KILLED}", "hydra.run.dir=outputs/k") == 1
    assert "resume=true" in capsys.readouterr().err
    assert vfl(*TOY, f"seed={KILLED}", "hydra.run.dir=outputs/k", "resume=true", "rounds=9") == 1
    assert "another configuration (rounds=None there, 9 here)" in capsys.readouterr().err
    assert vfl(*TOY, f"seed={KILLED}", "resume=true", "device=cpu") == 0
    out, err = capsys.readouterr()
    assert f"continuing {Path('outputs/k')}" in err and f"run folder: {Path('outputs/k')}" in out
    assert vfl(*TOY, f"seed={KILLED}", "resume=true") == 0, "a job that is queued twice is no failure"
    assert (
        f"{Path('outputs/k')} holds a run that has ended (completed): nothing is left to do" in capsys.readouterr().out
    )
    assert vfl(*TOY, f"seed={KILLED}", "rounds=9", "resume=true") == 0
    assert "starting a new one" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.draws("runs")
def test_starts_at_one_moment_have_folders_of_their_own(
    vfl: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clock that stands still, or was set back to the moment of another start."""
    stands = types.SimpleNamespace(now=lambda: datetime.datetime(2026, 1, 1))
    monkeypatch.setattr("hydra.core.utils.datetime", stands)
    monkeypatch.setattr("vflbench.plots.curves.draw_runs", lambda runs, folder: None)
    for seed in (1, 2, 3):
        assert vfl(*TOY, f"seed={seed}") == 0
        assert vfl("-m", *TOY, f"seed={seed},{seed + 10}") == 0
    seeds = {
        path.parent.name: json.loads(path.read_text())["seed"] for path in Path("outputs/runs").glob("*/summary.json")
    }
    name = "2026-01-01_00-00-00-000000"
    assert seeds == {f"{name}_toy_toy_graph": 1, f"{name}_toy_toy_graph_2": 2, f"{name}_toy_toy_graph_3": 3}
    assert sorted(path.name for path in Path("outputs/multirun").iterdir()) == [name, f"{name}_2", f"{name}_3"]


@pytest.mark.slow
def test_of_two_unfinished_runs_the_newer_one_goes_on_though_the_clock_was_set_back_between_them(
    vfl: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    for name, begun in (("first", time.time() + 3600), ("older", time.time() - 60), ("newer", time.time() - 30)):
        with pytest.raises(SystemExit):
            vfl(*TOY, f"seed={KILLED}", f"hydra.run.dir=outputs/{name}")
        os.utime(f"outputs/{name}/manifest.json", (begun, begun))
    assert vfl(*TOY, f"seed={KILLED}", "resume=true") == 0
    assert f"continuing {Path('outputs/newer')}" in capsys.readouterr().err


@pytest.mark.slow
def test_a_text_from_the_environment_is_in_no_file(vfl: Callable[..., int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "hunter2-hunter2")
    secret = ["data_root=/x/${oc.env:TOKEN}", "algorithm.combine=${oc.env:HOW,avg}", "hydra.run.dir=a"]
    assert vfl(*TOY, *secret) == 0
    assert vfl("-m", *TOY, *secret[:2], "seed=1,2", "hydra.sweep.dir=s") == 0
    config = json.loads(Path("a/manifest.json").read_text())["config"]
    assert (config["data_root"], config["algorithm"]["combine"]) == ("/x/${oc.env:TOKEN}", "${oc.env:HOW}")
    assert "${oc.env:TOKEN}" in Path("a/.hydra/config.yaml").read_text()
    assert vfl("-m", *TOY, secret[0], f"seed={SECRETIVE}", "hydra.sweep.dir=t") == 1
    assert summary("t/0")["reason"] == "no data in /x/${oc.env:TOKEN}"
    assert not [path for path in Path().rglob("*") if path.is_file() and b"hunter2" in path.read_bytes()]
    monkeypatch.setenv("HOW", "cat")
    assert vfl(*TOY, *secret, "resume=true") == 1, "another value is another run"


def test_ctrl_c_ends_with_130(vfl: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    assert vfl(*TOY, f"seed={INTERRUPTED}") == 130
    assert "resume=true continues it" in capsys.readouterr().out


def test_dry_run_leaves_nothing_behind(vfl: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    assert vfl(*TOY, "dry_run=true") == 0
    assert vfl("-m", "algorithm=toy", "dataset=toy_graph,toy_rows", "dry_run=true") == 0
    out = capsys.readouterr().out
    assert out.count("would train toy") == 2 and "skipped: dataset=toy_rows" in out
    assert list(Path().iterdir()) == []


@pytest.mark.slow
def test_pictures_are_drawn_of_runs_alone_and_of_whole_sweeps_or_on_demand(
    vfl: Callable[..., int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def drawn() -> set[str]:
        return {path.parent.as_posix() for path in Path().rglob("curve.png")}

    assert vfl(*TOY, "hydra.run.dir=a") == vfl(*TOY, "plot=none", "hydra.run.dir=b") == 0
    assert vfl("-m", *TOY, "seed=1,2", "hydra.sweep.dir=s") == 0
    assert vfl("-m", *TOY, "seed=1,2", "plot=none", "hydra.sweep.dir=t") == 0
    assert drawn() == {"a", "s"}
    assert "curve" not in capsys.readouterr().out.splitlines()[-1]
    with pytest.raises(SystemExit):
        vfl(*TOY, f"seed={KILLED}", "hydra.run.dir=k")
    Path("k/mine.png").write_text("the user's")
    assert vfl(*TOY, f"seed={KILLED}", "plot=none", "resume=true", "hydra.run.dir=k") == 0
    assert Path("k/mine.png").exists() and "k" not in drawn()
    monkeypatch.setattr(curves, "draw_run", lambda run: atomic_write(run.folder / "curve.png", ""))
    monkeypatch.setattr(reader.Run, "check_curve", lambda run: None)
    assert vfl("plot", "b", "t") == 0 and drawn() == {"a", "s", "b", "t", "t/0", "t/1"}
    assert vfl(*TOY, "plot=none", "overwrite=true", "hydra.run.dir=b") == 0 and "b" not in drawn()
    assert vfl("-m", *TOY, "plot=auto,none") == 1 and "give one value" in capsys.readouterr().err


@pytest.mark.slow
def test_what_cannot_be_drawn_says_why(vfl: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    Path("empty").mkdir()
    assert vfl("plot", "empty") == 1 and "no run is in empty" in capsys.readouterr().err
    assert vfl("plot", "nowhere") == 1 and "nowhere is no folder" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        vfl(*TOY, f"seed={KILLED}", "hydra.run.dir=k")
    assert vfl("plot", "k") == 1 and "k holds a run without a curve (unfinished)" in capsys.readouterr().err
    assert vfl(*TOY, "plot=none", "hydra.run.dir=a") == 0
    Path("a/files.jsonl").unlink()
    assert vfl("plot", "a") == 1 and "a has no files.jsonl" in capsys.readouterr().err
    assert not list(Path().rglob("*.png"))


@pytest.mark.slow
@pytest.mark.draws("runs")
def test_a_sweep_goes_on_after_failed_and_impossible_jobs(
    vfl: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = ("-m", "algorithm=toy", "dataset=toy_graph,toy_rows", "seed=0,101", "hydra.sweep.dir=s")
    assert vfl(*sweep) == 1
    out, err = capsys.readouterr()
    assert [summary(f"s/{n}")["status"] for n in range(4)] == ["completed", "failed", "skipped", "skipped"]
    others = [path for path in [Path("s"), *Path("s").rglob("*")] if path.stat().st_mode & 0o077]
    assert not others, "what a run writes is the user's alone"
    assert validate_summary(summary("s/2")) == []
    assert (
        "[1/4] toy toy_graph seed=0: test_accuracy 0.8" in out
        and "[3/4] toy toy_rows seed=0: skipped (dataset=toy_rows" in out
    )
    assert "[2/4] toy toy_graph seed=101: failed: nodes.csv line 3" in err and "1 of 4 jobs failed" in err
    assert out.splitlines()[-1] == "sweep folder: s" and Path("s/curve.png").exists()
    before = Path("s/0/summary.json").stat().st_mtime_ns
    for more in ((), ("resume=true",)):
        assert vfl(*sweep, *more) == 1
        assert "[1/4] toy toy_graph seed=0: completed, kept" in capsys.readouterr().out
        assert Path("s/0/summary.json").stat().st_mtime_ns == before
        assert vfl("-m", *TOY, "seed=1,2", "hydra.sweep.dir=s", *more) == 1
        assert "s/0 holds a run of another configuration (seed=0 there, 1 here)" in capsys.readouterr().err.replace(
            os.sep, "/"
        )
    assert vfl("-m", *TOY, "seed=1,2", "hydra.sweep.dir=s", "overwrite=true") == 0
    assert [summary(f"s/{n}")["seed"] for n in range(2)] == [1, 2]


def test_a_repeated_sweep_does_what_is_left(vfl: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    """Killed in its second job: the first is kept, the second continued, the third done; more values at the end are new
    jobs."""
    sweep = ("-m", *TOY, "hydra.sweep.dir=s")
    with pytest.raises(SystemExit):
        vfl(*sweep, f"seed=0,{KILLED},1")
    assert not Path("s/1/summary.json").exists() and not Path("s/2").exists()
    before = Path("s/0/summary.json").stat().st_mtime_ns
    assert vfl(*sweep, f"seed=0,{KILLED},1,2") == 0
    out = capsys.readouterr().out
    assert (
        "seed=0: completed, kept" in out
        and out.count("kept") == 1
        and Path("s/0/summary.json").stat().st_mtime_ns == before
    )
    assert [summary(f"s/{n}")["seed"] for n in range(4)] == [0, KILLED, 1, 2]
    table = out[out.index("\njobs ") :].splitlines()
    assert table[2].split()[:4] == ["0-3", "4", "4", "completed"]


def test_a_bug_in_one_job_leaves_a_status_and_the_others_go_on(
    vfl: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert vfl("-m", *TOY, f"seed=0,{BUG},1", "hydra.sweep.dir=s") == 70
    out, err = capsys.readouterr()
    assert [summary(f"s/{n}")["status"] for n in range(3)] == ["completed", "failed", "completed"]
    assert "RuntimeError: a bug" in summary("s/1")["reason"]
    assert "1 of 3 jobs failed" in err and "sweep folder: s" in out and "Traceback" not in err
    assert err.count(f"seed={BUG}: failed: internal error: RuntimeError: a bug. The traceback is in s/1/error.log") == 1
    assert "raise RuntimeError" in Path("s/1/error.log").read_text()


@pytest.mark.parametrize(
    ("swept", "key", "expected"),
    few_fast(
        [
            (["algorithm.lr=0.1,0.01", "seed=3,4"], "algorithm.lr", [0.1, 0.1, 0.01, 0.01]),
            (["seed=range(1,6,2)", "algorithm.parties=2,3"], "seed", [1, 1, 3, 3, 5, 5]),
            (["algorithm.fanout=[1,2],[3]"], "algorithm.fanout", [[1, 2], [3]]),
            (["network=glob(us_*)"], "network.name", ["us_uk", "us_us"]),
            (["network=glob(*,exclude=[us_*,o*,i*])"], "network.name", ["cost_ratio", "lan"]),
        ]
    ),
    ids=lambda value: (
        " ".join(value) if isinstance(value, list) and isinstance(value[0], str) and "=" in value[0] else ""
    ),
)
def test_what_can_be_swept(vfl: Callable[..., int], swept: list[str], key: str, expected: list[Any]) -> None:
    assert vfl("-m", *TOY, *swept, "hydra.sweep.dir=s") == 0
    manifests = [json.loads(Path("s", str(n), "manifest.json").read_text()) for n in range(len(expected))]
    found = [functools.reduce(lambda values, part: values[part], key.split("."), m["config"]) for m in manifests]
    assert found == expected and not Path("s", str(len(expected))).exists()


@pytest.mark.slow
def test_two_jobs_of_a_sweep_have_two_folders(vfl: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    assert vfl("-m", *TOY, "seed=0,1", "hydra.sweep.dir=s", "hydra.sweep.subdir=${algorithm.name}") == 1
    err = capsys.readouterr().err.replace(os.sep, "/")
    assert "two jobs would write to s/toy" in err and "seed=0" in err and "seed=1" in err and not Path("s").exists()
    assert vfl("-m", *TOY, "seed=0,1", "hydra.sweep.dir=s", "hydra.sweep.subdir=${algorithm.name}_${seed}") == 0
    assert [summary(f"s/toy_{n}")["seed"] for n in (0, 1)] == [0, 1]


@pytest.mark.slow
def test_nothing_is_written_where_another_process_runs(
    vfl: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    files.prepare(Path("s"))
    files.prepare(Path("s/0"))
    with lock.held(Path("s/0")):
        assert vfl(*TOY, "hydra.run.dir=s/0") == 1
        assert vfl(*TOY, "hydra.run.dir=s/0", "overwrite=true") == 1
        assert capsys.readouterr().err.count(f"process {os.getpid()} on ") == 2
        assert vfl("-m", *TOY, "seed=0,1", "hydra.sweep.dir=s") == 1
        out, err = capsys.readouterr()
        assert (
            "[1/2] toy toy_graph seed=0: failed: " in err and "is running there" in err and "1 of 2 jobs failed" in err
        )
        assert "[2/2] toy toy_graph seed=1: test_accuracy 0.8" in out
        assert [path.name for path in Path("s/0").iterdir()] == [inventory.NAME]
        write_json(Path("s/0/manifest.json"), {"schema": 1, "config_hash": "x", "config": {}})
        assert vfl(*TOY, "hydra.run.dir=s/0") == 1
        assert "is running there" in capsys.readouterr().err, "that comes before how it could be continued"


def test_a_run_that_began_in_the_folder_meanwhile_is_said(
    vfl: Callable[..., int], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    start, folder = Session.start, Path("r")

    def later(*args: Any, **how: Any) -> Any:
        files.prepare(folder)
        with lock.held(folder):
            write_json(folder / "manifest.json", {"schema": 1, "config_hash": "x", "config": {}})
            return start(*args, **how)

    monkeypatch.setattr(Session, "start", later)
    assert vfl(*TOY, "hydra.run.dir=r") == 1
    assert "is running there" in capsys.readouterr().err


def test_a_mistyped_launcher_is_told_with_the_others(
    vfl: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert vfl("-m", *TOY, "seed=0,1", "hydra/launcher=basik") == 1
    err = capsys.readouterr().err
    assert re.search(r"hydra/launcher=basik: unknown launcher; there are: basic\b.*\. Did you mean 'basic'\?", err), err


def test_a_launcher_that_is_not_installed_is_named_with_its_package(
    vfl: Callable[..., int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from hydra.core.config_store import ConfigStore

    with config.session():  # Hydra looks for plugins
        there = ConfigStore.instance().repo["hydra"]["launcher"]
    for launcher, extra in (("joblib", "parallel"), ("submitit_local", "slurm")):
        monkeypatch.delitem(there, f"{launcher}.yaml", raising=False)
        assert vfl("-m", *TOY, "seed=0,1", f"hydra/launcher={launcher}", "hydra.launcher.no_key=2") == 1
        err = capsys.readouterr().err
        assert (
            f"hydra/launcher={launcher}: needs a package that is not installed: pip install 'vflbench[{extra}]'" in err
        )


def test_a_sweep_is_resumed_in_its_own_folder_only(vfl: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    assert vfl("-m", *TOY, "seed=0,1", "resume=true") == 1
    assert "hydra.sweep.dir" in capsys.readouterr().err


@pytest.mark.slow
def test_ctrl_c_ends_a_sweep(vfl: Callable[..., int]) -> None:
    assert vfl("-m", *TOY, f"seed=0,{INTERRUPTED},1", "hydra.sweep.dir=s") == 130
    assert not Path("s/2").exists()


def test_from_python(vfl: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    run = vflbench.run([*TOY, "seed=3"])
    assert run.summary["seed"] == 3 and list(run.curve["test_accuracy"]) == [0.7, 0.8]
    assert capsys.readouterr() == ("", "")
    with pytest.raises(ConfigError, match="must be an integer"):
        vflbench.run([*TOY, "rounds=x"])
    with pytest.raises(DataError, match="line 3"):
        vflbench.run([*TOY, f"seed={MALFORMED}"])
    with pytest.raises(VflbenchError, match="has ended"):
        vflbench.run([*TOY, "seed=3", f"hydra.run.dir={run.folder}"])


def test_list_and_data(vfl: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    assert vfl("list") == 0
    listed = capsys.readouterr().out
    toy = re.split(r"\n(?=\S)", listed[listed.index("toy  ") :])[0]
    assert "A toy." in toy and "toy_graph" in toy and "toy_rows" not in toy and "attacks none" in toy
    assert "attacks none prediction_recovery" in re.split(r"\n(?=\S)", listed[listed.index("\nrfl_admm_v ") + 1 :])[0]
    assert vfl("data", "status", "data_root=somewhere") == 0
    out = capsys.readouterr().out
    assert out.startswith("data root: somewhere\n") and "cora" in out and "missing" in out
    assert any(
        line.split() == ["digits_graph", "real", "-", "comes", "with", "scikit-learn"] for line in out.splitlines()
    )


@pytest.mark.slow
def test_cfg_shows_what_a_run_would_use(vfl: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    """An option of the user's takes the place of ours of that name, for a run and for --cfg alike."""
    for group, name, text in (
        ("network", "us_uk", "name: us_uk\nclient_server: {latency_ms: 7.0}\n"),
        ("privacy", "mine", "name: none\n"),
    ):
        Path("mine", group).mkdir(parents=True)
        Path("mine", group, f"{name}.yaml").write_text(text)
    given = (*TOY, "--config-dir", "mine", "network=us_uk", "privacy=mine", "seed=5")
    assert vfl(*given, "hydra.run.dir=out") == 0
    used = Path("out/.hydra/config.yaml").read_text()
    capsys.readouterr()
    assert vfl(*given, "--cfg", "job") == 0
    assert capsys.readouterr().out == used and "latency_ms: 7.0" in used
    assert vfl(*given, "--cfg", "job", "--package", "network.client_server") == 0
    assert capsys.readouterr().out == "# @package network.client_server\nlatency_ms: 7.0\n"
    assert vfl(*given, "--info", "searchpath") == 0
    paths = capsys.readouterr().out
    assert paths.index(str(Path("mine").absolute())) < paths.index(str(REPOSITORY / "conf"))


@pytest.mark.parametrize(
    ("args", "said"),
    [(("seeed=1",), "seeed"), (("-m", "seed=1,2"), "-m does not go with --cfg"), (("network=us_ukk",), "us_ukk")],
)
def test_cfg_refuses_without_a_traceback(
    vfl: Callable[..., int], capsys: pytest.CaptureFixture[str], args: tuple[str, ...], said: str
) -> None:
    assert vfl("--cfg", "job", *args) == 1
    out, err = capsys.readouterr()
    assert said in err and out == ""


def test_what_is_always_made_up_is_no_twin() -> None:
    assert (
        made_up({"data_source": "synthetic", "dataset": "star_schema"})
        == "SYNTHETIC DATA: star_schema is always made up"
    )


def test_real_rows_that_are_not_all_are_told_from_made_up_parts() -> None:
    partial = {"data_source": "partial", "dataset": "energy"}
    assert made_up({**partial, "data_lacks": "300 of 19,735 readings"}).startswith(
        "PARTIAL DATA: energy is real, but not all of it (300 of 19,735 readings)"
    )
    assert made_up(partial).startswith("PARTLY SYNTHETIC DATA")
    assert "a made-up twin of movielens" in made_up({"data_source": "synthetic", "dataset": "movielens"})


def run_command(
    *args: str, code: str = "from vflbench.cli import main; main()", **how: Any
) -> subprocess.CompletedProcess[str]:
    # The repository first: `python -P` would hide it where the package is not installed.
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    return subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True, env=environment, **how)


@pytest.mark.parametrize("args", [("--help",), ("list",)])
def test_help_and_list_import_nothing_that_takes_long(args: tuple[str, ...], tmp_path: Path) -> None:
    slow = {"torch", "pandas", "scipy", "sklearn", "matplotlib", "pyarrow", "hydra", "omegaconf", "ray"}
    code = "import sys; from vflbench.cli import command; ended = command(sys.argv[1:]); "
    code += f"sys.exit(str((ended, {slow} & set(sys.modules))))"
    done = run_command(*args, code=code, cwd=tmp_path)
    assert done.stderr == "(0, set())\n" and "dataset" in done.stdout


@pytest.mark.slow
def test_a_process_ends_with_the_codes_that_the_readme_names(tmp_path: Path) -> None:
    assert run_command("--version", cwd=tmp_path).stdout == f"vflbench {vflbench.__version__}\n"
    assert run_command("--nonsense", cwd=tmp_path).returncode == 2
    failed = run_command("network=us_ukk", "seed=x", cwd=tmp_path)
    assert failed.returncode == 1 and "Traceback" not in failed.stderr and "Did you mean 'us_uk'?" in failed.stderr


@pytest.mark.slow
def test_an_installed_wheel_carries_the_options(tmp_path: Path) -> None:
    """`pip install .` into another environment, used from another folder."""
    wheels = tmp_path / "wheels"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    subprocess.run(
        [*pip, "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(wheels), str(REPOSITORY)], check=True
    )
    subprocess.run(
        [*pip, "install", "-q", "--no-deps", "--target", str(tmp_path / "site"), str(next(wheels.glob("*.whl")))],
        check=True,
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    code = "import vflbench, vflbench.cli; print(vflbench.__file__); vflbench.cli.main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "--cfg", "job"], capture_output=True, text=True, env=environment, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert str(tmp_path / "site") in done.stdout and "latency_ms: 136.0" in done.stdout


def test_every_verb_of_the_help_exists() -> None:
    shown = help_text()
    assert all(f"vflbench {verb}" in shown for verb in cli.VERBS)
    assert all(f"\n  {key}=" in shown for key in ("seed", "rounds", "resume", "data_root"))
    assert importlib.import_module("vflbench.cli").main
