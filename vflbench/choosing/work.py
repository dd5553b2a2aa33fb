"""Work one piece after the other, or in processes; each is decided on when there is a place for it."""

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
#: overrides -> what a round of the run sends (runner/measure.py), or `error`; may be called in other processes
Measure = Callable[[list[str]], dict[str, Any]]


@dataclass
class Task:
    """A piece of work: the arguments of what does it."""

    arguments: tuple[Any, ...]
    about: Any = None  #: what it is for; it stays in this process


def carry_out(tasks: Iterator[Task], do: Callable[..., Any], jobs: int) -> Iterator[tuple[Task, Any]]:
    """Each task when it ends, with what `do` gives. The next task is asked for when there is a place for it.

    Raises
    ------
    VflbenchError : a process has died.
    """
    if jobs == 1:
        for task in tasks:
            yield task, do(*task.arguments)
        return
    threads = str(max((os.cpu_count() or 1) // jobs, 1))
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=_begin, initargs=(threads,)) as pool:
        running: dict[Future[Any], Task] = {}
        while True:
            while len(running) < jobs and (new := next(tasks, None)) is not None:
                running[pool.submit(do, *new.arguments)] = new
            if not running:
                return
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in [one for one in running if one in done]:  # in the order in which they began
                try:
                    result = future.result()
                except BrokenProcessPool as error:
                    raise VflbenchError(
                        "a process that trains has died, perhaps of lack of memory: go on with resume=true, and fewer "
                        "jobs"
                    ) from error
                yield running.pop(future), result


def _begin(threads: str) -> None:
    """The threads of a process that trains; before torch is imported."""
    os.environ.setdefault("OMP_NUM_THREADS", threads)
