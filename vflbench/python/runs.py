"""`vflbench.run`, `load`, `reprice` and `plot`."""

from __future__ import annotations

import html
import math
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from vflbench.python.tables import Tables, naming
from vflbench.results import reader, texts
from vflbench.results.reader import Run
from vflbench.types import ENDED_WELL, ConfigError, Problem, VflbenchError, closest, refuse

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    Given = Run | str | os.PathLike[str] | Iterable[Run | str | os.PathLike[str]]

GIVEN = ("dataset", "dataset.files", "dataset.label", "dataset.id")  # what `data=` says


@dataclass(frozen=True, repr=False)
class Runs(Sequence[Run]):
    """Several runs, in the order of their folders: a sequence, and a table."""

    runs: tuple[Run, ...]
    notes: tuple[str, ...] = ()  #: why others are not among them

    @overload
    def __getitem__(self, place: int) -> Run: ...
    @overload
    def __getitem__(self, place: slice) -> Runs: ...
    def __getitem__(self, place: int | slice) -> Run | Runs:
        """A run, or some of them."""
        return Runs(self.runs[place]) if isinstance(place, slice) else self.runs[place]

    def __len__(self) -> int:
        """The number of runs."""
        return len(self.runs)

    def __iter__(self) -> Iterator[Run]:
        """The runs, one after the other."""
        return iter(self.runs)

    @property
    def table(self) -> pd.DataFrame:
        """A row for each run.

        It has the folder, the status (`unfinished` or `unreadable` if a run has none), algorithm, data set and seed.
        Then come the keys in which the runs differ, the metric, and what the run cost.
        """
        import pandas as pd

        rows, differs = [_row(run) for run in self.runs], _differs(self.runs)
        names = dict.fromkeys(key for own in differs.values() for key in own)
        first = ("folder", "status", "algorithm", "dataset", "seed")
        return pd.DataFrame(
            [
                {
                    **{name: row.get(name) for name in first},
                    **{name: differs.get(run.folder, {}).get(name) for name in names},
                    **{name: value for name, value in row.items() if name not in first},
                }
                for run, row in zip(self.runs, rows, strict=True)
            ]
        )

    def __repr__(self) -> str:
        """The number of runs and how they ended, and their common folder on a second line."""
        states = [_row(run)["status"] for run in self.runs]
        ended = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
        left = f"; {len(self.notes)} left out" if self.notes else ""
        where = os.path.commonpath([run.folder.absolute() for run in self.runs]) if self.runs else ""
        return f"{len(self.runs)} runs: {ended}{left}\n{where}"

    def _repr_html_(self) -> str:
        """The table, for a notebook."""
        return "".join([self.table.to_html(index=False), *(f"<p>{html.escape(note)}</p>" for note in self.notes)])


def _row(run: Run) -> dict[str, Any]:
    """What a run was, and its results, as far as they can be read."""
    row: dict[str, Any] = {"folder": str(run.folder), "status": "unfinished"}
    try:
        if run.status is None:
            config = run.manifest["config"]
            return {
                **row,
                **{group: config[group]["name"] for group in ("algorithm", "dataset")},
                "seed": config["seed"],
            }
        summary = run.summary
    except (VflbenchError, OSError, KeyError, TypeError):
        return {**row, "status": "unreadable"}
    epsilon = summary["privacy"]["epsilon"]
    return {
        **row,
        **{key: summary[key] for key in ("status", "algorithm", "dataset", "seed")},
        **{"metric": summary["metric"]["name"], **{key: summary["metric"][key] for key in ("selected", "final")}},
        **{"bytes": summary["bytes"]["total"], "messages": summary["messages"], "rounds": summary["rounds"]},
        **{key: summary[key] for key in ("communication_seconds", "virtual_seconds")},
        "epsilon": math.nan if epsilon is None else float(epsilon),
        "guarantee": texts.guarantee(summary["privacy"]),
    }


def _differs(runs: Sequence[Run]) -> dict[Path, dict[str, Any]]:
    """The keys in which settings differ, by folder: keys of a method among its own settings, others among all."""
    from vflbench.results import selection

    readable = [run for run in runs if _row(run)["status"] not in ("unfinished", "unreadable")]
    try:
        return {run.folder: setting.differs for setting in selection.settings(readable) for run in setting.runs}
    except VflbenchError:  # a manifest is damaged: then nobody knows how the runs differ
        return {}


