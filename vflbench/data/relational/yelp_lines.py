"""Yelp's files: JSON lines in blocks, parsed by Arrow, with the line of a fault."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from vflbench.data.sources import Found, RawFile
from vflbench.types import DataError

if TYPE_CHECKING:
    import pyarrow as pa

_BLOCK = 1 << 25  # bytes read at once


def blocks(found: Found, file: RawFile, fields: dict[str, str]) -> Iterator[tuple[pa.Table, np.ndarray]]:
    """The named fields of a file of one JSON object a line, block by block, and the number of the line of each row.

    Parameters
    ----------
    fields : name -> `text` or `number`. A text field may be a list of texts, as in some years' files.

    Raises
    ------
    DataError : naming the first line that is no object or whose field is of another type.
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
                    yield _parsed(whole, schema, label, line)
                    line += whole.count(b"\n") + 1
    except (OSError, EOFError) as error:
        raise DataError(f"{label}: cannot be read ({error}). Get the file again.") from None
    if rest.strip():
        yield _parsed(rest, schema or _schema(rest, fields, label), label, line)
    elif schema is None:
        raise DataError(f"{label}: holds no lines. Get the file again.")


def _schema(block: bytes, fields: dict[str, str], label: str) -> pa.Schema:
    """The types of the fields by the first line, which has to have all of them."""
    import pyarrow as pa

    number, first = next(((n, line) for n, line in enumerate(block.split(b"\n", 100), start=1) if line.strip()), (1, b""))
    values = _object(first, label, number)
    missing = [name for name in fields if name not in values]
    if missing:
        raise DataError(f"{label}, line {number}: has no field {', '.join(missing)}; it has {', '.join(values)}. Is this the right file?")
    kinds = {"text": pa.string(), "number": pa.float64(), "list": pa.list_(pa.string())}
    return pa.schema([(name, kinds["list" if isinstance(values[name], list) else kind]) for name, kind in fields.items()])


def _parsed(block: bytes, schema: pa.Schema, label: str, first: int) -> tuple[pa.Table, np.ndarray]:
    """The rows of a block of whole lines of which the first is number `first`."""
    import pyarrow as pa
    import pyarrow.json

    count = block.count(b"\n") + 1
    try:
        table = pyarrow.json.read_json(
            pa.BufferReader(block + b"\n"),
            pyarrow.json.ReadOptions(use_threads=False, block_size=len(block) + 1),
            pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
        )
        table.validate(full=True)  # that text is UTF-8
        if len(table) == count:
            return table, np.arange(first, first + count)
    except pa.ArrowInvalid as error:
        _find_fault(block, schema, label, first)
        raise DataError(f"{label}, lines {first} to {first + count - 1}: not JSON lines ({error}). Get the file again.") from None
    # Empty lines, or two objects in one.
    _find_fault(block, schema, label, first)
    return table, first + np.array([i for i, line in enumerate(block.split(b"\n")) if line.strip()], np.int64)


def _find_fault(block: bytes, schema: pa.Schema, label: str, first: int) -> None:
    """Raise for the first line of `block` that is not an object with the fields of `schema`; slow, and only for blocks with a fault."""
    import pyarrow as pa

    kinds: dict[Any, tuple[Any, str]] = {pa.string(): (str, "text"), pa.float64(): ((int, float), "a number")}
    for number, said in enumerate(block.split(b"\n"), start=first):
        if not said.strip():
            continue
        values = _object(said, label, number)
        for field in schema:
            value, (kind, called) = values.get(field.name), kinds.get(field.type, (list, "a list"))
            if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
                raise DataError(f"{label}, line {number}: {field.name} is {str(value)[:50]!r}, not {called}. Correct the line.")


def _object(said: bytes, label: str, line: int) -> dict[str, Any]:
    try:
        values = json.loads(said)
    except ValueError as error:  # bad JSON, bad UTF-8
        raise DataError(f"{label}, line {line}: not a JSON object ({error}). Perhaps cut short: get the file again.") from None
    if not isinstance(values, dict):
        raise DataError(f"{label}, line {line}: holds {str(values)[:50]!r} where a JSON object belongs. Get the file again.")
    return values
