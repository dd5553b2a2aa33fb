"""The progress bar: on stderr, on a terminal only, so that logs and pipes stay clean."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from vflbench.results.texts import human_bytes, printable

if TYPE_CHECKING:
    import rich.progress

_SECONDS_BETWEEN_UPDATES = 0.1  # the bar must not cost what a short round costs


class Progress:
    """Takes each round's news and shows them; without a bar it ignores them."""

    def __init__(self, bar: rich.progress.Progress | None, total: int | None, metric: str) -> None:
        self._bar, self._metric, self._last = bar, metric, 0.0
        self._news: dict[str, str] = {}  # in the order in which they first came
        self._task = bar.add_task("", total=total, news="") if bar else None

    def update(
        self, round: int, metric: float | None = None, loss: float | None = None, bytes: float | None = None
    ) -> None:
        """Show that `round` rounds are done, with the metric, the training loss and the bytes sent so far.

        What is None stays as before.
        """
        if self._bar is None or self._task is None:
            return
        if metric is not None:
            self._news["metric"] = f"{printable(self._metric)} {metric:.4f}"
        if loss is not None:
            self._news["loss"] = f"loss {loss:.4g}"
        if bytes is not None:
            self._news["bytes"] = human_bytes(bytes)
        if (now := time.monotonic()) - self._last >= _SECONDS_BETWEEN_UPDATES or round == self._bar.tasks[0].total:
            self._last = now
            self._bar.update(self._task, completed=round, news="  ".join(self._news.values()))


@contextlib.contextmanager
def progress(total: int | None, metric: str = "metric", quiet: bool = False) -> Iterator[Progress]:
    """A bar for `total` rounds (None: unknown) while the block runs, with the name of the `metric`.

    There is none if `quiet`, under CI, or where stderr is no terminal.
    """
    if quiet or os.environ.get("CI") or not sys.stderr.isatty():
        yield Progress(None, total, metric)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    news = TextColumn("{task.fields[news]}", markup=False)
    bar = Bar(
        MofNCompleteColumn(),
        BarColumn(),
        news,
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        refresh_per_second=5,
        transient=True,
    )
    with bar:
        yield Progress(bar, total, metric)
