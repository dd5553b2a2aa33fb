"""A column of a figure's table against one of its keys, the paper's own numbers beside it."""

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
from vflbench.plots.curves import Picture, entitle, legend_below, new_figure, plain, save, write_points
from vflbench.results.identity import as_text
from vflbench.results.texts import printable

Names = Mapping[str, Mapping[str, str]]  # key -> value -> what to call it
Rows = Sequence[Mapping[str, Any]]


def draw_values(
    picture: Picture, table: Rows, numbers: Rows, levels: Rows, stem: Path, label: str, names: Names
) -> pd.DataFrame:
    """Write one picture, `stem`.png, .svg and .csv: means over seeds with a bar of one standard deviation, the paper's
    as hollow markers.

    Parameters
    ----------
    table : a row per setting, with the columns x, `panels`, `lines`, y, `<y>_sd`, seeds, data_source.
    numbers : the paper's: keys of the table, mean, sd.
    levels : rows that are not of any x: horizontal lines with a band of one standard deviation.
    label : what y is; empty: the test metric of the panel's rows.

    Returns what is drawn: a DataFrame with columns panel, line, x, mean, sd, n, paper, paper_sd.
    """
    x, y, panels, lines = picture.x, picture.y, picture.panels, picture.lines
    grouped: dict[str, list[Mapping[str, Any]]] = {}
    for row in table:
        if not math.isnan(row[y]):
            grouped.setdefault(line_label(row, panels, names), []).append(row)
    looks = _looks(table, lines, names)
    drawn: list[dict[str, Any]] = []
    with mpl.rc_context(style.RC):  # type: ignore[arg-type]
        figure, places = new_figure(len(grouped))
        for axes, (title, rows) in zip(places, grouped.items(), strict=False):
            own = {key: rows[0][key] for key in panels}
            alarm = {"synthetic": "SYNTHETIC DATA", "partial": "PARTLY SYNTHETIC DATA"}
            warnings = {alarm[row["data_source"]] for row in rows if row["data_source"] in alarm}
            entitle(axes, title, " · ".join(warnings))
            fitting = [
                n for n in numbers if all(as_text(n[key]) == as_text(value) for key, value in own.items() if key in n)
            ]
            drawn += [{"panel": title, **point} for point in _panel(axes, picture, rows, fitting, looks, names)]
            for row in levels:
                if all(row[key] == value for key, value in own.items()) and math.isfinite(row[y]):
                    color, sd = style.look(str(row.get("algorithm.name", ""))).color, row[f"{y}_sd"]
                    axes.axhline(row[y], color=color, linestyle=":", label=line_label(row, lines, names))
                    axes.axhspan(row[y] - sd, row[y] + sd, color=color, alpha=0.12, linewidth=0) if math.isfinite(
                        sd
                    ) else None
                    drawn.append(
                        {
                            "panel": title,
                            "line": line_label(row, lines, names),
                            "mean": row[y],
                            "sd": sd,
                            "n": row["seeds"],
                        }
                    )
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
    """A setting as a reader knows it; nothing where an algorithm has no such key."""
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
    """Each line's colour, marker and dashes: `style.looks`; greys where a line has several algorithms, whose colour it
    cannot have."""
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
    """What stands at a place of the x-axis, which itself says what the key is."""
    text = named(key, value, names) if key.endswith(".name") or str(value) in names.get(key, {}) else str(value)
    return printable(text).replace("$", r"\$")  # between two of them a formula would stand


def _panel(
    axes: Axes, picture: Picture, rows: Rows, numbers: Rows, looks: Mapping[str, Mapping[str, Any]], names: Names
) -> list[dict[str, Any]]:
    """Draw the lines of one panel; the points."""
    x, y, lines, log = picture.x, picture.y, picture.lines, picture.log
    values = list(dict.fromkeys(row[x] for row in rows))
    numeric = all(
        isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) for value in values
    )
    if not numeric:
        axes.set_xticks(range(len(values)), texts := [_tick(x, value, names) for value in values])
        if sum(map(len, texts)) > 40:
            axes.tick_params(axis="x", rotation=20)
        axes.set_xlim(-0.5, len(values) - 0.5)
        axes.grid(axis="x", visible=False)
    labels = list(dict.fromkeys(line_label(row, lines, names) for row in rows))
    if "y" in log:
        axes.set_yscale("log")
        plain(axes.yaxis)
    if numeric and "x" in log:
        axes.set_xscale("log")
        axes.xaxis.set_minor_locator(NullLocator())
    if numeric and ("x" in log or len(values) <= 8):
        axes.set_xticks(values, [f"{value:g}" for value in values])
    drawn = []
    for place, label in enumerate(labels):
        shift = 0.0 if x in lines else (place - (len(labels) - 1) / 2) * min(0.8 / len(labels), 0.16)
        own = [row for row in rows if line_label(row, lines, names) == label]
        own = sorted(own, key=lambda row: row[x]) if numeric else own
        look = dict(looks[label])
        if not numeric:  # what dashes tell apart on a line, halves of markers do
            look["fillstyle"] = (
                "full" if look["linestyle"] == "-" else {"--": "left", "-.": "top"}.get(look["linestyle"], "bottom")
            )
            look["linestyle"] = "none"
        points = [
            (_beside(row[x], shift, values, "x" in log) if numeric else values.index(row[x]) + shift, row)
            for row in own
        ]
        reached = [(at, row) for at, row in points if math.isfinite(row[y])]
        if reached:
            heights = [row[y] for _, row in reached]
            spreads = [row[f"{y}_sd"] if math.isfinite(row[f"{y}_sd"]) else 0.0 for _, row in reached]
            axes.errorbar(
                [at for at, _ in reached], heights, spreads, **look, capsize=3, label="_" if x in lines else label
            )
        if lost := [at for at, row in points if math.isinf(row[y])]:
            look = {**look, "marker": "x", "linestyle": "none", "clip_on": False}
            axes.plot(
                lost,
                [1.0] * len(lost),
                transform=axes.get_xaxis_transform(),
                **look,
                label=f"{label}: not all seeds reached it",
            )
        theirs = []
        for at, row in points:
            same = [
                n
                for n in numbers
                if all(as_text(n[key]) == as_text(row[key]) for key in n.keys() & row.keys() - {"mean", "sd"})
            ]
            paper = same[0] if same else {"mean": math.nan, "sd": None}
            drawn.append({"line": label, "x": row[x], "mean": row[y], "sd": row[f"{y}_sd"], "n": row["seeds"]})
            drawn[-1] |= {"paper": paper["mean"], "paper_sd": paper["sd"]}
            if same:
                theirs.append((at, paper["mean"]))
        if theirs:
            hollow: dict[str, Any] = {"linestyle": "none", "fillstyle": "none", "markersize": 8}
            axes.plot(
                *zip(*theirs, strict=True), color=look["color"], marker=looks[label]["marker"], **hollow, label="_"
            )
            axes.plot([], [], color=style.QUIET, marker="o", **hollow, label="hollow: the paper's")
    return drawn


def _beside(x: float, shift: float, values: Sequence[float], log: bool) -> float:
    """A little to the left or right of x, so that a line that lies on another is seen."""
    reach = max(values) - min(values)
    near: float = x * 1.05**shift if log else x + 0.02 * reach * shift
    return near
