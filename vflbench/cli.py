"""The command `vflbench`, and `vflbench.run`: check, compose, train, and say on stdout what came out."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import re
import shlex
import shutil
import signal
import sys
import textwrap
import time
import traceback
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from vflbench import config, hydra_keys, registry
from vflbench.config import Plan, config_dir
from vflbench.results import folder as files
from vflbench.results import identity, inventory, lock, reader, sweep
from vflbench.results.folder import atomic_write
from vflbench.results.identity import config_hash
from vflbench.results.reader import Run
from vflbench.results.texts import printable
from vflbench.results.units import human_bytes
from vflbench.runner import interrupts, launchers
from vflbench.types import ENDED, ENDED_WELL, ConfigError, EngineConfig, NetworkConfig, Problem, RunConfig, VflbenchError, closest, refuse
from vflbench.version import __version__

if TYPE_CHECKING:
    from hydra._internal.hydra import Hydra
    from omegaconf import DictConfig

    from vflbench.plots.report import Report
    from vflbench.runner.reprice import Finished

RUNS = Path("outputs")


def main() -> None:
    """Entry point of the console script. SIGTERM ends it as Ctrl-C does, with exit code 143 for 130."""
    interrupts.heed_sigterm()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that lacks a character is no reason to fail
    code = command(sys.argv[1:])
    interrupts.heed_nothing()
    sys.exit(128 + signal.SIGTERM if code == 130 and signal.SIGTERM in interrupts.received else code)


def command(args: Sequence[str]) -> int:
    """Carry out a command line; return its exit code: 0 fine, 1 an error of configuration or run, 130 interrupted."""
    try:
        return _dispatch(list(args))
    except ConfigError as error:
        count = len(error.problems)
        complain(f"{count} problem{'s' if count > 1 else ''} in the configuration:\n" + textwrap.indent(str(error), "  "))
    except KeyboardInterrupt:
        complain("interrupted")
        return 130
    except BrokenPipeError:  # the reader of our output has left, e.g. `vflbench list | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except Exception as error:
        if (told := _told(error)) is None:
            raise
        complain(f"error: {told}")
    return 1


def _dispatch(args: list[str]) -> int:
    first = args[0] if args else ""
    if first in VERBS:
        return VERBS[first](args[1:])
    if {"-h", "--help"} & set(args):
        say(help_text())
        return 0
    if "--version" in args:
        say(f"vflbench {__version__}")
        return 0
    if first and not first.startswith(("-", "~")) and "=" not in first:
        hint = closest(first, VERBS)
        raise VflbenchError(
            f"{first!r} is no command and no key=value." + (f" Did you mean {hint!r}?" if hint else "") + " See vflbench --help"
        )
    return train(args)


def say(text: str) -> None:
    """One line or more on stdout, where results go. Texts of data and run folders may be in it: none commands the terminal."""
    print(printable(text), flush=True)


def complain(text: str) -> None:
    """One line or more on stderr, likewise."""
    print(printable(text), file=sys.stderr, flush=True)


def _told(error: Exception) -> VflbenchError | None:
    """`error` as one for the user: the operating system's, and memory, of the machine or a GPU, that is not there, too. None: a bug."""
    reason = str(error) or type(error).__name__
    if isinstance(error, VflbenchError):
        return error
    if isinstance(error, OSError):
        return VflbenchError(f"{error.filename}: {error.strerror}" if error.filename and error.strerror else reason)
    if isinstance(error, MemoryError) or "can't allocate memory" in reason or "out of memory" in reason:
        return VflbenchError(f"out of memory: choose smaller sizes ({reason})")
    return None


# --- training ---------------------------------------------------------------------------------------------------------------


@dataclass
class Outcome:
    """How one job ended."""

    code: int
    folder: Path
    error: VflbenchError | None = None
    line: str = ""  # what is said of it
    status: str = "failed"
    bug: Exception | None = None  # of a single run, to be shown whole

    def tell(self) -> None:
        """Say the line: on stderr where it is an error."""
        (complain if self.error else say)(self.line)


def train(args: list[str]) -> int:
    """`vflbench [flags] [group=option ...] [key=value ...]`."""
    from hydra._internal.utils import get_args_parser

    parser = get_args_parser()
    parser.prog = "vflbench"
    parser.usage = "vflbench [-m] [--config-dir DIR] [group=option ...] [key=value ...]; see vflbench --help"
    flags = parser.parse_intermixed_args(args)
    if flags.config_path or flags.config_name or flags.experimental_rerun:
        raise VflbenchError("--config-path, --config-name and --experimental-rerun are not supported; give your options with --config-dir")
    if flags.cfg or flags.info is not None or flags.hydra_help or flags.shell_completion:
        return _hydras_own(flags, parser)
    overrides = flags.overrides + (["hydra.mode=RUN"] if flags.run else [])
    with config.session(overrides, flags.config_dir) as hydra:
        plan = config.plan(hydra, overrides, flags.multirun)
        if plan.jobs is not None:
            return _train_sweep(hydra, plan, overrides, args)
        if plan.cfg.dry_run:
            say(_dry_run(plan.cfg))
            return 0
        return _start(hydra, plan, overrides, command=shlex.join(["vflbench", *args])).code


def _hydras_own(flags: Namespace, parser: ArgumentParser) -> int:
    """`--cfg`, `--info`, `--hydra-help` and shell completion are Hydra's, with the options that a run would use, in their order."""
    if flags.multirun:
        raise VflbenchError("-m does not go with --cfg, --info, --hydra-help and --shell-completion: give the values of one job")
    with config.session(flags.overrides, flags.config_dir) as hydra, hydra_keys.refusing():
        if not flags.shell_completion:
            config.check_hydra_keys(hydra, flags.overrides)
        if flags.hydra_help:
            hydra.hydra_help("config", args_parser=parser, args=flags)
        elif flags.shell_completion:
            hydra.shell_completion("config", flags.overrides)
        else:
            cfg = config.compose(hydra, flags.overrides)  # refuses in our way what Hydra would refuse with a traceback
            hydra_keys.folder(cfg, "hydra.run.dir")
            if flags.info is not None:
                hydra.show_info(flags.info, "config", flags.overrides)
            else:
                if flags.resolve:
                    config.plain(cfg)
                hydra.show_cfg("config", flags.overrides, flags.cfg, flags.package, flags.resolve)
    return 0


