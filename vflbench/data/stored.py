"""Files on disk: their content, their checksums (each read once by a process), and files that appear whole or not."""

import contextlib
import functools
import gzip
import hashlib
import os
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from vflbench.types import DataError


@contextlib.contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """Write to a file beside `path` that replaces it if no error occurs."""
    place = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield place
        place.replace(path)
    finally:
        place.unlink(missing_ok=True)


def state(path: Path) -> tuple[int, ...] | None:
    """What changes when a file is changed; None: it has just been changed.

    It may then be changed again within a tick of the file system's clock.
    """
    about = path.stat()
    fresh = time.time() - about.st_ctime < 2
    return None if fresh else (about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns)


def digest(path: Path, algorithm: Literal["sha256", "md5"] = "sha256", unpacked: bool = False) -> str:
    """The checksum of a file, or of what is packed in a .gz; it is read again where it may have changed.

    Raises
    ------
    OSError, EOFError, zlib.error : the file cannot be read.
    """
    held = state(path)
    packed = unpacked and path.suffix == ".gz"
    return (_digest.__wrapped__ if held is None else _digest)(path, held, algorithm, packed)


@functools.lru_cache(maxsize=1024)
def _digest(path: Path, _state: tuple[int, ...] | None, algorithm: str, packed: bool) -> str:
    sums = hashlib.new(algorithm, usedforsecurity=algorithm != "md5")
    with gzip.open(path) if packed else path.open("rb") as file:
        while piece := file.read(1 << 20):
            sums.update(piece)
    return sums.hexdigest()


def content(path: Path, label: str) -> bytes:
    """The content of a file, decompressed if its name ends in .gz.

    Parameters
    ----------
    label : the file's name in errors.

    Raises
    ------
    DataError : it cannot be read, or is a Git LFS pointer.
    """
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{label}: cannot be read ({error}). Get the file again.") from None
    if data.startswith(b"version https://git-lfs"):
        raise DataError(f"{label}: is a Git LFS pointer, not the file: run `git lfs pull` in the clone it came from.")
    return data
