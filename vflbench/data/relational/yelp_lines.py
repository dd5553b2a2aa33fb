"""The files of Yelp: blocks of JSON lines, parsed by Arrow; errors name the line."""

from __future__ import annotations

import contextlib
import gzip
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from vflbench.data.sources import Found, RawFile
from vflbench.types import DataError

if TYPE_CHECKING:
    import pyarrow as pa

_BLOCK = 1 << 25  # bytes read at once


def blocks(found: Found, file: RawFile, fields: dict[str, str]) -> Iterator[pa.Table]:
    """Blocks of a file with one JSON object a line: the named fields, and each row's line number as `line`.

    Parameters
    ----------
    fields : name -> `text` or `number`. A text field may be a list of texts, as in the files of some years.

    Raises
    ------
    DataError : naming the first line that is no object, or has a field of another type.
    """
    path, label = found.paths[file.path], found.label(file)
    schema = None
    line, rest = 1, b""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as source:
            while block := source.read(_BLOCK):
                whole, newline, begun = (rest + block).rpartition(b"\n")
                rest = begun
                if newline:
                    schema = schema or _schema(whole, fields, label)
                    yield _numbered(whole, schema, label, line)
                    line += whole.count(b"\n") + 1
    except (OSError, EOFError) as error:
        raise DataError(f"{label}: cannot be read ({error}). Get the file again.") from None
    if rest.strip():
        yield _numbered(rest, schema or _schema(rest, fields, label), label, line)
    elif schema is None:
        raise DataError(f"{label}: holds no lines. Get the file again.")


def _schema(block: bytes, fields: dict[str, str], label: str) -> pa.Schema:
    """The types of the fields in the first line, which must have all of them."""
    import pyarrow as pa

    lines = enumerate(block.split(b"\n", 100), start=1)
    number, first = next(((n, line) for n, line in lines if line.strip()), (1, b""))
    try:
        values = dict(json.loads(first))
    except (ValueError, TypeError) as error:  # bad JSON, bad UTF-8, no object
        raise DataError(f"{label}, line {number}: not a JSON object ({error}). Get the file again.") from None
    missing = [name for name in fields if name not in values]
    if missing:
        reason = f"has no field {', '.join(missing)}; it has {', '.join(values)}"
        raise DataError(f"{label}, line {number}: {reason}. Is this the right file?")
    kinds = {"text": pa.string(), "number": pa.float64(), "list": pa.list_(pa.string())}
    shapes = {name: "list" if isinstance(values[name], list) else kind for name, kind in fields.items()}
    return pa.schema([(name, kinds[shape]) for name, shape in shapes.items()])


def _numbered(block: bytes, schema: pa.Schema, label: str, first: int) -> pa.Table:
    """The rows of a block of whole lines, with their line numbers from `first` on; empty lines have no row."""
    import pyarrow as pa

    lines = {number: line for number, line in enumerate(block.split(b"\n"), start=first) if line.strip()}
    with contextlib.suppress(pa.ArrowInvalid):
        table = _parsed(block, schema)
        if len(table) == len(lines):
            return table.append_column("line", pa.array(lines.keys(), pa.int64()))
    for number, line in lines.items():  # slow, and only for blocks with a fault
        try:
            rows = len(_parsed(line, schema))
        except pa.ArrowInvalid as error:
            raise DataError(f"{label}, line {number}: {error}. Correct the line, or get the file again.") from None
        if rows != 1:
            raise DataError(f"{label}, line {number}: {rows} JSON objects. Correct the line, or get the file again.")
    raise DataError(f"{label}, lines {first} to {max(lines)}: not JSON lines. Get the file again.")


def _parsed(lines: bytes, schema: pa.Schema) -> pa.Table:
    import pyarrow as pa
    import pyarrow.json

    table = pyarrow.json.read_json(
        pa.BufferReader(lines + b"\n"),
        pyarrow.json.ReadOptions(use_threads=False, block_size=len(lines) + 1),
        pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
    )
    table.validate(full=True)  # text must be UTF-8
    return table
