"""Text files of cells: their dialect, their columns as text, and the line of each row.

pyarrow reads. Where it refuses, a slower reader finds the malformed line, or accepts separators at a line's end.
"""

from __future__ import annotations

import csv
import functools
import io
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vflbench.data.readers import databases, dialect, packed, written_numbers
from vflbench.data.readers.cells import trimmed
from vflbench.data.readers.dialect import Dialect
from vflbench.types import DataError

if TYPE_CHECKING:
    from vflbench.data.readers.table_sources import Source

UTF8 = ("utf-8", "utf-8-sig")
CHUNK = 1 << 20


@dataclass(frozen=True)
class Numbers:
    """What only all cells of a file tell."""

    rows: int  # without blank ones at its end
    decimal: str | None  # the decimal sign, for columns that can be read in two ways; None: nothing tells
    decimals: tuple[str, ...]  # the signs that columns have
    groups: tuple[str, ...]  # and their thousands signs
    slow: bool  # pyarrow cannot read it, for separators at the end of some lines

    def in_words(self) -> list[str]:
        """What a reader should know of it."""
        comma = {(",",): ["decimal comma"], (".", ","): ["decimal comma in some columns, point in others"]}
        groups = [f"thousands sign {' and '.join(map(repr, self.groups))}"] if self.groups else []
        return comma.get(self.decimals, []) + groups


def dialect_of(source: Source) -> Dialect:
    """How the file is written. What `source` says of separator, encoding and header is not inferred.

    Raises
    ------
    DataError : it cannot be read, or is empty.
    """
    with databases.named_errors(source):
        assert source.path is not None
        status = source.path.stat()
        return _dialect(source, status.st_mtime_ns, status.st_size)


def numbers_of(source: Source) -> Numbers:
    """How its numbers are written, by all cells.

    Raises
    ------
    DataError : it cannot be read, or a line is malformed.
    """
    with databases.named_errors(source):
        assert source.path is not None
        status = source.path.stat()
        return _numbers(source, status.st_mtime_ns, status.st_size)


def columns(source: Source, names: Sequence[str]) -> dict[str, Any]:
    """Columns of an Arrow table, all as text, since pyarrow would guess types from the first megabyte.

    Raises
    ------
    DataError : as `numbers_of`.
    """
    written, found = dialect_of(source), numbers_of(source)
    with databases.named_errors(source):
        table = (_slow_table if found.slow else _table)(source, written, [written.names.index(name) for name in names])
    return {name: cells.slice(0, found.rows) for name, cells in zip(names, table, strict=True)}


def line(source: Source, row: int) -> int:
    """The line of the file in which row `row` begins."""
    with databases.named_errors(source):
        return next(itertools.islice(_rows(source, dialect_of(source)), row, None))[0]


# --- the dialect ------------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=64)
def _dialect(source: Source, _changed: int, _size: int) -> Dialect:
    path = source.path
    assert path is not None
    encoding, example = source.encoding or "", ""
    if not encoding:
        encoding, example = dialect.encoding_of(functools.partial(packed.opened, path), str(source))
    try:
        with _text(path, encoding) as file:
            text = "".join(itertools.takewhile(_Room(dialect.SAMPLE), file))
    except UnicodeError:
        raise _not_text(source, encoding) from None
    ending = Path(packed.unpacked_name(source.url)).suffix.lower()
    separator = source.separator or dialect.separator_of(text, ending)
    found = list(itertools.islice(_records(source, encoding, separator, lenient=True), dialect.RECORDS))
    found = found[dialect.titles_above([cells for _, cells in found]) :]
    if not any(any(cells) for _, cells in found):
        raise DataError(f"{source}: empty, without even a line of column names")
    header = source.header
    if header is None:
        header = dialect.has_header([cells for _, cells in found])
    top, body = found[0][1], [row for row in found[header:] if any(row[1])]
    if header and body and all(len(cells) == len(top) + 1 and cells[-1] for _, cells in body):
        top = ["", *top]  # as R's write.table does it: the names of the rows have no name
    names = [name.strip() for name in top] if header else [f"column{i}" for i in range(1, len(top) + 1)]
    while header and names[1:] and not names[-1] and not any(any(cells[len(names) - 1 :]) for _, cells in body):
        names.pop()
    skip = body[0][0] - 1 if body else -1
    return Dialect(separator, encoding, header, tuple(names), len(top), skip, found[0][0] - 1, example)


class _Room:
    """Whether a line still fits into a sample of so many characters; the first one always does."""

    def __init__(self, room: int) -> None:
        self.room = room

    def __call__(self, text: str) -> bool:
        """Take the room of a line."""
        fits, self.room = self.room > 0, self.room - len(text)
        return fits


# --- records ----------------------------------------------------------------------------------------------------------


def _text(path: Path, encoding: str) -> io.TextIOWrapper:
    codec = "utf-8-sig" if encoding.lower().replace("_", "-") in ("utf-8", "utf8") else encoding
    return io.TextIOWrapper(packed.opened(path), encoding=codec, newline="")


