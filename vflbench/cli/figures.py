"""`vflbench figures`."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from argparse import ArgumentParser
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vflbench import config
from vflbench.cli import crash, train
from vflbench.cli.words import RUNS, complain, for_user, one_line, relative_path, say
from vflbench.papers import claims, definition, figure_page, figures, jobs
from vflbench.results import inventory, reader
from vflbench.results.reader import Run
from vflbench.results.texts import printable
from vflbench.runner import interrupts
from vflbench.types import ConfigError, Problem, VflbenchError, refuse

if TYPE_CHECKING:
    from vflbench.runner.reprice import Finished


def _train_job(config_dir: str | None, words: list[str], folder: str) -> str:
    """Train one of a figure's runs, in this process; returns why it failed, else an empty text."""
    try:
        train.run([*words, "hydra.mode=RUN", config.quoted("hydra.run.dir", folder), "resume=true"], config_dir)
    except ConfigError as impossible:
        return one_line(impossible)
    except Exception as error:  # the other runs go on
        return str(for_user(error) or crash.crash_line(error))
    return ""


def _reprice_job(run: Run, values: dict[str, Any], folder: Path) -> Run:
    """Price a figure's run from one that differs only in network and accounting.

    Raises
    ------
    VflbenchError : the prices would not be exact.
    """
    from vflbench.plots.curves import draw_run
    from vflbench.runner import reprice

    profile = reprice.Profile(
        {"network": values["network"]["name"], "accounting": values["accounting"]}, values["network"]
    )
    draw = draw_run if values["plot"] == "auto" else None
    _finished(run.folder.resolve()).write(profile, folder, "vflbench figures", overwrite=False, draw=draw)
    return reader.load(folder)


@lru_cache(maxsize=1)
def _finished(folder: Path) -> Finished:
    """A run's ledger and trace, kept while it is priced several times in a row."""
    from vflbench.runner import reprice

    finished = reprice.Finished(folder)
    finished.check()
    return finished


@contextlib.contextmanager
def _progress(total: int) -> Iterator[Callable[[int, int, Any], None]]:
    """Report which runs are done and how long the rest will take: with a bar on a terminal, else in lines."""
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import Progress

    began = time.monotonic()
    terminal = sys.stderr.isatty() and not os.environ.get("CI")
    with Progress(console=Console(stderr=True), disable=not terminal) as bar:
        task = bar.add_task("runs", total=total)

        def report(done: int, of: int, job: Any) -> None:
            bar.update(task, description=escape(printable(job.label)), completed=done, total=of)
            seconds = (time.monotonic() - began) / done * (of - done)
            remaining = f"about {seconds / 60:.0f} min left" if seconds >= 90 else f"about {seconds:.0f} s left"
            if job.note:
                complain(f"{job.label}: {job.note}")
            if not terminal:
                complain(f"[{done}/{of}] {job.label}: {job.failure or 'done'}; {remaining}")

        yield report


def _write_tables(job: jobs.Job, needed: Iterable[tuple[definition.Definition, list[jobs.Job]]], folder: Path) -> None:
    """Write the table of each figure with this run, where it was trained now: a sweep may never end."""
    for figure, own_jobs in needed:
        if job.fresh and job.run and any(job is one for one in own_jobs):
            figures.write_table(figure, own_jobs, folder / figure.name)


def _claim(places: Sequence[Path]) -> None:
    """Make the folders of the pages, the index' first; where one is refused, undo what was begun."""
    new = [place for place in places if not place.exists()]
    try:
        for place in places:
            figures.claim_folder(place, ("index.html",) if place == places[0] else None)
    except VflbenchError:
        for place in reversed(places):
            if place.is_dir():
                inventory.leave(place)
            if place in new:
                with contextlib.suppress(OSError):
                    place.rmdir()
        raise


def command(args: list[str]) -> int:
    """`vflbench figures NAME ... [scale=...] [jobs=N] [out=DIR] [key=value ...] [--config-dir DIR]`: papers' figures.

    Runs that are there already are used; the others are trained.
    """
    usage = (
        "usage: vflbench figures NAME ... [scale=smoke|small|full] [jobs=N] [out=DIR] [key=value ...] "
        f"[--config-dir DIR]; NAME is all, a paper or one of: {', '.join(definition.names())}"
    )
    if {"-h", "--help"} & set(args):
        say(usage)
        return 0
    own = {"scale": "small", "jobs": "1", "out": ""}
    parser = ArgumentParser(prog="vflbench figures", usage=usage.removeprefix("usage: "), add_help=False)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--config-dir", metavar="DIR", help="a folder with options of your own")
    flags = parser.parse_intermixed_args(args)
    typed = [text.partition("=") for text in flags.words]
    names = [key for key, equals, _ in typed if not equals]
    overrides = ["".join(word) for word in typed if word[1] and word[0] not in own]
    own |= {key: value for key, equals, value in typed if equals and key in own}
    problems = claims.among("scale", [own["scale"]], definition.SCALES)
    if not own["jobs"].isdecimal() or not int(own["jobs"]):
        problems.append(Problem("jobs", own["jobs"], "must be a number of processes, at least 1"))
    refuse(problems)
    if not names:
        raise VflbenchError(usage)
    chosen = [definition.load(name) for name in definition.choose(names)]
    # Pages of a smoke test have their own place: they must not replace pages that took a night.
    folder = Path(own["out"]) if own["out"] else RUNS / "figures" / ("smoke" if own["scale"] == "smoke" else "")
    needed = [jobs.wanted(figure, own["scale"], overrides, flags.config_dir) for figure in chosen]
    places = [folder, *(folder / figure.name for figure in chosen)]
    _claim(places)
    shared: dict[str, jobs.Job] = {}  # one run may serve several figures
    needed = [[shared.setdefault(job.identity, job) for job in own_jobs] for own_jobs in needed]
    with _progress(len(shared)) as report, interrupts.passed_on(folder / "runs"):
        wanted = list(shared.values())

        def ended(done: int, of: int, job: jobs.Job) -> None:
            report(done, of, job)
            _write_tables(job, zip(chosen, needed, strict=True), folder)

        train_one = partial(_train_job, flags.config_dir)
        jobs.carry_out(wanted, folder / "runs", [RUNS], train_one, _reprice_job, int(own["jobs"]), ended)
    code = 0
    for figure, own_jobs in zip(chosen, needed, strict=True):
        made = figures.make(figure, own_jobs, own["scale"], folder / figure.name, args)
        verdicts = ", ".join(f"{count} {verdict}" for verdict, count in made.verdicts.items()) or "no claims"
        say(f"{figure.name}: {verdicts}: {relative_path(made.folder / 'page.html')}")
        for failure in made.failures:
            complain(f"{figure.name}: not in it: {failure}")
            code = max(code, crash.code(failure))
    say(f"index: {relative_path(figure_page.write_index(folder))}")
    return code
