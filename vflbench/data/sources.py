"""Where data come from: the user's data_root or the cache, else the official address, else a synthetic twin.

There are twins only without a data_root. A data set declares its files as a `FileSet`: the parts that it needs, each
with one or more alternative groups of files, below folders such as `planetoid/Cora/raw`. `locate` finds or downloads
them, checks their sha256 and logs what it did. The loader then reads through `Found`. No data set is named here.
"""

import contextlib
import gzip
import hashlib
import importlib
import logging
import os
import re
import shutil
import sys
import tempfile
import threading
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from vflbench.data import locks, recognised, stored
from vflbench.data.published_files import Rows
from vflbench.data.stored import atomic as atomic
from vflbench.data.stored import content as content
from vflbench.types import DataError, DataSource, VflbenchError, closest

log = logging.getLogger(__name__)

# bytes: the checksum of a larger file is remembered, so that no start reads it twice
HASHED = 1 << 30
CONNECT_SECONDS = 5.0  # without an answer in this time there is no network


class Unreachable(DataError):
    """A download that failed: no network, no such address, a transfer that broke off."""


@dataclass(frozen=True)
class RawFile:
    """One published file."""

    path: str  #: below the root
    url: str | None = None
    sha256: str | None = None  #: of the uncompressed file; another file is refused, unless it is accepted
    member: str | None = None  #: where `url` is a zip archive: the file's name in it
    #: published MD5 or SHA-256 of the uncompressed file; another file is read, as `partial` data
    digest: str | None = None

    @property
    def name(self) -> str:
        """The last component of the path."""
        return self.path.rsplit("/", 1)[-1]

    @property
    def checksum(self) -> str | None:
        """The checksum of the published file; None: none is known, the reader checks the format."""
        return self.sha256 or self.digest

    def is_at(self, path: Path) -> bool:
        """Whether the file at `path`, plain or gzipped, has the known checksum.

        Raises
        ------
        OSError, EOFError, zlib.error : it cannot be read.
        """
        return self.sum_of(path, "md5" if len(self.checksum or "") == 32 else "sha256") == self.checksum

    def sum_of(self, path: Path, algorithm: Literal["sha256", "md5"] = "sha256") -> str:
        """The checksum of the file at `path`, of its content where it was gzipped after it was published."""
        return stored.digest(path, algorithm, unpacked=not self.path.endswith(".gz"))


@dataclass(frozen=True)
class Part:
    """One part that a data set needs."""

    what: str
    groups: tuple[tuple[RawFile, ...], ...]  #: alternatives: any one of them is enough
    twin: bool = False  #: it can be made up while the other parts stay real
    variants: tuple[str, ...] = ()  #: the data set's variant that each group is, where there are several


@dataclass(frozen=True)
class FileSet:
    """All files of one dataset option."""

    option: str
    folder: str
    parts: tuple[Part, ...]
    also: tuple[str, ...] = ()  #: other folders below the root where files of `folder` may be
    rows: tuple[Rows, ...] = ()  #: how many rows and columns are published: fewer are `partial` data
    lacks: Mapping[str, str] = field(default_factory=dict)  #: variant -> what it lacks of the full data set
    every: tuple[Part, ...] = ()  #: the parts with all variants, where `parts` are those of one

    def only(self, variant: str) -> "FileSet":
        """The files of one variant; all of them with `auto`."""
        if variant == "auto":
            return self
        parts = []
        for part in self.parts:
            groups = tuple(g for name, g in zip(part.variants, part.groups, strict=True) if name == variant)
            parts.append(replace(part, groups=groups, variants=(variant,) * len(groups)))
        return replace(self, parts=tuple(parts), every=self.parts)


