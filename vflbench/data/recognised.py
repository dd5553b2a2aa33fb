"""What the files of a data set are: which variant they are, whatever their folder is called, and what they lack."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from vflbench.data import published_files, stored
from vflbench.data.published_files import Rows
from vflbench.types import DataError

if TYPE_CHECKING:
    from vflbench.data.sources import FileSet, Part, RawFile

_LARGE = 1 << 30  # bytes: no variant that could be taken for another one has a larger file with a checksum


def every(parts: Iterable[Part]) -> Iterator[RawFile]:
    """All files of the parts."""
    return (file for part in parts for group in part.groups for file in group)


def search(files: FileSet, root: Path, counts: Path) -> dict[str, Path]:
    """The files of the set that are below `root`, plain or gzipped, as what they are: RawFile.path -> path.

    Parameters
    ----------
    counts : the folder where numbers of rows are kept.

    Raises
    ------
    DataError : those of the variant that is asked for are files of another one.
    """
    paths = {}
    for file in every(files.every or files.parts):
        below = file.path.removeprefix(files.folder + "/")
        places = [root / file.path, *(root / folder / below for folder in files.also)]
        for place in places:
            found = next((p for p in (place, place.with_name(place.name + ".gz")) if p.is_file()), None)
            if found:
                paths[file.path] = found
                break
    for whole, asked in zip(files.every or files.parts, files.parts, strict=True):
        for variant, group in zip(whole.variants, whole.groups, strict=False):
            for other, theirs in zip(whole.variants, whole.groups, strict=True):
                moved = _taken_for(files, theirs, group, paths, counts) if other != variant else {}
                if moved and variant in asked.variants and other not in asked.variants:
                    first = next(iter(moved.values())).relative_to(root).as_posix()
                    advice = f"use dataset.variant=auto, which names it so, or put the files of {variant} there"
                    raise DataError(
                        f"{first} and those beside it are the files of {other}, not of {variant}: {advice}."
                    )
                paths = {key: place for key, place in paths.items() if place not in moved.values()}
                paths = {**moved, **paths}
    asked_for = {file.path for file in every(files.parts)}
    return {key: place for key, place in paths.items() if key in asked_for}


def _taken_for(
    files: FileSet, group: tuple[RawFile, ...], place: tuple[RawFile, ...], paths: dict[str, Path], counts: Path
) -> dict[str, Path]:
    """The files of `group`, where they lie at the place of another variant's; empty where these are others."""
    there = {file.name: file for file in place if file.path in paths}
    if any(file.name not in there or file.path == there[file.name].path for file in group):
        return {}
    moved = {file.path: paths[there[file.name].path] for file in group}
    fits = (_fits(files, file, moved[file.path], counts) for file in group)
    known = False
    for fit in fits:  # the first that does not fit decides: the next may be large
        if fit is False:
            return {}
        known = known or bool(fit)
    own = all(_fits(files, there[file.name], moved[file.path], counts) for file in group)
    return moved if known and not own else {}


def _fits(files: FileSet, file: RawFile, path: Path, counts: Path) -> bool | None:
    """Whether `path` is the published `file`, by its checksum, else by its numbers of rows and columns."""
    try:
        if file.checksum:  # no variant that could be taken for another one is large
            return path.stat().st_size <= _LARGE and file.is_at(path)
        rows = next((rows for rows in files.rows if rows.files == (file.path,)), None)
        return None if rows is None else not rows.missing([_size(rows, path, counts)])
    except published_files.UNREADABLE:
        return False


def _size(rows: Rows, path: Path, counts: Path) -> published_files.Size:
    return published_files.measured(rows.size, path, stored.state(path), counts)


def lacking(
    files: FileSet,
    variant: str | None,
    used: list[RawFile],
    paths: Mapping[str, Path],
    others: Iterable[str],
    counts: Path,
) -> str:
    """What the files `used` lack of the published data set, in words; empty: nothing.

    Parameters
    ----------
    paths, others : RawFile.path -> where it lies; RawFile.path of those that are not the published files.
    counts : the folder where numbers of rows are kept.
    """
    told, short, names = [files.lacks.get(variant or "", "")], set(), {file.path for file in used}
    for rows in files.rows:
        if not (here := [path for path in rows.files if path in names]):
            continue
        try:
            missing = rows.missing([_size(rows, paths[path], counts) for path in here])
        except published_files.UNREADABLE as error:
            missing = f"{rows.what} cannot be counted ({error})"
        if missing:
            told.append(missing)
            short.update(here)
    strange = [file.name for file in used if file.path in others and file.path not in short]
    if strange:
        named = ", ".join(strange[:3]) + (f" and {len(strange) - 3} more" if strange[3:] else "")
        told.append(f"{named}: not as published, by the checksum")
    return "; ".join(filter(None, told))


# --- what is missing --------------------------------------------------------------------------------------------------


def missing(part: Part, paths: dict[str, Path]) -> tuple[RawFile, ...]:
    """The files that `part` still lacks, of the group that lacks fewest; if no file is there, of one to download."""
    lacking = [tuple(file for file in group if file.path not in paths) for group in part.groups]
    begun = [rest for rest, group in zip(lacking, part.groups, strict=True) if len(rest) < len(group)]
    public = [rest for rest in lacking if all(file.url for file in rest)]
    return min(begun, key=len) if begun else (public or lacking)[0]


def _named(files: tuple[RawFile, ...]) -> str:
    """The files as `folder/first, second, ...`, folder by folder."""
    folders: dict[str, list[str]] = {}
    for file in files:
        folders.setdefault(file.path.removesuffix(file.name), []).append(file.name)
    return ", ".join(f"{folder}{', '.join(names)}" for folder, names in folders.items())


def incomplete(
    files: FileSet,
    root: Path | None,
    there: int,
    lacking: Mapping[str, tuple[RawFile, ...]],
    made_up: tuple[str, ...],
    reason: str,
) -> str:
    """Which files are missing, why they could not be downloaded, and what to do; `there`: the number of the others."""
    absent = "; ".join(_named(own) for own in lacking.values())
    shown = "the cache folder" if root is None else f"data_root {root}"
    present = f" ({there} other files of it are there)" if there else ""
    partly = f"dataset.source=auto (synthetic {', '.join(made_up)} take their place) or "
    instead = (partly if set(made_up) == set(lacking) else "") + "dataset.source=synthetic"
    address = any(file.url for part in files.parts for group in part.groups for file in group)
    how = f" (`vflbench data get {files.option}`)" if address else ": they have no public address"
    return (
        f"dataset {files.option}: not complete below {shown}{present}; missing {absent}. Download failed: {reason}. "
        f"Put the files there{how}, or use {instead}."
    )