def _start(hydra: Hydra, plan: Plan, overrides: list[str], command: str, quiet: bool = False) -> Outcome:
    """Run one checked configuration in its folder."""
    folder, found = hydra_keys.folder(plan.cfg, "hydra.run.dir"), None
    dated = _dated(plan.cfg, "run", overrides)
    try:
        if not dated:
            _admit(folder, plan.cfg)
    except VflbenchError:
        if inventory.kept(folder):
            with lock.alone(folder):  # that it is running comes before what could be done with it
                raise
        raise
    if plan.cfg.resume and not any(text.startswith("hydra.run.dir=") for text in overrides):
        found = _to_continue(RUNS, config.plain(plan.cfg))
        if found is not None:
            overrides = [*overrides, config.quoted("hydra.run.dir", str(found))]
        if not quiet and (found is None or _ended(found) is None):
            complain(f"continuing {found}" if found else f"no run of this configuration below {RUNS}/: starting a new one")
    made = [place for place in (folder, *folder.parents) if not place.exists()]
    if dated and found is None:
        made[:1] = [_new(folder)]
        overrides = [*overrides, config.quoted("hydra.run.dir", str(made[0]))]
    elif found is None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # before Hydra does, who lets others read it
    task = partial(_job, command=command, quiet=quiet)
    try:
        with hydra_keys.refusing():
            outcome: Outcome = hydra.run("config", task, overrides, with_log_configuration=not quiet).return_value
    finally:
        for place in made:  # a run that could not start leaves nothing behind
            with contextlib.suppress(OSError):
                place.rmdir()
    if outcome.bug is not None:
        raise outcome.bug
    return outcome


def _train_sweep(hydra: Hydra, plan: Plan, overrides: list[str], args: list[str]) -> int:
    from omegaconf import OmegaConf, open_dict, read_write

    from vflbench import hydra_launcher

    assert plan.jobs is not None
    shared = [text for text in overrides if text.startswith(("hydra.", "hydra/"))]
    if plan.cfg.dry_run:
        possible = 0
        for number, job in enumerate(plan.jobs, start=1):
            say(f"[{number}/{len(plan.jobs)}] {' '.join(job)}")
            try:
                say(_dry_run(config.compose(hydra, [*shared, *job])))
                possible += 1
            except ConfigError as impossible:
                say(f"skipped: {_one_line(impossible)}")
        return 0 if possible else 1
    folder = hydra_keys.folder(plan.cfg, "hydra.sweep.dir")
    if plan.cfg.resume and not folder.is_dir() and not any(text.startswith("hydra.sweep.dir=") for text in overrides):
        raise VflbenchError("resume=true: a sweep is continued in its own folder; name it with hydra.sweep.dir=outputs/multirun/...")
    numbered = OmegaConf.to_container(plan.cfg.hydra.sweep)["subdir"] == "${hydra.job.num}"  # type: ignore[call-overload,index]
    dated = _dated(plan.cfg, "sweep", overrides)
    if (folder.is_dir() and not dated) or not numbered:
        taken: dict[Path, list[str]] = {}
        for number, job in enumerate(plan.jobs):
            cfg = config.compose(hydra, [*shared, *job])
            with read_write(cfg), read_write(cfg.hydra), open_dict(cfg.hydra.job):
                cfg.hydra.job.num = cfg.hydra.job.id = number
            run_folder = folder / hydra_keys.folder(cfg, "hydra.sweep.subdir")
            if folder.resolve() not in run_folder.resolve().parents:
                raise ConfigError([Problem("hydra.sweep.subdir", str(cfg.hydra.sweep.subdir), "must name a folder below hydra.sweep.dir")])
            other = taken.setdefault(run_folder.resolve(), job)
            if other is not job:
                both = f"{' '.join(other)} and {' '.join(job)}"
                raise VflbenchError(f"two jobs would write to {run_folder}: {both}. Let hydra.sweep.subdir name what differs")
            _admit(run_folder, cfg, sweep=True)
    _admit_sweep(folder)
    command = shlex.join(["vflbench", *args])
    launcher = launchers.of(plan.cfg, len(plan.jobs), overrides)
    launcher.folder = folder = _new(folder) if dated else folder
    # The folder by name: its default has the time in it, which would be another one by now.
    overrides = [*overrides, "hydra.mode=MULTIRUN", config.quoted("hydra.sweep.dir", str(folder))]
    task = partial(_job, command=command, total=len(plan.jobs), swept=plan.swept)
    outcomes: list[Outcome] = []
    died = ""
    files.prepare(folder)
    try:
        inventory.writing(folder, "multirun.yaml")  # by Hydra
        with launcher, interrupts.passed_on(folder), hydra_keys.refusing(), hydra_launcher.known_to_hydra():
            try:
                for batch in hydra.multirun("config", task, [*overrides, *launcher.overrides]):
                    outcomes += [item.return_value for item in batch]
            except launchers.DIED as error:
                if launcher.name == "basic":
                    raise
                died = launcher.told(error)
        if (folder / "multirun.yaml").exists():
            (folder / "multirun.yaml").chmod(inventory.mode(folder))
            inventory.written(folder, "multirun.yaml")
    finally:
        inventory.leave(folder)
    if not launcher.hears:
        for outcome in outcomes:
            outcome.tell()
    from vflbench.plots.curves import draw_runs

    say("\n" + sweep.table(folder))
    folders = [run.folder for run in sweep.jobs(folder)] if died else [outcome.folder for outcome in outcomes]
    ended = [reader.load(run_folder).summary for run_folder in folders if _ended(run_folder)]
    if ended:
        draw_runs(sweep.jobs(folder), folder)
        say(f"curves: {_shown(folder / 'curve.png')}")
    say(f"sweep folder: {_shown(folder)}")
    for label in dict.fromkeys(filter(None, map(_made_up, ended))):
        say(label)
    count = Counter(outcome.status for outcome in outcomes)
    well = sum(count[status] for status in ENDED_WELL)
    if died:
        complain(f"{died}. The same command, with hydra.sweep.dir={_shown(folder)}, does what is left")
    for status in ("failed", "diverged", *(["skipped"] if not well else [])):
        if count[status]:
            complain(f"{count[status]} of {len(outcomes)} jobs {'were ' if status == 'skipped' else ''}{status}")
    return 0 if well and not count["failed"] and not died else 1


