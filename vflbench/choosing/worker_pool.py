"""A pool that carries out tasks, one after the other or side by side; each is chosen when a worker is free."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from vflbench.choosing.halving import Halving
from vflbench.choosing.remote_executors import DiedError, RemoteExecutor
from vflbench.runner import interrupts, launchers
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


#: trains tasks; each with why it failed, or an empty text, when it ends
TrainAll = Callable[[Iterator[Task]], Iterator[tuple[Task, str]]]


@dataclass
class Backend:
    """What a search is given to work with."""

    train: Train
    measure: Measure
    report: Callable[[str], None]  #: tells the user a line
    executor: RemoteExecutor | None = None  #: where runs are trained, if not by processes of this machine


class WorkerPool:
    """So many workers, as long as the block lasts; with one job of joblib, this process works.

    Processes of joblib last as long as the block, so that each imports torch once.

    Parameters
    ----------
    jobs : pieces side by side.
    executor : where they are done; None: in processes of joblib, on this machine.
    """

    def __init__(self, jobs: int, executor: RemoteExecutor | None = None) -> None:
        self.jobs, self.executor = jobs, executor
        self._pool: Executor | None = None

    def __enter__(self) -> Self:
        if self.executor is not None:
            self.executor.__enter__()
            self._pool = ThreadPoolExecutor(self.jobs)  # each waits for a piece
        elif self.jobs > 1:
            from joblib.externals import loky

            launchers.hide_new_workers()
            threads = str(max((os.cpu_count() or 1) // self.jobs, 1))
            self._pool = loky.ProcessPoolExecutor(self.jobs, initializer=_begin, initargs=(threads, os.getpid()))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if self.executor is not None and kind is not None:
            self.executor.cancel()
        if self._pool is not None:
            self._pool.shutdown()
        if self.executor is not None:
            self.executor.__exit__(kind, error, where)

    def carry_out(self, tasks: Iterator[Task], do: Callable[..., Any]) -> Iterator[tuple[Task, Any]]:
        """Each task when it ends, with what `do` gives. The next task is asked for when a worker is free.

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
                running[self._submitted(do, new.arguments)] = new
            if not running:
                return
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in [one for one in running if one in done]:  # in the order in which they began
                yield running.pop(future), _result(future)

    def _submitted(self, do: Callable[..., Any], arguments: tuple[Any, ...]) -> Future[Any]:
        assert self._pool is not None
        return self._pool.submit(*([do] if self.executor is None else [self.executor.do, do]), *arguments)


def _result(future: Future[Any]) -> Any:
    try:
        return future.result()
    except (BrokenProcessPool, DiedError) as error:
        reason = "a process that trains has died, perhaps for lack of memory: go on with resume=true and fewer jobs"
        last = str(error).strip().splitlines()[-1:] if isinstance(error, DiedError) else []
        raise VflbenchError("; ".join([reason, *last])) from error


def _begin(threads: str, parent: int) -> None:
    """The threads of a process that trains; before torch is imported. Ctrl-C is for its parent, which passes it on."""
    interrupts.end_with(parent)
    os.environ.setdefault("OMP_NUM_THREADS", threads)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
