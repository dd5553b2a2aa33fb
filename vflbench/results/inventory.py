"""The list of files that vflbench has written into a folder.

vflbench replaces and removes only these; everything else is the user's. The list, `files.jsonl`, is in the folder and
only grows. It gets a line before each step, so that after a kill at any moment every file's owner is known:
`{"writing": name}` before a file is begun, `{"file": name, "bytes": n, "sha256": digest}` before it takes its place.

A file is vflbench's if it has contents that are listed for its name. A user's own file of the same name is not. A
folder is not vflbench's without a list, or where the file of that name is no list.
"""

import hashlib
import json
import os
import re
import secrets
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from vflbench.types import VflbenchError

NAME = "files.jsonl"
# files that a file manager puts anywhere: ignored
SYSTEM = frozenset((".DS_Store", "Thumbs.db", "desktop.ini"))
LONGEST = 255  # bytes of a file's name, at most
DAMAGED = ".damaged"  # the end of the name of a file that was set aside
HEADER = b'{"vflbench": "the files it wrote here"}\n'
LINE = re.compile(rb'\{"file": ".*", "bytes": \d+, "sha256": "[0-9a-f]{64}"')
DOUBTED = 4096  # bytes at the start of a file that show whether it is a list


@dataclass
class _Listed:
    """What a list says, as far as it was read."""

    read: int = 0  # bytes
    end: bytes = b""  # the last of them: another list in its place has others
    damaged: bool = False  # a line cannot be understood
    contents: dict[str, set[tuple[int, str]]] = field(default_factory=dict)  # name -> (bytes, sha256) of every version
    begun: set[str] = field(default_factory=set)  # names whose last line is `writing`
    holder: str = ""


_known: dict[Path, _Listed] = {}  # what has been read of each list, which grows with every file that is written


def found_below(folder: Path, *names: str) -> Iterator[Path]:
    """The files of these names at or below `folder`. Folders that are removed meanwhile are passed over."""
    for root, _, files in os.walk(folder):  # `Path.rglob` raises there
        yield from (Path(root, name) for name in names if name in files)


# --- the list ---------------------------------------------------------------------------------------------------------


def start(folder: Path, mode: int = 0o666) -> None:
    """Begin the list of `folder`, unless it has one; `mode` is that of the files to come, before the umask.

    Raises
    ------
    OSError : it cannot be written, or a file of its name is no list.
    """
    if not kept(folder):
        new = 0 if _is_empty(folder) else os.O_EXCL
        with os.fdopen(os.open(folder / NAME, os.O_WRONLY | os.O_CREAT | new, mode), "wb", buffering=0) as file:
            try:
                file.write(HEADER)
            except OSError:  # half a list would be a file without an owner
                (folder / NAME).unlink()
                raise


def _is_empty(folder: Path) -> bool:
    """Whether the list has no line yet, as after a kill."""
    path = folder / NAME
    return path.is_file() and not path.is_symlink() and path.stat().st_size == 0


def kept(folder: Path) -> bool:
    """Whether there is a list of the files in `folder`; other lines show it where the first is damaged."""
    try:
        with (folder / NAME).open("rb") as file:
            start = file.read(DOUBTED)
        return start.startswith(HEADER) or any(LINE.match(line) for line in start.splitlines())
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return False


def listed_by(path: Path) -> Path | None:
    """The folder whose list names `path`: its own or the one above (as of `model/`); None if neither has a list."""
    return next((folder for folder in (path.parent, path.parent.parent) if kept(folder)), None)


def mode(folder: Path) -> int:
    """Permissions of the files in a listed folder: those of its list."""
    return (folder / NAME).stat().st_mode & 0o777


def writing(folder: Path, name: str) -> None:
    """Note that `name` (relative to `folder`) is about to be written, in whatever way."""
    _append(folder, {"writing": name})


def written(folder: Path, name: str, source: Path | None = None) -> None:
    """Note the contents of `name`, or of `source`, which is about to replace it."""
    size, digest = contents(source or folder / name)
    line = {"file": name, "bytes": size, "sha256": digest}
    _append(folder, line if source is None else {**line, "from": source.relative_to(folder).as_posix()}, sync=True)


