"""The texts that the command prints."""

import sys
from pathlib import Path
from typing import Any

from vflbench import registry
from vflbench.results.texts import printable, result_line
from vflbench.types import ConfigError, VflbenchError

RUNS = Path("outputs")


def say(text: str) -> None:
    """Print results on stdout, without control characters: data and run folders may have some in their texts."""
    print(printable(text), flush=True)


def complain(text: str) -> None:
    """Print on stderr, likewise without control characters."""
    print(printable(text), file=sys.stderr, flush=True)


def text_of(error: Exception) -> str:
    """The message of an exception; empty where it fails to give one, as one of a plug-in may."""
    try:
        return str(error)
    except Exception:
        return ""


def for_user(error: Exception) -> VflbenchError | None:
    """`error` as a message for the user, also if the system or lack of memory caused it; None for a bug."""
    reason = text_of(error) or type(error).__name__
    if isinstance(error, VflbenchError):
        return error
    if isinstance(error, OSError):
        return VflbenchError(f"{error.filename}: {error.strerror}" if error.filename and error.strerror else reason)
    if isinstance(error, MemoryError) or "can't allocate memory" in reason or "out of memory" in reason:
        return VflbenchError(f"out of memory: choose smaller sizes ({reason})")
    return None


def one_line(error: ConfigError) -> str:
    """All problems in one line."""
    return "; ".join(str(problem).rstrip(".") for problem in error.problems)


def last_lines(summary: dict[str, Any], folder: Path) -> str:
    """The last lines of a run; if data are made up, the very last one says so."""
    lines = [result_line(summary)]
    if (folder / "curve.png").exists():
        lines.append(f"curve: {relative_path(folder / 'curve.png')}")
    lines.append(f"run folder: {relative_path(folder)}")
    if summary["status"] == "interrupted":
        lines.append("interrupted: the same command with resume=true continues it")
    return "\n".join([*lines, *filter(None, [made_up(summary)])])


def made_up(summary: dict[str, Any]) -> str:
    """A line in capitals if the data are not real, or not all of the real ones; else an empty text."""
    if summary["data_source"] == "synthetic":
        if "real" not in registry.datasets()[summary["dataset"]].sources:
            return f"SYNTHETIC DATA: {summary['dataset']} is always made up"
        return (
            f"SYNTHETIC DATA: a made-up twin of {summary['dataset']}; these numbers say nothing about the real data set"
        )
    if lacks := summary.get("data_lacks"):
        return (
            f"PARTIAL DATA: {summary['dataset']} is real, but not all of it ({lacks}); these numbers are not the full "
            "data set's"
        )
    if summary["data_source"] == "partial":
        return (
            f"PARTLY SYNTHETIC DATA: parts of {summary['dataset']} are synthetic; these numbers are not the real "
            "data set's"
        )
    return ""


def relative_path(path: Path) -> str:
    """The path, relative to the current folder if it is below that."""
    path = path.absolute()
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
