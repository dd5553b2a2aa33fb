"""Pictures of a column of a figure's table against one of its keys, beside the paper's own numbers."""

import itertools
import math
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator

from vflbench.plots import style
from vflbench.plots.canvas import entitle, legend_below, new_figure, plain, save
from vflbench.plots.curves import Picture, write_points
from vflbench.results.texts import as_text, data_alarm, printable

Names = Mapping[str, Mapping[str, str]]  # key -> value -> what to call it
Rows = Sequence[Mapping[str, Any]]
Points = Sequence[tuple[float, Mapping[str, Any]]]  # place on the x-axis, row of the table


def draw_values(
    picture: Picture, table: Rows, numbers: Rows, levels: Rows, stem: Path, label: str, names: Names
) -> pd.DataFrame:
    """Write one picture, `stem`.png, .svg and .csv.

    Markers are means over seeds with a bar of one standard deviation; hollow ones are the paper's. Against epsilon,
    each kind of it gets a panel of its own.

    Parameters
    ----------
    table : a row per setting, with the columns x, `panels`, `lines`, y, `<y>_sd`, seeds, data_source; against epsilon
        guarantee, too.
    numbers : the paper's: keys of the table, mean, sd.
    levels : rows that have no x: horizontal lines with a band of one standard deviation.
    label : what y is; empty: the test metric of the panel's rows.

    Returns
    -------
    DataFrame : what is drawn, with columns panel, line, x, mean, sd, n, paper, paper_sd.
    """
    x, y, panels, lines = picture.x, picture.y, picture.panels, picture.lines
    grouped: dict[str, list[Mapping[str, Any]]] = {}
    for row in table:
        if not math.isnan(row[y]):
            kind = row["guarantee"] if x == "privacy.epsilon" else None
            grouped.setdefault(" · ".join(filter(None, [line_label(row, panels, names), kind])), []).append(row)
    looks = _looks(table, lines, names)
    drawn: list[dict[str, Any]] = []
    with mpl.rc_context(style.RC):  # type: ignore[arg-type]
        figure, places = new_figure(len(grouped))
        for axes, (title, rows) in zip(places, grouped.items(), strict=False):
            own = {key: rows[0][key] for key in panels}
            entitle(axes, title, " · ".join(dict.fromkeys(filter(None, map(data_alarm, rows)))))
            fitting = [
                n for n in numbers if all(as_text(n[key]) == as_text(value) for key, value in own.items() if key in n)
            ]
            drawn += [{"panel": title, **point} for point in _panel(axes, picture, rows, fitting, looks, names)]
            for row in levels:
                if all(row[key] == value for key, value in own.items()) and math.isfinite(row[y]):
                    color, sd = style.look(str(row.get("algorithm.name", ""))).color, row[f"{y}_sd"]
                    axes.axhline(row[y], color=color, linestyle=":", label=line_label(row, lines, names))
                    if math.isfinite(sd):
                        axes.axhspan(row[y] - sd, row[y] + sd, color=color, alpha=0.12, linewidth=0)
                    line = line_label(row, lines, names)
                    drawn.append({"panel": title, "line": line, "mean": row[y], "sd": sd, "n": row["seeds"]})
            axes.set_ylabel(textwrap.fill(label or f"test {rows[0]['metric']}", 42))
            axis = "" if x.endswith(".name") or x == "algorithm" else x.rpartition(".")[2].replace("_", " ")
            axes.set_xlabel(names.get(x, {}).get("axis", axis))
            if y == "excess":
                axes.axhline(0, color=style.QUIET, linewidth=0.8)
        legend_below(figure)
        save(figure, stem)
    columns = ["panel", "line", "x", "mean", "sd", "n", "paper", "paper_sd"]
    found = pd.DataFrame(drawn, columns=columns)
    write_points(stem.with_name(f"{stem.name}.csv"), found)
    return found


def named(key: str, value: Any, names: Names | None = None) -> str:
    """A setting in the reader's words; empty where an algorithm has no such key."""
    if (text := (names or {}).get(key, {}).get(str(value))) is not None:
        return text
    if value == "-":
        return ""
    if key == "algorithm.name":
        return style.look(str(value)).label
    if key == "dataset.name":
        return style.dataset_label(str(value))
    if key.endswith(".name"):
        return str(value)
    return f"{key.rpartition('.')[2]} {value}"


def line_label(row: Mapping[str, Any], lines: Sequence[str], names: Names | None = None) -> str:
    """The name of the line that a setting is on."""
    return " · ".join(filter(None, (named(key, row[key], names) for key in lines)))


def _looks(table: Rows, lines: Sequence[str], names: Names) -> dict[str, dict[str, Any]]:
    """Each line's colour, marker and dashes: `style.looks`, or greys where a line has several algorithms."""
    algorithms: dict[str, str] = {}
    for row in table:
        algorithms.setdefault(line_label(row, lines, names), str(row.get("algorithm.name", "")))
    if "algorithm.name" in lines or len({str(row.get("algorithm.name", "")) for row in table}) <= 1:
        return dict(zip(algorithms, style.looks(list(algorithms.values())), strict=True))
    greys = zip(itertools.cycle(style.GREYS), itertools.cycle(style.MARKERS), strict=False)
    return {
        label: {"color": grey, "marker": marker, "linestyle": "-"}
        for label, (grey, marker) in zip(algorithms, greys, strict=False)
    }


