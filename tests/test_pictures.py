"""Pictures that another process draws beside a run."""

import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from vflbench.cli import pictures, sweep, train
from vflbench.plots import curves
from vflbench.types import VflbenchError


def drawn(folder):
    """The pictures in a folder, which are removed."""
    found = {path.name: path.read_bytes() for path in folder.glob("*.[ps][nv]g")}
    for name in found:
        (folder / name).unlink()
    return found


@pytest.mark.slow
def test_another_process_draws_the_same_pictures_and_where_it_dies_this_one_does(make_run, monkeypatch):
    run = make_run("a")
    curves.draw_run(run)
    same = drawn(run.folder)
    started, start = [], pictures.subprocess.Popen

    def begin(*args, **how):
        started.append(start(*args, **how))
        return started[-1]

    monkeypatch.setattr(pictures.subprocess, "Popen", begin)
    here = []
    monkeypatch.setattr(curves, "draw_run", lambda folder, summary: here.append((folder, summary)))
    with pictures.beside() as draw:
        draw(run.folder, run.summary)
        assert drawn(run.folder) == same and not here
    assert started[0].returncode is not None  # it has ended with the block
    with pictures.beside() as draw:
        os.kill(started[1].pid, signal.SIGKILL)
        draw(run.folder, run.summary)
    assert here == [(run.folder, run.summary)]


def test_a_process_that_died_long_ago_is_no_error(make_run, monkeypatch):
    run, here, started, start = make_run("a"), [], [], subprocess.Popen

    def begin(*args, **how):
        started.append(start(*args, **how))
        return started[-1]

    monkeypatch.setattr(pictures.subprocess, "Popen", begin)
    monkeypatch.setattr(curves, "draw_run", lambda folder, summary: here.append(folder))
    with pictures.beside() as draw:
        started[0].kill()
        while os.waitid(os.P_PID, started[0].pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
            time.sleep(0.01)
        draw(run.folder, run.summary)
    assert here == [run.folder] and started[0].stdin.closed


def test_where_no_process_can_be_started_this_one_draws(make_run, monkeypatch):
    def begin(*_, **__):
        raise BlockingIOError(11, "Resource temporarily unavailable")

    run, here = make_run("a"), []
    monkeypatch.setattr(pictures.subprocess, "Popen", begin)
    monkeypatch.setattr(curves, "draw_run", lambda folder, summary: here.append(folder))
    with pictures.beside() as draw:
        draw(run.folder, run.summary)
    assert here == [run.folder]


def test_a_matplotlib_that_cannot_be_imported_is_told_in_a_line(make_run, monkeypatch, capfd, tmp_path):
    (tmp_path / "matplotlib.py").write_text("raise RuntimeError('broken')")
    monkeypatch.syspath_prepend(tmp_path)  # the other process has this path
    run = make_run("a")
    monkeypatch.setitem(sys.modules, "vflbench.plots.curves", None)
    with (
        pytest.raises(VflbenchError, match=r"matplotlib cannot be used .*resume=true plot=none"),
        pictures.beside() as draw,
    ):
        draw(run.folder, run.summary)
    assert not capfd.readouterr().err


@pytest.mark.slow
def test_no_drawing_process_stays_beside_a_presets_sweep(monkeypatch):
    started, start = [], subprocess.Popen

    def begin(*args, **how):
        started.append(start(*args, **how))
        return started[-1]

    monkeypatch.setattr(pictures.subprocess, "Popen", begin)
    monkeypatch.setattr(train, "sys", SimpleNamespace(modules={}))  # torch is not imported yet
    monkeypatch.setattr(sweep, "start", lambda *_: [one.returncode for one in started])
    (code,) = train.command(["experiment=glasu/pyg"])
    assert code is not None