def held_by(folder: Path, holder: str) -> None:
    """Note who writes to the folder from now on."""
    _append(folder, {"holder": holder})


def holder(folder: Path) -> str:
    """Who wrote there last; empty if nobody is noted."""
    return _read(folder).holder


def _append(folder: Path, line: dict[str, Any], sync: bool = False) -> None:
    path = folder / NAME
    with path.open("rb+") as file:  # not "ab": a list that was removed meanwhile is not begun again
        end = file.seek(0, os.SEEK_END)
        if end:  # a line that a kill or a full disk cut short stays on its own line
            file.seek(end - 1)
            if file.read(1) != b"\n":
                file.write(b"\n")
        file.write(json.dumps(line).encode() + b"\n")
        if sync:
            file.flush()
            os.fsync(file.fileno())


def _read(folder: Path) -> _Listed:
    """What the list of `folder` says; only what is new since the last time is read."""
    path = (folder / NAME).absolute()
    listed = _known.get(path, _Listed())
    with path.open("rb") as file:
        file.seek(listed.read - len(listed.end))
        if file.read(len(listed.end)) != listed.end:
            listed = _Listed()
            file.seek(0)
        lines = file.read()
    _known[path] = listed
    whole = lines[: lines.rfind(b"\n") + 1]
    listed.read += len(whole)
    listed.end = (listed.end + whole)[-len(HEADER) * 8 :]
    for text in whole.splitlines():
        try:
            line = json.loads(text)
            if "holder" in line:
                listed.holder = str(line["holder"])
                continue
            name = line["writing"] if "writing" in line else line["file"]
            both = {name, line.get("from", name)}
            if any(PurePosixPath(one).is_absolute() or ".." in PurePosixPath(one).parts for one in both):
                raise ValueError(f"{name} is elsewhere")
            if any("\0" in one or len(one.encode()) > LONGEST for one in both):
                raise ValueError(f"{name[:20]}... cannot be a file's name")
            if "writing" in line:
                listed.begun.add(name)
            else:
                for one in both:  # a kill may come before the file is moved to its place
                    listed.contents.setdefault(one, set()).add((line["bytes"], line["sha256"]))
                    listed.begun.discard(one)
        except (ValueError, KeyError, TypeError, RecursionError):  # cut short or damaged: its file has no owner
            listed.damaged |= text != HEADER.strip()
    return listed


def contents(path: Path) -> tuple[int, str]:
    """Bytes and SHA-256 of a file."""
    with path.open("rb") as file:
        return os.fstat(file.fileno()).st_size, hashlib.file_digest(file, "sha256").hexdigest()


# --- whose a file is --------------------------------------------------------------------------------------------------


def owns(folder: Path, path: Path) -> bool:
    """Whether the list of `folder` names the file at `path`, which is in or below it, with its present contents."""
    name, listed = path.relative_to(folder).as_posix(), _read(folder)
    if not path.is_file() or any(
        place.is_symlink() for place in (path, *path.parents) if place != folder and folder in place.parents
    ):
        return False
    if name == NAME or name in listed.begun:
        return True
    versions = listed.contents.get(name, set())
    return any(size == path.stat().st_size for size, _ in versions) and contents(path) in versions


def check(path: Path) -> None:
    """Refuse a file of a listed folder that is not as it was written; without a list nothing is known, and all pass.

    Raises
    ------
    VflbenchError : has the file's name.
    """
    folder = listed_by(path)
    if folder is None or not path.is_file() or owns(folder, path):
        return
    if path.relative_to(folder).as_posix() in _read(folder).contents:
        raise VflbenchError(f"{path} is damaged or was changed: it is not what {NAME} says was written{_doubt(folder)}")
    raise VflbenchError(f"{path} was not written by vflbench: {NAME} does not name it{_doubt(folder)}")


def _doubt(folder: Path) -> str:
    """A note where the list is damaged, for the end of a message."""
    return (
        f" (a line of {NAME} cannot be read: it may have named them)" if kept(folder) and _read(folder).damaged else ""
    )


def damaged(folder: Path, name: str) -> bool:
    """Whether `name` is a file that was written here and has other contents now, or one that was set aside for that."""
    return name in _read(folder).contents or name.endswith(DAMAGED)


