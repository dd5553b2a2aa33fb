"""`vflbench plot`."""

from argparse import ArgumentParser
from collections.abc import Callable
from functools import partial
from pathlib import Path

from vflbench.cli.words import complain, for_user, relative_path, say
from vflbench.results import inventory, lock, reader, sweep_table
from vflbench.types import VflbenchError


def command(args: list[str]) -> int:
    """`vflbench plot RUN...`: draw the pictures of runs that have ended, and of sweeps, into their folders."""
    parser = ArgumentParser(prog="vflbench plot", description="Draws the pictures of runs and sweeps in their folders.")
    parser.add_argument("runs", nargs="+", metavar="RUN", help="a folder of a run or sweep, or any folder above some")
    roots = [Path(name) for name in parser.parse_args(args).runs]
    found = {run.folder: partial(_draw_run, run) for root in roots for run in reader.find(root)}
    sweeps = [path.parent for root in roots for path in inventory.found_below(root, "multirun.yaml")]
    found |= {folder: partial(_draw_sweep, folder) for folder in sweeps}
    drawn = sum([_drawn(folder, draw) for folder, draw in found.items()])
    if not found:
        raise VflbenchError(f"no run is in {', '.join(map(str, roots))}")
    return 0 if drawn == len(found) else 1


def _drawn(folder: Path, draw: Callable[[], None]) -> bool:
    """Draw the pictures in `folder`; False, and a message, where that is impossible."""
    try:
        if not inventory.kept(folder):
            raise VflbenchError(f"{folder} has no {inventory.NAME}: vflbench writes only where it keeps a list")
        if lock.held_below(folder):
            raise VflbenchError(f"{folder}: another process writes there")
        draw()
    except (VflbenchError, OSError) as error:
        complain(f"left out: {for_user(error)}")
        return False
    say(f"curve: {relative_path(folder / 'curve.png')}")
    return True


def _draw_run(run: reader.Run) -> None:
    from vflbench.plots.curves import draw_run

    if run.status is None or not (run.folder / "curve.csv").exists():
        raise VflbenchError(f"{run.folder} holds a run without a curve ({run.status or 'unfinished'})")
    run.check_curve()
    with lock.held(run.folder):
        draw_run(run)


def _draw_sweep(folder: Path) -> None:
    from vflbench.plots.curves import draw_runs

    draw_runs(sweep_table.jobs(folder), folder)
