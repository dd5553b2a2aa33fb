"""Curves of a metric against communication time, bytes or rounds: one run (`draw_run`) or many (`draw_runs`)."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text

from vflbench.plots import baseline_lines, running_time, style
from vflbench.plots.canvas import entitle, legend_below, new_figure, plain, save, verbatim
from vflbench.results import experiment, selection
from vflbench.results.folder import atomic_write, score_of, splits
from vflbench.results.identity import flat
from vflbench.results.network import network_label
from vflbench.results.reader import Run
from vflbench.results.texts import data_alarm, guarantee, si_scale, spreadsheet
from vflbench.types import ENDED_WELL, TRAINING_METRIC, Metric

# Column of the curve -> label of the axis.
X_LABELS = {
    "communication_seconds": "communication time (s)",
    "virtual_seconds": "running time (virtual s)",
    "bytes": "bytes sent",
    "round": "round",
    "epoch": "epoch",
    "messages": "messages",
    "vectors": "vectors sent",
    "cost": "weighted cost",
    "iterations": "iterations",
    "epsilon": "epsilon",
}
# Metrics of training samples, which fall by orders of magnitude -> label of the axis.
_TRAINED = {TRAINING_METRIC: "relative gap to the optimum", "loss": "training loss"}
_PICTURES = {"curve": "communication_seconds", "bytes": "bytes", "rounds": "round"}


@dataclass(frozen=True)
class Picture:
    """One picture of a figure, as its definition says (papers/definition.py explains the keys)."""

    kind: Literal["values", "curves"]
    x: str
    y: str = "selected"
    panels: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=lambda: ["algorithm.name"])
    log: list[str] = field(default_factory=list)
    where: dict[str, Any] = field(default_factory=dict)
    levels: dict[str, Any] = field(default_factory=dict)
    title: str = ""
    at_most: float | None = None  # of x: the paper's axis ends there
    paired: bool = False


def points(curve: pd.DataFrame, x: str, metric: str) -> pd.DataFrame:
    """The points of a curve: columns round, x, validation, test; sorted by x, without rows that lack x or all scores.

    A metric of the training samples is in the column test, where it is above 0: its axis is logarithmic.
    """
    if metric in _TRAINED:
        score = curve[f"train_{metric}"].astype("float64")
        curve = curve.copy()
        curve[f"val_{metric}"], curve[f"test_{metric}"] = float("nan"), score.where(score > 0)
    chosen = curve[["round", x, f"val_{metric}", f"test_{metric}"]].set_axis(
        ["round", "x", "validation", "test"], axis=1
    )
    chosen = chosen.astype({"x": "float64", "validation": "float64", "test": "float64"})
    chosen = chosen[chosen["x"].abs() < float("inf")].dropna(subset=["validation", "test"], how="all")
    return chosen.sort_values("x", kind="stable").reset_index(drop=True)


# --- one run ----------------------------------------------------------------------------------------------------------


def draw_run(
    run: Run | Path, summary: Mapping[str, Any] | None = None, names: Iterable[str] = tuple(_PICTURES)
) -> None:
    """Write the pictures `names`, of curve, bytes and rounds, each as .png and .svg, into the run folder.

    `summary`: the content of summary.json where that is not written yet (it is the last file of a run).

    Raises
    ------
    VflbenchError : the curve cannot be read, or a picture cannot be written.
    """
    run = Run(run) if isinstance(run, Path) else run
    content = summary or run.summary
    network = _network(run, content)
    with mpl.rc_context(style.RC):  # type: ignore[arg-type]
        for name in names:
            save(_picture(run.curve, content, network, _PICTURES[name]), run.folder / name)


def _picture(curve: pd.DataFrame, summary: Mapping[str, Any], network: str | None, x: str) -> Figure:
    metric, look = Metric(summary["metric"]["name"], summary["metric"]["goal"]), style.look(summary["algorithm"])
    figure, (axes,) = new_figure(1)
    note, x = None, _timeless(x, [curve], [summary["compute_clock"]])
    if len(curve) and x != "round" and not curve[x].any():
        note, x = "no communication: drawn against rounds", "round"
    shown = points(curve, x, metric.name)
    if sends_once([shown], x):  # a marker, not a vertical line
        selected = summary["metric"]["selected_round"]
        shown = shown[shown["round"] == (shown["round"].max() if selected is None else selected)]
    scale = _label_x(axes, x, shown["x"].max() if len(shown) else 1.0)
    _label_y(axes, metric.name)
    if not len(shown):
        why = "no gap above 0" if len(curve) and metric.name in _TRAINED else "no evaluation was reached"
        axes.text(0.5, 0.5, why, transform=axes.transAxes, ha="center", color=style.QUIET)
    every = max(1, len(shown) // 12)  # more markers would hide the line
    if shown["validation"].notna().any():
        axes.plot(shown["x"] / scale, shown["validation"], color=style.QUIET, linewidth=0.9, label="validation")
    if shown["test"].notna().any():
        axes.plot(
            shown["x"] / scale,
            shown["test"],
            color=look.color,
            marker=look.marker,
            markevery=every,
            label=splits(metric.name)[-1],
        )
        axes.set_xlim(left=0)
        _mark(axes, shown, summary["metric"]["selected_round"], scale, look.color)
        baseline_lines.draw(axes, [summary], x, metric.name, scale)
    entitle(axes, _title(summary, network), _alarm(summary))
    if note:
        axes.text(0.98, 0.5, note, transform=axes.transAxes, ha="right", color=style.ALARM, style="italic")
    rule = f"timing {summary['timing']} · accounting {summary['accounting']} · compute clock {summary['compute_clock']}"
    if x not in ("round", "epsilon") and "phases" in summary:
        rule += f" · phases {'align, ' if 'before' in summary else ''}setup and train"
    # Below the picture: inside it, the legend and the selected value could cover the curve.
    legend = figure.legend(
        *axes.get_legend_handles_labels(), loc="outside lower center", ncols=3, title=rule, title_fontsize=7.5
    )
    legend.get_title().set_color(style.QUIET)
    return figure


def sends_once(curves: Sequence[pd.DataFrame], x: str) -> bool:
    """Whether each of `curves`, as `points` gives them, stands at one `x` from its first score to its last."""
    return x in ("bytes", "communication_seconds", "cost", "messages", "vectors") and all(
        len(curve) > 1 and curve["x"].iloc[0] > 0 and curve["x"].nunique() == 1 for curve in curves
    )


def _mark(axes: Axes, shown: pd.DataFrame, selected: int | None, scale: float, color: str) -> None:
    """Draw a ring at the selected round, or at the last one without validation; its value goes into the legend."""
    rows = {row["round"]: row for row in shown.to_dict("records")}
    row, why = (rows[max(rows)], "final") if selected is None else (rows.get(selected), "selected on validation")
    if row is None or (y := row["test"]) != y:
        return
    text = f"{y:.4g} at round {int(row['round'])} ({why})"
    axes.plot(
        [row["x"] / scale], [y], "o", markersize=12, fillstyle="none", color=color, markeredgewidth=1.8, label=text
    )


def _title(summary: Mapping[str, Any], network: str | None) -> str:
    what = (
        f"{style.look(summary['algorithm']).label} on "
        f"{style.dataset_label(summary['dataset'], summary['data_variant'])}"
    )
    real = "real data" if summary["data_source"] == "real" else None
    return " · ".join(filter(None, [what, network, real, f"seed {summary['seed']}"]))


def _alarm(summary: Mapping[str, Any]) -> str:
    """A short warning where data are not real, or not all there, or the run did not complete."""
    data = data_alarm(summary)
    data += ", nothing of it is real" if summary["data_source"] == "synthetic" else ""
    status = None if summary["status"] == "completed" else f"status: {summary['status'].replace('_', ' ')}"
    return " · ".join(filter(None, [data, status]))


def _network(run: Run, summary: Mapping[str, Any]) -> str | None:
    """What the network is called, if there is a manifest and the run had a network."""
    if summary["timing"] == "measured":
        return style.NO_NETWORK
    config = run.manifest.get("config", {}) if (run.folder / "manifest.json").exists() else {}
    return network_label(config["network"]) if config.get("network") else None


def _networks(runs: Sequence[Run]) -> dict[Path, str]:
    """Run folder -> its network's name, with the keys in which networks of that name differ."""
    named = {run.folder: _network(run, run.summary) or "" for run in runs}
    keys = {
        run.folder: flat(run.manifest["config"]["network"])
        for run in runs
        if named[run.folder] not in ("", style.NO_NETWORK)
    }
    found = dict(named)
    for folder, own in keys.items():
        peers = [other for place, other in keys.items() if named[place] == named[folder]]
        varied = [f"{key}={value}" for key, value in own.items() if any(peer.get(key) != value for peer in peers)]
        found[folder] = " ".join([named[folder], *varied])
    return found


