"""Pictures that another process draws beside a run."""

import os
import signal

from vflbench.cli import pictures
from vflbench.plots import curves


def drawn(folder):
    """The pictures in a folder, which are removed."""
    found = {path.name: path.read_bytes() for path in folder.glob("*.[ps][nv]g")}
    for name in found:
        (folder / name).unlink()
    return found


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
