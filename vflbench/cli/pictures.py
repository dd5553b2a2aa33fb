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

DRAWN = b"drawn"


@contextlib.contextmanager
def beside() -> Iterator[Callable[[Path, dict[str, Any]], None]]:
    """What draws a run, given its folder and summary; the other process ends with the block."""
    with subprocess.Popen(
        [sys.executable, "-P", "-m", __name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        start_new_session=True,  # Ctrl-C reaches this process alone, which has the run drawn as far as it came
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        asks, answers = process.stdin, process.stdout

        def draw(folder: Path, summary: dict[str, Any]) -> None:
            with contextlib.suppress(BrokenPipeError):
                asks.write(pickle.dumps((folder, summary)))
                asks.flush()
            if answers.read(len(DRAWN)) != DRAWN:  # whatever stopped it is an error of this process
                from vflbench.plots.curves import draw_run

                draw_run(folder, summary)

        try:
            yield draw
        finally:
            process.kill()
            with contextlib.suppress(BrokenPipeError):  # what it was asked after it had died
                asks.close()


def main() -> None:
    """Draw the run that is asked for, unless who asks dies before."""
    from vflbench.plots.curves import draw_run

    with contextlib.suppress(Exception):
        folder, summary = pickle.load(sys.stdin.buffer)
        threading.Thread(target=_end_with_parent, daemon=True).start()
        draw_run(folder, summary)
        os.write(1, DRAWN)


def _end_with_parent() -> None:
    os.read(0, 1)
    os._exit(1)


if __name__ == "__main__":
    main()