def run(overrides: Sequence[str], config_dir: str | Path | None = None, data: Tables | None = None) -> Run:
    """Run one experiment, as ``vflbench OVERRIDES...`` does, and return the run.

    Parameters
    ----------
    overrides : Hydra overrides, e.g. ``["algorithm=glasu", "dataset=cora", "seed=1"]``.
    config_dir : a folder with options of your own (the command's ``--config-dir``).
    data : DataFrames in place of ``dataset=``, as `tables` returns them.

    Returns
    -------
    vflbench.results.reader.Run : ``.curve`` is a pandas DataFrame, ``.summary`` a dict, ``.folder`` a Path.

    Raises
    ------
    ConfigError : the overrides have problems; the error lists all of them.
    VflbenchError : data are missing or malformed, or the run failed.
    """
    from vflbench.cli import train

    words = listed(overrides)
    folder = None if config_dir is None else str(config_dir)
    if data is None:
        return train.run(words, folder)
    words = with_data(words, data)
    with naming(data):
        return train.run(words, folder)


def listed(overrides: Any) -> list[str]:
    """Overrides as a list; raises ConfigError if they are not texts."""
    if isinstance(overrides, str) or not all(isinstance(word, str) for word in overrides):
        raise ConfigError(
            [Problem("overrides", repr(overrides), 'must be a list of texts: ["algorithm=vfl", "seed=1"]')]
        )
    return list(overrides)


def with_data(overrides: list[str], data: Any) -> list[str]:
    """The overrides, with those that name the data; raises ConfigError if they name other data."""
    if not isinstance(data, Tables):
        raise ConfigError(
            [Problem("data", type(data).__name__, "must be what vflbench.tables({...}, label=...) returns")]
        )
    typed = {word.partition("=")[0].lstrip("+"): word.partition("=")[2] for word in overrides}
    refuse([Problem(key, typed[key], "is set by data=: leave it out") for key in GIVEN if key in typed])
    return [*data.overrides, *overrides]


def load(path: str | Path) -> Run | Runs:
    """The run in a folder, or all runs below it.

    Parameters
    ----------
    path : the folder of a run, or a folder above runs, such as a sweep's.

    Returns
    -------
    Run or Runs : `Runs` is a sequence of runs with a ``.table``. It includes runs that have not ended; their status is
        None.

    Raises
    ------
    VflbenchError : there is no such folder, or no run in it.
    """
    folder = Path(path).expanduser()
    if not folder.is_dir():
        near = closest(folder.name, (p.name for p in folder.parent.iterdir())) if folder.parent.is_dir() else None
        raise ConfigError([Problem("path", folder, "there is no such folder", near)])
    if any((folder / name).is_file() for name in ("manifest.json", "summary.json")):
        return reader.load(folder)
    found = reader.find(folder)
    if not found:
        raise VflbenchError(f"{folder}: no run is in it (a run's folder has a manifest.json)")
    return Runs(tuple(found))


def folders(runs: Given) -> list[str]:
    """The folders of the runs that a user gives: a run, a folder, or several of either."""
    several: Any = [runs] if isinstance(runs, Run | str | os.PathLike) or not isinstance(runs, Iterable) else [*runs]
    wrong = [type(one).__name__ for one in several if not isinstance(one, Run | str | os.PathLike)]
    if wrong or not several:
        allowed = "must be a run, a folder with runs, or a list of either"
        raise ConfigError([Problem("runs", ", ".join(dict.fromkeys(wrong)) or "[]", allowed)])
    return [str(one.folder if isinstance(one, Run) else Path(one).expanduser()) for one in several]


def every(runs: Given) -> list[Run]:
    """The runs that a user gives."""
    found = [load(folder) for folder in folders(runs)]
    return [run for one in found for run in ([one] if isinstance(one, Run) else one)]