# --- many runs --------------------------------------------------------------------------------------------------------


def draw_runs(runs: Sequence[Run], folder: Path, x: str = "communication_seconds", name: str = "curve") -> pd.DataFrame:
    """Write one picture of several runs, `name`.png and .svg, and the drawn points, `name`.csv, into `folder`.

    There is a panel per data set and network, and a line per setting: the mean over its seeds with a band of one
    standard deviation. Curves are interpolated to common x first. On a network without times x is the weighted cost. A
    method that does not communicate is a horizontal line at its selected (else final) value. Runs that did not end well
    are left out and counted above the picture.

    Returns
    -------
    DataFrame : what was drawn, with columns panel, line, x, mean, sd (NaN where n = 1), n.

    Raises
    ------
    VflbenchError : a run cannot be read, or the picture cannot be written.
    """
    drawn = [run for run in runs if run.status in ENDED_WELL and len(run.curve)]
    left_out = Counter(run.status or "unfinished" for run in runs if run not in drawn)
    panels: dict[tuple[str, str, str, str], list[Run]] = defaultdict(list)
    networks = _networks(drawn)
    for run in drawn:
        dataset = style.dataset_label(run.summary["dataset"], run.summary["data_variant"])
        panels[dataset, networks[run.folder], data_alarm(run.summary), run.summary["metric"]["name"]].append(run)
    titled: dict[str, Mapping[str, list[Run]]] = {}
    for (dataset, network, alarm, metric), inside in panels.items():
        title = " · ".join(filter(None, [dataset, network, None if alarm else "real data"]))
        while title in titled:
            title += f" · {metric}"
        titled[title] = _lines(inside)
    text = "left out: " + ", ".join(f"{count} {status}" for status, count in left_out.items()) if left_out else ""
    return draw_panels(Picture("curves", x), titled, folder / name, text)


