"""`vflbench.report`."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from vflbench.cli import report as command
from vflbench.plots import demands
from vflbench.plots import report as page
from vflbench.python import runs as given
from vflbench.results.pricing import LIFE, Charged
from vflbench.types import Problem, closest, refuse

if TYPE_CHECKING:
    import pandas as pd

    from vflbench.python.runs import Given


@dataclass(frozen=True, repr=False)
class Report:
    """Runs side by side, as ``vflbench report`` shows them."""

    found: page.Report

    @cached_property
    def table(self) -> pd.DataFrame:
        """A row for each setting, with the columns of the command's ``--csv``; NaN where a number does not apply."""
        import pandas as pd

        return pd.DataFrame(page.table(self.found))

    @cached_property
    def answers(self) -> pd.DataFrame:
        """The best setting for each demand on what others may see: a row for each demand and data set."""
        import pandas as pd

        rows = [[panel.title, *row] for panel in self.found.panels for row in page.answers(self.found, panel)]
        return pd.DataFrame(rows, columns=["data", *demands.HEADS])

    @property
    def notes(self) -> list[str]:
        """What was left out or is incomplete, in sentences."""
        return list(self.found.notes)

    def html(self) -> str:
        """The text of the page, which needs no other files."""
        return command.to_html(self.found)

    def markdown(self) -> str:
        """The tables as Markdown."""
        return page.to_markdown(self.found)

    def write(
        self,
        out: str | Path | None = None,
        csv: str | Path | None = None,
        markdown: str | Path | None = None,
        overwrite: bool = False,
    ) -> None:
        """Write the page, the table as CSV, and the tables as Markdown; existing files are kept unless `overwrite`.

        Raises
        ------
        VflbenchError : a file already exists, is in a run's folder, or cannot be written.
        """
        command.admit((out, csv, markdown), overwrite, "overwrite=True")
        command.write(self.found, out, csv, markdown)

    def __repr__(self) -> str:
        """The number of runs and settings and their data, and the best setting on a second line."""
        panels = self.found.panels
        settings = sum(len(panel.settings) for panel in panels)
        runs = sum(len(panel.runs) for panel in panels)
        left = f"; {len(self.notes)} notes" if self.notes else ""
        best = dict(zip(demands.HEADS, page.answers(self.found, panels[0])[0], strict=True))
        answer = (
            f"where others may see {best['others may see']}: {best['best method']}, {best['sent to target']} to target"
        )
        return f"Report of {runs} runs, {settings} settings on {'; '.join(p.title for p in panels)}{left}\n{answer}"

    def _repr_html_(self) -> str:
        """The answers and the table, for a notebook."""
        alarms = [panel.alarm for panel in self.found.panels if panel.alarm]
        parts = [f"<p><b>{html.escape(alarm)}</b></p>" for alarm in alarms]
        parts += [self.answers.to_html(index=False), self.table.to_html(index=False)]
        return "".join([*parts, *(f"<p>{html.escape(note)}</p>" for note in self.notes)])


def report(
    runs: Given,
    out: str | Path | None = None,
    *,
    csv: str | Path | None = None,
    markdown: str | Path | None = None,
    predictions: int | None = None,
    without: Iterable[str] = (),
    noise: float = demands.NOISE,
    overwrite: bool = False,
) -> Report:
    """Compare runs, as ``vflbench report`` does: the best setting for each demand, what each setting cost, and a page.

    Parameters
    ----------
    runs : a run, a folder with runs, or several of either. Runs that did not end well are left out; notes name them.
    out, csv, markdown : files for the page, its table, and its tables as Markdown; None: not written.
    predictions : how many predictions are charged (None: as many as each run has test rows; 0: none).
    without : phases that are not charged, of align, setup and predict.
    noise : the largest epsilon with which noise counts as hiding what is sent.
    overwrite : replace existing files.

    Returns
    -------
    Report : ``.answers`` and ``.table`` are DataFrames, ``.html()`` is the page.

    Raises
    ------
    ConfigError : the arguments have problems.
    VflbenchError : no run can be shown, or a file already exists.
    """
    problems, left = list[Problem](), [without] if isinstance(without, str) else [*without]
    if predictions is not None and (
        isinstance(predictions, bool) or not isinstance(predictions, int) or predictions < 0
    ):
        problems.append(Problem("predictions", predictions, "must be a whole number from 0, or None"))
    for phase in left:
        if phase not in LIFE:
            problems.append(Problem("without", phase, f"must be of {', '.join(LIFE)}", closest(str(phase), LIFE)))
    if isinstance(noise, bool) or not isinstance(noise, int | float) or not noise >= 0 or math.isnan(noise):
        problems.append(Problem("noise", noise, "must be a number from 0"))
    refuse(problems)
    command.admit((out, csv, markdown), overwrite, "overwrite=True")
    found = command.read(given.folders(runs), Charged(frozenset(left), predictions))
    found.noise = float(noise)
    made = Report(found)
    command.write(found, out, csv, markdown)
    return made
