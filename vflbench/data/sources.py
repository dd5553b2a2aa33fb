"""Where data comes from: the user's data_root or the cache, else the official address, else (only without a data_root)
a synthetic twin.

A data set declares its files as a `FileSet`: parts that it needs, each with one or more alternative groups of files,
under the folder names of the project's data room (`planetoid/Cora/raw/ind.cora.x`). `locate` finds or downloads them,
checks their sha256 and says what it did; the loader then reads through `Found`. Nothing here knows a data set.
"""

import contextlib
import datetime
import gzip
import hashlib
import http.client
import importlib
import logging
import math
import os
import shutil
import sys
import tempfile
import threading
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from vflbench.types import DataError, DataSource, VflbenchError, closest

log = logging.getLogger(__name__)

# bytes: a larger file of no known checksum is recorded by size and time, not read twice at every start
HASHED = 1 << 30
CONNECT_SECONDS = 5.0  # without an answer within this, there is no network


class Unreachable(DataError):
    """A download that could not be had: no network, no such address, a transfer that broke off."""


@dataclass(frozen=True)
class RawFile:
    """One published file: `path` below the root; `member` is its name in the zip archive at `url`, if that is one."""

    path: str
    url: str | None = None
    sha256: str | None = None  #: of the uncompressed file; None: no checksum is known, the reader checks the format
    member: str | None = None

    @property
    def name(self) -> str:
        return self.path.rsplit("/", 1)[-1]


@dataclass(frozen=True)
class Part:
    """One thing a data set needs; any one of the `groups` of files gives it. `twin`: it can be made up, the rest
    staying real.

    `variants`: per group the variant of the data set that it is, where there are several.
    """

    what: str
    groups: tuple[tuple[RawFile, ...], ...]
    twin: bool = False
    variants: tuple[str, ...] = ()


@dataclass(frozen=True)
class FileSet:
    """All files of one dataset option. `folders`: other places below the root where the files of `folder` are looked
    for."""

    option: str
    folder: str
    parts: tuple[Part, ...]
    also: tuple[str, ...] = ()


@dataclass(frozen=True)
class Found:
    """The files of a data set on this machine."""

    root: Path
    paths: dict[str, Path]  #: RawFile.path -> where it lies, possibly with .gz
    files: tuple[tuple[str, str], ...]  #: (path below the root, what `_stamp` says of it), for the record
    made_up: tuple[str, ...] = ()  #: parts that are missing and have a twin

    def __contains__(self, file: RawFile) -> bool:
        return file.path in self.paths

    def label(self, file: RawFile) -> str:
        """How an error calls this file: its path below the root."""
        return self.paths[file.path].relative_to(self.root).as_posix()

    def read(self, file: RawFile) -> bytes:
        """The file's content, decompressed."""
        return content(self.paths[file.path], self.label(file))

    def source(self, variant: str | None = None, note: str = "", used: Iterable[RawFile] | None = None) -> DataSource:
        """What a record says of data that was read from the files `used` (all), whatever else is there."""
        labels = None if used is None else {self.label(file) for file in used}
        files = tuple(entry for entry in self.files if labels is None or entry[0] in labels)
        return DataSource("partial" if self.made_up else "real", variant, note, files)


@dataclass(frozen=True)
class StatusRow:
    """One line of `vflbench data status`."""

    option: str
    found: Literal["real", "partial", "missing"]
    variants: tuple[str, ...]  #: those whose files are all there
    made_up: tuple[str, ...]  #: what is missing and has a twin, where the rest is there
    present: tuple[str, ...]
    missing: tuple[str, ...]
    folder: str  #: below the root


# --- where to look ----------------------------------------------------------------------------------------------------


def data_root(config_value: str | None) -> Path | None:
    """The folder that the user named: the `data_root` key, else the environment variable VFLBENCH_DATA, else None (the
    cache is used)."""
    value = config_value or os.environ.get("VFLBENCH_DATA")
    return Path(value).expanduser() if value else None


def cache_folder() -> Path:
    """The folder that downloads go to when no data_root is given."""
    if os.environ.get("XDG_CACHE_HOME"):
        base = Path(os.environ["XDG_CACHE_HOME"])
    elif sys.platform == "win32" and os.environ.get("LOCALAPPDATA"):
        base = Path(os.environ["LOCALAPPDATA"])
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path.home() / ".cache"
    return base / "vflbench"