def draw_into(axes: Axes, runs: Sequence[Run], x: str, metric: str, log: Sequence[str] = ()) -> None:
    """Draw runs into axes of the caller's: a line per setting, as `draw_runs`, a title and a legend.

    Parameters
    ----------
    runs : of one data set, judged by one metric.
    x : one of `X_LABELS`.
    metric : theirs, or `loss`, that of training.
    log : of `x` and `y`, the axes that are logarithmic.

    Raises
    ------
    VflbenchError : a run cannot be read.
    """
    drawn = [run for run in runs if run.status in ENDED_WELL and len(run.curve)]
    left_out = Counter(run.status or "unfinished" for run in runs if run not in drawn)
    theirs = set(axes.findobj(Text))
    lines = _lines(drawn)
    algorithms = [group[0].summary["algorithm"] for group in lines.values()]
    looks = dict(zip(lines, style.looks(algorithms), strict=True))
    _scale(axes, _panel(axes, lines, looks, x, metric), log, None)
    first, networks = drawn[0].summary, {*_networks(drawn).values()}
    title = [style.dataset_label(first["dataset"], first["data_variant"]), *(networks if len(networks) == 1 else ())]
    title += ["real data"] if first["data_source"] == "real" else []
    alarm = [_alarm({**first, "status": "completed"})]
    alarm += ["left out: " + ", ".join(f"{count} {status}" for status, count in left_out.items())] if left_out else []
    # in the middle, where the caller's own set_title replaces it
    entitle(axes, " · ".join(filter(None, title)), " · ".join(filter(None, alarm)), "center")
    axes.legend()
    verbatim(text for text in axes.findobj(Text) if text not in theirs)


