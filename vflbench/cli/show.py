"""`vflbench show`."""

from argparse import ArgumentParser

from vflbench.cli.report import read_runs
from vflbench.plots.report_terminal import show


def command(args: list[str]) -> int:
    """`vflbench show RUN...`: the tables of `vflbench report`, in the terminal."""
    parser = ArgumentParser(
        prog="vflbench show", description="Compare runs in the terminal; `vflbench report` makes a page."
    )
    parser.add_argument("runs", nargs="+", metavar="RUN", help="a run's folder, or any folder above runs")
    show(read_runs(parser.parse_args(args).runs))
    return 0