@interrupts.job()
def _job(
    cfg: DictConfig, *, command: str = "vflbench", quiet: bool = False, total: int | None = None, swept: frozenset[str] = frozenset()
) -> Outcome:
    """One run, in the folder that Hydra made; module level and without state, since a launcher may run it in another process.

    `total` is the number of a sweep's jobs, None for a single run; of those, `swept` keys differ.
    """
    from hydra.core.hydra_config import HydraConfig

    hydra = HydraConfig.get()
    folder = Path(hydra.runtime.output_dir)
    label = ""
    if total is not None:
        words = [w for w in hydra.overrides.task if w.split("=", 1)[0] in swept - {"algorithm", "dataset"}]
        choices = hydra.runtime.choices
        label = " ".join((f"[{hydra.job.num + 1}/{total}]", choices["algorithm"], choices["dataset"], *words))
    try:
        if label and not any(folder.iterdir()):
            folder.chmod(folder.stat().st_mode & 0o700)  # Hydra has made it, and lets others read it
        if (done := _done(cfg, folder, label)) is not None:
            outcome = done
        else:
            files.prepare(folder)
            with lock.alone(folder):
                try:
                    outcome = _job_alone(cfg, folder, label, command, quiet)
                finally:
                    inventory.leave(folder)
    except (VflbenchError, OSError) as error:  # nothing is written where another process writes; OSError: of the lock
        outcome = _failed(folder, _told(error), label)
    if not quiet and outcome.bug is None:
        outcome.tell()
    return outcome


def _failed(folder: Path, error: VflbenchError | None, label: str) -> Outcome:
    return Outcome(1, folder, error, f"{label}: failed: {error}" if label else f"error: {error}")


def _job_alone(cfg: DictConfig, folder: Path, label: str, command: str, quiet: bool) -> Outcome:
    """The job of `_job`, while no other process writes to its folder; a sweep's has a label."""
    from hydra.core.hydra_config import HydraConfig

    choices = {str(group): str(option) for group, option in HydraConfig.get().runtime.choices.items() if option is not None}
    values = config.plain(cfg)
    try:
        if (done := _done(cfg, folder, label)) is not None:  # again: another process may have been here since
            return done
        if label and not cfg.overwrite:  # what an earlier start of this sweep has begun goes on
            values["resume"] = values["resume"] or (folder / "manifest.json").is_file()
        run_config = config.to_config(values)
        refuse(config.check(run_config))
        summary = _run(run_config, folder, command, choices, quiet or bool(label), cfg)
    except Exception as failure:
        if label and isinstance(failure, ConfigError):
            reason = _one_line(failure)
            _write_unrun(folder, "skipped", reason, values, cfg)
            return Outcome(0, folder, line=f"{label}: skipped ({reason})", status="skipped")
        if (error := _told(failure)) is None:
            error = VflbenchError(f"{type(failure).__name__}: {failure}")
            _write_unrun(folder, "failed", str(error), values, cfg)
            if not label:
                return Outcome(1, folder, bug=failure)
            complain(traceback.format_exc())  # a bug is shown whole, and the sweep goes on
    else:
        status = summary["status"]
        code = 1 if status == "failed" or (status == "diverged" and not label) else 0
        done = Outcome(code, folder, line=f"{label}: {result_line(summary)}" if label else report(summary, folder), status=status)
        if status == "diverged" and not label:
            complain(f"the run diverged: {summary.get('reason') or 'its numbers are not finite'}")
        if status == "interrupted":
            if not quiet:
                done.tell()
            raise KeyboardInterrupt
        return done
    if label:  # the table of a sweep has every job
        _write_unrun(folder, "failed", str(error), values, cfg)
    return _failed(folder, error, label)


def _run(run_config: RunConfig, folder: Path, command: str, choices: dict[str, str], quiet: bool, cfg: DictConfig) -> dict[str, Any]:
    """Train; the runner knows no plots, so it is handed the one that draws a run. The summary."""
    from vflbench.plots.curves import draw_run
    from vflbench.runner.run import run

    info = registry.algorithms()[run_config.algorithm.name]
    how: dict[str, Any] = {"command": command, "choices": choices, "info": info, "quiet": quiet, "draw": draw_run}
    how |= {"plain": config.without_secrets(cfg), "identity": config_hash(config.plain(cfg)), "hidden": config.from_environment(cfg)}
    summary: dict[str, Any] = run(run_config, folder, clear=partial(_clear, folder, run_config.overwrite, cfg), **how)
    return summary


def _dry_run(cfg: DictConfig) -> str:
    from vflbench.runner.run import dry_run

    run_config = config.to_config(config.plain(cfg))
    refuse(config.check(run_config))
    text: str = dry_run(run_config, info=registry.algorithms()[run_config.algorithm.name])
    return text


def run(overrides: list[str], config_dir: str | None = None) -> Run:
    """`vflbench.run`; documented there."""
    with config.session(overrides, config_dir) as hydra:
        plan = config.plan(hydra, overrides)
        if plan.jobs is not None or plan.cfg.dry_run:
            raise VflbenchError("vflbench.run runs one experiment: sweeps and dry_run belong to the command line")
        outcome = _start(hydra, plan, overrides, command=f"vflbench.run({overrides!r})", quiet=True)
    if outcome.error is not None:
        raise outcome.error
    return reader.load(outcome.folder)


def _one_line(error: ConfigError) -> str:
    return "; ".join(str(problem).rstrip(".") for problem in error.problems)


# --- run folders ------------------------------------------------------------------------------------------------------------


