"""The bar: on a terminal only, and then with everything in it."""

import contextlib
import io
import os
import sys

import pytest

from vflbench.runner.progress import progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "160")
    return Terminal()


def drive(terminal, **options):
    # Not in the fixture: pytest puts its own stderr back between set-up and test.
    with contextlib.redirect_stderr(terminal), progress(3, "accuracy", **options) as bar:
        bar.update(1, metric=0.8123, loss=0.5)
        bar.update(2)
        bar.update(3, bytes=12_345_678)


def test_bar(terminal):
    drive(terminal)
    for part in ("3/3", "accuracy 0.8123", "loss 0.5", "12.3 MB"):
        assert part in terminal.getvalue()


def test_unknown_total(terminal):
    with contextlib.redirect_stderr(terminal), progress(None) as bar:
        bar.update(1, loss=1.0)
    assert "1/?" in terminal.getvalue()


def test_quiet(terminal, monkeypatch):
    drive(terminal, quiet=True)
    monkeypatch.setitem(os.environ, "CI", "1")
    drive(terminal)
    assert terminal.getvalue() == ""


def test_no_terminal(capsys):
    drive(sys.stderr)
    assert capsys.readouterr() == ("", "")