@dataclass(frozen=True)
class Found:
    """The files of a data set on this machine."""

    root: Path
    paths: dict[str, Path]  #: RawFile.path -> where it lies, possibly with .gz
    files: tuple[tuple[str, str], ...]  #: (path below the root, its `stamp`), for the record
    made_up: tuple[str, ...] = ()  #: parts that are missing and have a twin
    of: FileSet = FileSet("", "", ())
    others: tuple[str, ...] = ()  #: RawFile.path of those that are not the published files

    def __contains__(self, file: RawFile) -> bool:
        return file.path in self.paths

    def label(self, file: RawFile) -> str:
        """The file's name in errors: its path below the root."""
        return self.paths[file.path].relative_to(self.root).as_posix()

    def read(self, file: RawFile) -> bytes:
        """The file's content, decompressed."""
        return content(self.paths[file.path], self.label(file))

    def source(
        self, variant: str | None = None, note: str = "", used: Iterable[RawFile] | None = None, lacks: str = ""
    ) -> DataSource:
        """The record of data that were read from the files `used`; None: from all of them.

        They are `real` only if they are the published files, with all their rows and columns, and nothing is made up.

        Parameters
        ----------
        lacks : what the loader itself left out.
        """
        chosen = [file for file in recognised.every(self.of.parts) if file in self] if used is None else list(used)
        labels = {self.label(file) for file in chosen}
        files = tuple(entry for entry in self.files if entry[0] in labels or used is None)
        counts = cache_folder() / "counts"
        lacking = "; ".join(
            filter(None, (lacks, recognised.lacking(self.of, variant, chosen, self.paths, self.others, counts)))
        )
        return source_of(self.of.option, variant, note, files, lacking, bool(self.made_up))


def source_of(
    option: str, variant: str | None, note: str, files: tuple[tuple[str, str], ...], lacks: str, made_up: bool = False
) -> DataSource:
    """The record of files that lack something, which is told aloud, or nothing (`lacks` is empty)."""
    if lacks:
        log.warning("PARTIAL DATA: dataset %s: %s. Results say data_source=partial.", option, lacks)
    kind: Literal["real", "partial"] = "partial" if made_up or lacks else "real"
    return DataSource(kind, variant, "; ".join(filter(None, (note, lacks))), files, lacks="" if made_up else lacks)


@dataclass(frozen=True)
class StatusRow:
    """One line of `vflbench data status`."""

    option: str
    found: Literal["real", "partial", "missing"]
    variants: tuple[str, ...]  #: those whose files are all there
    made_up: tuple[str, ...]  #: what is missing and has a twin, where the rest is there
    lacks: str  #: what the files that `auto` takes lack of the published data set
    present: tuple[str, ...]
    missing: tuple[str, ...]
    folder: str  #: below the root


# --- where to look ----------------------------------------------------------------------------------------------------


def data_root(config_value: str | None) -> Path | None:
    """The user's folder: the key `data_root`, else the variable VFLBENCH_DATA; None: the cache is used."""
    value = config_value or os.environ.get("VFLBENCH_DATA")
    return Path(value).expanduser() if value else None


def cache_folder() -> Path:
    """The folder for downloads where no data_root is given."""
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
    return recognised.search(files, root, cache_folder() / "counts")


# --- finding the files ------------------------------------------------------------------------------------------------


def locate(
    files: FileSet, root: Path | None, source: str = "auto", verify: bool = True, has_twin: bool = True
) -> Found | None:
    """The files of a data set, found or downloaded; None: the synthetic twin is to be made.

    Parameters
    ----------
    root : the user's data_root; None if there is none: then the cache is used, and a twin is allowed.
    source : ``auto``; ``real`` refuses the twin and made-up parts; ``synthetic`` looks for no files.
    verify : whether to compare with the known checksums.

    Raises
    ------
    DataError : with a data_root, files are missing and cannot be downloaded; or a checksum differs.
    """
    if source == "synthetic":  # loud, although the user asked for it
        log.warning(
            "SYNTHETIC TWIN: dataset %s is MADE UP (dataset.source=synthetic). Results say data_source=synthetic.",
            files.option,
        )
        return None
    if root is not None and not root.is_dir():
        advice = "Correct data_root (or VFLBENCH_DATA), or use dataset.source=synthetic."
        raise DataError(f"data_root {root}: no such folder. {advice}")
    folder = root if root is not None else cache_folder()
    paths = _search(files, folder)
    reason = ""
    if any(recognised.missing(part, paths) for part in files.parts):
        try:
            _fetch(files, folder, paths)
        except Unreachable as failure:
            reason = str(failure)
        paths = _search(files, folder)

    lacking = {part.what: recognised.missing(part, paths) for part in files.parts if recognised.missing(part, paths)}
    made_up = tuple(part.what for part in files.parts if part.what in lacking and part.twin)
    if lacking and (source == "real" or set(made_up) != set(lacking)):
        if root is None and source == "auto" and has_twin:
            log.warning(
                "SYNTHETIC TWIN: dataset %s is MADE UP, its real files are not here (%s). Results say "
                "data_source=synthetic.",
                files.option,
                reason,
            )
            return None
        raise DataError(recognised.incomplete(files, root, len(paths), lacking, made_up, reason))
    if lacking:
        log.warning(
            "PARTIAL DATA: dataset %s has no %s here (%s); MADE-UP ones take their place. Results say "
            "data_source=partial.",
            files.option,
            ", ".join(made_up),
            reason,
        )
    record, others = _record(files, folder, paths, verify)
    return Found(folder, paths, record, made_up, files, others)