def draw_panels(
    picture: Picture,
    panels: Mapping[str, Mapping[str, list[Run]]],
    stem: Path,
    note: str = "",
    theirs: Mapping[str, Mapping[str, Sequence[tuple[float, float]]]] | None = None,
) -> pd.DataFrame:
    """Write one picture, `stem`.png, .svg and .csv; returns and raises as `draw_runs`.

    Parameters
    ----------
    panels : title -> label of a line -> its runs, which differ only in their seeds. Against epsilon, each kind of it
        gets a panel of its own.
    note : a warning above the picture.
    theirs : the paper's points, title -> label -> (x, score); they are hollow markers.
    """
    shown = _by_kind(panels) if picture.x == "epsilon" else [(title, title, lines) for title, lines in panels.items()]
    algorithms = {label: group[0].summary["algorithm"] for lines in panels.values() for label, group in lines.items()}
    looks = dict(zip(algorithms, style.looks(list(algorithms.values())), strict=True))  # the same in all panels
    tables = []
    with mpl.rc_context(style.RC):  # type: ignore[arg-type]
        figure, places = new_figure(len(shown))
        for axes, (of, title, lines) in zip(places, shown, strict=False):
            summaries = [run.summary for group in lines.values() for run in group]
            worst = min(summaries, key=lambda s: ("synthetic", "partial", "real").index(s["data_source"]))
            entitle(axes, title, _alarm({**worst, "status": "completed"}))
            metric = "loss" if picture.y == "train_loss" else summaries[0]["metric"]["name"]
            tables.append(_panel(axes, lines, looks, picture.x, metric, picture.paired).assign(panel=title))
            for label, found in (theirs or {}).get(of, {}).items():
                if found and label in lines:
                    hollow = {key: looks[label][key] for key in ("color", "marker")}
                    hollow |= {"linestyle": "none", "fillstyle": "none"}
                    axes.plot(*zip(*found, strict=True), **hollow, markersize=7, label=f"{label}, paper")
            _scale(axes, tables[-1], picture.log, picture.at_most)
        legend_below(figure)
        if note:
            figure.suptitle(note, fontsize=9, color=style.ALARM, x=0.99, ha="right")
        save(figure, stem)
    columns = ["panel", "line", "x", "mean", "sd", "n"]
    table = pd.concat(tables, ignore_index=True)[columns] if tables else pd.DataFrame(columns=columns)
    write_points(stem.with_name(f"{stem.name}.csv"), table)
    return table


def _by_kind(panels: Mapping[str, Mapping[str, list[Run]]]) -> list[tuple[str, str, Mapping[str, list[Run]]]]:
    """Each panel's title, that of a part of it whose epsilons are about the same, and the part's lines."""
    parts: list[tuple[str, str, Mapping[str, list[Run]]]] = []
    for title, lines in panels.items():
        kinds: dict[str | None, dict[str, list[Run]]] = defaultdict(lambda: defaultdict(list))
        for label, group in lines.items():
            for run in group:
                kinds[guarantee(run.summary["privacy"])][label].append(run)
        parts += [(title, " · ".join(filter(None, [title, kind])), dict(part)) for kind, part in kinds.items()]
    return parts


def write_points(path: Path, table: pd.DataFrame) -> None:
    """Write what is drawn as CSV; no text in it is a formula."""
    atomic_write(path, table.map(spreadsheet).to_csv(index=False, lineterminator="\n"))


def _scale(axes: Axes, drawn: pd.DataFrame, log: Sequence[str], at_most: float | None) -> None:
    """Make axes logarithmic, and end x at `at_most`."""
    if "y" in log:
        axes.set_yscale("log")
        plain(axes.yaxis)
    if "x" in log and (drawn["x"] > 0).any():
        axes.set_xscale("log")
        plain(axes.xaxis)
        sideways = (axes.transData, axes.get_xaxis_transform("grid"))  # also upright lines, whose labels need room
        shown = np.concatenate(
            [np.asarray(line.get_xdata(), dtype=float) for line in axes.lines if line.get_transform() in sideways]
        )
        axes.set_xlim(left=0.8 * shown[shown > 0].min())
    if at_most is not None:
        axes.set_xlim(right=at_most)


