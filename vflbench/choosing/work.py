"""Carries out pieces of work, one after the other or in processes; each is chosen when there is a place for it."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any, Self

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


class Workers:
    """Processes that last as long as the block, so that each imports torch once; with one job, this process works."""

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Self:
        if self.jobs > 1:
            threads = str(max((os.cpu_count() or 1) // self.jobs, 1))
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(self.jobs, mp_context=context, initializer=_begin, initargs=(threads,))
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def carry_out(self, tasks: Iterator[Task], do: Callable[..., Any]) -> Iterator[tuple[Task, Any]]:
        """Each task when it ends, with what `do` gives. The next task is asked for when there is a place for it.

        Raises
        ------
        VflbenchError : a process has died.
        """
        if self._pool is None:
            for task in tasks:
                yield task, do(*task.arguments)
            return
        running: dict[Future[Any], Task] = {}
        while True:
            while len(running) < self.jobs and (new := next(tasks, None)) is not None:
                running[self._pool.submit(do, *new.arguments)] = new
            if not running:
                return
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in [one for one in running if one in done]:  # in the order in which they began
                yield running.pop(future), _result(future)


def _result(future: Future[Any]) -> Any:
    try:
        return future.result()
    except BrokenProcessPool as error:
        reason = "a process that trains has died, perhaps for lack of memory: go on with resume=true and fewer jobs"
        raise VflbenchError(reason) from error


def _begin(threads: str) -> None:
    """The threads of a process that trains; before torch is imported. Ctrl-C is for its parent, which passes it on."""
    os.environ.setdefault("OMP_NUM_THREADS", threads)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
