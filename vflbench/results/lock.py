"""A lock on a run's folder: only one process at a time writes to it."""

import contextlib
import errno
import logging
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from vflbench.results import inventory
from vflbench.types import VflbenchError

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]

log = logging.getLogger(__name__)


class Taken(VflbenchError):
    """Another process writes to the folder."""


@contextlib.contextmanager
def held(folder: Path) -> Iterator[None]:
    """Keep other runs out of `folder`, which has a list of its files, during the block.

    The lock is the operating system's, on that list. It ends with the process that holds it, so none is ever stale.
    Where the file system has no locks, a warning says so.

    Raises
    ------
    Taken : another process runs there, on this machine or, for a network folder, on another one.
    OSError : the folder cannot be written to.
    """
    file = _locked(folder)
    try:
        yield
    finally:
        if file is not None:
            os.close(file)


def held_below(folder: Path) -> bool:
    """Whether a process writes to a folder at or below this one; False where there are no locks."""
    if fcntl is None:
        return False
    for path in inventory.found_below(folder, inventory.NAME):
        with contextlib.suppress(OSError):  # gone meanwhile, or no locks
            file = os.open(path, os.O_RDWR)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            finally:
                os.close(file)
    return False


def _locked(folder: Path) -> int | None:
    """The open, locked list; None where there are no locks."""
    if fcntl is None:
        return None
    path = folder / inventory.NAME
    while True:
        try:
            file = os.open(path, os.O_RDWR)
        except FileNotFoundError:  # the last holder had nothing to write, and has just removed it
            inventory.start(folder, 0o600)
            continue
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(file).st_nlink:
                with contextlib.suppress(OSError):  # a full disk: then the holder is not named
                    inventory.held_by(folder, f"process {os.getpid()} on {socket.gethostname()}")
                return file
        except OSError as error:
            os.close(file)
            if error.errno in (errno.EAGAIN, errno.EACCES):
                holder = inventory.holder(folder) or "another process"
                raise Taken(
                    f"{folder}: {holder} is running there: wait for it to end, or choose another folder"
                ) from None
            if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
                raise
            log.warning(
                "%s: no locks on this file system (%s); make sure that no other run writes there",
                folder,
                error.strerror,
            )
            return None
        os.close(file)