def _state(folder: Path) -> tuple[str | None, str | None]:
    """(status, config hash) of the run in `folder`; the status of a run that was killed is `unfinished`, of no run None."""
    if not any((folder / name).is_file() for name in ("manifest.json", "summary.json")):
        return None, None
    found = reader.load(folder)
    identity = found.manifest.get("config_hash") if (folder / "manifest.json").is_file() else None
    return found.status or "unfinished", identity


def _admit(folder: Path, cfg: DictConfig, sweep: bool = False) -> None:
    """Refuse a folder in which a run or anything else of the user's would be lost, before anything is written to it."""
    status, identity = _state(folder)
    places = (folder.absolute(), *folder.absolute().parents)
    inside = next((p for p in places if p.name in ("checkpoint", "model", "transcript", ".hydra") and _state(p.parent)[0]), None)
    if inside is not None:
        raise VflbenchError(f"{folder} is where the run in {_shown(inside.parent)} has its files: choose another hydra.run.dir")
    if status is None and (others := _others(folder)):
        a_runs = next((name for name in others if Path(name).parts[0] in files.FILES - files.SWEEP_FILES), None)
        if a_runs is None:
            raise VflbenchError(f"{folder} holds {others[0]} of a sweep or figure: choose another folder with hydra.run.dir=...")
        if not cfg.overwrite:
            lost = f"{folder} holds {a_runs} of a run whose manifest.json is gone"
            raise VflbenchError(f"{lost}: choose another folder with hydra.run.dir=..., or replace it with overwrite=true")
    if status is None or cfg.overwrite or _is_nothing(folder, status):
        _admit_foreign(folder)
        return
    same = identity == config_hash(config.plain(cfg))
    if (cfg.resume or sweep) and not same:
        raise VflbenchError(f"{folder} holds a run of another configuration ({_difference(folder, cfg)}): choose another folder")
    if sweep or cfg.resume:  # a repeated sweep keeps what has ended and continues the rest
        if status not in ENDED:
            _admit_foreign(folder, goes_on=True)
        return
    if status in ENDED:
        raise VflbenchError(f"{folder} holds a run that has ended ({status}): choose another folder, or replace it with overwrite=true")
    raise VflbenchError(
        f"{folder} holds a run that has not ended ({status}): continue it with resume=true, or replace it with overwrite=true"
    )


def _others(folder: Path) -> list[str]:
    """Files of vflbench's in a folder without a run that no start of a run has left there."""
    names = inventory.own(folder) if inventory.kept(folder) else []
    return [name for name in names if Path(name).parts[0] != ".hydra" and not name.endswith(".tmp")]


def _admit_foreign(folder: Path, goes_on: bool = False) -> None:
    """Refuse a folder with anything in it that no run wrote; where a run `goes_on` there, with what stands in its way."""
    from hydra.core.hydra_config import HydraConfig

    there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if not there.is_dir():
        raise ConfigError([Problem("hydra.run.dir", str(folder), f"cannot be a folder: {there} is a file")])
    if there != folder:
        return
    handlers = HydraConfig.get().job_logging.get("handlers") or {}
    logs = {Path(str(handler["filename"])).name for handler in handlers.values() if "filename" in handler}  # Hydra has opened them by now
    found = [name for name in inventory.foreign(folder) if name not in logs]
    if not inventory.kept(folder) and _state(folder)[0] is not None:
        older = "a run of an older vflbench, which kept no list of its files"
        raise VflbenchError(f"{folder} holds {older}: choose another folder with hydra.run.dir=..., or move it")
    if goes_on:  # damaged checkpoints are looked at when they are needed
        found = [name for name in found if Path(name).parts[0] in files.FILES]
        found = [name for name in found if Path(name).parts[0] not in ("checkpoint", "transcript") or not inventory.damaged(folder, name)]
    inventory.refuse(folder, found, "Choose another folder with hydra.run.dir=...")


def _admit_sweep(folder: Path) -> None:
    """Refuse the folder of a new sweep with anything in it, and that of a sweep which goes on with what stands in its way."""
    if _state(folder)[0] is not None:
        raise VflbenchError(f"{folder} holds a run: choose another folder with hydra.sweep.dir=...")
    found = inventory.foreign(folder) if folder.is_dir() else []
    if inventory.kept(folder):
        found = [name for name in found if name in files.SWEEP_FILES]
    inventory.refuse(folder, found, "Choose another folder with hydra.sweep.dir=...")


def _done(cfg: DictConfig, folder: Path, label: str) -> Outcome | None:
    """The outcome of a job whose run has ended before: one that is queued twice is no failure. None where there is something to do.

    Raises VflbenchError: the folder cannot be written to without a loss, or what is there is damaged.
    """
    _admit(folder, cfg, sweep=bool(label))
    if cfg.overwrite or not (label or cfg.resume) or (status := _ended(folder)) is None:
        return None
    run = reader.load(folder)
    run.check_curve()
    told = f"{_shown(folder)} holds a run that has ended ({status}): nothing is left to do\n{report(run.summary, folder)}"
    return Outcome(0, folder, line=f"{label}: {status}, kept" if label else told, status=status)


def _is_nothing(folder: Path, status: str) -> bool:
    """Whether the run failed or was skipped before it had anything to lose."""
    return status in ("failed", "skipped") and not any((folder / name).exists() for name in ("curve.csv", "checkpoint"))


def _clear(folder: Path, overwrite: bool, cfg: DictConfig) -> None:
    """Remove the files of the run in `folder` that is to be replaced, its summary first, so that half a run is no result; and write
    `.hydra`.

    Called when the new run has its data and parties, so that one that cannot start leaves the old one.
    """
    status, _ = _state(folder)
    if status is not None and (overwrite or _is_nothing(folder, status)):
        inventory.clear(folder, first="summary.json")
    _write_hydra(folder, cfg)


