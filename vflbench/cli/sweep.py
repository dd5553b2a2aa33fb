"""A sweep: its jobs, one after the other or in parallel, and their table."""

import math
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict, read_write

from vflbench import config
from vflbench.cli import crash, folders
from vflbench.cli.dry_run import dry_run
from vflbench.cli.job import Outcome, job
from vflbench.cli.words import complain, made_up, one_line, relative_path, say
from vflbench.config.hydra import Session
from vflbench.config.overrides import BASIC
from vflbench.results import folder as files
from vflbench.results import inventory, objective, reader, sweep_table
from vflbench.runner import interrupts, launchers
from vflbench.types import ENDED_WELL, ConfigError, Objective, Problem, VflbenchError


def start(hydra: Session, plan: config.Plan, jobs: list[list[str]], overrides: list[str], command: str) -> int:
    """Carry out the `jobs` of a checked sweep and return the exit code."""
    cfg = plan.cfg
    for words in plan.left_out:
        complain(words)
    own = [text for text in overrides if text.startswith(("hydra.", "hydra/"))]
    if cfg.dry_run:
        return _dry_runs(hydra, jobs, own)
    folder = config.folder_of(cfg, "hydra.sweep.dir")
    if cfg.resume and not folder.is_dir() and not any(text.startswith("hydra.sweep.dir=") for text in overrides):
        raise VflbenchError(
            "resume=true: a sweep is continued in its own folder; name it with hydra.sweep.dir=outputs/multirun/..."
        )
    unresolved: Any = OmegaConf.to_container(cfg.hydra.sweep)
    numbered = unresolved["subdir"] == "${hydra.job.num}"
    dated = folders.dated(cfg, "sweep", overrides)
    adaptive = plan.sweeper != BASIC
    if adaptive and not numbered:
        allowed = "must be ${hydra.job.num} if the sweeper chooses the jobs"
        raise ConfigError([Problem("hydra.sweep.subdir", unresolved["subdir"], allowed)])
    if not adaptive and ((folder.is_dir() and not dated) or not numbered):
        _admit_jobs(hydra, folder, jobs, own)
    folders.admit_sweep(folder)
    launcher = launchers.resolve(cfg, None if adaptive else len(jobs), overrides)
    launcher.folder = folder = folders.make_new(folder) if dated else folder
    # Name the folder: its default has the time in it, which has changed by now.
    overrides = [
        *plan.shared,
        "hydra.mode=MULTIRUN",
        config.quoted("hydra.sweep.dir", str(folder)),
        *launcher.overrides,
    ]
    outcomes: list[Outcome] = []
    died = ""
    files.prepare(folder)
    try:
        inventory.writing(folder, "multirun.yaml")  # by Hydra
        with launcher, interrupts.passed_on(folder, launcher.processes), config.refusing():
            task = partial(job, command=command, total=len(jobs), swept=plan.swept)
            try:
                outcomes = hydra.sweep(task, overrides, jobs, launcher.do, partial(_returned, cfg.objective))
            except launchers.DIED as error:
                if launcher.name == "basic":
                    raise
                died = launcher.last_words(error)
        if (folder / "multirun.yaml").exists():
            (folder / "multirun.yaml").chmod(inventory.mode(folder))
            inventory.written(folder, "multirun.yaml")
    finally:
        inventory.leave(folder)
    if not launcher.hears:
        for outcome in outcomes:
            outcome.report()
    return _conclude(folder, outcomes, died, cfg)


def _returned(name: Objective | None, outcome: Outcome) -> Outcome | float:
    """What a job returns to the sweeper: its objective, if one is asked for."""
    if name is None:
        return outcome
    # if a job was refused its folder, the run there is another one
    run = None if outcome.error else reader.load(outcome.folder)
    outcome.value = objective.value(run, name)
    return outcome.value


def _dry_runs(hydra: Session, jobs: list[list[str]], own: list[str]) -> int:
    """Describe each possible job; the exit code is 1 if there is none."""
    possible = 0
    for number, words in enumerate(jobs, start=1):
        say(f"[{number}/{len(jobs)}] {' '.join(words)}")
        try:
            composed = config.compose(hydra, [*own, *words])
            checked = config.checked(config.plain(composed), config.layers.untyped(composed.hydra))
            say(dry_run(checked, composed.hydra))
            possible += 1
        except ConfigError as impossible:
            say(f"skipped: {one_line(impossible)}")
    return 0 if possible else 1


def _admit_jobs(hydra: Session, folder: Path, jobs: list[list[str]], own: list[str]) -> None:
    """Refuse a sweep where two jobs would write to one folder, or a job to a folder that it may not use."""
    taken: dict[Path, list[str]] = {}
    for number, words in enumerate(jobs):
        cfg = config.compose(hydra, [*own, *words])
        with read_write(cfg), read_write(cfg.hydra), open_dict(cfg.hydra.job):
            cfg.hydra.job.num = cfg.hydra.job.id = number
        run_folder = folder / config.folder_of(cfg, "hydra.sweep.subdir")
        if folder.resolve() not in run_folder.resolve().parents:
            raise ConfigError(
                [Problem("hydra.sweep.subdir", str(cfg.hydra.sweep.subdir), "must name a folder below hydra.sweep.dir")]
            )
        other = taken.setdefault(run_folder.resolve(), words)
        if other is not words:
            both = f"{' '.join(other)} and {' '.join(words)}"
            raise VflbenchError(
                f"two jobs would write to {run_folder}: {both}. Let hydra.sweep.subdir name what differs"
            )
        folders.admit(run_folder, cfg, sweep=True)


def _conclude(folder: Path, outcomes: list[Outcome], died: str, cfg: DictConfig) -> int:
    """Print the table, draw the picture, and return the exit code; `died`: why a job's process gave no result."""
    say("\n" + sweep_table.table(folder))
    runs = [run.folder for run in sweep_table.jobs(folder)] if died else [outcome.folder for outcome in outcomes]
    ended = [reader.load(run_folder).summary for run_folder in runs if folders.ended(run_folder)]
    if ended and cfg.plot == "auto":
        from vflbench.plots.curves import draw_runs

        draw_runs(sweep_table.jobs(folder), folder)
        say(f"curves: {relative_path(folder / 'curve.png')}")
    if best := _best(outcomes, cfg.objective):
        say(best)
    say(f"sweep folder: {relative_path(folder)}")
    for label in dict.fromkeys(filter(None, map(made_up, ended))):
        say(label)
    count = Counter(outcome.status for outcome in outcomes)
    well = sum(count[status] for status in ENDED_WELL)
    if died:
        complain(f"{died}. The same command, with hydra.sweep.dir={relative_path(folder)}, does what is left")
    for status in ("failed", "diverged", *(["skipped"] if not well else [])):
        if count[status]:
            complain(f"{count[status]} of {len(outcomes)} jobs {'were ' if status == 'skipped' else ''}{status}")
    if any(outcome.code == crash.CODE for outcome in outcomes):
        return crash.CODE
    return 0 if well and not count["failed"] and not died else 1


def _best(outcomes: list[Outcome], name: Objective | None) -> str:
    """The job with the best objective, in words; empty where no job has a finite one."""
    valued = [(o.value, o.folder) for o in outcomes if o.value is not None and math.isfinite(o.value)]
    if name is None or not valued:
        return "" if name is None else f"objective {name}: no job has one"
    upward = name == "metric" and reader.load(valued[0][1]).summary["metric"]["goal"] == "max"
    value, folder = (max if upward else min)(valued)
    return f"objective {name}: best {value:.6g}, of job {folder.name}"