def _records(source: Source, encoding: str, separator: str, lenient: bool = False) -> Iterator[tuple[int, list[str]]]:
    """The first line and the cells of every record that is not an empty line, by a slow reader that counts lines.

    Parameters
    ----------
    lenient : end at the first malformed record, where there is one before.
    """
    assert source.path is not None
    csv.field_size_limit(2**31 - 1)  # a text may be long
    begins, told = 1, False
    try:
        with _text(source.path, encoding) as file:
            reader = csv.reader(file, delimiter=separator, strict=True)
            for cells in reader:
                if cells and not (begins == 1 and dialect.is_sep_line(separator.join(cells))):
                    yield begins, cells
                    told = True
                begins = reader.line_num + 1
    except csv.Error as error:
        reason = f"malformed, a quotation mark may lack its partner ({error})"
        if not (lenient and told):
            raise DataError(f"{source}, line {begins}: {reason}") from None
    except UnicodeError:  # the decoder reads ahead, so lines are counted again
        raise _not_text(source, encoding) from None


def _not_text(source: Source, encoding: str) -> DataError:
    """The error of a file that is not in this encoding; it names the line."""
    assert source.path is not None
    with packed.opened(source.path) as file:
        data = file.read()
    number = 1
    try:
        data.decode(encoding)
    except UnicodeDecodeError as error:
        number += data[: error.start].decode(encoding, "ignore").count("\n")
    except UnicodeError:  # of UTF-16 without a mark, which a given encoding may be
        pass
    advice = "say its encoding, as {path: FILE, encoding: cp850}, or convert the file to UTF-8"
    return DataError(f"{source}, line {number}: not {encoding.upper()} text; {advice}")


def _rows(source: Source, written: Dialect) -> Iterator[tuple[int, list[str]]]:
    """The line and the cells of every row."""
    for number, cells in _records(source, written.encoding, written.separator):
        if number > written.skip >= 0:
            yield number, cells


def _complain(source: Source, written: Dialect) -> None:
    """Raise a DataError that names the malformed line, if the slow reader finds one."""
    for number, cells in _rows(source, written):
        if len(cells) < written.width or any(cells[written.width :]):
            count = f"{written.width} columns" if written.width > 1 else "1 column"
            verb = "are" if written.width > 1 else "is"
            raise DataError(f"{source}, line {number}: {len(cells)} cells, but there {verb} {count}")


# --- cells ------------------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=64)
def _numbers(source: Source, changed: int, size: int) -> Numbers:
    import pyarrow as pa
    import pyarrow.compute as pc

    written, slow = _dialect(source, changed, size), False
    assert source.path is not None
    with _text(source.path, written.encoding) as file:
        try:
            quotes = sum(chunk.count('"') for chunk in iter(lambda: file.read(CHUNK), ""))
        except UnicodeError:
            quotes = 1
    if quotes % 2:  # pyarrow would take the rest of the file as one cell
        _complain(source, written)
    try:
        table = _table(source, written, range(written.width))
    except (pa.ArrowInvalid, UnicodeError):
        _complain(source, written)
        table, slow = _slow_table(source, written, range(written.width)), True
    filled = [i for i, cells in enumerate(table) if cells.null_count < len(cells)]
    if unnamed := [i for i in filled if i >= len(written.names)]:
        row = int(pc.index(table[unnamed[0]].is_valid(), True).as_py())
        number = next(itertools.islice(_rows(source, written), row, None))[0]
        raise DataError(f"{source}, line {number}: a value in column {unnamed[0] + 1}, which has no name")
    rows = max((len(table[i]) - _blank_end(table[i]) for i in filled), default=0)
    cells = [trimmed(table[i]) for i in filled]
    ways = [written_numbers.writings(own) for own in cells if own.null_count < len(own)]
    decimals = {way[0].decimal for way in ways if len(way) == 1} - {""}
    decimal = source.decimal or written_numbers.evidence(ways) or ("." if written.separator == "," else None)
    if any(len(way) > 1 for way in ways) and decimal:
        decimals.add(decimal)
    groups = {best.group for way in ways if (best := written_numbers.chosen(way, decimal or "."))} - {""}
    return Numbers(rows, decimal, tuple(sorted(decimals, reverse=True)), tuple(sorted(groups)), slow)


def _blank_end(cells: Any) -> int:
    """How many empty cells are at the end of a column."""
    import numpy as np

    known = np.flatnonzero(cells.is_valid().to_numpy())
    return len(cells) - int(known[-1]) - 1 if len(known) else len(cells)


def _table(source: Source, written: Dialect, positions: Sequence[int]) -> list[Any]:
    """Columns of text by their positions, NULL where a cell is empty."""
    import pyarrow as pa
    import pyarrow.csv as pc

    names = [str(i) for i in range(written.width)]
    wanted = [names[i] for i in positions]
    if written.skip < 0:
        return [pa.chunked_array([], pa.string())] * len(wanted)
    assert source.path is not None
    with packed.opened(source.path) as file:
        table = pc.read_csv(
            file,
            read_options=pc.ReadOptions(
                encoding="utf8" if written.encoding in UTF8 else written.encoding,
                skip_rows=written.skip,
                column_names=names,
            ),
            parse_options=pc.ParseOptions(delimiter=written.separator, newlines_in_values=True),
            convert_options=pc.ConvertOptions(
                column_types=dict.fromkeys(wanted, pa.string()),
                include_columns=wanted,
                null_values=[""],
                strings_can_be_null=True,
            ),
        )
    return [table.column(name) for name in wanted]


def _slow_table(source: Source, written: Dialect, positions: Sequence[int]) -> list[Any]:
    """As `_table`, of lines that may end with separators."""
    import pyarrow as pa

    cells: list[list[str | None]] = [[] for _ in positions]
    for _, row in _rows(source, written):
        for column, i in zip(cells, positions, strict=True):
            column.append(row[i] or None)
    return [pa.chunked_array([pa.array(column, pa.string())]) for column in cells]