def _write_hydra(folder: Path, cfg: DictConfig) -> None:
    """The files that Hydra itself writes before a job, which may then not start: config.yaml, hydra.yaml, overrides.yaml."""
    from hydra.core.hydra_config import HydraConfig
    from omegaconf import OmegaConf

    hydra = HydraConfig.get()
    (folder / ".hydra").mkdir(mode=0o700, exist_ok=True)
    for name, part in (("config", cfg), ("hydra", OmegaConf.create({"hydra": hydra})), ("overrides", hydra.overrides.task)):
        files.atomic_write(folder / ".hydra" / f"{name}.yaml", OmegaConf.to_yaml(part))


def _difference(folder: Path, cfg: DictConfig) -> str:
    """The keys in which a folder's run differs from `cfg`."""
    if not (folder / "manifest.json").is_file():
        return "it has no manifest.json"
    written = (config.without_secrets(cfg), reader.load(folder).manifest.get("config", {}))
    ours, theirs = (identity.flat(identity.identifying(values)) for values in written)
    keys = [key for key in {**theirs, **ours} if ours.get(key) != theirs.get(key)]
    return ", ".join(f"{key}={theirs.get(key)} there, {ours.get(key)} here" for key in keys[:5]) or "another vflbench or environment"


def _dated(cfg: DictConfig, kind: Literal["run", "sweep"], overrides: list[str]) -> bool:
    """Whether the folder is a new one by its name, which has the time in it and was not typed."""
    from omegaconf import OmegaConf

    name = str(OmegaConf.to_container(cfg.hydra[kind])["dir"])  # type: ignore[call-overload,index]
    return "${now:" in name and not any(text.startswith(f"hydra.{kind}.dir=") for text in overrides)


def _new(folder: Path) -> Path:
    """The folder, made now, or one with a number where it is there: two may start in one microsecond, and a clock may be set back."""
    for number in itertools.count(1):
        new = folder if number == 1 else folder.with_name(f"{folder.name}_{number}")
        with contextlib.suppress(FileExistsError):
            new.mkdir(mode=0o700, parents=True)
            return new
    raise AssertionError


def _to_continue(root: Path, values: dict[str, Any]) -> Path | None:
    """The newest run below `root` of this configuration that has a list of its files to go by; one that has not ended before others."""
    wanted = config_hash(values)
    found = {}
    for candidate in reader.find(root) if root.is_dir() else []:
        try:
            status, identity = _state(candidate.folder)
        except VflbenchError as damaged:
            complain(f"left aside: {damaged}")
            continue
        if identity == wanted and inventory.kept(candidate.folder):
            found[candidate.folder] = status not in ENDED
    begun = {folder: (folder / "manifest.json").stat().st_mtime for folder in found}
    # What was begun after now was begun before the clock was set back.
    return max(found, key=lambda folder: (found[folder], begun[folder] <= time.time(), begun[folder]), default=None)


def _ended(folder: Path) -> str | None:
    """Status of the run in `folder` if nothing is left to do there: a resumed sweep keeps it."""
    status, _ = _state(folder)
    return status if status in ENDED else None


def _write_unrun(folder: Path, status: Literal["failed", "skipped"], reason: str, values: dict[str, Any], cfg: DictConfig) -> None:
    """The summary of a run that never came to its end; what the runner itself has written stays."""
    before, _ = _state(folder)
    if before is not None and not _is_nothing(folder, before):
        return
    reason = identity.hide(reason, config.from_environment(cfg))
    how = {group: values[group]["name"] for group in ("algorithm", "dataset")}
    how |= {key: values[key] for key in ("seed", "accounting", "device")}
    how["compute_clock"] = values["engine"].get("compute_clock", EngineConfig.compute_clock)  # a user's option need not list every key
    how["timing"] = values["network"].get("timing", NetworkConfig.timing)
    summary = files.summarise_unrun(status=status, reason=reason, **how)
    with contextlib.suppress(VflbenchError, OSError):  # the disk may be what failed; the reason itself is told all the same
        _write_hydra(folder, cfg)
        files.write_json(folder / "summary.json", summary)


# --- what is said -------------------------------------------------------------------------------------------------------------


def result_line(summary: dict[str, Any]) -> str:
    """The run in one line: metric, bytes, time, where the data came from."""
    metric, status = summary["metric"], summary["status"]
    if metric["selected"] is not None:
        score = f"test_{metric['name']} {metric['selected']:.4g} (selected on validation at round {metric['selected_round']})"
    elif metric["final"] is not None:
        score = f"{files.splits(metric['name'])[-1]}_{metric['name']} {metric['final']:.4g} (at the end)"
    else:
        score = "not evaluated"
    source = {"real": "real data", "partial": "PARTLY MADE-UP DATA", "synthetic": "SYNTHETIC DATA"}[summary["data_source"]]
    epsilon = (summary.get("privacy") or {}).get("epsilon")
    parts = [
        *([] if status == "completed" else [f"{status}{': ' + summary['reason'] if summary.get('reason') else ''}"]),
        score,
        human_bytes(summary["bytes"]["total"]),
        f"{summary['communication_seconds']:.4g} s communication",
        *([] if epsilon is None else [f"epsilon {epsilon:.4g}"]),
        source,
    ]
    return " · ".join(parts)


def report(summary: dict[str, Any], folder: Path) -> str:
    """The last lines of a run; of made-up data the very last one says so."""
    lines = [result_line(summary)]
    if (folder / "curve.png").exists():
        lines.append(f"curve: {_shown(folder / 'curve.png')}")
    lines.append(f"run folder: {_shown(folder)}")
    if summary["status"] == "interrupted":
        lines.append("interrupted: the same command with resume=true continues it")
    return "\n".join([*lines, *filter(None, [_made_up(summary)])])


def _made_up(summary: dict[str, Any]) -> str:
    """The loud word on data that is not real; empty where it is."""
    if summary["data_source"] == "synthetic":
        if "real" not in registry.datasets()[summary["dataset"]].sources:
            return f"SYNTHETIC DATA: {summary['dataset']} is always made up"
        return f"SYNTHETIC DATA: a made-up twin of {summary['dataset']}; these numbers say nothing about the real data set"
    if summary["data_source"] == "partial":
        return f"PARTLY MADE-UP DATA: parts of {summary['dataset']} are synthetic; these numbers are not the real data set's"
    return ""


