"""A run that is killed or interrupted goes on to the result of the run that never was, through the real command."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from vflbench.results import reader

RUN = ["algorithm=glasu", "dataset=digits_graph", "rounds=24", "eval_every=4", "checkpoint_every=2", "algorithm.local_steps=2"]

# A round takes a fifth of a second longer, so that a run cannot end before a busy machine gets round to the signal; and Ctrl-C means
# something even if these tests run in a shell's background, where it is ignored and children inherit that.
SLOWLY = """
import signal, time
signal.signal(signal.SIGINT, signal.default_int_handler)
from vflbench.runner.evaluate import Observer
on_round = Observer.on_round
Observer.on_round = lambda *args: (time.sleep(0.2), on_round(*args))[1]
"""


def start(folder: Path, *more: str, slowly: bool = False) -> subprocess.Popen[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    code = (SLOWLY if slowly else "") + "from vflbench.cli import main\nmain()"
    command = [sys.executable, "-c", code, *RUN, f"hydra.run.dir={folder}", *more]
    return subprocess.Popen(command, env=environment, cwd=folder.parent, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def outcome(folder: Path) -> tuple[bytes, list[dict[str, object]], dict[str, bytes]]:
    models = {path.name: path.read_bytes() for path in sorted((folder / "model").iterdir())}
    return (folder / "curve.csv").read_bytes(), reader.load(folder).ledger.to_dict("records"), models


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, list[dict[str, object]], dict[str, bytes]]:
    folder = tmp_path_factory.mktemp("whole") / "run"
    process = start(folder)
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output
    return outcome(folder)


def wait_for(folder: Path, pattern: str, process: subprocess.Popen[str]) -> None:
    while not list(folder.glob(pattern)):
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.005)


@pytest.mark.slow
def test_killed_three_times_then_resumed_is_the_run_that_never_stopped(
    tmp_path: Path, uninterrupted: tuple[bytes, list[dict[str, object]], dict[str, bytes]]
) -> None:
    folder, chance = tmp_path / "run", random.Random(0)
    for kill, least in enumerate((2, 8, 16)):
        process = start(folder, *(["resume=true"] if kill else []), slowly=True)
        wait_for(folder, f"checkpoint/round_{least:08d}.pt", process)
        time.sleep(chance.random() * 0.05)
        process.kill()
        process.communicate()
        assert not (folder / "summary.json").exists(), "the run ended before it could be killed"
    process = start(folder, "resume=true")
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output
    assert reader.load(folder).summary["status"] == "completed"
    assert outcome(folder) == uninterrupted


@pytest.mark.slow
def test_ctrl_c_leaves_what_there_is_and_resumes(
    tmp_path: Path, uninterrupted: tuple[bytes, list[dict[str, object]], dict[str, bytes]]
) -> None:
    folder = tmp_path / "run"
    process = start(folder, slowly=True)
    wait_for(folder, "checkpoint/round_00000008.pt", process)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130, output
    run = reader.load(folder)
    assert run.summary["status"] == "interrupted"
    assert 8 <= run.summary["rounds"] < 24
    assert len(run.ledger) and len(run.curve)
    assert int(run.ledger["round"].max()) == run.summary["rounds"]
    process = start(folder, "resume=true")
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output
    assert outcome(folder) == uninterrupted
