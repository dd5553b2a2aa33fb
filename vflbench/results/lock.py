"""One process at a time writes to a run's folder."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from vflbench.types import VflbenchError

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]

NAME = ".lock"
log = logging.getLogger(__name__)


class Taken(VflbenchError):
    """Another process writes to the folder."""


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Nobody else runs in `folder`, which is there, during the block.

    The lock is the operating system's, on the file `.lock`: it goes with the process that holds it, however that ends, so none is ever
    stale. Where the file system has no locks, a warning says so.

    Raises
    ------
    Taken : another process does, of this machine or, where the folder is on a network, of another one.
    OSError : the folder cannot be written to.
    """
    path = folder / NAME
    file = _locked(path)
    try:
        yield
    finally:
        if file is not None:
            path.unlink(missing_ok=True)  # while it is still ours
            os.close(file)


def _locked(path: Path) -> int | None:
    """The open, locked file; None where there are no locks."""
    if fcntl is None:
        return None
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(file).st_nlink:
                os.truncate(file, 0)
                os.write(file, f"process {os.getpid()} on {socket.gethostname()}".encode())
                return file
        except OSError as error:
            holder = os.read(file, 1000).decode(errors="replace") if error.errno in (errno.EAGAIN, errno.EACCES) else None
            os.close(file)
            if holder is not None:
                text = f"{holder or 'another process'} is running there: wait for it to end, or choose another folder"
                raise Taken(f"{path.parent}: {text}") from None
            if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
                raise
            log.warning("%s: no locks on this file system (%s); see to it yourself that no other run writes there", path, error.strerror)
            return None
        os.close(file)  # who held it has ended in between, and taken the file away
