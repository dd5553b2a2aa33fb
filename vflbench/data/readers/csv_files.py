"""Text files of columns, read by pyarrow; errors name line and column."""

import contextlib
import csv
import io
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vflbench.types import DataError

BLOCK = 1 << 22  # bytes that are read at once; larger blocks are slower in pyarrow


def header(content: Path | bytes, label: str, separator: str = ",", line: int = 1) -> list[str]:
    """The names in line `line` of a file.

    Parameters
    ----------
    content : path of a file, plain or gzipped, or its bytes.
    label : the file's name in errors.

    Raises
    ------
    DataError : the file cannot be read.
    """
    with _named_errors(label), io.TextIOWrapper(_opened(content), encoding="utf-8-sig", errors="replace") as text:
        return next(csv.reader(itertools.islice(text, line - 1, line), delimiter=separator), [])


def check_header(content: Path | bytes, label: str, names: Sequence[str], separator: str = ",", line: int = 1) -> None:
    """Check that line `line` of a file has the `names`.

    Raises
    ------
    DataError : it has not.
    """
    for i, (has, wanted) in enumerate(itertools.zip_longest(header(content, label, separator, line), names), 1):
        if has != wanted:
            found = f"column {i} of the header is {has!r}, not {wanted!r}"
            raise DataError(f"{label}, line {line}: {found}. Get the file again.")


def batches(
    content: Path | bytes,
    label: str,
    names: Sequence[str],
    columns: Mapping[str, str],
    *,
    skip: int = 1,
    separator: str = ",",
    quotes: bool = True,
) -> Iterator[tuple[int, Any]]:
    """Record batches of a file, each after the line of its first row; an empty cell is NULL.

    Parameters
    ----------
    content : path of a file, plain or gzipped, or its bytes.
    label : the file's name in errors.
    names : of all columns, in their order.
    columns : those to read: name -> integer | number | time | text | bytes.
    skip : lines above the first row.

    Raises
    ------
    DataError : naming the file, the line, the column.
    """
    import pyarrow as pa
    from pyarrow import csv as arrow

    kinds = {"integer": pa.int64(), "number": pa.float64(), "time": pa.timestamp("s")}
    kinds |= {"text": pa.string(), "bytes": pa.binary()}
    convert = arrow.ConvertOptions(
        include_columns=list(columns),
        column_types={name: kinds[kind] for name, kind in columns.items()},
        null_values=[""],
        strings_can_be_null=True,
    )
    parse = arrow.ParseOptions(delimiter=separator, quote_char='"' if quotes else False, ignore_empty_lines=False)
    # Only with one thread do errors name the row. Rows are lines, counted from the top of the file.
    read_options = arrow.ReadOptions(use_threads=False, block_size=BLOCK, column_names=list(names), skip_rows=skip)
    line = skip + 1
    with _named_errors(label, names), _opened(content) as source:
        for batch in arrow.open_csv(source, read_options, parse, convert):
            yield line, batch
            line += batch.num_rows


def refuse(label: str, first: int, cells: Sequence[Any] | np.ndarray, wrong: np.ndarray, why: str) -> None:
    """Raise a DataError for the first of `cells` that is `wrong`, if there is one.

    Parameters
    ----------
    first : line of the first cell; the others are in the lines below.
    why : what follows the cell in the message.
    """
    rows = np.flatnonzero(wrong).tolist()
    if rows:
        line = f"{label}, line {first + rows[0]}"
        raise DataError(f"{line}: {str(cells[rows[0]])[:80]!r} {why}. Correct the line, or get the file again.")


def _opened(content: Path | bytes) -> Any:
    import pyarrow as pa

    return pa.input_stream(memoryview(content) if isinstance(content, bytes) else content)


@contextlib.contextmanager
def _named_errors(label: str, names: Sequence[str] = ()) -> Iterator[None]:
    """Turn errors of pyarrow into a DataError, with line and column where they name these."""
    try:
        yield
    except (ValueError, csv.Error) as error:  # pyarrow's errors are ValueErrors
        found = re.search(r"(?:In CSV column #(\d+): )?Row #(\d+): (.*)", str(error), re.DOTALL)
        where = f", line {found[2]}" if found else ""
        if found and found[1]:
            where += f", column {names[int(found[1])]}"
        what = (found[3] if found else str(error))[:200]
        raise DataError(f"{label}{where}: {what}. Correct the line, or get the file again.") from None
    except OSError as error:
        raise DataError(f"{label}: cannot be read ({error}). Get the file again.") from None


def read(
    content: Path | bytes,
    label: str,
    names: Sequence[str],
    columns: Mapping[str, str],
    *,
    optional: Sequence[str] = (),
    **how: Any,
) -> dict[str, np.ndarray]:
    """All rows of a smaller file, by column: int64, float64, datetime64[s] or objects.

    Parameters
    ----------
    optional : columns with cells that may be empty: NaT or None.
    how : further parameters of `batches`.

    Raises
    ------
    DataError : as `batches`; there are no rows; a cell is empty.
    """
    import pyarrow as pa

    held = list(batches(content, label, names, columns, **how))
    if not sum(batch.num_rows for _, batch in held):
        raise DataError(f"{label}: holds no rows. Get the file again.")
    table = pa.Table.from_batches([batch for _, batch in held])
    for name in columns:
        if name not in optional and table[name].null_count:
            line = held[0][0] + int(np.flatnonzero(table[name].is_null().to_numpy())[0])
            raise DataError(f"{label}, line {line}: {name} is empty. Correct the line, or get the file again.")
    return {name: table[name].to_numpy() for name in columns}
