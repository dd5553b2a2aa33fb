"""The page of `vflbench report`: one self-contained HTML file, whose script draws (report_page/)."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jinja2
import numpy as np

from vflbench import exposure
from vflbench.plots import baseline_lines, demands, learnt, life, running_time, style
from vflbench.plots.report import Panel, Report, accounting_of, caveat, choice_cells, network_of, row, rule
from vflbench.plots.report_provenance import provenance
from vflbench.results import selection, texts
from vflbench.results.folder import splits
from vflbench.results.reader import Run
from vflbench.types import TRAINING_METRIC

PAGE = Path(__file__).parent / "report_page"
SCRIPTS = ("compare", "demands", "baselines", "show", "save", "controls")
AXES = ("communication_seconds", "bytes", "round", "cost", "epsilon", "virtual_seconds")
# Points of one run's curve in the page: at most, at least where many runs share the file, and of all runs together.
MOST_POINTS, FEWEST_POINTS, ALL_POINTS = 200, 40, 12_000


def to_html(report: Report, networks: Mapping[str, tuple[float, float | None]]) -> str:
    """The page.

    Parameters
    ----------
    networks : to choose from: name -> latency in ms and bandwidth in Gbit/s.
    """
    settings = [setting for panel in report.panels for setting in panel.settings]
    runs = sum(len(setting.runs) for setting in settings)
    most = max(FEWEST_POINTS, min(MOST_POINTS, ALL_POINTS // runs))
    panels = [_panel(report, panel, most) for panel in report.panels]
    data: dict[str, Any] = {"panels": [_data(report, panel, most) for panel in report.panels], "networks": networks}
    data |= {"ladder": [key for key, *_ in demands.LADDER], "noise": report.noise, "unverified": exposure.UNVERIFIED}
    data["charged"] = {"without": sorted(report.charged.without), "predictions": report.charged.predictions}
    algorithms = dict.fromkeys(style.look(setting.algorithm).label for setting in settings)
    datasets = dict.fromkeys(p.title.rpartition(",")[0] for p in report.panels)
    css = (PAGE / "report.css").read_text(encoding="utf-8")
    js = "\n".join((PAGE / f"{part}.js").read_text(encoding="utf-8") for part in SCRIPTS)
    return page_template(PAGE / "report.html").render(
        heading=f"{_listed(list(algorithms)) if len(algorithms) <= 4 else f'{len(algorithms)} methods'} on "
        f"{_listed(list(datasets))}",
        subheading=f"{_count(runs, 'run')}, {_count(len(settings), 'setting')}. Made by vflbench report; this file "
        "needs nothing else.",
        policy=texts.content_policy(css, js),
        css=css,
        js=js,
        # "<" in JSON text could end the script element, or begin a comment in it
        data=json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False).replace("<", "\\u003c"),
        panels=panels,
        notes=report.notes,
        learnt_heads=learnt.HEADS,
    )


def page_template(path: Path) -> jinja2.Template:
    """An HTML template, which may extend those beside it; no text that it is given becomes markup."""
    loader = jinja2.FileSystemLoader(path.parent)
    return jinja2.Environment(
        autoescape=True, loader=loader, trim_blocks=True, undefined=jinja2.StrictUndefined
    ).get_template(path.name)


def _listed(names: Sequence[str]) -> str:
    """The names in one text: `a, b and 3 others`."""
    shown = list(names) if len(names) <= 5 else [*names[:4], f"{len(names) - 4} others"]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def _count(number: int, name: str) -> str:
    return f"{number} {name}{'' if number == 1 else 's'}"


def _panel(report: Report, panel: Panel, most: int) -> dict[str, Any]:
    """The part of a panel that the template writes."""
    longest = max(len(run.curve) for run in panel.runs)
    thinned = (
        f"Curves of more than {most} evaluations (the longest has {longest}) are thinned: a target may be "
        "reached up to a gap earlier."
    )
    return {
        "place": report.panels.index(panel),
        "alarm": panel.alarm,
        "target_why": f"of which there is none ({panel.target_why})"
        if panel.target is None
        else f"{panel.target:g}: {panel.target_why}",
        "selects": any(choice.setting for choice in panel.choices),
        "thinned": thinned if longest > most else "",
        "choices": [choice_cells(choice) for choice in panel.choices],
        "names": [" · ".join(filter(None, [style.look(s.algorithm).label, s.words])) for s in panel.settings],
        "differing": {
            key: [
                "" if key not in setting.config else value for value, setting in zip(row, panel.settings, strict=True)
            ]
            for key, row in selection.differing(panel.settings).items()
        },
        "provenance": provenance(panel.runs),
        "learnt": learnt.tables(panel.settings),
    }


def _data(report: Report, panel: Panel, most: int) -> dict[str, Any]:
    """The part of a panel that the page's script reads."""
    runs = panel.runs
    metric = runs[0].summary["metric"]
    names = [f"{split}_{metric['name']}" for split in splits(metric["name"])]
    there = [name for name in names if any(run.curve[name].notna().any() for run in runs)]
    axes = [axis for axis in AXES if any(run.curve[axis].notna().any() for run in runs)]
    timed = "communication_seconds" in axes
    if not timed and any(report.priced[run.folder].chains for run in runs):
        axes.append("communication_seconds")  # of runs in real time: on a network of the reader's choice
    if not any(run.summary["compute_seconds"] and running_time.may_be_shown(run) for run in runs):
        axes = [axis for axis in axes if axis != "virtual_seconds"]
    free = timed and not any(run.curve["communication_seconds"].any() for run in runs)
    if free and any(run.curve["bytes"].any() for run in runs):
        axes.sort(key=lambda axis: axis != "cost")  # a network without times: the page opens with the cost
    lines: list[dict[str, Any]] = []
    entries: list[dict[str, Any]] = []
    seen = [demands.seen(setting) for setting in panel.settings]
    for setting, shows, look in zip(
        panel.settings, seen, style.looks([s.algorithm for s in panel.settings]), strict=True
    ):
        known = row(report, panel, setting)
        lines.append(
            {"label": style.look(setting.algorithm).label, "words": setting.words, **look}
            | {"runs": list(range(len(entries), len(entries) + len(setting.runs)))}
            | {"clock": running_time.clock(setting.runs[0]), "network": network_of(setting.runs[0])}
            | {"unproven": not running_time.may_be_shown(setting.runs[0])}
            | {"accounting": setting.runs[0].summary["accounting"], "again": selection.rerun(setting, network=False)}
            | {"clear": shows.clear, "noised": shows.noised, "guarantee": shows.guarantee, "shows": shows.words}
            | {"epsilon": shows.epsilon, "label_epsilon": shows.label_epsilon, "verified": shows.verified}
            | {key: known[key] for key in ("epsilon_words", "selected", "selected_sd", "final", "final_sd", "averaged")}
        )
        entries += [
            _entry(report, run, panel.target, axes, there, most) | {"line": len(lines) - 1} for run in setting.runs
        ]
    return {
        "title": panel.title,
        "metric": metric["name"],
        "goal": metric["goal"],
        "log": metric["name"] == TRAINING_METRIC,
        "splits": [name.split("_")[0] for name in there],
        "judged": names[0].split("_")[0],
        "axes": axes,
        "target": panel.target,
        "target_why": panel.target_why.capitalize(),
        "rule": rule(panel),
        "accounting": accounting_of(panel),
        "demands": [asdict(demand) for demand in demands.relevant(seen)],
        "caveat": caveat(panel),
        **baseline_lines.page(panel.runs, metric["name"]),
        "lines": lines,
        "runs": entries,
    }


