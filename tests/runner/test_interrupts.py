"""Ctrl-C and SIGTERM, through the real command and alone: what was reached is written, and nothing is left."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import vflbench
from tests.runner.test_ray_run import family, gone, start
from vflbench import cli
from vflbench.results import inventory, lock, reader
from vflbench.results.folder import prepare
from vflbench.runner import interrupts
from vflbench.runner.evaluate import Observer

# A round takes a fifth of a second longer, so that a run cannot end before a busy machine gets round to the signal; and
# Ctrl-C means something even if these tests run in a shell's background, where it is ignored and children inherit that.
SLOWLY = """
import signal, time
signal.signal(signal.SIGINT, signal.default_int_handler)
from vflbench.runner.evaluate import Observer
on_round = Observer.on_round
Observer.on_round = lambda *args: (time.sleep(0.2), on_round(*args))[1]
"""
COMMAND = "from vflbench.cli import main\nmain()"
SMALL = [
    "algorithm=stcd",
    "algorithm.parties=3",
    "dataset=ridge",
    "dataset.samples=40",
    "dataset.features=24",
    "topology=path",
]
RUN = [*SMALL, "rounds=40", "eval_every=4", "checkpoint_every=2", "floor=none"]
CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}


def until(folder: Path, pattern: str, process: subprocess.Popen[str]) -> None:
    while not list(folder.glob(pattern)):
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.01)


def statuses(folder: Path) -> set[str]:
    return {json.loads(path.read_text())["status"] for path in folder.rglob("summary.json")}


# --- alone ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def heeded() -> Iterator[None]:
    """SIGTERM interrupts this process, until the end of the test."""
    before = {number: signal.getsignal(number) for number in interrupts.SIGNALS}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    interrupts.heed_sigterm()
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
    interrupts.received.clear()


@pytest.mark.usefixtures("heeded")
@pytest.mark.parametrize("number", interrupts.SIGNALS)
def test_the_first_signal_interrupts_and_a_second_does_not(number: signal.Signals) -> None:
    written = []
    with pytest.raises(KeyboardInterrupt), interrupts.once():
        try:
            signal.raise_signal(number)
        finally:
            for again in interrupts.SIGNALS:
                signal.raise_signal(again)
            written.append("all")
    assert written == ["all"]
    with pytest.raises(KeyboardInterrupt):  # as before
        signal.raise_signal(number)


@pytest.mark.usefixtures("heeded")
def test_a_signal_while_a_run_is_built_leaves_one_that_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = Observer.__init__

    def signalled(self: Observer, *args: Any) -> None:
        signal.raise_signal(signal.SIGTERM)
        built(self, *args)

    monkeypatch.setattr(Observer, "__init__", signalled)
    monkeypatch.chdir(tmp_path)
    with contextlib.suppress(KeyboardInterrupt):
        cli.command([*RUN, "hydra.run.dir=run"])
    assert statuses(tmp_path) == {"interrupted"}


@pytest.mark.usefixtures("heeded")
def test_a_signal_that_comes_later_interrupts_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one's exception may have been swallowed, by a callback of Python's."""
    monkeypatch.setattr(interrupts, "SOON", 0.1)
    with pytest.raises(KeyboardInterrupt), interrupts.once():
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        time.sleep(0.2)
        signal.raise_signal(signal.SIGINT)
        pytest.fail("goes on")


@pytest.mark.usefixtures("heeded")
@pytest.mark.parametrize("number", interrupts.SIGNALS)
def test_what_is_being_written_is_written_and_then_the_signal_counts(number: signal.Signals) -> None:
    written = []
    with pytest.raises(KeyboardInterrupt), interrupts.once(), interrupts.held_back():
        signal.raise_signal(number)
        signal.raise_signal(number)
        written.append("all")
    assert written == ["all"]


@pytest.mark.usefixtures("heeded")
def test_writing_for_long_makes_a_second_signal_no_later_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """It came soon after the first; what is written meanwhile, on a busy machine, is still reported."""
    monkeypatch.setattr(interrupts, "SOON", 0.2)
    with interrupts.once():
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        with interrupts.held_back(), interrupts.held_back():
            signal.raise_signal(signal.SIGINT)
            time.sleep(0.3)
        with pytest.raises(KeyboardInterrupt), interrupts.held_back():
            signal.raise_signal(signal.SIGINT)
            time.sleep(0.3)
            signal.raise_signal(signal.SIGINT)