def _panel(
    axes: Axes,
    lines: Mapping[str, list[Run]],
    looks: Mapping[str, Mapping[str, Any]],
    x: str,
    metric: str,
    paired: bool = False,
) -> pd.DataFrame:
    """Draw the lines of one panel, and return the points."""
    every = [run for group in lines.values() for run in group]
    x = _timeless(x, [run.curve for run in every], {running_time.clock(run) for run in every})
    curves = {
        label: [points(run.curve, x, metric).dropna(subset=["test"]) for run in group] for label, group in lines.items()
    }
    levels = _levels(lines) if paired else {}
    for label, own in lines.items():
        shifts = [levels.get(run.summary["seed"], 0.0) for run in own]
        curves[label] = [
            curve.assign(test=curve["test"] - shift) for curve, shift in zip(curves[label], shifts, strict=True)
        ]
    if levels:
        text = "bands: differences on the same split"
        axes.text(0.99, 0.98, text, transform=axes.transAxes, ha="right", va="top", color=style.QUIET, size=8)
    # on a logarithmic axis, means and deviations are of log10: a geometric mean, a deviation in decades
    decades = metric in _TRAINED
    largest = max((curve["x"].max() for group in curves.values() for curve in group if len(curve)), default=1.0)
    scale = _label_x(axes, x, largest)
    _label_y(axes, metric, f"{splits(metric)[-1]} ")
    tables, step = [], min(len(curves), 3)  # where lines overlap their markers take turns
    for place, (label, shown) in enumerate(curves.items()):
        if not any(map(len, shown)):
            tables.append(_average([]).assign(line=label))
            why = "no gap above 0" if decades else "no evaluation"
            axes.plot([], [], **looks[label], label=f"{label}, n={len(shown)} ({why})")
            continue
        look, sends_nothing = looks[label], x != "round" and not any(curve["x"].any() for curve in shown)
        once = not sends_nothing and sends_once(shown, x)
        if sends_nothing or once:
            places = [curve["x"].iloc[0] if once else 0.0 for curve in shown]
            shown = [_chosen(run, metric).assign(x=at) for run, at in zip(lines[label], places, strict=True)]
        line = _average([curve.assign(test=np.log10(curve["test"])) for curve in shown] if decades else shown)
        low, high = line["mean"] - line["sd"], line["mean"] + line["sd"]
        if decades:
            line["mean"], low, high = 10 ** line["mean"], 10**low, 10**high
        tables.append(line.assign(line=label))
        text = f"{label}, n={len(shown)}"
        if sends_nothing:
            text += " (no communication)"
            axes.axhline(line["mean"].iloc[0], color=look["color"], linestyle=":", label=text)
            continue
        axes.plot(line["x"] / scale, line["mean"], **look, markevery=_turns(len(line), place, step), label=text)
        axes.fill_between(line["x"] / scale, low, high, color=look["color"], alpha=0.15, linewidth=0)
        if once:
            axes.vlines(line["x"] / scale, low, high, color=look["color"], linewidth=1.2)
    baseline_lines.draw(axes, every, x, metric, scale)
    axes.set_xlim(left=0)
    return pd.concat(tables, ignore_index=True)


