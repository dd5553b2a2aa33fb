"""`vflbench [flags] [group=option ...] [key=value ...]` and `vflbench.run`: check, compose, train, report."""

from __future__ import annotations

import contextlib
import shlex
import sys
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from vflbench import config
from vflbench.cli import pictures
from vflbench.cli.dry_run import dry_run
from vflbench.cli.words import say
from vflbench.types import VflbenchError

if TYPE_CHECKING:
    from vflbench.results.reader import Run
    from vflbench.runner.evaluate import Halt

USAGE = "vflbench [-m] [--config-dir DIR] [group=option ...] [key=value ...]; see vflbench --help"
INFO = ["all", "config", "defaults", "defaults-tree", "plugins", "searchpath"]  # what Hydra tells of itself


def command(args: list[str]) -> int:
    """`vflbench [flags] [group=option ...] [key=value ...]`."""
    flags = _parser().parse_intermixed_args(args)
    if flags.config_path or flags.config_name or flags.experimental_rerun:
        raise VflbenchError(
            "--config-path, --config-name and --experimental-rerun are not supported; give your options with "
            "--config-dir"
        )
    if flags.shell_completion:
        from vflbench.cli import completion

        if completion.is_query(flags):
            return completion.query(flags)
    if flags.cfg or flags.info is not None or flags.hydra_help or flags.shell_completion:
        return _show(flags)
    overrides = flags.overrides + (["hydra.mode=RUN"] if flags.run else [])
    pictured = not ({"plot=none", "dry_run=true"} & {*overrides} or flags.multirun or "torch" in sys.modules)
    with contextlib.ExitStack() as drawing, config.session(overrides, flags.config_dir) as hydra:
        draw = drawing.enter_context(pictures.beside()) if pictured else None
        overrides = config.for_all_links(hydra, overrides)
        plan = config.plan(hydra, overrides, flags.multirun)
        typed = shlex.join(["vflbench", *args])
        if plan.jobs is not None:
            from vflbench.cli import sweep

            drawing.close()  # a sweep, here of a preset, draws no job
            return sweep.start(hydra, plan, plan.jobs, overrides, typed)
        if plan.cfg.dry_run:
            assert plan.config is not None
            say(dry_run(plan.config, plan.cfg.hydra))
            return 0
        from vflbench.cli import job

        return job.start(hydra, plan.cfg, overrides, typed, draw=draw).code


def _parser() -> ArgumentParser:
    """A parser of Hydra's flags; `--help` and `--version` are ours."""
    parser = ArgumentParser(prog="vflbench", usage=USAGE, add_help=False)
    parser.add_argument("overrides", nargs="*")
    for short, name in (("-m", "multirun"), ("-r", "run"), ("-sc", "shell-completion")):
        parser.add_argument(f"--{name}", short, action="store_true")
    for name in ("hydra-help", "resolve"):
        parser.add_argument(f"--{name}", action="store_true")
    for short, name in (("-p", "package"), ("-cd", "config-dir"), ("-cp", "config-path"), ("-cn", "config-name")):
        parser.add_argument(f"--{name}", short)
    parser.add_argument("--experimental-rerun")
    parser.add_argument("--cfg", "-c", choices=["job", "hydra", "all"])
    parser.add_argument("--info", "-i", nargs="?", const="all", choices=INFO)
    return parser


def _show(flags: Namespace) -> int:
    """Hydra's own `--cfg`, `--info`, `--hydra-help` and shell completion, with the options that a run would use."""
    if flags.multirun:
        raise VflbenchError(
            "-m does not go with --cfg, --info, --hydra-help and --shell-completion: give the values of one job"
        )
    with config.session(flags.overrides, flags.config_dir) as hydra, config.refusing():
        flags.overrides = config.for_all_links(hydra, flags.overrides)
        if not flags.shell_completion:
            config.check_hydra_keys(hydra, flags.overrides)
        # One line where Hydra would end in a traceback; and what would run code is refused.
        cfg = config.compose(hydra, [] if flags.shell_completion else flags.overrides)
        if not (flags.hydra_help or flags.shell_completion):
            config.folder_of(cfg, "hydra.run.dir")
            if flags.resolve and flags.info is None:
                config.plain(cfg)
        given = {"--cfg": flags.cfg, "--package": flags.package, "--info": flags.info}
        words = [word for flag, value in given.items() if value is not None for word in (flag, value)]
        on = {"--hydra-help": flags.hydra_help, "-sc": flags.shell_completion, "--resolve": flags.resolve}
        hydra.show([*words, *(flag for flag, wanted in on.items() if wanted), *flags.overrides])
    return 0


def run(
    overrides: list[str], config_dir: str | None = None, command: str | None = None, halt: Halt | None = None
) -> Run:
    """See `vflbench.run`; `command`: what its manifest calls it; `halt` may end it after an evaluation."""
    from vflbench.cli import job
    from vflbench.results import reader

    with config.session(overrides, config_dir) as hydra:
        typed, overrides = overrides, config.for_all_links(hydra, overrides)
        plan = config.plan(hydra, overrides)
        if plan.jobs is not None or plan.cfg.dry_run:
            raise VflbenchError("vflbench.run runs one experiment: sweeps and dry_run belong to the command line")
        outcome = job.start(hydra, plan.cfg, overrides, command or f"vflbench.run({typed!r})", quiet=True, halt=halt)
    if outcome.bug is not None:
        raise outcome.bug
    if outcome.error is not None:
        raise outcome.error
    return reader.load(outcome.folder)
