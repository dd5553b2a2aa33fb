"""What choosing found, as a table."""

from __future__ import annotations

import sys
from pathlib import Path

from vflbench.choosing.record import Record
from vflbench.results.sweep import align


def finish(folder: Path, record: Record) -> int:
    """Print what was found; the exit code."""
    rows = [["method", "reached", "metric", "bytes", "seconds", "finals", "out"]]
    for method in record.methods:
        best = next((trial for trial in method.trials if trial.number == method.best), None)
        facts = [best.reached, best.metric, best.bytes, best.seconds] if best else ["-"] * 4
        rows.append([method.name, *map(str, facts), str(len(method.finals)), method.out or ""])
    lines = [align(rows), *(f"- {one.algorithm} {one.privacy or ''}: {one.reason}" for one in record.excluded)]
    sys.stdout.write("\n".join([*lines, *(f"note: {note}" for note in record.notes)]) + "\n")
    return 0
