"""`vflbench show`: the tables of a report, in the terminal."""

import os
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from vflbench.plots import baseline_lines, demands, life, running_time
from vflbench.plots.report import CHOICE_HEADS, HEADS, Report, answers, caveat, cells, choice_cells, row, rule, scored
from vflbench.plots.report_provenance import provenance
from vflbench.results.folder import splits
from vflbench.results.pricing import Traffic
from vflbench.results.reader import Run
from vflbench.results.texts import human_bytes, printable

MOST_ROWS = 12  # of a curve
PIPED = 200  # columns of output to a file or another program


def show(report: Report, console: Console | None = None) -> None:
    """Write the tables to `console` (stdout if None); for a single run also its curve and messages."""
    if console is None:
        console = Console(highlight=False)
        if not console.is_terminal and "COLUMNS" not in os.environ:
            console.width = PIPED  # rich would take 80 columns, too few for the table
    for panel in report.panels:
        console.print(_text(panel.title, style="bold"))
        if panel.alarm:
            console.print(_text(panel.alarm, style="bold red"))
        if len(panel.settings) > 1:
            _print(console, demands.HEADS, answers(report, panel), right=(2, 3, 4))
        goal = panel.target_why if panel.target is None else f"target {panel.target:g}: {panel.target_why}"
        about = [rule(panel), life.words(panel.runs, report.charged), caveat(panel)]
        console.print(_text(f"{goal}; times: {'. '.join(filter(None, about))}", style="dim"))
        _print(
            console,
            HEADS,
            [
                *(cells(row(report, panel, setting)) for setting in panel.settings),
                *baseline_lines.cells(panel.runs, scored),
            ],
            right=range(3, len(HEADS)),
        )
        if note := baseline_lines.note(panel.runs, panel.runs[0].summary["metric"]["name"]):
            console.print(_text(note, style="dim"), soft_wrap=True)
        runs = panel.runs
        if len(runs) > 1:
            choices = [[*choice_cells(choice).values()] for choice in panel.choices]
            _print(console, CHOICE_HEADS, choices, right=(2, 3))
        if len(runs) == len(report.panels) == 1:
            _curve(console, runs[0])
            _phases(console, runs[0])
            _traffic(console, report.traffic[runs[0].folder])
            for name, values in provenance(runs).items():
                console.print(_text(f"{name}: ", style="bold") + _text(values[0][0]), soft_wrap=True)


def _text(text: str, style: str = "") -> Text:
    """A text of a run folder; it commands neither the terminal nor rich."""
    return Text(printable(text), style)


def _print(console: Console, heads: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int]) -> None:
    """Print a table without its empty columns."""
    kept = [i for i in range(len(heads)) if any(line[i] not in ("", "–") for line in rows)]
    table = Table(box=None, header_style="bold", pad_edge=False)
    for i in kept:
        table.add_column(_text(heads[i]), justify="right" if i in right else "left", overflow="fold")
    for line in rows:
        table.add_row(*(_text(line[i]) for i in kept))
    console.print(table)
    console.print()


def _curve(console: Console, run: Run) -> None:
    metric, curve = run.summary["metric"]["name"], run.curve
    scores = [f"{split}_{metric}" for split in splits(metric)]
    every = max(1, -(-len(curve) // MOST_ROWS))
    chosen = curve.iloc[sorted({*range(0, len(curve), every), len(curve) - 1})]
    timed = curve["communication_seconds"].notna().all()
    seconds = "communication_seconds" if timed else "virtual_seconds"
    known = timed or running_time.may_be_shown(run)
    epsilon = "epsilon" if run.summary["privacy"]["covers"] == "transcript" else "epsilon of the model only"
    heads = ("round", "sent", "communication" if timed else "running time", *scores, epsilon)
    rows = [
        [str(int(at["round"])), human_bytes(at["bytes"]), f"{at[seconds]:.4g} s" if known else "–"]
        + ["–" if at[key] != at[key] else f"{at[key]:.4g}" for key in (*scores, "epsilon")]
        for at in chosen.to_dict("records")
    ]
    _print(console, heads, rows, right=range(len(heads)))


def _phases(console: Console, run: Run) -> None:
    phases = run.summary.get("phases") or {}
    shown = {name: one for name, one in phases.items() if one}
    rows = [
        [
            name if "rows" not in one else f"{name} 1,000 (from {one['rows']:,})",
            *(human_bytes(one["bytes"]), f"{one['messages']:,}"),
            "–" if one["seconds"] is None else f"{one['seconds']:.4g} s",
        ]
        for name, one in shown.items()
    ]
    if rows:
        _print(console, ("phase", "sent", "messages", "communication"), rows, right=(1, 2, 3))


def _traffic(console: Console, traffic: Traffic | None) -> None:
    if traffic is None or not traffic.rows:
        return
    rows = [[tag, src, dst, link, f"{count:,}", human_bytes(size)] for tag, src, dst, link, count, size in traffic.rows]
    _print(console, ("tag", "from", "to", "link", "messages", "bytes"), rows, right=(4, 5))
