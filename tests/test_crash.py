"""An exception that nobody foresaw: a line, a log with the traceback, exit code 70; from Python it is raised."""

from __future__ import annotations

import importlib
import stat
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import vflbench
from tests.every import few_fast
from vflbench import cli
from vflbench.choosing import candidates
from vflbench.cli import crash, train
from vflbench.runner import measure
from vflbench.types import VflbenchError

QUESTION = ["algorithm=stcd", "dataset=ridge", "trials=1"]


def broken(*_: Any, **__: Any) -> Any:
    raise KeyError("pat\nients")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("verb", [*cli.VERBS, "train"])
def test_every_verb_ends_in_a_line_and_a_log(
    verb: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = importlib.import_module(f"vflbench.cli.{verb}")
    monkeypatch.setattr(module, "command", broken)
    assert cli.command([verb] if verb in cli.VERBS else ["algorithm=vfl"]) == 70
    (log,) = Path("outputs/errors").iterdir()
    line = f"internal error: KeyError: 'pat\\nients'. The traceback is in {log}; please report it"
    assert capsys.readouterr().err.splitlines() == [line]
    assert "in broken" in log.read_text() and stat.S_IMODE(log.stat().st_mode) == 0o600


def test_a_second_log_does_not_replace_the_first() -> None:
    lines = {crash.crash_line(KeyError("a")), crash.crash_line(KeyError("a"))}
    assert len(lines) == len(list(Path("outputs/errors").iterdir())) == 2
    known = KeyError("a")
    assert (
        crash.crash_line(known) == crash.crash_line(known, Path("x"))
        and len(list(Path("outputs/errors").iterdir())) == 3
    )


def test_an_exception_that_has_no_message_is_told_too() -> None:
    class SilentError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no message either")

    assert crash.crash_line(SilentError()).startswith("internal error: SilentError. The traceback is in ")


def test_a_log_has_no_text_of_the_environment(tmp_path: Path) -> None:
    line = crash.crash_line(ValueError("no s3cret here" + "x" * 1000), hidden={"s3cret": "${oc.env:TOKEN}"})
    (log,) = Path("outputs/errors").iterdir()
    assert "s3cret" not in line + log.read_text() and "${oc.env:TOKEN}" in line and len(line) < 500


def test_where_outputs_cannot_be_written_the_log_is_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("outputs").write_text("mine")
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    line = crash.crash_line(KeyError("a"))
    (log,) = (tmp_path / "temporary").iterdir()
    assert f"temporary/{log.name}; please" in line and Path("outputs").read_text() == "mine"
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "not there"))
    assert "No log can be written:\nKeyError: 'b'" in crash.crash_line(KeyError("b"))


def test_a_users_file_of_the_logs_name_stays(tmp_path: Path) -> None:
    Path("error.log").write_text("mine")
    assert "in outputs/errors/" in crash.crash_line(KeyError("a"), tmp_path)
    assert Path("error.log").read_text() == "mine"


def test_from_python_it_is_raised(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(candidates, "enter", broken)
    with pytest.raises(KeyError):
        vflbench.choose(["dataset=ridge", "target=1", "trials=1"])
    monkeypatch.setattr("vflbench.runner.run.run", broken)
    with pytest.raises(KeyError):
        vflbench.run(["algorithm=stcd", "dataset=ridge", "hydra.run.dir=r"])
    assert "internal error" not in capsys.readouterr().err
    assert "in broken" in Path("r/error.log").read_text()


@pytest.mark.parametrize(("module", "name"), few_fast([(measure, "first_round"), (train, "run")]))
def test_a_search_goes_on_and_says_where_the_log_is(
    module: ModuleType, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where the method is all that there is to search, nothing is found, and the exit code says why."""
    monkeypatch.setattr(module, name, broken)
    assert cli.command(["tune", *QUESTION, "--out", "o"]) == 70
    err = capsys.readouterr().err
    (log,) = Path("outputs/errors").iterdir()
    assert f"internal error: KeyError: 'pat\\nients'. The traceback is in {log}" in err and "Traceback" not in err
    assert err.splitlines()[-1].startswith("error: no ")


def test_other_errors_stay_what_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(error: BaseException) -> Callable[..., Any]:
        def failing(*_: Any) -> Any:
            raise error

        return failing

    for error, code in ((VflbenchError("no"), 1), (KeyboardInterrupt(), 130), (OSError(2, "gone", "x"), 1)):
        monkeypatch.setattr("vflbench.cli.show.command", fails(error))
        assert cli.command(["show"]) == code
    assert not Path("outputs").exists()