@pytest.mark.usefixtures("heeded")
def test_what_a_process_hands_over_after_its_job_is_not_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the lock of the queue may stay taken, and the search or sweep waits for ever."""
    monkeypatch.setattr("multiprocessing.parent_process", lambda: "a process")
    with pytest.raises(KeyboardInterrupt), interrupts.job():
        signal.raise_signal(signal.SIGTERM)
    signal.raise_signal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), interrupts.job():
        pytest.fail("another job begins")


def test_a_process_ends_whose_parent_died_before_it_began() -> None:
    """Else it would wait minutes for its first job."""
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    waiting = (
        "import sys, time; from vflbench.runner.interrupts import end_with; end_with(int(sys.argv[1])); time.sleep(60)"
    )
    assert subprocess.run([sys.executable, "-c", waiting, str(dead.pid)], timeout=30, check=False).returncode == 1


@pytest.mark.usefixtures("heeded")
def test_a_folder_that_this_process_holds_keeps_nobody_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search holds its own folder; its runs are below."""
    monkeypatch.setattr(interrupts, "_guarded", contextlib.nullcontext)
    prepare(tmp_path)
    began = time.monotonic()
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    with pytest.raises(KeyboardInterrupt), lock.held(tmp_path), interrupts.passed_on(tmp_path, [child.pid]):
        signal.raise_signal(signal.SIGINT)
    child.wait()
    assert time.monotonic() - began < interrupts.PATIENCE / 2


