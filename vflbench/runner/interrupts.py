"""Ctrl-C, and SIGTERM as Ctrl-C: what has been reached is written, and the command ends.

The processes of a sweep write theirs too. Every command imports this: what only sweeps need is imported where they
begin.
"""

import contextlib
import functools
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)
SOON = 5.0  # s after a signal, in which a second one is ignored
PATIENCE = 60.0  # s that the other processes of a sweep have to write what they have reached

received: list[int] = []  # the signals that came
_came: float | None = None  # when the signal came that was held back and is heeded now


def heed_sigterm() -> None:
    """From now on SIGTERM interrupts this process, whose main thread this is, as Ctrl-C does."""
    signal.signal(signal.SIGTERM, _interrupt)


def heed_nothing() -> None:
    """From now on signals change nothing: this process is ending."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


@contextlib.contextmanager
def job() -> Iterator[None]:
    """Around a job: in a process that joblib or `choose` has started, SIGTERM interrupts it.

    After it SIGTERM waits for the next job: what interrupts a process while it hands over a result can leave the lock
    of the queue taken, and then nobody's result arrives any more.

    Raises
    ------
    KeyboardInterrupt
        A signal came before: no job begins any more.
    """
    import multiprocessing

    if multiprocessing.parent_process() is None:
        yield
        return
    heed_sigterm()
    try:
        if received:
            raise KeyboardInterrupt
        with _working:
            yield
    finally:
        signal.signal(signal.SIGTERM, lambda number, _: received.append(number))


_working = threading.Lock()  # while there is a job


def end_with(parent: int) -> None:
    """End this process with its parent, once its job has written what it has reached.

    A process of joblib's would wait minutes for another job. The parent says its own number: it may have died before
    this process asks who that is.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        if _working.locked():
            os.kill(os.getpid(), signal.SIGTERM)
        with _working:
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _interrupt(number: int, _: object) -> None:
    received.append(number)
    raise KeyboardInterrupt


@contextlib.contextmanager
def once() -> Iterator[None]:
    """A second signal soon after the first does not interrupt the block again: what was reached is being written.

    A later one does: the first may have come where Python swallows what it raises.
    """
    last = -math.inf

    def first(interrupt: Callable[[], None]) -> None:
        nonlocal last
        if _arrival() - last > SOON:
            last = time.monotonic()
            interrupt()

    with _handled(first):
        yield


def _arrival() -> float:
    """When the signal came that is heeded now."""
    return time.monotonic() if _came is None else _came


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Signals wait for the end of the block (a few seconds of writing), and interrupt then."""
    global _came
    held: list[tuple[float, Callable[[], None]]] = []
    try:
        with _handled(lambda interrupt: held.append((_arrival(), interrupt))):
            yield
    finally:
        try:
            for _came, interrupt in held:
                interrupt()
        finally:
            _came = None


@contextlib.contextmanager
def passed_on(folder: Path, processes: Sequence[int] = ()) -> Iterator[None]:
    """A signal first ends the jobs of joblib's and of these other processes, which run below `folder`.

    So they write what they have reached; joblib would kill them.
    """

    import multiprocessing

    from vflbench.results import lock

    def end(interrupt: Callable[[], None]) -> None:
        children = [*(child.pid for child in multiprocessing.active_children() if child.pid), *processes]
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGTERM)
        deadline = time.monotonic() + PATIENCE
        while children and any(map(lock.held_below, folder.glob("*/"))) and time.monotonic() < deadline:
            time.sleep(0.05)  # the folder itself may be held by this process
        interrupt()

    with _guarded(), once(), _handled(end):
        yield


@contextlib.contextmanager
def _guarded() -> Iterator[None]:
    """Processes that are started in the block do not outlive this one; submitit's would not notice its death."""
    if not Path("/proc").is_dir():
        yield
        return
    import secrets

    from vflbench.federation.guardian import MARKED, Guardian

    key, value = "VFLBENCH_SWEEP", secrets.token_hex(8)
    watching = Guardian(MARKED, f"{key}={value}")
    os.environ[key] = value
    try:
        yield
    finally:
        del os.environ[key]
        watching.dismiss()


@contextlib.contextmanager
def _handled(handle: Callable[[Callable[[], None]], None]) -> Iterator[None]:
    """Signals go to `handle`, with what they would do.

    A signal that would be ignored, or end the process at once, still does that.
    """
    if threading.current_thread() is not threading.main_thread():  # signals arrive in the main thread only
        yield
        return
    before = {number: own for number in SIGNALS if callable(own := signal.getsignal(number))}

    def heed(number: int, frame: Any) -> None:
        received.append(number)
        handle(functools.partial(before[signal.Signals(number)], number, frame))

    for number in before:
        signal.signal(number, heed)
    try:
        yield
    finally:
        for number, own in before.items():
            signal.signal(number, own)
