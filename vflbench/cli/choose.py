"""`vflbench choose`."""

from __future__ import annotations

import contextlib
import logging
import re
import time
from argparse import ArgumentParser
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from vflbench import config, registry
from vflbench.choosing import answer, candidates, question, remote_executors
from vflbench.choosing.halving import Halving
from vflbench.choosing.levels import MOST_TRIALS
from vflbench.choosing.record import FILE, Method, Record
from vflbench.choosing.search import Search
from vflbench.choosing.worker_pool import Backend
from vflbench.cli import crash, folders, train
from vflbench.cli.words import RUNS, complain, for_user, one_line, relative_path
from vflbench.results import inventory, lock
from vflbench.runner import interrupts
from vflbench.types import ConfigError, VflbenchError

PLACE = RUNS / "choose"
USAGE = (
    "vflbench choose target=T [budget=30m] [trials=N] [jobs=N] [cost=bytes|seconds|weighted] [demand=...] [seed=0] "
    "[out=FOLDER] [resume=true] [launcher=joblib|submitit_local|submitit_slurm|ray] [launcher.KEY=VALUE ...] "
    "[privacy.epsilon=E] [privacy.delta=D] [algorithm=A,B] [dataset=...] [network=...] [topology=...] "
    "[dataset.KEY=VALUE ...] [network.KEY=VALUE ...] [--config-dir DIR]"
)


def command(args: list[str]) -> int:
    """`vflbench choose words ...`: print the method that reaches a target at the least cost."""
    parser = ArgumentParser(
        prog="vflbench choose", usage=USAGE, description="Which method reaches the target at the least cost?"
    )
    parser.add_argument("words", nargs="*", help="the question")
    parser.add_argument("--config-dir", metavar="DIR", help="a folder with options of your own")
    flags = parser.parse_intermixed_args(args)
    asked = question.parse(flags.words, "choose", flags.config_dir)
    folder, record = search(asked, PLACE, answer.finish)
    with interrupts.held_back():
        return answer.finish(folder, record)


def search(
    asked: question.Question, root: Path, stopped: Callable[[Path, Record], Any] = lambda *_: None
) -> tuple[Path, Record]:
    """Search, in a new folder below `root` or in the folder that was named; return it and the record.

    Parameters
    ----------
    stopped : what is done with what is known when the search is interrupted.
    """
    import pandas  # noqa: F401  # now: an import that is interrupted later cannot be repeated, and the answer needs it

    folder, record = place(asked, root)
    entering: list[Method] = []
    if not record.methods:
        with _quiet():
            entering, record.excluded = candidates.enter(asked)
    if asked.out is None and not record.methods:
        folder = folders.make_new(folder)
    inventory.claim(folder, "Choose another folder with out=FOLDER")
    how = (asked.launcher, asked.resources, asked.address, folder, asked.jobs)
    executor = None if asked.launcher == "joblib" else remote_executors.make_executor(*how)
    backend = Backend(partial(train_one, asked.config_dir), partial(measure_one, asked.config_dir), complain, executor)
    complain(f"searching in {relative_path(folder)}; if you stop it, the same command with resume=true goes on")
    with lock.held(folder), interrupts.passed_on(folder), _quiet():
        try:
            Search(asked, folder, record, entering, backend).run()
        except KeyboardInterrupt:
            if record.methods:
                complain("interrupted; the answer so far:")
                stopped(folder, record)
            raise
        finally:
            if not record.methods:  # nothing was found: nothing is left behind
                inventory.clear(folder)
                inventory.leave(folder)
                with contextlib.suppress(OSError):
                    folder.rmdir()
    return folder, record


def measure_one(config_dir: str | None, words: list[str]) -> dict[str, Any]:
    """What a round sends, or `error`: the reason why the method cannot run."""
    try:
        with _quiet():
            from vflbench.runner import measure  # torch

            with config.session(words, config_dir) as hydra:
                run = config.plan(hydra, words).config
            assert run is not None
            return measure.first_round(run, registry.algorithms()[run.algorithm.name])
    except ConfigError as impossible:
        return {"error": one_line(impossible)}
    except Exception as error:
        return {"error": str(for_user(error) or crash.crash_line(error))}


def train_one(config_dir: str | None, words: list[str], folder: str, halt: Halving | None) -> str:
    """Train one run, in this process; return why it failed, or an empty text."""
    try:
        with _quiet():
            train.run(
                [*words, "hydra.mode=RUN", config.quoted("hydra.run.dir", folder)],
                config_dir,
                command="vflbench choose",
                halt=halt,
            )
    except ConfigError as impossible:
        return one_line(impossible)
    except Exception as error:  # the other runs go on
        return str(for_user(error) or crash.crash_line(error))
    return ""


@contextlib.contextmanager
def _quiet():  # type: ignore[no-untyped-def]
    """Hide the log of each run, which is in its own folder: a search prints one line for each run."""
    log = logging.getLogger("vflbench")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)


def place(asked: question.Question, root: Path) -> tuple[Path, Record]:
    """The folder of a question, and the record in it.

    Raises
    ------
    VflbenchError : the folder has another question, or an answer that would be lost.
    """
    if asked.out is None and asked.resume and (found := _newest(asked, root)) is not None:
        return found
    if asked.out is None:
        if asked.resume:
            complain(f"no unfinished search of this question below {root}/: starting a new one")
        name = re.sub(r"\W", "_", asked.dataset)
        return root / f"{time.strftime('%Y-%m-%d_%H-%M-%S')}_{name}", Record(asked.asked())
    if not (asked.out / FILE).is_file():
        return asked.out, Record(asked.asked())
    record = read(asked.out)
    if not same(record, asked):
        raise VflbenchError(f"{asked.out} holds another question: choose another folder with out=FOLDER")
    if not asked.resume:
        raise VflbenchError(
            f"{asked.out} holds this question already ({record.status}): go on with resume=true, or choose another "
            "folder with out=FOLDER"
        )
    record.question |= {"budget_seconds": asked.budget, "trials": asked.trials}
    return asked.out, record


def read(folder: Path) -> Record:
    """The record in a folder. Raises VflbenchError if it is damaged."""
    try:
        inventory.check(folder / FILE)
        return Record.read(folder)
    except (ValueError, KeyError, TypeError) as error:
        raise VflbenchError(f"{folder / FILE} is damaged: {error}") from error


def same(record: Record, asked: question.Question) -> bool:
    """Whether a record belongs to the question."""
    there = {"prune": True, "repeats": [], **record.question}  # records of older versions lack it
    return all(there.get(key) == value for key, value in asked.identity.items())


def _newest(asked: question.Question, root: Path) -> tuple[Path, Record] | None:
    """The newest search of the question that can go on, with its record; None if there is none."""
    for path in sorted(root.glob(f"*/{FILE}"), key=lambda one: one.stat().st_mtime, reverse=True):
        try:
            record = read(path.parent)
        except VflbenchError as damaged:
            complain(f"not considered: {damaged}")
            continue
        more = not asked.finals and record.trials_each < (asked.trials or MOST_TRIALS)
        if (record.status != "complete" or more) and same(record, asked):
            record.question |= {"budget_seconds": asked.budget, "trials": asked.trials}
            return path.parent, record
    return None
