"""A run, single or a job of a sweep, in its folder."""

from __future__ import annotations

import atexit
import contextlib
import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from vflbench import config, registry
from vflbench.cli import crash, folders
from vflbench.cli.words import RUNS, complain, for_user, last_lines, one_line, relative_path, say, text_of
from vflbench.config.hydra import Session
from vflbench.results import folder as files
from vflbench.results import inventory, lock, reader
from vflbench.results.identity import config_hash
from vflbench.results.texts import result_line
from vflbench.runner import interrupts
from vflbench.types import ConfigError, RunConfig, VflbenchError

if TYPE_CHECKING:
    from vflbench.runner.evaluate import Halt

SHARE = 0.05  # of the time may go into looking for garbage
_due = 0.0  # when to look for it again, monotonic s


@dataclass
class Outcome:
    """How one job ended."""

    code: int
    folder: Path
    error: VflbenchError | None = None
    line: str = ""  # what the user reads about it
    status: str = "failed"
    bug: Exception | None = None  # of a single run, for who called `vflbench.run`
    value: float | None = None  # of a sweep's job: its objective

    def report(self) -> None:
        """Print the line, on stderr where it is an error."""
        (complain if self.error else say)(self.line)


def start(
    hydra: Session,
    cfg: DictConfig,
    overrides: list[str],
    command: str,
    quiet: bool = False,
    draw: Callable[[Path, dict[str, Any]], None] | None = None,
    halt: Halt | None = None,
) -> Outcome:
    """Run one checked configuration in its folder.

    `draw` draws its pictures, unless it is to have none; `halt` may end it after an evaluation.
    """
    folder, found = config.folder_of(cfg, "hydra.run.dir"), None
    dated = folders.dated(cfg, "run", overrides)
    if not dated:
        folders.admit(folder, cfg)
    if cfg.resume and not any(text.startswith("hydra.run.dir=") for text in overrides):
        found = folders.to_continue(RUNS, config.plain(cfg))
        if found is not None:
            overrides = [*overrides, config.quoted("hydra.run.dir", str(found))]
        if not quiet and (found is None or folders.ended(found) is None):
            complain(
                f"continuing {found}" if found else f"no run of this configuration below {RUNS}/: starting a new one"
            )
    made = [place for place in (folder, *folder.parents) if not place.exists()]
    if dated and found is None:
        made[:1] = [folders.make_new(folder)]
        overrides = [*overrides, config.quoted("hydra.run.dir", str(made[0]))]
    elif found is None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # before Hydra, which would let others read it
    task = partial(job, command=command, quiet=quiet, draw=draw, halt=halt)
    try:
        with config.refusing():
            outcome: Outcome = hydra.start(task, overrides, log=not quiet)
    finally:
        for place in made:  # a run that could not start leaves nothing behind
            with contextlib.suppress(OSError):
                place.rmdir()
    return outcome


@interrupts.job()
def job(
    cfg: DictConfig,
    *,
    command: str = "vflbench",
    quiet: bool = False,
    total: int | None = None,
    swept: frozenset[str] = frozenset(),
    draw: Callable[[Path, dict[str, Any]], None] | None = None,
    halt: Halt | None = None,
) -> Outcome:
    """One run, in the folder that Hydra made.

    A launcher may run this in another process: so it is at module level and has no state.

    Parameters
    ----------
    total : the number of a sweep's jobs, 0 where a sweeper chooses them as it goes; None for a single run.
    swept : the keys that differ between these jobs.
    draw : draws the pictures of a single run; None: `draw_run`.
    halt : may end it after an evaluation.
    """
    hydra = HydraConfig.get()
    config.settle(cfg, hydra.overrides.task)
    folder = Path(hydra.runtime.output_dir)
    label = ""
    if total is not None:
        words = [w for w in hydra.overrides.task if w.split("=", 1)[0] in swept - {"algorithm", "dataset"}]
        choices = hydra.runtime.choices
        number = f"{hydra.job.num + 1}/{total}" if total else hydra.job.num + 1
        label = " ".join((f"[{number}]", choices["algorithm"], choices["dataset"], *words))
    try:
        if label and not any(folder.iterdir()):
            folder.chmod(folder.stat().st_mode & 0o700)  # Hydra has made it, for others to read
        if (done := _done(cfg, folder, label)) is not None:
            outcome = done
        else:
            files.prepare(folder)
            with lock.held(folder), interrupts.once():  # also while an interrupted run is reported
                try:
                    outcome = _outcome_of(cfg, folder, label, command, quiet, {"draw": draw, "halt": halt})
                finally:
                    inventory.leave(folder)
    except (VflbenchError, OSError) as error:  # another process writes there, or the lock failed: nothing is written
        outcome = _failed(folder, for_user(error), label)
    except Exception as bug:
        outcome = _broken(folder, bug, crash.crash_line(bug), label)
    if not quiet:
        outcome.report()
    return outcome


def _failed(folder: Path, error: VflbenchError | None, label: str) -> Outcome:
    """The outcome of a job that `error` ended."""
    return Outcome(1, folder, error, f"{label}: failed: {error}" if label else f"error: {error}")


