"""What downloads without a published checksum were when they first came: a lock file beside the data."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from vflbench.data import stored
from vflbench.types import DataError

if TYPE_CHECKING:
    from vflbench.data.sources import RawFile

NAME = "downloads.lock.json"
_KEYS = {"url": str, "sha256": str, "bytes": int, "date": str}


class Entry(TypedDict):
    """One download."""

    url: str
    sha256: str
    bytes: int
    date: str


def read(folder: Path) -> dict[str, Entry]:
    """The downloads that are recorded in a folder, by file name; empty without a lock file.

    Raises
    ------
    DataError : the lock file is damaged.
    """
    place = folder / NAME
    try:
        held = json.loads(place.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise _damaged(place, str(error)) from None
    if not isinstance(held, dict):
        raise _damaged(place, "it must be an object of file names")
    for name, entry in held.items():
        if not isinstance(entry, dict) or any(not isinstance(entry.get(key), kind) for key, kind in _KEYS.items()):
            raise _damaged(place, f"{name!r} must have {', '.join(_KEYS)}")
    return held


def _damaged(place: Path, why: str) -> DataError:
    return DataError(
        f"{place}: a damaged record of downloads ({why}). Restore it; or remove it, and the files of this folder count "
        "as they are."
    )


def compare(folder: Path, name: str, sha256: str, sender: str) -> None:
    """Refuse a file that differs from what first came under its name.

    Parameters
    ----------
    sender : whose the file is, for the error, e.g. a URL.

    Raises
    ------
    DataError : it differs, or the lock file is damaged.
    """
    entry = read(folder).get(name)
    if entry is not None and entry["sha256"] != sha256:
        raise DataError(
            f"{folder / name}: {sender} is not what came on {entry['date']} from {entry['url']}: sha256 expected "
            f"{entry['sha256']}, got {sha256}. Restore the file; or if the new one is right, remove its entry from "
            f"{folder / NAME}."
        )


def record(folder: Path, name: str, url: str, sha256: str, size: int) -> None:
    """Record a first download; an entry that is there stays.

    Raises
    ------
    DataError : the lock file is damaged.
    OSError : it cannot be written.
    """
    held = read(folder)
    if name in held:
        return
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    held[name] = Entry(url=url, sha256=sha256, bytes=size, date=today)
    with stored.atomic(folder / NAME) as place:
        place.write_text(json.dumps(held, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def as_it_came(file: RawFile, path: Path, label: str, checksum: str, verify: bool) -> bool:
    """Whether a file without a published checksum is what was first downloaded; True if it was not downloaded.

    Parameters
    ----------
    label, checksum : the file's name in errors, and the SHA-256 of `path`.

    Raises
    ------
    DataError : with `verify`, it is not; or the record of downloads is damaged.
    """
    if file.url is None:
        return True
    try:
        if file.name in read(path.parent):
            compare(path.parent, file.name, file.sum_of(path) if path.suffix == ".gz" else checksum, label)
    except DataError:
        if verify:
            raise
        return False
    return True


def settle(file: RawFile, url: str, came: Path, place: Path) -> None:
    """Put what came at its place, if it is the published file, else as it first came; record a first download.

    Raises
    ------
    DataError : it is another file, which is removed.
    OSError : it cannot be written.
    """
    got = stored.digest(came)
    if file.checksum is None:
        compare(place.parent, file.name, got, f"what {url} sends now")
        record(place.parent, file.name, url, got, came.stat().st_size)
    elif not file.is_at(came):
        sums = f"sha256 expected {file.sha256}, got {got}" if file.sha256 else f"expected {file.digest}"
        raise DataError(f"{file.path}: wrong checksum of what {url} sent: {sums}. Removed.")
    came.replace(place)
