"""Data that take long to make are made once: they are files in the cache folder, opened as memory maps.

What belongs together is a folder, whose name says what it was made of. It also holds a list of its files with their
checksums. Processes on one machine share a memory map, and none can change it.
"""

import contextlib
import errno
import functools
import hashlib
import json
import logging
import math
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from vflbench.data import sources
from vflbench.types import DataError

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]

log = logging.getLogger(__name__)

LIST = "files.json"  # name -> checksum
SPARE = 10**9  # bytes that are to stay free on the disk


def key(*made_of: Any) -> str:
    """What to name a folder by: a hash of what it is made of, and of the code and the libraries that make it."""
    return hashlib.sha256(repr((*made_of, _makers())).encode()).hexdigest()[:16]


@functools.cache
def _makers() -> tuple[str, ...]:
    """A hash of the sources of all data sets, and the versions of the libraries that they use."""
    from importlib import metadata  # slow to import, and not needed to check a configuration

    package = Path(__file__).parent
    code = hashlib.sha256()
    for path in (package.parent / "seeding.py", *sorted(package.rglob("*.py"))):
        code.update(path.read_bytes())
    return code.hexdigest(), *(metadata.version(name) for name in ("numpy", "pandas", "pyarrow", "scikit-learn"))


def keep(folder: Path, write: Callable[[Path], None]) -> None:
    """Let `folder` hold the files that `write` puts into the empty folder that it is given.

    They are made if they are not there, or if one is missing or damaged. One process makes them, and others wait for
    it. Other users cannot read them.

    Raises
    ------
    OSError : the folder cannot be written.
    """
    if _whole(folder):
        return
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _alone(folder):
        if _whole(folder):
            return
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as place:
            part = Path(place, "part")
            part.mkdir(mode=0o700)
            write(part)
            for path in part.iterdir():
                path.chmod(0o600)
                with path.open("rb+") as file:
                    os.fsync(file.fileno())
            stamps = {path.name: _stamp(path) for path in part.iterdir()}
            (part / LIST).write_text(json.dumps(stamps), encoding="utf-8")
            if folder.exists():
                log.warning("%s is damaged: it is made again", folder)
                folder.rename(Path(place, "damaged"))
            part.rename(folder)


def _whole(folder: Path) -> bool:
    """Whether every file of the folder is there and as it was written."""
    try:
        stamps = json.loads((folder / LIST).read_text(encoding="utf-8"))
        return bool(stamps) and bool({name: _stamp(folder / name) for name in stamps} == stamps)
    except (OSError, ValueError, TypeError):
        return False


def _stamp(path: Path) -> str:
    """The sha256 of a file; of one above HASHED bytes its size and time of change: no process reads it whole."""
    about = path.stat()
    return sources.stamp(path) if about.st_size <= sources.HASHED else f"{about.st_size} bytes, {about.st_mtime_ns}"


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """No other process on this machine makes `folder` during the block; where there are no locks, one may."""
    path = folder.with_name(f".{folder.name}.lock")
    while True:
        with path.open("w") as file:
            if not _locked(file.fileno()):
                yield
            elif os.fstat(file.fileno()).st_nlink:
                try:
                    for left in folder.parent.glob(f".{folder.name}.*/"):  # by a process that was killed
                        shutil.rmtree(left, ignore_errors=True)
                    yield
                finally:
                    path.unlink()
            else:  # whoever held the lock has removed it
                continue
            return


def _locked(file: int) -> bool:
    """Wait for the lock on an open file; False where there are no locks."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
    except OSError as error:
        if error.errno in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
            return False
        raise
    return True


def check_room(folder: Path, size: int) -> None:
    """Raise OSError where so many more bytes beside `folder` would fill the disk."""
    free = shutil.disk_usage(folder.parent).free
    if free < size + SPARE:
        raise OSError(f"{size / 1e9:.1f} GB are needed and {free / 1e9:.1f} GB are free")


def arrays(folder: Path, made: Callable[[], dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """The named arrays in `folder`, read-only memory maps, which are made and written if they are not there.

    Where they cannot be written they are only made, and a warning says so.
    """
    held: dict[str, np.ndarray] = {}

    def write(part: Path) -> None:
        held.update(made())
        check_room(folder, sum(array.nbytes for array in held.values()))
        for name, array in held.items():
            np.save(part / f"{name}.npy", array, allow_pickle=False)

    try:
        keep(folder, write)
        names = json.loads((folder / LIST).read_text(encoding="utf-8"))
        return {Path(name).stem: np.asarray(np.load(folder / name, mmap_mode="r")) for name in names}
    except OSError as error:
        log.warning("%s: cannot be kept (%s); each job makes these data again", folder, error)
        return held or made()


def memory_map(folder: Path, shape: tuple[int, ...], fill: Callable[[np.ndarray], None]) -> np.ndarray:
    """The float32 array in `folder`, read-only, which `fill` writes if it is not there.

    Raises
    ------
    DataError : it cannot be written, or there is too little room.
    """

    def write(part: Path) -> None:
        check_room(folder, 4 * math.prod(shape))  # a memory map on a full disk ends the process without a message
        out = np.lib.format.open_memmap(part / "values.npy", "w+", np.float32, shape)
        fill(out)
        out.flush()

    try:
        keep(folder, write)
    except OSError as error:
        raise DataError(f"{folder}: cannot be written ({error}). Set XDG_CACHE_HOME to another disk.") from None
    held: np.ndarray = np.load(folder / "values.npy", mmap_mode="r")
    return held
