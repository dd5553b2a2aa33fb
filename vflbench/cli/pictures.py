"""Pictures of a process's first run, drawn by another process: it imports matplotlib while this one imports torch."""

import contextlib
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from vflbench.types import VflbenchError

DRAWN = b"drawn"


@contextlib.contextmanager
def beside() -> Iterator[Callable[[Path, dict[str, Any]], None]]:
    """What draws a run, given its folder and summary; the other process ends with the block."""
    try:
        started = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            start_new_session=True,  # Ctrl-C reaches this process alone, which has the run drawn as far as it came
        )
    except OSError:  # no more processes may be started: that is no reason not to train
        yield _draw
        return
    with started as process:
        assert process.stdin is not None and process.stdout is not None
        asks, answers = process.stdin, process.stdout

        def draw(folder: Path, summary: dict[str, Any]) -> None:
            with contextlib.suppress(BrokenPipeError):
                asks.write(pickle.dumps((folder, summary)))
                asks.flush()
            if answers.read(len(DRAWN)) != DRAWN:  # whatever stopped it is an error of this process
                _draw(folder, summary)

        try:
            yield draw
        finally:
            process.kill()
            with contextlib.suppress(BrokenPipeError):  # what a process that had died was asked
                asks.close()


def _draw(folder: Path, summary: dict[str, Any]) -> None:
    """Draw a run here.

    Raises
    ------
    VflbenchError : there is no matplotlib that works; or as `draw_run`.
    """
    try:
        from vflbench.plots.curves import draw_run
    except Exception as error:
        advice = "the same command with resume=true plot=none ends the run without pictures"
        raise VflbenchError(f"no picture can be drawn, matplotlib cannot be used ({error}): {advice}") from error
    draw_run(folder, summary)


def main() -> None:
    """Draw the run that is asked for, unless who asks dies before."""
    with contextlib.suppress(Exception):
        from vflbench.plots.curves import draw_run

        folder, summary = pickle.load(sys.stdin.buffer)
        threading.Thread(target=_end_with_parent, daemon=True).start()
        draw_run(folder, summary)
        os.write(1, DRAWN)


def _end_with_parent() -> None:
    os.read(0, 1)
    os._exit(1)


if __name__ == "__main__":
    main()