def _search(files: FileSet, root: Path) -> dict[str, Path]:
    """Which files of the set lie below `root`, plain or gzipped."""
    paths = {}
    for part in files.parts:
        for file in (file for group in part.groups for file in group):
            below = file.path.removeprefix(files.folder + "/")
            places = [root / file.path, *(root / folder / below for folder in files.also)]
            for place in places:
                found = next((p for p in (place, place.with_name(place.name + ".gz")) if p.is_file()), None)
                if found:
                    paths[file.path] = found
                    break
    return paths


def _missing(part: Part, paths: dict[str, Path]) -> tuple[RawFile, ...]:
    """What `part` still lacks, by the group that is nearest to complete (the first one, where nothing of any is
    there)."""
    lacking = [tuple(file for file in group if file.path not in paths) for group in part.groups]
    begun = [rest for rest, group in zip(lacking, part.groups, strict=True) if len(rest) < len(group)]
    return min(begun or lacking[:1], key=len)


def _names(files: tuple[RawFile, ...]) -> str:
    """`folder/first, second, ...` of files of one folder."""
    folders: dict[str, list[str]] = {}
    for file in files:
        folders.setdefault(file.path.removesuffix(file.name), []).append(file.name)
    return ", ".join(f"{folder}{', '.join(names)}" for folder, names in folders.items())


# --- finding the files ------------------------------------------------------------------------------------------------


def locate(
    files: FileSet, root: Path | None, source: str = "auto", verify: bool = True, has_twin: bool = True
) -> Found | None:
    """The files of a data set: found, else downloaded; None means: build the synthetic twin.

    Parameters
    ----------
    root : the user's data_root; None when none was given at all (then the cache is used, and the twin allowed).
    source : ``auto``; ``real`` refuses the twin and made-up parts; ``synthetic`` looks for nothing.
    verify : compare with the known checksums.

    Raises
    ------
    DataError : with a data_root, files that are neither there nor to be had; a checksum that differs.
    """
    if source == "synthetic":  # a twin asked for by name deserves a loud word too
        log.warning(
            "SYNTHETIC TWIN: dataset %s is MADE UP (dataset.source=synthetic). Results say data_source=synthetic.",
            files.option,
        )
        return None
    if root is not None and not root.is_dir():
        raise DataError(
            f"data_root {root}: no such folder. Correct data_root (or VFLBENCH_DATA), or use dataset.source=synthetic."
        )
    folder = root if root is not None else cache_folder()
    paths = _search(files, folder)
    reason = ""
    if any(_missing(part, paths) for part in files.parts):
        try:
            _fetch(files, folder, paths)
        except Unreachable as failure:
            reason = str(failure)
        paths = _search(files, folder)

    lacking = {part.what: _missing(part, paths) for part in files.parts if _missing(part, paths)}
    made_up = tuple(part.what for part in files.parts if part.what in lacking and part.twin)
    if lacking and (source == "real" or set(made_up) != set(lacking)):
        names = "; ".join(_names(missing) for missing in lacking.values())
        if root is None and source == "auto" and has_twin:
            log.warning(
                "SYNTHETIC TWIN: dataset %s is MADE UP, its real files are not here (%s). Results say "
                "data_source=synthetic.",
                files.option,
                reason,
            )
            return None
        shown = "the cache folder" if root is None else f"data_root {root}"
        present = f" ({len(paths)} other files of it are there)" if paths else ""
        partly = (
            f"dataset.source=auto (made-up {', '.join(made_up)} take their place) or "
            if set(made_up) == set(lacking)
            else ""
        )
        address = any(file.url for part in files.parts for group in part.groups for file in group)
        put = (
            f"Put the files there (`vflbench data get {files.option}`)"
            if address
            else "Put the files there: they have no public address"
        )
        raise DataError(
            f"dataset {files.option}: not complete below {shown}{present}; missing {names}. Download failed: {reason}. "
            f"{put}, or use {partly}dataset.source=synthetic."
        )
    if lacking:
        log.warning(
            "PARTIAL DATA: dataset %s has no %s here (%s); MADE-UP ones take their place. Results say "
            "data_source=partial.",
            files.option,
            ", ".join(made_up),
            reason,
        )
    return Found(folder, paths, _record(files, folder, paths, verify), made_up)