def foreign(folder: Path) -> list[str]:
    """Sorted names, relative to `folder`, of what is not vflbench's; without a list, of all that is in it."""
    if not kept(folder):
        ignored = {*SYSTEM, NAME} if _is_empty(folder) else SYSTEM
        return sorted(path.name for path in folder.iterdir() if path.name not in ignored)
    return [
        path.relative_to(folder).as_posix()
        for path in _leaves(folder)
        if path.name not in SYSTEM and not owns(folder, path)
    ]


def own(folder: Path) -> list[str]:
    """Sorted names, relative to `folder`, of vflbench's files that are there, without the list itself."""
    return [path.relative_to(folder).as_posix() for path in _leaves(folder) if path.name != NAME and owns(folder, path)]


def _leaves(folder: Path) -> Iterator[Path]:
    """Sorted files and links below `folder`, without those of folders that have their own list (a sweep's runs)."""
    for entry in sorted(folder.iterdir()):
        if not entry.is_dir() or entry.is_symlink():
            yield entry
        elif not kept(entry):
            yield from _leaves(entry)


def refuse(folder: Path, names: Sequence[str], advice: str) -> None:
    """Raise VflbenchError where there are `names`, of files that are not vflbench's; it has the first three of them."""
    if names:
        changed = _read(folder).contents if kept(folder) else {}
        shown = [f"{name} (changed since)" if name in changed else name for name in names[:3]]
        some = ", ".join(f"{name} (damaged, set aside)" if name.endswith(DAMAGED) else name for name in shown)
        some += f" and {len(names) - 3} more" if names[3:] else ""
        raise VflbenchError(
            f"{folder} holds {some}: not what vflbench wrote there{_doubt(folder)}. {advice}, or move away what is "
            "yours"
        )


def claim(folder: Path, advice: str, names: Collection[str] | None = None) -> None:
    """Make a folder for files that belong to no run, begin its list, and remove what a kill left half written.

    Raises
    ------
    VflbenchError : a file of these `names` (None: any) that is not vflbench's is there; `advice` says what to do.
    OSError : the folder cannot be written to.
    """
    if folder.is_dir():
        refuse(folder, [name for name in foreign(folder) if names is None or name in names], advice)
    folder.mkdir(parents=True, exist_ok=True)
    start(folder)
    tidy(folder)


# --- removing ---------------------------------------------------------------------------------------------------------


def remove(path: Path, folder: Path | None = None) -> None:
    """Remove a file if it is there and vflbench's, by the list of `folder`; None: by that of the file's own folder."""
    folder = listed_by(path) if folder is None else folder
    if folder is not None and path.exists() and owns(folder, path):
        path.unlink()


def set_aside(folder: Path, below: Collection[str]) -> None:
    """Rename files in the subfolders `below` that are not as they were written, to make room for new ones."""
    for name in _read(folder).contents:
        path = folder / name
        if name.split("/")[0] in below and path.exists() and not owns(folder, path):
            path.rename(path.with_name(f"{path.name}.{secrets.token_hex(2)}{DAMAGED}"))


def tidy(folder: Path) -> None:
    """Remove temporary files that a kill left."""
    listed = _read(folder)
    for name in sorted(listed.begun | listed.contents.keys()):
        path = folder / name
        if path.name.startswith(".") and path.suffix == ".tmp":
            remove(path)


def clear(folder: Path, first: str = "") -> None:
    """Remove all files of vflbench's below `folder`, `first` before the others, and the folders that this empties.

    The list stays: after a kill it is still needed.
    """
    listed = _read(folder)
    names = sorted(listed.contents.keys() | listed.begun, key=lambda name: (name != first, name))
    for name in names:
        remove(folder / name, folder)
    below = {parent for name in names for parent in Path(name).parents if parent != Path(".")}
    for name in sorted(map(str, below), key=len, reverse=True):
        place = folder / name
        if place.is_dir() and not place.is_symlink() and not any(place.iterdir()):
            place.rmdir()


def leave(folder: Path) -> None:
    """Remove the list where no file of vflbench's is left."""
    if kept(folder) and not own(folder):
        (folder / NAME).unlink()
