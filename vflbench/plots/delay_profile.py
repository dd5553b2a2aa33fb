"""The picture of a profile: seconds per sample of each part over the batch size, with the fitted power laws."""

import json
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, NullLocator

from vflbench.plots import style
from vflbench.plots.canvas import save

_PANELS = ("active", "passive", "top")


def draw_profile(path: Path) -> None:
    """Write .png and .svg beside a profile (.json) and its timings (.csv).

    Above: every timing is a dot, the least of each size, which is fitted, a marker, and the fits are lines. Below: the
    least timing divided by the fitted one.
    """
    values = json.loads(path.read_text(encoding="utf-8"))
    timings = pd.read_csv(path.with_suffix(".csv"))
    columns = dict(zip(_PANELS[:2], values["options"]["features"], strict=True))
    with mpl.rc_context(style.RC):  # type: ignore[arg-type]
        figure = Figure(figsize=(11, 6), layout="constrained")
        grid = figure.subplots(2, 3, sharex=True, sharey="row", height_ratios=(2, 1))
        for column, network in enumerate(_PANELS):
            above, below = grid[:, column]
            title = "top network" if network == "top" else f"{network} bottom network, {columns[network]} features"
            above.set_title(title, fontsize=10)
            for place, direction in enumerate(("forward", "backward")):
                color, marker = style.PALETTE[place], style.MARKERS[place]
                own = timings[timings["part"] == f"{network}_{direction}"]
                least = own.groupby("batch")["seconds"].min()
                sizes = least.index.to_numpy(dtype=float)
                delay = values["delays"][f"{network}_{direction}"]
                fitted = delay["scale"] * sizes ** delay["exponent"]
                above.plot(own["batch"], own["seconds"] / own["batch"], ".", color=color, alpha=0.2, markersize=3)
                above.plot(sizes, least / sizes, marker, color=color, label=direction)
                label = f"{delay['scale']:.2g} s × B^{delay['exponent']:.2f}"
                above.plot(sizes, fitted, style.LINES[place], color=color, label=label)
                below.plot(sizes, least / sizes / fitted, marker + style.LINES[place], color=color)
            above.set_xscale("log", base=2)
            above.set_yscale("log")
            above.legend()
            below.axhline(1.0, color=style.QUIET, linewidth=1)
            below.set_yscale("log", base=2)
            below.yaxis.set_major_locator(LogLocator(base=2))
            below.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
            below.yaxis.set_minor_locator(NullLocator())
            below.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
            below.xaxis.set_minor_formatter(NullFormatter())
            below.set_xlabel("batch size B")
        grid[0, 0].set_ylabel("seconds of one core per sample")
        grid[1, 0].set_ylabel("least / fit")
        limits = np.array(grid[1, 0].get_ylim())
        grid[1, 0].set_ylim(min(limits[0], 0.5), max(limits[1], 2.0))
        save(figure, path.with_suffix(""))
