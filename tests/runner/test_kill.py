"""scripts/kill.py kills commands, and would tell if one of them came to harm."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


@pytest.fixture
def kill(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import kill as script

    return script


# Every algorithm goes on where it was stopped in tests/contracts/test_algorithms.py; here are the ways of a command.
KILLED = ("sweep, joblib", "figures")


@pytest.mark.slow
@pytest.mark.minutes
def test_commands_are_killed_and_go_on_to_what_they_would_have_been(
    kill: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """A sweep and figures; test_ray_run and test_nats_run kill real processes."""
    given = ["--kills", "2", "--seed", "1", "--once", "--jobs", "2", "--scenario", *KILLED]
    assert kill.main(given) == 0, capsys.readouterr()
    table = capsys.readouterr().out.splitlines()
    assert table[-1] == "2 of 2" and [line.split("  ")[0] for line in table[1:-2]] == list(KILLED)


@pytest.mark.parametrize("name", ["model/server.safetensors", "ledger.parquet"])
def test_a_result_that_differs_is_told(kill: Any, make_run: Any, tmp_path: Path, name: str) -> None:
    whole = make_run("whole").folder
    (whole / name).parent.mkdir(exist_ok=True)
    (whole / name).write_bytes(b"what it should be")
    shutil.copytree(whole, other := tmp_path / "other")
    content = json.loads((other / "summary.json").read_text())
    (other / "summary.json").write_text(json.dumps({**content, "wall_seconds": 99.0}))
    assert kill.all_differs(whole, other) == []
    (other / name).write_bytes(b"what it must not be")
    assert kill.all_differs(whole, other) == [f"{name}: differs"]
    (other / name).unlink()
    assert kill.all_differs(whole, other) == [f"{name}: missing"]
    shutil.copy(whole / name, other / name)
    (other / "summary.json").write_text(json.dumps({**content, "messages": 2}))
    assert kill.all_differs(whole, other) == ["./summary.json: messages differs"]


def test_what_a_command_leaves_is_told(kill: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kill, "LINGER", 0.5)
    monkeypatch.setattr(kill, "subprocess", Sleeping())
    (tmp_path / "out").mkdir()
    with kill.started(tmp_path, ("unused",)) as process:
        assert kill.strike(process, 0.0, group=False)
    assert kill.left(tmp_path) == kill.litter(tmp_path) == []
    with kill.started(tmp_path, ("unused",)):
        assert "still running" in kill.left(tmp_path)[0]
    for name in ("out/.curve.csv.1a2b.tmp", "t/vfl-ray-abc"):
        (tmp_path / name).touch()
    assert kill.litter(tmp_path) == ["left: out/.curve.csv.1a2b.tmp", "left: t/vfl-ray-abc"]


class Sleeping:
    """The module subprocess, in which every command sleeps."""

    def __getattr__(self, name: str) -> Any:
        import subprocess

        return getattr(subprocess, name)

    def Popen(self, command: list[str], **options: Any) -> Any:
        import subprocess

        return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], **options)


def test_how_far_a_command_was_is_told(kill: Any, tmp_path: Path) -> None:
    found = [kill.phase(tmp_path)]
    for name in ("r/manifest.json", "r/checkpoint/round", "r/ledger.parquet", "r/summary.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
        found.append(kill.phase(tmp_path))
    before, training, writing, end = kill.PHASES
    assert found == [before, before, training, writing, end]