@pytest.mark.slow
@pytest.mark.usefixtures("heeded")
def test_a_run_that_is_interrupted_while_hydras_files_are_written_can_begin_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(path: Path, text: str) -> None:
        raise KeyboardInterrupt

    importlib.import_module("vflbench.runner.run")  # what it imports is not to be imported with the patch

    monkeypatch.chdir(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr("vflbench.results.folder.atomic_write", interrupted)
        assert cli.command([*RUN, "hydra.run.dir=run"]) == 130
    assert cli.command([*SMALL, "rounds=2", "floor=none", "hydra.run.dir=run", "plot=none"]) == 0


def test_a_sigterm_that_ends_a_users_own_program_still_does() -> None:
    code = (
        "import signal; from vflbench.runner import interrupts\nwith interrupts.once(): "
        "signal.raise_signal(signal.SIGTERM)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == -signal.SIGTERM


def test_elsewhere_than_in_the_main_thread_nothing_is_changed() -> None:
    before = [signal.getsignal(number) for number in interrupts.SIGNALS]
    found = []

    def work() -> None:
        with interrupts.once(), interrupts.held_back():
            found.extend(signal.getsignal(number) for number in interrupts.SIGNALS)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == before


@pytest.mark.usefixtures("heeded")
@pytest.mark.parametrize(("number", "code"), CODES.items())
def test_exit_codes(
    number: signal.Signals, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "_dispatch", lambda args: signal.raise_signal(number))
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == code and capsys.readouterr().err == "interrupted\n"
    signal.raise_signal(number)  # the process is ending: nothing comes of it


def test_a_folder_in_which_a_run_was_killed_is_not_held(tmp_path: Path) -> None:
    prepare(tmp_path / "a" / "b")
    inventory.held_by(tmp_path / "a" / "b", "process 1 on this machine")
    assert not lock.held_below(tmp_path)
    with lock.held(tmp_path / "a" / "b"):
        assert lock.held_below(tmp_path)
    assert not lock.held_below(tmp_path)


def test_a_folder_that_is_removed_while_locks_are_looked_for_holds_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that is interrupted before its first file leaves no folder; a search that ends waits for such runs."""
    prepare(tmp_path / "run")
    scandir = os.scandir

    def removed(path: Any) -> Any:
        if Path(path) == tmp_path / "run":
            monkeypatch.undo()
            shutil.rmtree(path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", removed)
    assert not lock.held_below(tmp_path) and not (tmp_path / "run").exists()


# --- through the command ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the run that nobody interrupts."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    return vflbench.run([*RUN, "plot=none", f"hydra.run.dir={folder}"]).folder


@pytest.mark.slow
@pytest.mark.parametrize("number", CODES)
def test_a_run_that_is_interrupted_leaves_what_there_is_and_goes_on(
    number: signal.Signals, whole: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    process = start(SLOWLY + COMMAND, *RUN, "hydra.run.dir=run", where=tmp_path)
    until(folder, "checkpoint/*_00000008*", process)
    began = time.monotonic()
    # The first counts; not one of the others finds a moment in which it does harm. Later ones would count again.
    while process.poll() is None and time.monotonic() < began + interrupts.SOON / 4:
        process.send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.05)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == CODES[number] and "resume=true continues it" in output and "Traceback" not in output, (
        output
    )
    run = reader.load(folder)
    assert run.summary["status"] == "interrupted" and 8 <= run.summary["rounds"] < 40
    assert len(run.curve) and int(run.ledger["round"].max()) == run.summary["rounds"]
    assert not list(folder.rglob("*.tmp"))
    process = start(COMMAND, *RUN, "hydra.run.dir=run", "resume=true", where=tmp_path)
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output
    for name in ("curve.csv", "ledger.parquet", "trace.parquet", "model/client_0.safetensors"):
        assert (folder / name).read_bytes() == (whole / name).read_bytes()


@pytest.mark.slow
def test_a_run_that_is_ended_while_it_loads_leaves_nothing(tmp_path: Path) -> None:
    loads = (
        "import time\nfrom vflbench.data.tabular import ridge\nridge.load = lambda *_: (open('loads', "
        "'w').close(), time.sleep(100))\n"
    )
    process = start(loads + COMMAND, *RUN, "hydra.run.dir=run", where=tmp_path)
    until(tmp_path, "loads", process)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 143 and output.splitlines()[-1] == "interrupted", output
    assert [path.name for path in tmp_path.iterdir()] == ["loads"]


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["basic", "joblib", "submitit_local"])
def test_the_jobs_of_a_sweep_end_with_it(launcher: str, tmp_path: Path) -> None:
    """SIGTERM reaches the sweep's own process alone."""
    words = ["-m", *RUN, "rounds=200000", "seed=0,1,2", f"hydra/launcher={launcher}", "hydra.sweep.dir=s"]
    words += ["hydra.launcher.n_jobs=2"] * (launcher == "joblib")
    words += ["hydra.sweeper.max_batch_size=2"] * (launcher == "submitit_local")
    process = start(COMMAND, *words, where=tmp_path)
    until(tmp_path, f"s/{int(launcher != 'basic')}/checkpoint/*.pt", process)
    below = family(process.pid)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 143 and "Traceback" not in output, output
    assert gone(below) and not lock.held_below(tmp_path)
    assert "interrupted" in statuses(tmp_path / "s") <= {"interrupted", "completed"}
    # no job begins any more; Hydra may have made the folder of the next
    assert not list((tmp_path / "s" / "2").glob("*"))


@pytest.mark.slow
def test_the_processes_of_a_sweep_that_is_killed_write_what_they_have_reached_and_end(tmp_path: Path) -> None:
    words = [
        "-m",
        *RUN,
        "rounds=2000",
        "seed=0,1",
        "hydra/launcher=joblib",
        "hydra.launcher.n_jobs=2",
        "hydra.sweep.dir=s",
    ]
    process = start(COMMAND, *words, where=tmp_path)
    until(tmp_path, "s/0/checkpoint/*.pt", process)
    until(tmp_path, "s/1/checkpoint/*.pt", process)
    below = family(process.pid)
    process.kill()
    output, _ = process.communicate(timeout=60)
    assert len(below) >= 2 and gone(below, 60.0) and "Traceback" not in output, output
    assert statuses(tmp_path / "s") == {"interrupted"}


@pytest.mark.slow
def test_the_runs_of_figures_end_with_them(tmp_path: Path) -> None:
    words = ["figures", "mtcd/fig2", "scale=smoke", "rounds=30", "out=f"]
    process = start(SLOWLY + COMMAND, *words, where=tmp_path)
    until(tmp_path, "f/runs/*/checkpoint", process)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 143 and "Traceback" not in output, output
    assert statuses(tmp_path / "f") == {"interrupted"}