def _record(
    files: FileSet, root: Path, paths: dict[str, Path], verify: bool
) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
    """Path below the root and `stamp` of each file; RawFile.path of those that are not as published, or as they came.

    Raises
    ------
    DataError : a file cannot be read. With `verify`: it differs from its pinned checksum, or from its first download.
    """
    rows, others = [], []
    for file in (file for file in recognised.every(files.parts) if file.path in paths):
        path = paths[file.path]
        label = path.relative_to(root).as_posix()
        try:
            checksum = stamp(path)
            rows.append((label, checksum))
            if file.checksum:
                same = checksum == file.checksum or file.is_at(path)  # the second is for MD5, and for what is gzipped
            else:
                same = locks.as_it_came(file, path, label, checksum, verify)
            held = "" if same or not file.sha256 else file.sum_of(path)
        except (OSError, EOFError, zlib.error) as error:
            raise DataError(f"{label}: cannot be read ({error}). Get the file again.") from None
        if verify and held:
            again = f"get it again (remove it, then `vflbench data get {files.option}`)"
            raise DataError(
                f"{label}: wrong checksum: sha256 expected {file.sha256}, got {held}. The file is damaged or another "
                f"version: {again}, or accept it with dataset.verify=false."
            )
        if not same:
            others.append(file.path)
    return tuple(rows), tuple(others)


def stamp(path: Path) -> str:
    """The sha256 of a file, for the record; of one above HASHED bytes it is remembered in the cache folder."""
    about = path.stat()
    if about.st_size <= HASHED:
        return _sha256(path)
    state = (str(path.resolve()), about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns)
    memo = cache_folder() / "checksums" / hashlib.sha256(repr(state).encode()).hexdigest()[:16]
    with contextlib.suppress(OSError):
        if re.fullmatch("[0-9a-f]{64}", known := memo.read_text(encoding="utf-8")):
            return known
    digest = _sha256(path)
    with contextlib.suppress(OSError):  # without it the next process reads the file again
        memo.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with atomic(memo) as place:
            place.write_text(digest, encoding="utf-8")
    return digest


def _sha256(path: Path) -> str:
    return stored.digest(path)


# --- download ---------------------------------------------------------------------------------------------------------


def _fetch(files: FileSet, root: Path, paths: dict[str, Path]) -> None:
    """Download what is missing into `root`.

    Raises
    ------
    Unreachable, DataError : as `download`.
    """
    for part in files.parts:
        wanted: dict[str, list[RawFile]] = {}
        for file in recognised.missing(part, paths):
            if file.url is None:
                raise Unreachable(f"no public address of {file.name} is known")
            wanted.setdefault(file.url, []).append(file)
        for url, group in wanted.items():
            download(url, group, root)