def _shown(path: Path) -> str:
    """Relative to where the user stands, if below."""
    path = path.absolute()
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


EXAMPLES = """\
vflbench: which federated method reaches your accuracy with the least communication?

  vflbench                                                         GLASU on Cora, from the US to the UK
  vflbench algorithm=glasu dataset=cora seed=1 network=us_us       other options, other values
  vflbench algorithm=glasu dry_run=true                            parties, shapes, messages, bytes per round; trains nothing
  vflbench -m algorithm=glasu,standalone_gnn seed=0,1,2            a sweep: every combination
  vflbench experiment=glasu/table3                                 a preset, here a paper's table
  vflbench algorithm=glasu resume=true                             go on where a run was stopped

Other commands
  vflbench figures glasu/table3 scale=small  a paper's figure: its runs, picture, numbers beside the paper's, claims; or all
  vflbench list                              algorithms, with the data sets, privacy, models and attacks that fit them
  vflbench reprice RUN network=us_us,lan     finished runs on other networks, in seconds, without training
  vflbench data status                       which data sets are there, real or as synthetic twins
  vflbench data get NAME [NAME ...]          download data sets
  vflbench data profile features=50,450      time split learning on this machine, for compute=measured
  vflbench report RUN [RUN ...] --out FILE   runs side by side as one HTML file, with sliders for the network; a RUN may be a sweep
  vflbench show RUN                          the same in the terminal
"""
FLAGS = """\
Flags
  -m, --multirun       a sweep over every key with several values: a,b,c or 'range(0,5)' or 'glob(*)'
  --config-dir DIR     a folder with options of your own: DIR/algorithm/mine.yaml, DIR/dataset/..., DIR/experiment/...
  --cfg job            print the composed configuration and stop
  --info, --hydra-help what Hydra itself offers
  --version, --help
  hydra.run.dir=DIR    the run's folder; hydra.sweep.dir=DIR a sweep's
  hydra/launcher=joblib  a sweep in parallel (pip install 'vflbench[parallel]'); or submitit_local, submitit_slurm ('vflbench[slurm]')
"""


def help_text() -> str:
    """Our own help: from the folder of options, without Hydra."""
    conf = config_dir()
    width = max(80, min(shutil.get_terminal_size().columns, 140))
    lines = [EXAMPLES, "Groups (group=option)"]
    for group in sorted(path for path in conf.iterdir() if path.is_dir() and path.name not in ("hydra", "tuned", "figure")):
        names = " ".join(sorted(path.relative_to(group).with_suffix("").as_posix() for path in group.rglob("*.yaml")))
        lines += textwrap.wrap(names, width, initial_indent=f"  {group.name:12} ", subsequent_indent=" " * 15, break_on_hyphens=False)
    lines += ["", "Keys (key=value), with their defaults; an option's own keys are group.key, e.g. algorithm.lr=0.01"]
    for key, value, comment in re.findall(r"^(\w+): (\S+)\s+# (.*)$", (conf / "config.yaml").read_text(encoding="utf-8"), re.MULTILINE):
        lines.append(f"  {key + '=' + value:28} {comment}")
    return "\n".join([*lines, "", FLAGS]).rstrip()


# --- other commands -----------------------------------------------------------------------------------------------------------


def list_command(args: list[str]) -> int:
    """`vflbench list`: what fits together."""
    if args:
        raise VflbenchError(f"vflbench list takes no arguments, not {' '.join(args)}")
    data, codecs = registry.datasets(), registry.option_entries("codec")
    algorithms, indent = registry.algorithms(), " " * 24
    width = max(80, min(shutil.get_terminal_size().columns, 160))
    for name, info in algorithms.items():
        fitting = " ".join(n for n, other in data.items() if registry.fit(info, other))
        attacks = " ".join(registry.options("attack", info, info.attacks))
        private = " ".join(registry.options("privacy", info, info.privacy))
        fits = {"data": fitting, "privacy": private, "models": " ".join(info.models), "attacks": attacks}
        fits["codecs"] = f"none ({info.exact})" if info.exact else " ".join(("none", *codecs)) + " (feedback)" * bool(info.remembered)
        say(f"{name:23} {info.summary}")
        for what, names in fits.items():
            fact = f"{what} {names or '-'}"
            say(textwrap.fill(fact, width, initial_indent=indent, subsequent_indent=indent + "  ", break_on_hyphens=False))
    say(f"\n{len(algorithms)} algorithms, {len(data)} data sets: vflbench algorithm=... dataset=... [privacy=...] [model=...] [attack=...]")
    return 0


def data_command(args: list[str]) -> int:
    """`vflbench data status` and `vflbench data get NAME ...`, both with an optional data_root=DIR; `vflbench data profile`."""
    from vflbench.data import sources

    named = [text.removeprefix("data_root=") for text in args if text.startswith("data_root=")]
    words = [text for text in args if not text.startswith("data_root=")]
    root = sources.data_root(named[-1] if named else None)
    if words == ["status"]:
        default = f"{sources.cache_folder()} (the default; data_root=... or VFLBENCH_DATA name another)"
        say(f"data root: {default if root is None else root}")
        rows = [["dataset", "found", "folder", ""]]
        for row in sources.status(root):
            lacking = [Path(name).name for name in row.missing]
            missing = f"missing: {', '.join(lacking[:3])}{f' and {len(lacking) - 3} more' if lacking[3:] else ''}" if lacking else ""
            variants = f"variant{'s' if row.variants[1:] else ''} {', '.join(row.variants)}" if row.variants else ""
            made_up = f"made up: {', '.join(row.made_up)}" if row.made_up else ""
            rows.append([row.option, row.found, row.folder, "; ".join(filter(None, (variants, made_up, missing)))])
        rows += [[name, "real", "-", info.comes_with] for name, info in registry.datasets().items() if info.comes_with]
        say(sweep.align(rows))
        return 0
    if words[:1] == ["get"] and len(words) > 1:
        for name in words[1:]:
            row = sources.get(name, root)
            say(f"{row.option}: {row.found}, {len(row.present)} files in {(root or sources.cache_folder()) / row.folder}")
        return 0
    if words[:1] == ["profile"]:
        from vflbench.plots.delays import draw_profile
        from vflbench.runner import profile

        made = profile.profile(profile.parse(words[1:]), RUNS / "profile")
        draw_profile(made)
        say(profile.told(json.loads(made.read_text(encoding="utf-8"))))
        say(f"fits: {_shown(made.with_suffix('.png'))}")
        say(f"use them with compute=measured compute.file={_shown(made)}")
        return 0
    raise VflbenchError(
        "usage: vflbench data status | vflbench data get NAME [NAME ...], both with an optional data_root=DIR"
        " | vflbench data profile [key=value ...]"
    )


