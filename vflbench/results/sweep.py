"""The table at the end of a sweep: one line per job."""

from pathlib import Path

from vflbench.results.reader import Run, natural
from vflbench.results.texts import human_bytes, in_line
from vflbench.types import TRAINING_METRIC, VflbenchError


def table(folder: str | Path) -> str:
    """A plain-text table of the sweep in `folder`: job, what differs, status, test metric, communication, run folder.

    A job that left nothing readable has a line that says so. The text is empty if there are no jobs.
    """
    runs = jobs(folder)
    overrides = [_overrides(run) for run in runs]
    common = set.intersection(*map(set, overrides)) if len(runs) > 1 else set()
    # A column for each key that differs, so that its values are below each other.
    keys = list(
        dict.fromkeys(
            key for words in overrides for word in words if word not in common for key in [word.split("=", 1)[0]]
        )
    )
    rows = [["job", *keys, "status", "metric", "selected", "final", "sent", "communication", "folder"]]
    for run, words in zip(runs, overrides, strict=True):
        given = dict(word.split("=", 1) for word in words if "=" in word)
        rows.append([run.folder.name, *(given.get(key, "") for key in keys), *results(run), str(run.folder)])
    return align(rows) if runs else ""


def jobs(folder: str | Path) -> list[Run]:
    """The sweep's runs in the order of job numbers, also those that failed before they wrote anything."""
    signs = ("manifest.json", "summary.json", ".hydra")
    inside = [path for path in Path(folder).iterdir() if any((path / sign).exists() for sign in signs)]
    return [Run(path) for path in sorted(inside, key=lambda path: natural(path.name))]


def _overrides(run: Run) -> list[str]:
    try:
        return run.overrides or []
    except VflbenchError:  # one damaged folder does not end a table of many jobs; the status column shows it
        return []


def results(run: Run) -> list[str]:
    """Status, metric, selected, final, bytes and communication seconds as text."""
    try:
        status = run.status
        if status is None:
            return ["no result", "", "", "", "", ""]
        summary, metric = run.summary, run.summary["metric"]  # without a name where the data were never reached
        form = ".2e" if metric["name"] == TRAINING_METRIC else ".4f"  # a gap, of many decades
        scores = ["-" if metric[key] is None else f"{metric[key]:{form}}" for key in ("selected", "final")]
        return [
            status,
            metric["name"] or "",
            *scores,
            human_bytes(summary["bytes"]["total"]),
            "-" if summary["communication_seconds"] is None else f"{summary['communication_seconds']:.4g} s",
        ]
    except VflbenchError:
        return ["unreadable", "", "", "", "", ""]


def align(rows: list[list[str]]) -> str:
    """Rows of text in aligned columns, one line each; the first row has the names of the columns."""
    rows = [[in_line(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    numbers = ("selected", "final", "sent", "communication")
    places = [f"{'>' if name in numbers else '<'}{width}" for name, width in zip(rows[0], widths, strict=True)]
    return "\n".join(
        "  ".join(format(cell, place) for cell, place in zip(row, places, strict=True)).rstrip() for row in rows
    )
