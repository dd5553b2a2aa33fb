"""What all pictures share: figures with panels, their titles and legends, and how they are saved."""

import io
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis, Tick
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.ticker import LogFormatter

from vflbench.plots import style
from vflbench.results.folder import atomic
from vflbench.results.texts import printable


def entitle(axes: Axes, title: str, alarm: str, loc: Literal["left", "center"] = "left") -> None:
    """Set a panel's title, in lines that fit above it, with the warning `alarm` below it."""
    axes.set_title(textwrap.fill(title, 60), loc=loc, fontsize=11, pad=22 if alarm else 8)
    if alarm:
        axes.text(0, 1.02, alarm, transform=axes.transAxes, color=style.ALARM, weight="bold", va="bottom")


def plain(axis: Axis) -> None:
    """Write plain numbers along a logarithmic axis, also between powers of ten where it has few of these."""

    class Plain(LogFormatter):
        def __call__(self, value: float, pos: int | None = None) -> str:
            return f"{value:g}" if super().__call__(value, pos) else ""  # matplotlib decides which to label

    axis.set_major_formatter(Plain(minor_thresholds=(1.5, 0.6)))
    axis.set_minor_formatter(Plain(minor_thresholds=(1.5, 0.6)))


def legend_below(figure: Figure) -> None:
    """Draw one legend for all panels, below them: inside it could cover a curve."""
    entries = {
        text: handle for axes in figure.axes for handle, text in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    if not entries:
        return
    width, height = figure.get_size_inches()
    columns = max(1, int(width * 11 / (max(map(len, entries)) + 6)))  # about 11 characters to the inch
    figure.set_size_inches(width, height + 0.2 * -(-len(entries) // columns))
    figure.legend(list(entries.values()), list(entries), loc="outside lower center", ncols=columns)


def new_figure(panels: int) -> tuple[Figure, list[Axes]]:
    """A figure with panels in rows of two; without panels it says so.

    It is made without pyplot: nothing needs to be closed, and no display is used.
    """
    columns = max(1, min(2, panels))  # three side by side are too wide to read
    rows = max(1, -(-panels // columns))
    figure = Figure(figsize=(style.SIZE[0] * columns, style.SIZE[1] * rows), layout="constrained")
    FigureCanvasAgg(figure)
    places = [figure.add_subplot(rows, columns, place + 1) for place in range(max(1, panels))]
    if not panels:
        places[0].text(0.5, 0.5, "no runs", transform=places[0].transAxes, ha="center", color=style.QUIET)
        places[0].set_axis_off()
    return figure, places


def _ticks(axis: Axis) -> list[Tick]:
    """The ticks of an axis; `get_ticklabels` would place them too, a seventh of what a picture takes."""
    return [*axis.get_major_ticks(), *axis.get_minor_ticks()]


def verbatim(texts: Iterable[Artist]) -> None:
    """Let texts be shown as they are, never as formulas, and without control characters."""
    for text in texts:
        assert isinstance(text, Text)
        text.set_parse_math(False)
        text.set_text(printable(text.get_text()))


def save(figure: Figure, stem: Path) -> None:
    """Write `stem`.png and `stem`.svg, atomically and without a date; names are never read as formulas."""
    _readable(figure)
    for kind in KINDS:
        with atomic(stem.with_name(f"{stem.name}.{kind}")) as temporary:
            _write(figure, temporary, kind)


def svg(figure: Figure) -> str:
    """The figure as text, as `save` writes it."""
    _readable(figure)
    content = io.BytesIO()
    _write(figure, content, "svg")
    return content.getvalue().decode()


def _readable(figure: Figure) -> None:
    """Make texts that are neither formulas nor commands of all but the numbers along axes."""
    ticks = [tick for axes in figure.axes for axis in (axes.xaxis, axes.yaxis) for tick in _ticks(axis)]
    numbers = {label for tick in ticks for label in (tick.label1, tick.label2)}
    verbatim(text for text in figure.findobj(Text) if text not in numbers)


def _write(figure: Figure, place: Path | io.BytesIO, kind: str) -> None:
    """Draw the figure into a file."""
    canvas, key = KINDS[kind]
    canvas(figure)
    figure.set_layout_engine("constrained")
    figure.get_layout_engine().execute(figure)  # type: ignore[union-attr]
    figure.set_layout_engine(None)  # with one, savefig would draw everything twice
    figure.savefig(place, format=kind, metadata={key: None})


KINDS = {"png": (FigureCanvasAgg, "Software"), "svg": (FigureCanvasSVG, "Date")}  # and what would hold a date