def _entry(
    report: Report, run: Run, target: float | None, axes: Sequence[str], scores: Sequence[str], most: int
) -> dict[str, Any]:
    """A run's points, thinned, and its messages."""
    priced, traffic = report.priced[run.folder], report.traffic[run.folder]
    chosen = _thin(run, target, most)
    curve = run.curve.iloc[chosen]
    entry: dict[str, Any] = {
        "name": run.folder.name,
        "seed": run.summary["seed"],
        "bytes": run.summary["bytes"]["total"],
        **life.entry(run, priced),
        "axes": {axis: _numbers(curve[axis]) for axis in axes},
        "scores": {name.split("_")[0]: _numbers(curve[name]) for name in scores if curve[name].notna().any()},
    }
    if priced.chains is not None:
        entry["chains"] = [[number for chain in priced.chains[i] for number in chain] for i in chosen]
    if priced.bytes_by_link is not None:
        entry["links"] = [priced.bytes_by_link[i] for i in chosen]
    if priced.why:
        entry["why"] = priced.why
    if traffic is not None:
        place = {name: i for i, name in enumerate(traffic.parties)}
        entry["traffic"] = {
            "parties": traffic.parties,
            "rows": [(t, place[a], place[b], link, n, size) for t, a, b, link, n, size in traffic.rows],
        }
    return entry


def _thin(run: Run, target: float | None, most: int) -> list[int]:
    """Places of about `most` evaluations at even distances, with the selected one and the first at the target."""
    count = len(run.curve)
    kept = set(np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(int)).tolist())
    selected = run.summary["metric"]["selected_round"]
    kept |= set(np.flatnonzero(run.curve["round"].to_numpy() == selected).tolist()) if selected is not None else set()
    hit = selection.reached(run, target) if target is not None else None
    return sorted(kept | ({hit} if hit is not None else set()))


def _numbers(column: Any) -> list[float | int | None]:
    """The numbers with six digits, more than a screen shows; integers stay exact, missing or infinite ones are None."""
    return [
        None if not np.isfinite(v) else int(v) if v == int(v) and abs(v) < 2**53 else float(f"{v:.6g}")
        for v in column.astype(float).tolist()
    ]
