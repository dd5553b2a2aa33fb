"""Makes a figure from its runs: pictures, table, verdicts and page."""

import shlex
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from vflbench import registry
from vflbench.papers import claims, figure_page, measured
from vflbench.papers.definition import Definition
from vflbench.papers.jobs import Job
from vflbench.plots import curves, values
from vflbench.plots.curves import Picture
from vflbench.plots.style import dataset_label
from vflbench.results import inventory
from vflbench.results.folder import atomic_write
from vflbench.results.reader import Run
from vflbench.results.texts import spreadsheet


@dataclass(frozen=True)
class Made:
    """A figure that was drawn."""

    folder: Path
    verdicts: Counter[str]
    failures: list[str]


def claim_folder(folder: Path, names: Collection[str] | None = None) -> None:
    """`inventory.claim`, for the folder that `out` names or one below it."""
    inventory.claim(folder, "Choose another folder with out=DIR", names)


def write_table(definition: Definition, jobs: Sequence[Job], folder: Path) -> list[claims.Row]:
    """Write `table.csv`, a row for each setting that has a run; return the rows, also those without.

    Raises
    ------
    VflbenchError : a run cannot be read, or two runs differ in more than the figure's keys.
    """
    runs = [job.run for job in jobs if job.run is not None]
    absent = [job.values for job in jobs if job.run is None or job.run.status not in measured.COUNTED]
    about = definition.keys, definition.target, definition.columns, definition.against, absent, definition.easier
    table = measured.table(runs, *about)
    there = [{key: row[key] for key in row if key not in ("missing", "by_seed")} for row in table if row["seeds"]]
    shown = pd.DataFrame(there).dropna(axis=1, how="all").map(spreadsheet)
    atomic_write(folder / "table.csv", shown.to_csv(index=False, lineterminator="\n", float_format="%.6g"))
    return table


def make(definition: Definition, jobs: Sequence[Job], scale: str, folder: Path, command: Sequence[str]) -> Made:
    """Draw a figure from the runs of its jobs, and write its page into `folder`.

    Raises
    ------
    VflbenchError : a run cannot be read, or a file cannot be written.
    """
    if not inventory.kept(folder):
        claim_folder(folder)
    runs = [job.run for job in jobs if job.run is not None]
    failures = list(dict.fromkeys(f"{job.label}: {job.failure}" for job in jobs if job.failure))
    whole = write_table(definition, jobs, folder)
    table = [row for row in whole if row["seeds"]]
    names = []
    for place, picture in enumerate(definition.pictures, start=1):
        names.append("figure" if len(definition.pictures) == 1 else f"figure_{place}")
        draw(definition, picture, runs, table, folder / names[-1])
    sources = Counter(
        (run.summary["data_source"], dataset_label(run.summary["dataset"], run.summary["data_variant"])) for run in runs
    )
    excuse = "scale=smoke: two rounds of one seed" if scale == "smoke" else ""
    judged = []
    for claim in definition.claims:
        theirs = [row for numbers in definition.numbers if numbers.column == claim.column for row in numbers.rows()]
        judged.append(claims.judge(claim, whole, theirs, excuse, definition.names))
    repriced = [run for run in runs if "repriced_from" in run.manifest]
    trained = sum(job.fresh for job in jobs if job.run)
    warning = _warning(
        [run for run in runs if "real" in registry.datasets()[run.summary["dataset"]].sources],
        any(found.verdict != "not testable" for found in judged if found.claim.made_up),
    )
    facts: dict[str, Any] = {
        "scale": scale,
        "data": ", ".join(f"{dataset}: {kind} ({count} runs)" for (kind, dataset), count in sources.items()) or "none",
        "warning": warning,
        "command": shlex.join(["vflbench", "figures", *command]),
        "runs": f"{len(runs)} runs: {trained} trained now, {len(repriced)} re-priced, "
        f"{len(runs) - trained - len(repriced)} found",
        "failures": failures,
        "wall_seconds": sum(run.summary["wall_seconds"] for run in runs if run not in repriced),
    }
    figure_page.write(folder, definition, table, judged, names, facts)
    return Made(folder, Counter(found.verdict for found in judged), failures)


