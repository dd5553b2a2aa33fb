"""An exception that nobody foresaw: the user reads one line, and a log has the traceback.

Every command imports this, and hardly any needs more than `code`: the rest is imported where an exception is told.
"""

import os
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from vflbench.cli.words import RUNS, relative_path, text_of
from vflbench.version import __version__

CODE = 70  # the exit code: EX_SOFTWARE of sysexits.h
NAME = "error.log"  # in a run's folder
FOLDER = RUNS / "errors"  # for what has no folder of its own
BEGIN = "internal error: "  # of the line, also where it is the reason of something else
LONGEST = 300  # characters of the message, in the line


def crash_line(bug: Exception, folder: Path | None = None, hidden: Mapping[str, str] | None = None) -> str:
    """The line about an exception, whose traceback is written once, however often it is told.

    Parameters
    ----------
    folder : of the run that it ended, with a list of its files; None: of no run.
    hidden : texts that come from the environment: text -> what stands for it in line and log.
    """
    if (line := vars(bug).get("vflbench_told")) is not None:
        return str(line)
    import platform

    trace = "".join(traceback.format_exception(bug))
    said = " ".join(f"{type(bug).__name__}: {text_of(bug)}".split())
    for text, name in (hidden or {}).items():
        trace, said = trace.replace(text, name), said.replace(text, name)
    about = f"vflbench {__version__}, Python {platform.python_version()}, {platform.platform()}\n\n{trace}"
    said = said if len(said) <= LONGEST else f"{said[:LONGEST]}..."
    place = _write(about, folder)
    where = (
        f"The traceback is in {relative_path(place)}; please report it" if place else f"No log can be written:\n{trace}"
    )
    vars(bug)["vflbench_told"] = line = f"{BEGIN}{said.rstrip('.:')}. {where}"
    return line


def code(text: str, otherwise: int = 1) -> int:
    """The exit code of a command that ends with this text: CODE where the text says that such an exception is why."""
    return CODE if BEGIN in text else otherwise


def _write(text: str, folder: Path | None) -> Path | None:
    """Where the log is: in the run's folder, below outputs/, or in a temporary folder; None if none can be written."""
    if folder is not None:
        with suppress(Exception):  # a full disk may be what failed
            from vflbench.results.folder import atomic_write

            atomic_write(folder / NAME, text)
            return folder / NAME
    with suppress(OSError):
        FOLDER.mkdir(mode=0o700, parents=True, exist_ok=True)
        return _new(FOLDER, text)
    with suppress(OSError):
        return _new(None, text)
    return None


def _new(folder: Path | None, text: str) -> Path:
    """A new log in a folder, or in a temporary one, which only the user may read."""
    import tempfile

    begin = f"vflbench_{time.strftime('%Y-%m-%d_%H-%M-%S')}_"
    number, name = tempfile.mkstemp(".log", begin, folder)
    with os.fdopen(number, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(text)
    return Path(name)