def _tick(key: str, value: Any, names: Names) -> str:
    """The text at a place of the x-axis; the axis itself names the key."""
    text = named(key, value, names) if key.endswith(".name") or str(value) in names.get(key, {}) else str(value)
    return printable(text).replace("$", r"\$")  # two of them would enclose a formula


def _panel(
    axes: Axes, picture: Picture, rows: Rows, numbers: Rows, looks: Mapping[str, Mapping[str, Any]], names: Names
) -> list[dict[str, Any]]:
    """Draw the lines of one panel, and return the points."""
    x, lines = picture.x, picture.lines
    values = list(dict.fromkeys(row[x] for row in rows))
    numeric = all(
        isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) for value in values
    )
    _set_axes(axes, picture, values, numeric, names)
    labels = list(dict.fromkeys(line_label(row, lines, names) for row in rows))
    drawn = []
    for place, label in enumerate(labels):
        shift = 0.0 if x in lines else (place - (len(labels) - 1) / 2) * min(0.8 / len(labels), 0.16)
        own = [row for row in rows if line_label(row, lines, names) == label]
        own = sorted(own, key=lambda row: row[x]) if numeric else own
        points = [
            (_beside(row[x], shift, values, "x" in picture.log) if numeric else values.index(row[x]) + shift, row)
            for row in own
        ]
        _draw_line(axes, picture, points, looks[label], numeric, label)
        drawn += _draw_paper(axes, picture, points, numbers, looks[label], label)
    return drawn


def _set_axes(axes: Axes, picture: Picture, values: Sequence[Any], numeric: bool, names: Names) -> None:
    """Scales and ticks of a panel; the `values` of x are places in a row where they are not numeric."""
    if not numeric:
        axes.set_xticks(range(len(values)), texts := [_tick(picture.x, value, names) for value in values])
        if sum(map(len, texts)) > 40:
            axes.tick_params(axis="x", rotation=20 if len(texts) <= 8 else 90)  # slanted, many lie on each other
        axes.set_xlim(-0.5, len(values) - 0.5)
        axes.grid(axis="x", visible=False)
    if "y" in picture.log:
        axes.set_yscale("log")
        plain(axes.yaxis)
    if numeric and "x" in picture.log:
        axes.set_xscale("log")
        axes.xaxis.set_minor_locator(NullLocator())
    if numeric and ("x" in picture.log or len(values) <= 8):
        axes.set_xticks(values, [f"{value:g}" for value in values])


def _draw_line(
    axes: Axes, picture: Picture, points: Points, look: Mapping[str, Any], numeric: bool, label: str
) -> None:
    """Draw means with error bars, and a cross at the top where not all seeds reached the target."""
    y, look = picture.y, dict(look)
    if not numeric:  # there are no lines whose dashes could differ, so halves of markers do
        look["fillstyle"] = {"-": "full", "--": "left", "-.": "top"}.get(look["linestyle"], "bottom")
        look["linestyle"] = "none"
    reached = [(at, row) for at, row in points if math.isfinite(row[y])]
    if reached:
        heights = [row[y] for _, row in reached]
        spreads = [row[f"{y}_sd"] if math.isfinite(row[f"{y}_sd"]) else 0.0 for _, row in reached]
        shown = "_" if picture.x in picture.lines else label
        axes.errorbar([at for at, _ in reached], heights, spreads, **look, capsize=3, label=shown)
    if lost := [at for at, row in points if math.isinf(row[y])]:
        look |= {"marker": "x", "linestyle": "none", "clip_on": False}
        text = f"{label}: not all seeds reached it"
        axes.plot(lost, [1.0] * len(lost), transform=axes.get_xaxis_transform(), **look, label=text)


def _draw_paper(
    axes: Axes, picture: Picture, points: Points, numbers: Rows, look: Mapping[str, Any], label: str
) -> list[dict[str, Any]]:
    """Draw the paper's numbers of a line, and return its points with them."""
    y, drawn, hollow_points = picture.y, [], []
    for at, row in points:
        same = [
            n
            for n in numbers
            if all(as_text(n[key]) == as_text(row[key]) for key in n.keys() & row.keys() - {"mean", "sd"})
        ]
        paper = same[0] if same else {"mean": math.nan, "sd": None}
        drawn.append({"line": label, "x": row[picture.x], "mean": row[y], "sd": row[f"{y}_sd"], "n": row["seeds"]})
        drawn[-1] |= {"paper": paper["mean"], "paper_sd": paper["sd"]}
        if same:
            hollow_points.append((at, paper["mean"]))
    if hollow_points:
        hollow: dict[str, Any] = {"linestyle": "none", "fillstyle": "none", "markersize": 8}
        axes.plot(*zip(*hollow_points, strict=True), color=look["color"], marker=look["marker"], **hollow, label="_")
        axes.plot([], [], color=style.QUIET, marker="o", **hollow, label="hollow: the paper's")
    return drawn


def _beside(x: float, shift: float, values: Sequence[float], log: bool) -> float:
    """A place a little to the left or right of x, so that a line does not hide another."""
    reach = max(values) - min(values)
    near: float = x * 1.05**shift if log else x + 0.02 * reach * shift
    return near