def _broken(folder: Path, bug: Exception, line: str, label: str) -> Outcome:
    """The outcome of a job that ended with an exception that nobody foresaw; `line` says where the traceback is."""
    outcome = _failed(folder, VflbenchError(line), label)
    outcome.code, outcome.bug = crash.CODE, None if label else bug
    outcome.line = outcome.line if label else line
    return outcome


def _outcome_of(cfg: DictConfig, folder: Path, label: str, command: str, quiet: bool, hooks: dict[str, Any]) -> Outcome:
    """Carry out the job in its locked folder; a job of a sweep has a label."""
    values = config.plain(cfg)
    try:
        if (done := _done(cfg, folder, label)) is not None:  # again: another process may have ended it meanwhile
            return done
        if label and not cfg.overwrite:  # continue what an earlier start of this sweep has begun
            values["resume"] = values["resume"] or (folder / "manifest.json").is_file()
        hooks |= {"draw": _without_pictures} if label or values["plot"] != "auto" else {}
        untyped = config.layers.untyped(cast(DictConfig, HydraConfig.get()))
        summary = _run(config.checked(values, untyped), folder, command, quiet or bool(label), hooks, cfg)
    except Exception as failure:
        if label and isinstance(failure, ConfigError):
            reason = one_line(failure)
            folders.write_unrun(folder, "skipped", reason, values, cfg)
            return Outcome(0, folder, line=f"{label}: skipped ({reason})", status="skipped")
        if (error := for_user(failure)) is None:
            folders.write_unrun(folder, "failed", f"{type(failure).__name__}: {text_of(failure)}", values, cfg)
            return _broken(folder, failure, crash.crash_line(failure, folder, config.from_environment(cfg)), label)
    else:
        status = summary["status"]
        code = 1 if status == "failed" or (status == "diverged" and not label) else 0
        done = Outcome(
            code,
            folder,
            line=f"{label}: {result_line(summary)}" if label else last_lines(summary, folder),
            status=status,
        )
        if status == "diverged" and not label:
            complain(f"the run diverged: {summary.get('reason') or 'its numbers are not finite'}")
        if status == "interrupted":
            if not quiet:
                done.report()
            raise KeyboardInterrupt
        return done
    if label:  # the table of a sweep has every job
        folders.write_unrun(folder, "failed", str(error), values, cfg)
    return _failed(folder, error, label)


def _forget_runs() -> None:
    """Collect the parties and data of earlier runs of this process: they are in cycles, which Python seldom looks for.

    It takes some tenths of a second, so after short runs it is not done each time. A command (see `vflbench.cli`) has
    only modules by its first run, which nobody need look at again. A user's own process has the user's objects, too.
    """
    global _due
    if not gc.isenabled() and not gc.get_freeze_count():
        gc.freeze()
        atexit.register(gc.unfreeze)  # bindings such as DuckDB's tell what is not collected at the end
    elif (begun := time.monotonic()) >= _due:
        gc.collect()
        ended = time.monotonic()
        _due = ended + (ended - begun) / SHARE


def _run(
    run_config: RunConfig, folder: Path, command: str, quiet: bool, hooks: dict[str, Any], cfg: DictConfig
) -> dict[str, Any]:
    """Train, and return the summary; the runner imports no plots, so it is given what draws a run."""
    from vflbench.runner.run import run

    if hooks["draw"] is None:
        from vflbench.plots.curves import draw_run

        hooks["draw"] = draw_run
    inventory.remove(folder / crash.NAME)  # of an earlier start
    _forget_runs()
    gc.enable()  # see `vflbench.cli`
    info = registry.algorithms()[run_config.algorithm.name]
    choices = {
        str(group): str(option) for group, option in HydraConfig.get().runtime.choices.items() if option is not None
    }
    how: dict[str, Any] = {"command": command, "choices": choices, "info": info, "quiet": quiet, **hooks}
    how |= {
        "plain": config.without_secrets(cfg),
        "identity": config_hash(config.plain(cfg)),
        "hidden": config.from_environment(cfg),
        "layers": config.layers.changed_keys(cast(DictConfig, HydraConfig.get())),
    }
    summary: dict[str, Any] = run(
        run_config, folder, clear=partial(folders.clear, folder, run_config.overwrite, cfg), **how
    )
    return summary


def _without_pictures(folder: Path, _: dict[str, Any]) -> None:
    """Remove the pictures of an earlier start: they do not show the whole curve."""
    for name in files.PICTURES:
        inventory.remove(folder / name)


def _done(cfg: DictConfig, folder: Path, label: str) -> Outcome | None:
    """The outcome of a job whose run has ended already, e.g. one that is queued twice; None where work is left.

    Raises
    ------
    VflbenchError : writing to the folder would lose something, or its files are damaged.
    """
    folders.admit(folder, cfg, sweep=bool(label))
    if cfg.overwrite or not (label or cfg.resume) or (status := folders.ended(folder)) is None:
        return None
    run = reader.load(folder)
    run.check_curve()
    line = (
        f"{relative_path(folder)} holds a run that has ended ({status}): nothing is left to "
        f"do\n{last_lines(run.summary, folder)}"
    )
    return Outcome(0, folder, line=f"{label}: {status}, kept" if label else line, status=status)