def _turns(points: int, place: int, step: int) -> tuple[int, int]:
    """The first marker of the line at `place`, and the number of points to the next one."""
    every = max(1, points // 10)
    return (place % step * every, step * every) if points > 2 * step else (0, every)


def _levels(lines: Mapping[str, list[Run]]) -> dict[int, float]:
    """Seed -> how far its final score, averaged over lines, is above that of all seeds; empty where seeds differ."""
    seeds = [sorted(run.summary["seed"] for run in group) for group in lines.values()]
    if len(lines) < 2 or len(seeds[0]) < 2 or any(own != seeds[0] for own in seeds):
        return {}
    last: dict[int, list[float]] = defaultdict(list)
    for group in lines.values():
        for run in group:
            last[run.summary["seed"]].append(run.summary["metric"]["final"])
    means = {seed: float(np.mean(values)) for seed, values in last.items()}
    return {seed: mean - float(np.mean(list(means.values()))) for seed, mean in means.items()}


def _chosen(run: Run, metric: str) -> pd.DataFrame:
    """One point at x = 0: the run's selected value, or its final one without validation."""
    value = score_of(run.summary["metric"])
    if metric in _TRAINED:
        value = run.curve[f"train_{metric}"].iloc[-1]
        value = value if value > 0 else None  # as `points`
    return pd.DataFrame({"x": [0.0], "test": [float("nan") if value is None else value]})


def _average(curves: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Mean and standard deviation of `test` over curves, at every x of a curve that is in the range of all of them.

    Where there is no such x (curves of one point each), x and `test` of their last points are averaged.
    """
    curves = [curve for curve in curves if len(curve)]
    if not curves:
        return pd.DataFrame({"x": [], "mean": [], "sd": [], "n": []})
    start, end = max(curve["x"].min() for curve in curves), min(curve["x"].max() for curve in curves)
    grid = np.unique([value for curve in curves for value in curve["x"] if start <= value <= end])
    values = np.array([np.interp(grid, curve["x"], curve["test"]) for curve in curves])  # (curves, x)
    if not len(grid):
        grid = np.mean([curve["x"].iloc[-1] for curve in curves], keepdims=True)
        values = np.array([[curve["test"].iloc[-1]] for curve in curves])
    sd = values.std(axis=0, ddof=1) if len(curves) > 1 else np.full(len(grid), np.nan)
    return pd.DataFrame({"x": grid, "mean": values.mean(axis=0), "sd": sd, "n": len(curves)})


def _lines(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Runs that differ only in the seed, by a label: the algorithm, and the keys in which its other lines differ."""
    lines: dict[str, list[Run]] = defaultdict(list)
    for setting in selection.settings(runs):
        label = " · ".join(filter(None, [style.look(setting.algorithm).label, setting.words]))
        if there := lines.get(label):  # they differ in nothing that both have
            before, now = (experiment.facts_of(runs[0]) or {} for runs in (there, setting.runs))
            label = " · ".join(filter(None, [label, experiment.differences(before, now)]))
        repeated = {(run.summary["seed"], str(run.summary.get("privacy"))): run for run in setting.runs}
        lines[label] += repeated.values()  # a seed counts once
    return dict(lines)


# --- figures ----------------------------------------------------------------------------------------------------------


def _timeless(x: str, curves: Sequence[pd.DataFrame], clocks: Iterable[str]) -> str:
    """The column to draw against: `x`, or what stands in for communication time.

    Where computing is modelled too, that is the running time, since such methods overlap computing with communication;
    so too where a run has no communication time. Running times under several `clocks` are not alike: then bytes stand
    in for a communication time that a run lacks. Where communication takes no time in any of `curves` though bytes were
    sent, it is the weighted cost.
    """
    clocks, untimed = set(clocks), any(curve["communication_seconds"].isna().any() for curve in curves)
    if x == "communication_seconds" and (untimed or any(clock.startswith("modelled") for clock in clocks)):
        if len(clocks) == 1:
            return "virtual_seconds"
        x = "bytes" if untimed else x
    free = x == "communication_seconds" and not any(curve[x].any() for curve in curves)
    return "cost" if free and any(curve["bytes"].any() for curve in curves) else x


def _label_x(axes: Axes, x: str, largest: float) -> float:
    """Name the x-axis with its unit, and return what to divide x by."""
    scale, prefix = si_scale(largest) if x in ("bytes", "cost") else (1.0, "")
    axes.set_xlabel(f"{X_LABELS[x]} ({prefix}B)" if x in ("bytes", "cost") else X_LABELS[x])
    return scale


def _label_y(axes: Axes, metric: str, prefix: str = "") -> None:
    """Name the y-axis, and make it logarithmic for a metric that falls by orders of magnitude."""
    axes.set_ylabel(_TRAINED.get(metric, prefix + metric))
    if metric in _TRAINED:
        axes.set_yscale("log")