def _warning(runs: Sequence[Run], judged: bool) -> str:
    """A warning about data that are made up, or of which some are missing; empty where all are real and there.

    Parameters
    ----------
    runs : those on data sets that can be real. One that is always made up is made up in the paper too.
    judged : whether claims on made-up data are judged.
    """
    told = []
    made_up = [run.summary["data_source"] != "real" and not run.summary.get("data_lacks") for run in runs]
    if any(made_up):
        which = "Made-up data" if all(made_up) else "Some data are made up"
        told.append(f"{which}: they say nothing about the real data set.")
        if judged:
            why = "depend only on sizes, or on data that the paper made up too"
            told.append(f"The claims that are judged all the same {why}.")
    parts = dict.fromkeys(
        f"{dataset_label(run.summary['dataset'], run.summary['data_variant'])} ({run.summary['data_lacks']})"
        for run in runs
        if run.summary.get("data_lacks")
    )
    if parts:
        told.append(f"Part of the real data: {', '.join(parts)}.")
    return " ".join(told)


def draw(
    definition: Definition, picture: Picture, runs: Sequence[Run], table: Sequence[claims.Row], stem: Path
) -> None:
    """Draw one picture, and write its points."""
    shortened = _without_shared_keys(table, picture, definition)
    if picture.kind == "values":
        theirs = [row for numbers in definition.numbers if numbers.column == picture.y for row in numbers.rows()]
        chosen = [shortened(row) for row in claims.select(table, picture.where)]
        levels = claims.select(chosen, picture.levels) if picture.levels else []
        chosen = [row for row in chosen if row not in levels]
        label = measured.columns([picture.y])[picture.y] if picture.y not in ("selected", "final") else ""
        values.draw_values(picture, chosen, theirs, levels, stem, label, definition.names)
        return
    panels: dict[str, dict[str, list[Run]]] = {}
    beside: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for row in claims.select(table, picture.where):
        title = values.line_label(row, picture.panels, definition.names)
        line = values.line_label(shortened(row), picture.lines, definition.names)
        for numbers in definition.numbers:
            place = measured.at(numbers.column)
            if place is None or place[0] != picture.x:
                continue
            own_numbers = [n for n in numbers.rows() if claims.select([row], claims.setting_of(n))]
            beside.setdefault(title, {}).setdefault(line, []).extend((place[1], n["mean"]) for n in own_numbers)
    diverged = 0
    for run in runs:
        own = measured.setting(run, definition.keys)
        if not len(run.curve) or not claims.select([own], picture.where):
            continue
        if run.status == "diverged":
            diverged += 1
            continue
        title = values.line_label(own, picture.panels, definition.names)
        panels.setdefault(title, {}).setdefault(
            values.line_label(shortened(own), picture.lines, definition.names), []
        ).append(run)
    curves.draw_panels(picture, panels, stem, f"left out: {diverged} diverged" if diverged else "", beside)


def _without_shared_keys(
    table: Sequence[claims.Row], picture: Picture, definition: Definition
) -> Callable[[claims.Row], claims.Row]:
    """A function that sets a setting's keys to `-` where all settings of its algorithm have the same value.

    Such keys of the picture's lines say nothing in the name of a line.
    """
    rows = claims.select(table, picture.where)
    counted = {
        key for numbers in definition.numbers if numbers.column == picture.y for key in (*numbers.by, *numbers.where)
    }
    shared: set[tuple[str, str]] = set()
    algorithms = claims.grouped(rows, ["algorithm.name"]) if "algorithm.name" in picture.lines else []
    for names, own in algorithms if len(algorithms) > 1 else []:
        keys = [key for key in picture.lines if key not in ("algorithm.name", picture.x, *picture.panels, *counted)]
        shared |= {(names["algorithm.name"], key) for key in keys if len({str(row[key]) for row in own}) == 1}
    return lambda row: {key: "-" if (row.get("algorithm.name"), key) in shared else value for key, value in row.items()}
