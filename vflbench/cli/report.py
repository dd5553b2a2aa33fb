"""`vflbench report`."""

import os
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Iterable, Sequence
from pathlib import Path

import yaml

from vflbench import registry
from vflbench.cli.words import complain, relative_path, say
from vflbench.plots import demands, report_html
from vflbench.plots import report as page
from vflbench.plots.report import Report
from vflbench.results import inventory
from vflbench.results.folder import atomic_write
from vflbench.results.pricing import LIFE, Charged
from vflbench.types import VflbenchError


def command(args: list[str]) -> int:
    """`vflbench report RUN... [--out FILE] [--csv FILE] [--markdown FILE] [--predictions N] [--without PHASES] ...`."""
    parser = ArgumentParser(
        prog="vflbench report", description="Runs side by side, as one HTML file that needs nothing else."
    )
    parser.add_argument("runs", nargs="+", metavar="RUN", help="a run's folder, or any folder above runs")
    parser.add_argument("--out", default="report.html", metavar="FILE", help="the page (default: report.html)")
    parser.add_argument(
        "--csv", metavar="FILE", help="the table, with all digits; a text that would be a formula gets an apostrophe"
    )
    parser.add_argument("--markdown", metavar="FILE", help="the tables as Markdown")
    parser.add_argument(
        "--rerun",
        metavar="NETWORK",
        help="show the runs on this network: methods that depend on time are trained there, others are re-priced",
    )
    parser.add_argument(
        "--predictions",
        type=_count,
        metavar="N",
        help="how many predictions are charged (default: as many as each run has test rows; 0: none)",
    )
    parser.add_argument(
        "--without",
        type=_phases,
        default=frozenset(),
        metavar="PHASES",
        help=f"phases that are not charged, of {','.join(LIFE)}",
    )
    parser.add_argument(
        "--noise",
        type=_epsilon,
        default=demands.NOISE,
        metavar="EPSILON",
        help=f"the largest epsilon with which noise counts as hiding what is sent (default: {demands.NOISE:g})",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace these files if they exist")
    flags = parser.parse_args(args)
    files = flags.out, flags.csv, flags.markdown
    admit(files, flags.overwrite, "--overwrite")
    charged = Charged(flags.without, flags.predictions)
    found = read_runs(flags.runs, charged)
    failed: list[str] = []
    if flags.rerun is not None:
        from vflbench.cli import rerun

        folders, failed = rerun.moved(found, flags.rerun, flags.overwrite)
        for note in failed:
            complain(note)
        say(f"{len(folders)} runs on {flags.rerun}, below {relative_path(rerun.FOLDER)}")
        found = read_runs(list(map(str, folders)), charged)
        found.notes += failed
    found.noise = flags.noise
    write(found, *files)
    _print_answers(found)
    say(f"report: {relative_path(Path(flags.out))}")
    return 1 if failed else 0


def admit(files: Iterable[str | Path | None], overwrite: bool, how: str) -> None:
    """Refuse files that hold something already; `how` is what the user types to replace them."""
    named = [Path(name) for name in files if name]
    for path in named:
        if inventory.listed_by(path) is not None or (path.parent / "manifest.json").exists():
            raise VflbenchError(f"{path}: is in the folder of a run, whose files it could replace; name another place")
    if len(set(named)) < len(named):
        raise VflbenchError(f"{', '.join(map(str, named))}: each needs a file of its own")
    if not overwrite and (there := [str(path) for path in named if os.path.lexists(path)]):
        raise VflbenchError(f"{', '.join(there)}: already exists: name another file, or replace it with {how}")


def write(found: Report, html: str | Path | None, csv: str | Path | None, markdown: str | Path | None) -> None:
    """Write the page, its table and its Markdown, for each file that is named."""
    for path, made in ((html, to_html), (csv, page.to_csv), (markdown, page.to_markdown)):
        if path:
            atomic_write(Path(path), made(found), replace=True)


def to_html(found: Report) -> str:
    """The text of the page, with the networks to choose from."""
    return report_html.to_html(found, _networks())


def _print_answers(found: Report) -> None:
    """Print the best method for each demand, what validation selected, and a warning if data are made up."""
    for panel in found.panels:
        for line in demands.lines(page.answers(found, panel)):
            say(f"{panel.title}: {line}")
        for choice in panel.choices:
            text = page.choice_cells(choice)
            again = f"; again: {text['command']}" if text["command"] else ""
            say(f"{panel.title}: {text['group']}: selected {text['setting']}, {text['why']}{again}")
    for label in dict.fromkeys(panel.alarm for panel in found.panels if panel.alarm):
        say(label)


def _count(word: str) -> int:
    if not word.isdecimal():
        raise ArgumentTypeError(f"{word!r} is not a whole number of at least 0")
    return int(word)


def _epsilon(word: str) -> float:
    try:
        if (value := float(word)) >= 0:
            return value
    except ValueError:
        pass
    raise ArgumentTypeError(f"{word!r} is not a number of at least 0")


def _phases(word: str) -> frozenset[str]:
    named = frozenset(filter(None, word.split(",")))
    if unknown := sorted(named - set(LIFE)):
        raise ArgumentTypeError(f"{', '.join(unknown)}: not a phase to leave out; choose from {', '.join(LIFE)}")
    return named


def read_runs(paths: list[str], charged: Charged | None = None) -> Report:
    """The runs at or below `paths`; a line on stderr for each that is left out."""
    found = read(paths, charged)
    for note in found.notes:
        complain(note)
    return found


def read(paths: Sequence[str | Path], charged: Charged | None = None) -> Report:
    """The runs at or below `paths`; the report's notes name those that are left out."""
    return page.read(paths, {name: info.time_dependent for name, info in registry.algorithms().items()}, charged)


def _networks() -> dict[str, tuple[float, float | None]]:
    """Latency in ms and bandwidth in Gbit/s of each network whose links are all alike and not ideal."""
    found = {}
    for path in sorted((registry.config_dir() / "network").glob("*.yaml")):
        profile = yaml.safe_load(path.read_text(encoding="utf-8"))
        link = profile["client_server"]
        if link == profile["client_client"] and link["latency_ms"] > 0:
            found[profile["name"]] = link["latency_ms"], link["bandwidth_gbps"]
    return found
