"""Runs one after the other, or in processes; each is decided on when a place is free, from what is known by then."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any

from vflbench.choosing.halving import Halving
from vflbench.types import VflbenchError

#: (overrides, folder, what may end it) -> why it failed, or an empty text; may be called in other processes
Train = Callable[[list[str], str, Halving | None], str]


@dataclass
class Task:
    """A run that is to be trained."""

    words: list[str]
    folder: str
    halt: Halving | None
    about: Any = None  #: what it is for; it stays in this process


def carry_out(tasks: Iterator[Task], train: Train, jobs: int) -> Iterator[tuple[Task, str]]:
    """Each task when it ends, with why it failed. The next task is asked for when there is a place for it.

    Raises
    ------
    VflbenchError : a process has died.
    """
    if jobs == 1:
        for task in tasks:
            yield task, train(task.words, task.folder, task.halt)
        return
    threads = str(max((os.cpu_count() or 1) // jobs, 1))
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=_begin, initargs=(threads,)) as pool:
        running: dict[Future[str], Task] = {}
        while True:
            while len(running) < jobs and (new := next(tasks, None)) is not None:
                running[pool.submit(train, new.words, new.folder, new.halt)] = new
            if not running:
                return
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in sorted(done, key=lambda one: running[one].folder):
                try:
                    failure = future.result()
                except BrokenProcessPool as error:
                    raise VflbenchError(
                        "a process that trains has died, perhaps of lack of memory: go on with resume=true, and fewer "
                        "jobs"
                    ) from error
                yield running.pop(future), failure


def _begin(threads: str) -> None:
    """The threads of a process that trains; before torch is imported."""
    os.environ.setdefault("OMP_NUM_THREADS", threads)