def _train_job(words: list[str], folder: str) -> str:
    """Train one of a figure's runs, in whatever process this is; why it failed, or nothing."""
    try:
        run([*words, "hydra.mode=RUN", config.quoted("hydra.run.dir", folder), "resume=true"])
    except ConfigError as impossible:
        return _one_line(impossible)
    except VflbenchError as error:
        return str(error)
    except Exception as bug:
        complain(traceback.format_exc())  # a bug is shown whole, and the other runs go on
        return f"{type(bug).__name__}: {bug}"
    return ""


def _reprice_job(run: Run, values: dict[str, Any], folder: Path) -> Run:
    """A figure's run from one that differs in its network and accounting alone; raises VflbenchError where that is not exact."""
    from vflbench.plots.curves import draw_run
    from vflbench.runner import reprice

    profile = reprice.Profile({"network": values["network"]["name"], "accounting": values["accounting"]}, values["network"])
    _finished(run.folder.resolve()).write(profile, folder, "vflbench figures", overwrite=False, draw=draw_run)
    return reader.load(folder)


@lru_cache(maxsize=1)
def _finished(folder: Path) -> Finished:
    """A run's ledger and trace, for several prices of it in a row."""
    from vflbench.runner import reprice

    finished = reprice.Finished(folder)
    finished.check()
    return finished


@contextlib.contextmanager
def _progress(total: int) -> Iterator[Callable[[int, int, Any], None]]:
    """Says which of a figure's runs are done and how long the rest will take: a bar on a terminal, else a line each."""
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import Progress

    began = time.monotonic()
    terminal = sys.stderr.isatty() and not os.environ.get("CI")
    with Progress(console=Console(stderr=True), disable=not terminal) as bar:
        task = bar.add_task("runs", total=total)

        def tell(done: int, of: int, job: Any) -> None:
            bar.update(task, description=escape(printable(job.label)), completed=done, total=of)
            seconds = (time.monotonic() - began) / done * (of - done)
            left = f"about {seconds / 60:.0f} min left" if seconds >= 90 else f"about {seconds:.0f} s left"
            if job.note:
                complain(f"{job.label}: {job.note}")
            if not terminal:
                complain(f"[{done}/{of}] {job.label}: {job.failure or 'done'}; {left}")

        yield tell


def figures_command(args: list[str]) -> int:
    """`vflbench figures NAME ... [scale=...] [jobs=N] [out=DIR] [key=value ...]`: the papers' figures, from runs found or trained."""
    from vflbench.papers import definition, figures, jobs, page

    usage = (
        "usage: vflbench figures NAME ... [scale=smoke|small|full] [jobs=N] [out=DIR] [key=value ...]; "
        f"NAME is all, a paper or one of: {', '.join(definition.names())}"
    )
    if {"-h", "--help"} & set(args):
        say(usage)
        return 0
    own = {"scale": "small", "jobs": "1", "out": ""}
    typed = [text.partition("=") for text in args]
    names = [key for key, equals, _ in typed if not equals]
    overrides = ["".join(word) for word in typed if word[1] and word[0] not in own]
    own |= {key: value for key, equals, value in typed if equals and key in own}
    problems = definition.among("scale", [own["scale"]], definition.SCALES)
    if not own["jobs"].isdecimal() or not int(own["jobs"]):
        problems.append(Problem("jobs", own["jobs"], "must be a number of processes, at least 1"))
    refuse(problems)
    if not names:
        raise VflbenchError(usage)
    chosen = [definition.load(name) for name in definition.choose(names)]
    # Pages of two rounds have a place of their own: they must not take that of pages which took a night.
    folder = Path(own["out"]) if own["out"] else RUNS / "figures" / ("smoke" if own["scale"] == "smoke" else "")
    needed = [jobs.wanted(figure, own["scale"], overrides) for figure in chosen]
    places = [folder, *(folder / figure.name for figure in chosen)]
    new = [place for place in places if not place.exists()]
    try:
        for place in places:
            figures.claim_folder(place, ("index.html",) if place == folder else None)
    except VflbenchError:
        for place in reversed(places):  # what was begun
            if place.is_dir():
                inventory.leave(place)
            if place in new:
                with contextlib.suppress(OSError):
                    place.rmdir()
        raise
    shared: dict[str, jobs.Job] = {}  # one run may serve several figures
    needed = [[shared.setdefault(job.identity, job) for job in own_jobs] for own_jobs in needed]
    with _progress(len(shared)) as tell, interrupts.passed_on(folder / "runs"):
        jobs.carry_out(list(shared.values()), folder / "runs", [RUNS], _train_job, _reprice_job, int(own["jobs"]), tell)
    failed = 0
    for figure, own_jobs in zip(chosen, needed, strict=True):
        made = figures.make(figure, own_jobs, own["scale"], folder / figure.name, args)
        verdicts = ", ".join(f"{count} {verdict}" for verdict, count in made.verdicts.items()) or "no claims"
        say(f"{figure.name}: {verdicts}: {_shown(made.folder / 'page.html')}")
        for failure in made.failures:
            complain(f"{figure.name}: not in it: {failure}")
        failed += bool(made.failures)
    say(f"index: {_shown(page.write_index(folder))}")
    return 1 if failed else 0


