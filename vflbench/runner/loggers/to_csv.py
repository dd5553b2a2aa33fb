"""A line of a CSV file for each evaluation, as it is made."""

import csv
import io
from collections.abc import Mapping
from typing import Any

from vflbench.runner.logs import LoggedRun


class Lines:
    """The file of one run."""

    def __init__(self, run: LoggedRun) -> None:
        self.path, self.columns = run.folder / "csv.csv", run.columns
        kept = []
        if self.path.is_file():  # of a run that goes on; a kill may have cut its last line short
            with self.path.open(encoding="utf-8", newline="") as file:
                kept = [row for row in csv.DictReader(file) if str(row["round"]) in map(str, run.logged)]
        self._write([dict(zip(self.columns, self.columns, strict=True)), *kept], "w")

    def _write(self, rows: list[dict[str, Any]], mode: str) -> None:
        text = io.StringIO()
        csv.DictWriter(text, self.columns, lineterminator="\n").writerows(rows)
        with self.path.open(mode, encoding="utf-8") as file:
            file.write(text.getvalue())

    def log(self, row: Mapping[str, float]) -> None:
        """Write a line; NaN becomes an empty cell."""
        self._write([{key: "" if value != value else repr(value) for key, value in row.items()}], "a")

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Do nothing: the summary is in the run's folder."""


def start(config: Any, run: LoggedRun) -> Lines:
    """The logger of one run."""
    return Lines(run)
