"""The bytes of a user's file, unpacked: plain, gzip, bzip2, or a zip archive of one file, told by its first bytes."""

import bz2
import gzip
import zipfile
from pathlib import Path
from typing import IO, cast

PACKED = (".gz", ".bz2", ".zip")
_SYSTEM = ("__MACOSX/", ".")  # what macOS adds to an archive


def unpacked_name(name: str) -> str:
    """The name without the ending of a packed file."""
    return next((name[: -len(end)] for end in PACKED if name.lower().endswith(end)), name)


def packing(path: Path) -> str:
    """One of gzip, bzip2 and zip; empty for a plain file."""
    with path.open("rb") as file:
        first = file.read(4)
    kinds = {b"\x1f\x8b": "gzip", b"BZ": "bzip2", b"PK": "zip"}
    return kinds.get(first[:2], "") if first[:2] != b"PK" or first[2:] in (b"\x03\x04", b"\x05\x06") else ""


def opened(path: Path) -> IO[bytes]:
    """The unpacked bytes.

    Raises
    ------
    OSError : it cannot be read; an archive holds several files, or none.
    """
    kind = packing(path)
    if kind == "gzip":
        return cast(IO[bytes], gzip.open(path))
    if kind == "bzip2":
        return cast(IO[bytes], bz2.open(path))
    return _member(path) if kind == "zip" else path.open("rb")


def _member(path: Path) -> IO[bytes]:
    try:
        archive = zipfile.ZipFile(path)
        names = [entry.filename for entry in archive.infolist() if not entry.is_dir()]
        if "[Content_Types].xml" in names or "mimetype" in names:
            raise OSError("it is a spreadsheet: its name has to end in .xlsx or .ods")
        names = [name for name in names if not name.startswith(_SYSTEM) and "/." not in name]
        if len(names) != 1:
            told = f"{len(names)} files: {', '.join(names[:5])}{' ...' if names[5:] else ''}" if names else "no file"
            raise OSError(f"the archive holds {told}; one is needed: unpack it and name the files")
        return archive.open(names[0])
    except (zipfile.BadZipFile, RuntimeError, NotImplementedError) as error:  # cut short, encrypted, or another method
        raise OSError(str(error)) from None
