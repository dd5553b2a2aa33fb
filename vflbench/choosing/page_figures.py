"""The figures of the answer's page: Pareto fronts of accuracy against cost, and the course of tuning."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from vflbench.plots import canvas, style
from vflbench.plots.baseline_lines import INK
from vflbench.results.texts import human_bytes, printable

SIZE = (4.8, 3.7)  # inches: readable on a telephone too
AXES = {"bytes": "bytes to the target, or sent", "seconds": "seconds to the target, or spent", "epsilon": "epsilon"}
COLOURS = {"reached": "#009E73", "pruned": "#BBBBBB", "lost": style.ALARM, "other": "#56B4E9"}
MEANINGS = {"reached": "reached the target", "pruned": "stopped early", "lost": "failed", "other": "did not reach it"}
Points = Mapping[str, Sequence[tuple[float, float]]]


def looks(found: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Name -> colour and marker of every method, in the order of the table."""
    named: dict[str, str] = {row["name"]: row["algorithm"] for row in found["methods"]}
    for trial in found["tuning"]["timeline"]:
        named.setdefault(trial["name"], trial["name"].partition(" · ")[0])
    return dict(zip(named, style.looks(list(named.values())), strict=True))


def fronts(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(what it is, SVG) of the judged metric against bytes, seconds, and epsilon where there are several."""
    drawn = []
    for axis in AXES:
        finals, trials = _points(found, axis)
        if finals and (axis != "epsilon" or len({x for points in finals.values() for x, _ in points}) > 1):
            with mpl.rc_context(style.RC):  # type: ignore[arg-type]
                drawn.append((f"{found['data']['metric']} against {axis}", _front(found, axis, finals, trials)))
    return drawn


def _points(found: Mapping[str, Any], axis: str) -> tuple[Points, Points]:
    """Of the methods in the table, and of the trials: name -> (x, judged metric)."""
    finals: dict[str, list[tuple[float, float]]] = {}
    kind = next((row["guarantee"] for row in found["methods"] if row["guarantee"]), None)
    for row in found["methods"]:
        if axis == "epsilon" and row["guarantee"] != kind:
            continue  # epsilons of several kinds are not on one axis
        x = row[axis] if axis != "bytes" or row[axis] is not None else row["sent"]
        if x and row["validation"] is not None:
            finals[row["name"]] = [(x, row["validation"])]
    trials: dict[str, list[tuple[float, float]]] = {}
    for trial in found["tuning"]["timeline"] if axis != "epsilon" else ():
        if trial[axis] and trial["metric"] is not None:
            trials.setdefault(trial["name"], []).append((trial[axis], trial["metric"]))
    return finals, trials


def _front(found: Mapping[str, Any], axis: str, finals: Points, trials: Points) -> str:
    figure = Figure(figsize=SIZE, layout="constrained")
    FigureCanvasAgg(figure)
    axes, styles = figure.add_subplot(), looks(found)
    labels = {row["name"]: row["label"] for row in found["methods"]}
    for name, points in trials.items():
        axes.plot(*zip(*points, strict=True), linestyle="none", **_look(styles[name]), markersize=3.5, alpha=0.45)
    ranked = {row["name"] for row in found["methods"] if row["place"]} or set(labels)  # others are not compared
    front = _pareto([point for name in finals if name in ranked for point in finals[name]], found["question"]["goal"])
    if front:
        axes.plot(*zip(*front, strict=True), color=style.QUIET, linewidth=1.2, drawstyle="steps-post", zorder=1.5)
    for name, points in finals.items():
        axes.plot(*zip(*points, strict=True), linestyle="none", **_look(styles[name]), markersize=9, label=labels[name])
    axes.set_xscale("log")
    if axis == "bytes":
        axes.xaxis.set_major_formatter(lambda value, _: human_bytes(value))
    else:
        canvas.plain(axes.xaxis)
    low, high = axes.get_xlim()
    if high > 10 * low:  # names between powers of ten would touch each other
        axes.xaxis.set_minor_formatter(NullFormatter())
    _levels(axes, found, axis)
    axes.set_xlabel(AXES[axis])
    axes.set_ylabel(
        f"{'training' if found['data']['judged_on'] == 'train' else 'validation'} {found['data']['metric']}"
    )
    canvas.legend_below(figure)
    return canvas.svg(figure)


def _look(look: Mapping[str, Any]) -> dict[str, Any]:
    return {key: look[key] for key in ("color", "marker")}


def _pareto(points: Sequence[tuple[float, float]], goal: str) -> list[tuple[float, float]]:
    """The points that no other beats in both."""
    sign, front = 1 if goal == "max" else -1, list[tuple[float, float]]()
    for x, y in sorted(points, key=lambda point: (point[0], -sign * point[1])):
        if not front or sign * y > sign * front[-1][1]:
            front.append((x, y))
    return front


def _levels(axes: Axes, found: Mapping[str, Any], axis: str) -> None:
    """The target, and what anyone reaches without a federation."""
    target = found["question"]["target"]
    axes.axhline(target, color="#000000", linestyle=":", linewidth=1.1)
    axes.annotate(
        f"target {target:g}",
        (0, target),
        xycoords=("axes fraction", "data"),
        xytext=(3, 2),
        fontsize=8,
        textcoords="offset points",
    )
    for line in found["floor"]:
        level = line["test"] if line["validation"] is None else line["validation"]
        if line["name"] in ("alone", "centralised") and level is not None:
            axes.axhline(level, color=INK, linestyle=(0, (6, 3)), linewidth=0.9, zorder=1.2)
            axes.annotate(
                line["label"],
                (1, level),
                xycoords=("axes fraction", "data"),
                xytext=(-2, -9),
                fontsize=8,
                textcoords="offset points",
                ha="right",
                color=INK,
            )
        elif line["name"] == "ship_it" and axis != "epsilon" and line[axis]:
            axes.axvline(line[axis], color=INK, linestyle=(0, (6, 3)), linewidth=0.9, zorder=1.2)
            axes.annotate(
                "ship it",
                (line[axis], 0.5),
                xycoords=("data", "axes fraction"),
                xytext=(3, 0),
                fontsize=8,
                textcoords="offset points",
                rotation=90,
                va="center",
                color=INK,
            )


def timeline(found: Mapping[str, Any]) -> str | None:
    """SVG of every trial as a bar over wall time, a line for each method; None without trials."""
    trials = found["tuning"]["timeline"]
    if not trials:
        return None
    names = list(dict.fromkeys(trial["name"] for trial in trials))
    labels = {trial["name"]: trial["label"] for trial in trials}
    with mpl.rc_context(style.RC):  # type: ignore[arg-type]
        figure = Figure(figsize=(9.6, 0.9 + 0.32 * len(names)), layout="constrained")
        FigureCanvasAgg(figure)
        axes, shown = figure.add_subplot(), set[str]()
        for trial in trials:
            how, place = outcome(trial), names.index(trial["name"])
            named = "_" if how in shown else MEANINGS[how]
            shown.add(how)
            span = max(trial["wall_seconds"], 1e-3)
            axes.barh(
                place,
                span,
                left=trial["began"],
                height=0.6,
                color=COLOURS[how],
                edgecolor="white",
                linewidth=0.6,
                label=named,
            )
        axes.set_yticks(range(len(names)), [printable(labels[name]).replace("$", r"\$") for name in names])
        axes.invert_yaxis()
        axes.set_xlim(left=0)
        axes.grid(axis="y", visible=False)
        axes.set_xlabel("seconds since choosing began")
        canvas.legend_below(figure)
        return canvas.svg(figure)


def outcome(trial: Mapping[str, Any]) -> str:
    """How a trial ended, one of COLOURS."""
    if trial["reached"]:
        return "reached"
    return {"pruned": "pruned", "failed": "lost", "diverged": "lost"}.get(trial["status"], "other")