@contextlib.contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """A place to write to that becomes `path` when all went well."""
    place = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield place
        place.replace(path)
    finally:
        place.unlink(missing_ok=True)


def memory_map(path: Path, shape: tuple[int, ...], fill: Callable[[np.ndarray], None]) -> np.ndarray:
    """The float32 array in the file `path`, read-only; where there is none, `fill` is given one of this shape to write
    into.

    Raises DataError: there is too little room for the file.
    """
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        size, free = 4 * math.prod(shape), shutil.disk_usage(path.parent).free
        if free < size + 1e9:  # a memory map on a full disk ends the process without a word
            raise DataError(
                f"{path}: {size / 1e9:.1f} GB are needed and {free / 1e9:.1f} GB are free. Set XDG_CACHE_HOME to "
                "another disk."
            )
        with atomic(path) as place:
            out = np.lib.format.open_memmap(place, "w+", np.float32, shape)
            fill(out)
            out.flush()
            del out
    held: np.ndarray = np.load(path, mmap_mode="r")
    return held


def _record(files: FileSet, root: Path, paths: dict[str, Path], verify: bool) -> tuple[tuple[str, str], ...]:
    """(path below the root, `_stamp`) of each file; raises where a known checksum differs."""
    rows = []
    for file in (file for part in files.parts for group in part.groups for file in group if file.path in paths):
        path = paths[file.path]
        label = path.relative_to(root).as_posix()
        checksum = _stamp(path) if file.sha256 is None else _sha256(path)
        # A checksum is that of the published file; a gzipped copy is compared by its content.
        held = checksum if path.suffix != ".gz" or not file.sha256 else hashlib.sha256(content(path, label)).hexdigest()
        if verify and file.sha256 and held != file.sha256:
            raise DataError(
                f"{label}: wrong checksum: sha256 expected {file.sha256}, got {held}. The file is damaged or another "
                "version: "
                f"get it again (remove it, then `vflbench data get {files.option}`), or accept it with "
                "dataset.verify=false."
            )
        rows.append((label, checksum))
    return tuple(rows)


def _stamp(path: Path) -> str:
    """What a record says of a file's content: its sha256; above HASHED bytes its size and when it was last changed."""
    about = path.stat()
    if about.st_size <= HASHED:
        return _sha256(path)
    return f"{about.st_size} bytes, changed {datetime.datetime.fromtimestamp(about.st_mtime, datetime.UTC).isoformat()}"


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def content(path: Path, label: str) -> bytes:
    """A file, decompressed if its name ends in .gz; `label` is how errors call it.

    Raises DataError: it cannot be read, or is a Git LFS pointer.
    """
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{label}: cannot be read ({error}). Get the file again.") from None
    if data.startswith(b"version https://git-lfs"):
        raise DataError(f"{label}: is a Git LFS pointer, not the file: run `git lfs pull` in the clone it came from.")
    return data


# --- download ---------------------------------------------------------------------------------------------------------


def _fetch(files: FileSet, root: Path, paths: dict[str, Path]) -> None:
    """Download what is missing into `root`. Raises Unreachable, or DataError for a wrong checksum."""
    for part in files.parts:
        wanted: dict[str, list[RawFile]] = {}
        for file in _missing(part, paths):
            if file.url is None:
                raise Unreachable(f"no public address of {file.name} is known")
            wanted.setdefault(file.url, []).append(file)
        for url, group in wanted.items():
            download(url, group, root)