def reprice_command(args: list[str]) -> int:
    """`vflbench reprice RUN [RUN ...] network=... [network.key=...] [accounting=...] [overwrite=true] [--out DIR]`."""
    usage = "vflbench reprice RUN [RUN ...] network=NAME[,NAME] [network.key=value] [accounting=...] [overwrite=true] [--out DIR]"
    parser = ArgumentParser(prog="vflbench reprice", usage=usage, description="Finished runs under another network, without training.")
    parser.add_argument("words", nargs="*", help="folders of runs or of sweeps, and what to price them by")
    parser.add_argument("--out", type=Path, default=RUNS / "reprice", help="where the results go (outputs/reprice)")
    parser.add_argument("--config-dir", help="a folder with networks of your own")
    flags = parser.parse_intermixed_args(args)
    runs = [word for word in flags.words if "=" not in word or Path(word).is_dir()]
    overrides = [word for word in flags.words if word not in runs]
    overwrite = [word for word in overrides if word.startswith("overwrite=")]
    if wrong := [word for word in overwrite if word not in ("overwrite=true", "overwrite=false")]:
        raise VflbenchError(f"{wrong[0]}: overwrite is true or false")
    overrides = [word for word in overrides if word not in overwrite]
    if not runs:
        raise VflbenchError(f"no run is named. usage: {usage}")

    with config.session(overrides, flags.config_dir) as hydra:
        found = config.profiles(hydra, overrides)

    from vflbench.plots.curves import draw_run
    from vflbench.runner import reprice

    refused: list[str] = []

    def leave_out(reason: str) -> None:
        refused.append(reason)
        complain(f"not re-priced: {reason}")

    profiles = [reprice.Profile(typed, network) for typed, network in found]
    how: dict[str, Any] = {"command": shlex.join(["vflbench", "reprice", *args]), "overwrite": overwrite[-1:] == ["overwrite=true"]}
    done = reprice.reprice(runs, profiles, flags.out, draw=draw_run, refused=leave_out, **how)
    if len(done) == 1:
        summary = reader.load(done[0].folder).summary
        kept = "it was there already, kept" if done[0].kept else f"{done[0].source} under {done[0].profile}"
        say("\n".join([result_line(summary), kept, f"run folder: {_shown(done[0].folder)}"]))
    elif done:
        rows = [["run", "priced by", "status", "metric", "selected", "final", "sent", "communication", "folder"]]
        rows += [[str(r.source), r.profile, *sweep.results(reader.load(r.folder)), f"{r.folder}{' (kept)' * r.kept}"] for r in done]
        say(sweep.align(rows))
    return 1 if refused else 0


def report_command(args: list[str]) -> int:
    """`vflbench report RUN... [--out FILE] [--csv FILE] [--markdown FILE] [--overwrite]`: runs side by side, on one page."""
    from vflbench.plots import report as page

    parser = ArgumentParser(prog="vflbench report", description="Runs side by side, as one HTML file that needs nothing else.")
    parser.add_argument("runs", nargs="+", metavar="RUN", help="a run's folder, or any folder above runs")
    parser.add_argument("--out", default="report.html", metavar="FILE", help="the page (default: report.html)")
    parser.add_argument("--csv", metavar="FILE", help="its table, with all digits; a text that would be a formula gets an apostrophe")
    parser.add_argument("--markdown", metavar="FILE", help="its tables, to paste")
    parser.add_argument("--overwrite", action="store_true", help="replace these files where they are there")
    flags = parser.parse_args(args)
    files = [Path(name) for name in (flags.out, flags.csv, flags.markdown) if name]
    for path in files:
        if inventory.listed_by(path) is not None or (path.parent / "manifest.json").exists():
            raise VflbenchError(f"{path}: lies in the folder of a run, whose files it could replace; name another place")
    if len(set(files)) < len(files):
        raise VflbenchError(f"{', '.join(map(str, files))}: each needs a file of its own")
    if not flags.overwrite and (there := [str(path) for path in files if os.path.lexists(path)]):
        raise VflbenchError(f"{', '.join(there)}: already there; name another file, or replace it with --overwrite")
    found = _read(flags.runs)
    atomic_write(Path(flags.out), page.to_html(found, _networks()), replace=True)
    if flags.csv:
        atomic_write(Path(flags.csv), page.to_csv(found), replace=True)
    if flags.markdown:
        atomic_write(Path(flags.markdown), page.to_markdown(found), replace=True)
    for panel in found.panels:
        for choice in panel.choices:
            text = page.choice_cells(choice)
            again = f"; again: {text['command']}" if text["command"] else ""
            say(f"{panel.title}: {text['group']}: selected {text['setting']}, {text['why']}{again}")
    for label in dict.fromkeys(panel.alarm for panel in found.panels if panel.alarm):
        say(label)
    say(f"report: {_shown(Path(flags.out))}")
    return 0


def show_command(args: list[str]) -> int:
    """`vflbench show RUN...`: the same in the terminal."""
    from vflbench.plots.report_terminal import show

    parser = ArgumentParser(prog="vflbench show", description="Runs in the terminal; `vflbench report` makes a page of them.")
    parser.add_argument("runs", nargs="+", metavar="RUN", help="a run's folder, or any folder above runs")
    show(_read(parser.parse_args(args).runs))
    return 0


def _read(paths: list[str]) -> Report:
    """The runs at or below `paths`; what is left out of them is said."""
    from vflbench.plots import report

    found = report.read(paths, {name: info.time_dependent for name, info in registry.algorithms().items()})
    for note in found.notes:
        complain(note)
    return found


def _networks() -> dict[str, tuple[float, float | None]]:
    """The network profiles whose links are alike: latency in ms and bandwidth in Gbit/s; ideal ones have no times to look at."""
    import yaml

    found = {}
    for path in sorted((config_dir() / "network").glob("*.yaml")):
        profile = yaml.safe_load(path.read_text(encoding="utf-8"))
        link = profile["client_server"]
        if link == profile["client_client"] and link["latency_ms"] > 0:
            found[profile["name"]] = link["latency_ms"], link["bandwidth_gbps"]
    return found


VERBS: dict[str, Callable[[list[str]], int]] = {
    "list": list_command,
    "data": data_command,
    "figures": figures_command,
    "reprice": reprice_command,
    "report": report_command,
    "show": show_command,
}
