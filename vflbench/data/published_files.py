"""What the published files of a data set hold: rows and columns, and how those of a file here are counted."""

import bz2
import contextlib
import gzip
import hashlib
import json
import lzma
import math
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vflbench.data.readers.untrusted import load_pickle
from vflbench.data.stored import content
from vflbench.types import DataError

Size = tuple[int, int]  # rows and columns of a file; 0 columns: its rows have none, or the reader alone knows

# of a file that is damaged, or is no such file: its reader says what is wrong with it
UNREADABLE: tuple[type[Exception], ...] = (OSError, EOFError, ValueError, KeyError, ImportError)
UNREADABLE += (zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, struct.error)


@dataclass(frozen=True)
class Rows:
    """How many rows and columns are published, in one file or in several together."""

    what: str  #: e.g. ratings
    rows: tuple[int, ...]  #: of each published edition, the latest first
    columns: int  #: 0: the files have no columns
    files: tuple[str, ...]  #: paths below the root
    size: Callable[[Path], Size]

    def missing(self, sizes: list[Size]) -> str:
        """What files of these sizes lack, in words; empty: nothing."""
        count, widths = sum(rows for rows, _ in sizes), {columns for _, columns in sizes}
        told = []
        if count not in self.rows:
            told.append(f"{count:,} {'of' if count < self.rows[0] else 'instead of'} {self.rows[0]:,} {self.what}")
        if self.columns and widths - {self.columns}:
            narrow = ", ".join(f"{width:,}" for width in sorted(widths - {self.columns}))
            told.append(f"{narrow} {'of' if min(widths) < self.columns else 'instead of'} {self.columns:,} columns")
        return ", ".join(told)


# --- sizes of files ---------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """The bytes of a file, decompressed by the end of its name."""
    with (
        gzip.open(path)
        if path.suffix == ".gz"
        else bz2.open(path)
        if path.suffix == ".bz2"
        else path.open("rb") as file
    ):
        yield file


class Kept:
    """A size that takes long: it is counted once for each state of a file, and kept."""


@dataclass(frozen=True)
class Lines(Kept):
    """Lines that are not blank, of a text file or of members of a zip archive."""

    separator: str | None = ","  # None: any blanks
    header: int = 1  # lines before the rows
    members: tuple[str, ...] = ()
    columns: bool = True  # whether a line has columns

    def __call__(self, path: Path) -> Size:
        """Rows, and columns of the first line with names, or of the first row."""
        if not self.members:
            with _opened(path) as file:
                return self._of(file)
        with zipfile.ZipFile(path) as archive:
            sizes = []
            for member in self.members:
                with archive.open(member) as file:
                    sizes.append(self._of(file))
        return sum(rows for rows, _ in sizes), sizes[0][1]

    def _of(self, file: Any) -> Size:
        written = (line for line in file if not line.isspace())
        first: bytes = next((line for number, line in enumerate(written, 1) if number >= self.header), b"")
        separator = None if self.separator is None else self.separator.encode()
        width = len(first.strip(b"\r\n").split(separator)) if first and self.columns else 0
        return sum(1 for _ in written) + (not self.header and bool(first)), width


@dataclass(frozen=True)
class Sheet(Kept):
    """Rows of an Excel sheet, below lines of names."""

    header: int

    def __call__(self, path: Path) -> Size:
        """Rows and columns."""
        import pandas as pd

        try:
            sheet = pd.read_excel(path, engine="calamine", header=None, dtype=object, na_filter=False)
        except Exception as error:  # calamine's errors have no common base
            raise ValueError(str(error)) from None
        return len(sheet) - self.header, sheet.shape[1]


@dataclass(frozen=True)
class Pickled(Kept):
    """Rows of a pickle."""

    size: Callable[[Any], Size]  #: of what is in it; a function with a name

    def __call__(self, path: Path) -> Size:
        """Rows and columns."""
        try:
            return self.size(load_pickle(content(path, path.name), path.name))
        except (DataError, AttributeError, TypeError) as error:
            raise ValueError(str(error)) from None

    def __repr__(self) -> str:
        return f"Pickled({self.size.__module__}.{self.size.__name__})"


@dataclass(frozen=True)
class Idx:
    """Rows of an idx file (as MNIST's), read from its header."""

    dimensions: int

    def __call__(self, path: Path) -> Size:
        """Rows, and values of a row."""
        with _opened(path) as file:
            header = file.read(4 + 4 * self.dimensions)
        sizes = struct.unpack(f">{self.dimensions}I", header[4:])
        return sizes[0], math.prod(sizes[1:])


@dataclass(frozen=True)
class Records:
    """Records of a fixed length in a file."""

    length: int  #: bytes

    def __call__(self, path: Path) -> Size:
        """Rows, and bytes of a row."""
        return len(content(path, path.name)) // self.length, self.length


@dataclass(frozen=True)
class Arrays:
    """Rows of arrays of an .npz archive together, read from their headers."""

    names: tuple[str, ...]

    def __call__(self, path: Path) -> Size:
        """Rows, and columns of the first array."""
        from numpy.lib import format as npy

        shapes = []
        with _opened(path) as packed, zipfile.ZipFile(packed) as archive:
            for name in self.names:
                with archive.open(f"{name}.npy") as file:
                    version = npy.read_magic(file)
                    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
                    shapes.append(read(file)[0])
        return sum(shape[0] for shape in shapes), shapes[0][1] if len(shapes[0]) == 2 else 0


@dataclass(frozen=True)
class Named:
    """Files of some names in the folder that is `up` folders above a file, or in a zip archive."""

    pattern: str
    up: int = 0

    def __call__(self, path: Path) -> Size:
        """How many there are."""
        if path.suffix != ".zip":
            return sum(1 for _ in path.parents[self.up].glob(self.pattern)), 0
        with zipfile.ZipFile(path) as archive:
            return sum(Path(name).match(self.pattern) for name in archive.namelist()), 0


# --- counted once -----------------------------------------------------------------------------------------------------


def measured(size: Callable[[Path], Size], path: Path, state: tuple[int, ...] | None, folder: Path) -> Size:
    """The size of a file; a `Kept` one is counted once, and again when its `state` has changed (None: it may change).

    Parameters
    ----------
    folder : where counts are kept.

    Raises
    ------
    UNREADABLE : the file is damaged, or no such file.
    """
    if state is None or not isinstance(size, Kept):
        return size(path)
    key = hashlib.sha256(repr((size, str(path), state)).encode()).hexdigest()[:24]
    place = folder / f"{key}.json"
    with contextlib.suppress(OSError, ValueError, TypeError):
        rows, columns = json.loads(place.read_text(encoding="utf-8"))
        return int(rows), int(columns)
    found = size(path)
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = place.with_suffix(f".{key}.part")
        part.write_text(json.dumps(found), encoding="utf-8")
        part.replace(place)
    return found