def download(url: str, files: list[RawFile], root: Path, seconds: float = CONNECT_SECONDS) -> None:
    """Download `url` to the places of `files` below `root`; an incomplete or wrong file is not kept.

    The members of a zip go to their own places. A .gz is decompressed.

    Parameters
    ----------
    seconds : how long to wait for a connection, including the name look-up, and for each next piece of a transfer.

    Raises
    ------
    Unreachable : naming the reason: no connection in time, refused, not found, broken off.
    DataError : a checksum differs.
    """
    from http.client import HTTPException  # slow to import, and not needed to check a configuration

    target = root / files[0].path
    try:
        with contextlib.ExitStack() as stack:
            answer = stack.enter_context(_connect(url, seconds))
            sender = getattr(answer, "url", url)  # after redirections
            if url.startswith("https:") and not sender.startswith("https:") and not all(f.checksum for f in files):
                raise OSError(f"it is passed on to {sender}, without https, and has no checksum")
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
                locks.settle(file, url, part, root / file.path)
    except (OSError, HTTPException, zipfile.BadZipFile, zlib.error, EOFError, KeyError) as error:
        # of network, disk or archive
        raise Unreachable(f"{files[0].name} cannot be had from {url}: {error}") from None


def _connect(url: str, seconds: float) -> Any:
    """An open answer, from a thread, as no timeout of the library covers a name look-up that hangs."""
    import urllib.request  # likewise
    from http.client import HTTPException

    result: list[Any] = []

    def attempt() -> None:
        try:
            result.append(urllib.request.urlopen(url, timeout=seconds))
        except (OSError, ValueError, HTTPException) as error:  # urllib's own errors are OSErrors
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
    """The file sets of all data sets of the package: a module with DATASETS may have FILE_SETS."""
    here = Path(__file__).parent
    for path in sorted(here.rglob("*.py")):
        if "\nFILE_SETS" in path.read_text(encoding="utf-8") and path != Path(__file__):
            module = ".".join(("vflbench.data", *path.relative_to(here).with_suffix("").parts))
            yield from importlib.import_module(module).FILE_SETS


def _status(files: FileSet, root: Path) -> StatusRow:
    paths = _search(files, root)
    lacking = [part for part in files.parts if recognised.missing(part, paths)]
    missing = tuple(file.path for part in lacking for file in recognised.missing(part, paths))
    complete = [
        [
            (variant, group)
            for variant, group in zip(part.variants or ("",) * len(part.groups), part.groups, strict=True)
            if all(file.path in paths for file in group)
        ]
        for part in files.parts
    ]
    variants = tuple(dict.fromkeys(variant for found in complete for variant, _ in found if variant))
    present = tuple(path.relative_to(root).as_posix() for path in paths.values())
    found: Literal["real", "partial", "missing"] = "missing"
    made_up: tuple[str, ...] = ()
    lacks = ""
    if all(part.twin for part in lacking):
        made_up = tuple(part.what for part in lacking)
        first = variants[0] if variants else None
        used = [file for groups in complete for _, group in groups[:1] for file in group]
        try:
            _, others = _record(files, root, paths, verify=False)
            lacks = recognised.lacking(files, first, used, paths, others, cache_folder() / "counts")
        except DataError as damage:
            lacks = str(damage)
        found = "partial" if made_up or lacks else "real"
    return StatusRow(files.option, found, variants, made_up, lacks, present, missing, files.folder)


def status(root: Path | None) -> list[StatusRow]:
    """What is below `root` (None: the cache) of every data set that is read from files."""
    return [_status(files, root if root is not None else cache_folder()) for files in file_sets()]


def get(name: str, root: Path | None) -> StatusRow:
    """Download what is missing of data set `name` into `root` (None: the cache), and verify all of it.

    Raises
    ------
    VflbenchError : there is no data set of that name to download.
    Unreachable, DataError : as `download`.
    """
    known = {files.option: files for files in file_sets()}
    if name not in known:
        near = closest(name, known)
        hint = f" Did you mean {near!r}?" if near else ""
        nothing = f"vflbench data get: there is no data set {name!r} to download."
        raise VflbenchError(f"{nothing}{hint} There are: {', '.join(sorted(known))}")
    folder = root if root is not None else cache_folder()
    _fetch(known[name], folder, _search(known[name], folder))
    _record(known[name], folder, _search(known[name], folder), verify=True)
    return _status(known[name], folder)