def reprice(
    runs: Given,
    network: str | Sequence[str] | None = None,
    *,
    latency_ms: float | None = None,
    bandwidth_mbps: float | None = None,
    accounting: str | Sequence[str] | None = None,
    overrides: Sequence[str] = (),
    out: str | Path | None = None,
    overwrite: bool = False,
    config_dir: str | Path | None = None,
) -> Run | Runs:
    """Price finished runs for another network or accounting, as ``vflbench reprice`` does; nothing is trained.

    Parameters
    ----------
    runs : a run, a folder with runs, or several of either.
    network, accounting : names of options; if there are several, the runs are priced for each.
    latency_ms, bandwidth_mbps : the same for all links.
    overrides : other keys of the network, e.g. ``["network.timing=round"]``.
    out : the folder for the results (None: ``outputs/reprice``). Each result is a run folder; an existing one is kept.
    overwrite : replace results of an earlier re-pricing.
    config_dir : a folder with networks of your own.

    Returns
    -------
    Run or Runs : `Runs` if there are several; its ``notes`` say which runs could not be priced, and why.

    Raises
    ------
    ConfigError : the keys of the network have problems.
    VflbenchError : no run can be priced; the error says why.
    """
    from vflbench.cli import reprice as command
    from vflbench.cli.words import RUNS

    words = listed(overrides)
    for key, value in (("network", network), ("accounting", accounting)):
        if value is not None:
            words.append(f"{key}={value if isinstance(value, str) else ','.join(map(str, value))}")
    links = {"latency_ms": latency_ms, "bandwidth_mbps": bandwidth_mbps}
    words += [f"network.{key}={value}" for key, value in links.items() if value is not None]
    named, refused = folders(runs), list[str]()
    how: dict[str, Any] = {"command": f"vflbench.reprice({named!r}, overrides={words!r})", "overwrite": overwrite}
    how |= {"config_dir": config_dir, "refused": refused.append}
    done = command.priced(named, words, RUNS / "reprice" if out is None else Path(out).expanduser(), **how)
    if not done:
        raise VflbenchError("\n".join(refused))
    found = tuple(reader.load(result.folder) for result in done)
    return found[0] if len(found) == 1 and not refused else Runs(found, tuple(refused))


def plot(
    runs: Given,
    ax: Axes | None = None,
    x: str = "communication_seconds",
    metric: str | None = None,
    log: Sequence[str] = (),
) -> Axes:
    """Draw runs into one picture: a line for each setting, with the mean over its seeds and a band of one deviation.

    Parameters
    ----------
    runs : a run, a folder with runs, or several of either, on one data set. Runs that did not end well are not drawn;
        the picture says how many there are.
    ax : your axes to draw into; None: axes of a new figure.
    x : a column of the curve: communication_seconds, bytes, round, epoch, messages, vectors, cost, iterations, epsilon
        or virtual_seconds. If computing takes time, too, or if there are no times, another column replaces
        communication_seconds, and the axis says so.
    metric : None: the metric that judges the runs, on test rows; ``loss``: the training loss.
    log : axes that are logarithmic: ``"x"``, ``"y"``, or both.

    Returns
    -------
    matplotlib.axes.Axes : with title, labels and legend, which you may change.

    Raises
    ------
    ConfigError : the arguments have problems.
    VflbenchError : no run ended well, or the runs have several data sets, metrics or, against epsilon, kinds of it.
    """
    import matplotlib.axes

    from vflbench.plots import curves

    found = every(runs)
    drawn = [run for run in found if run.status in ENDED_WELL and len(run.curve)]
    problems = []
    if x not in curves.X_LABELS:
        allowed = f"must be one of {', '.join(curves.X_LABELS)}"
        problems.append(Problem("x", x, allowed, closest(str(x), curves.X_LABELS)))
    problems += [Problem("log", axis, "must be of x, y") for axis in log if axis not in ("x", "y")]
    if ax is not None and not isinstance(ax, matplotlib.axes.Axes):
        problems.append(Problem("ax", type(ax).__name__, "must be axes of matplotlib: figure, ax = plt.subplots()"))
    kinds = {(run.summary["dataset"], run.summary["data_variant"], run.summary["metric"]["name"]) for run in drawn}
    names = dict.fromkeys([*(name for *_, name in kinds), "loss"])
    if metric is not None and drawn and metric not in names:
        allowed = f"must be one of {', '.join(names)}"
        problems.append(Problem("metric", metric, allowed, closest(str(metric), names)))
    refuse(problems)
    if not drawn:
        raise VflbenchError("\n".join(["none of the runs can be drawn:", *map(repr, found)]))
    _refuse_mixed(drawn, kinds, x)
    if ax is None:
        from matplotlib import pyplot

        _, ax = pyplot.subplots(figsize=(6.4, 4.2), layout="constrained")
    curves.draw_into(ax, found, x, metric or drawn[0].summary["metric"]["name"], log)
    return ax


def _refuse_mixed(drawn: Sequence[Run], kinds: Collection[tuple[str | None, ...]], x: str) -> None:
    """Refuse runs that cannot share axes: of several `kinds`, or with epsilons about different things."""
    if len(kinds) > 1:
        pairs = "; ".join(sorted(" ".join(filter(None, kind)) for kind in kinds))
        raise VflbenchError(f"these runs have several data sets or metrics ({pairs}): draw each into its own axes")
    about = {texts.guarantee(run.summary["privacy"]) for run in drawn} - {None} if x == "epsilon" else set()
    if len(about) > 1:
        listed = "; ".join(sorted(filter(None, about)))
        raise VflbenchError(f"these epsilons are about different things ({listed}): draw each kind into its own axes")