def download(url: str, files: list[RawFile], root: Path, seconds: float = CONNECT_SECONDS) -> None:
    """Download `url` to the place of its file below `root` (a zip: its members to theirs; a .gz: decompressed);
    complete and verified, or not there at all.

    Parameters
    ----------
    seconds : how long to wait for a connection, name look-up included, and for each next piece of a transfer.

    Raises
    ------
    Unreachable : no connection in time, refused, not found, broken off; names the reason.
    DataError : a checksum differs; what came is removed.
    """
    target = root / files[0].path
    try:
        with contextlib.ExitStack() as stack:
            answer = stack.enter_context(_connect(url, seconds))
            log.info("downloading %s", url)
            target.parent.mkdir(parents=True, exist_ok=True)
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix=".", dir=target.parent))
            came = Path(folder, ".came")
            with came.open("wb") as out:
                shutil.copyfileobj(answer, out, 1 << 20)
            announced = answer.headers.get("Content-Length")
            if announced and came.stat().st_size != int(announced):
                raise OSError(f"broke off after {came.stat().st_size} of {announced} bytes")
            for file in files:
                part = came
                if file.member:
                    with zipfile.ZipFile(came) as zipped:
                        part = Path(zipped.extract(file.member, folder))
                elif url.endswith(".gz") and not file.path.endswith(".gz"):
                    part = Path(folder, file.name)
                    with gzip.open(came) as packed, part.open("wb") as out:
                        shutil.copyfileobj(packed, out, 1 << 20)
                got = _sha256(part)
                if file.sha256 and got != file.sha256:
                    raise DataError(
                        f"{file.path}: wrong checksum of what {url} sent: sha256 expected {file.sha256}, got {got}. "
                        "Removed."
                    )
                part.replace(root / file.path)
    except (OSError, http.client.HTTPException, zipfile.BadZipFile, zlib.error, EOFError, KeyError) as error:
        # network, disk, archive
        raise Unreachable(f"{files[0].name} cannot be had from {url}: {error}") from None


def _connect(url: str, seconds: float) -> Any:
    """An open answer. In a thread, because no timeout of the library covers a name look-up that hangs."""
    result: list[Any] = []

    def attempt() -> None:
        try:
            result.append(urllib.request.urlopen(url, timeout=seconds))
        except (OSError, ValueError, http.client.HTTPException) as error:  # urllib's own errors are OSErrors
            result.append(error)

    thread = threading.Thread(target=attempt, daemon=True)
    thread.start()
    thread.join(seconds)
    if not result:
        raise OSError(f"no answer within {seconds:g} s")
    if isinstance(result[0], Exception):
        raise OSError(str(getattr(result[0], "reason", None) or result[0]))
    return result[0]


# --- `vflbench data` --------------------------------------------------------------------------------------------------


def file_sets() -> Iterator[FileSet]:
    """The file sets of every data set of the package (a module that lists DATASETS may list FILE_SETS)."""
    here = Path(__file__).parent
    for path in sorted(here.rglob("*.py")):
        if "\nFILE_SETS" in path.read_text(encoding="utf-8") and path != Path(__file__):
            module = ".".join(("vflbench.data", *path.relative_to(here).with_suffix("").parts))
            yield from importlib.import_module(module).FILE_SETS


def _status(files: FileSet, root: Path) -> StatusRow:
    paths = _search(files, root)
    lacking = [part for part in files.parts if _missing(part, paths)]
    found: Literal["real", "partial", "missing"]
    found = "real" if not lacking else "partial" if all(part.twin for part in lacking) else "missing"
    missing = tuple(file.path for part in lacking for file in _missing(part, paths))
    made_up = tuple(part.what for part in lacking) if found == "partial" else ()
    complete = [
        variant
        for part in files.parts
        for variant, group in zip(part.variants, part.groups, strict=False)
        if all(file.path in paths for file in group)
    ]
    present = tuple(path.relative_to(root).as_posix() for path in paths.values())
    return StatusRow(files.option, found, tuple(dict.fromkeys(complete)), made_up, present, missing, files.folder)


def status(root: Path | None) -> list[StatusRow]:
    """For every data set that is read from files: what lies below `root` (None: the cache)."""
    return [_status(files, root if root is not None else cache_folder()) for files in file_sets()]


def get(name: str, root: Path | None) -> StatusRow:
    """Download what is missing of data set `name` into `root` (None: the cache), and verify all of it.

    Raises
    ------
    VflbenchError : no data set of that name is downloaded.
    Unreachable, DataError : as `download`.
    """
    known = {files.option: files for files in file_sets()}
    if name not in known:
        hint = closest(name, known)
        nothing = f"vflbench data get: there is no data set {name!r} to download."
        raise VflbenchError(
            f"{nothing}{f' Did you mean {hint!r}?' if hint else ''} There are: {', '.join(sorted(known))}"
        )
    folder = root if root is not None else cache_folder()
    _fetch(known[name], folder, _search(known[name], folder))
    _record(known[name], folder, _search(known[name], folder), verify=True)
    return _status(known[name], folder)
