"""Spreadsheets (.xlsx, .xls, .ods) as tables: one sheet, its header, its cells as they are typed there."""

from __future__ import annotations

import datetime
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vflbench.data.readers import databases, dialect
from vflbench.data.readers.cells import without_point
from vflbench.types import DataError, closest

if TYPE_CHECKING:
    from vflbench.data.readers.table_sources import Source

ENDINGS = (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods")


@dataclass(frozen=True)
class Sheet:
    """The table in one sheet."""

    name: str
    alone: bool  # whether no other sheet has cells
    header: bool
    columns: dict[str, list[Any]]  # cells by the column's name; None where one is empty
    first: int  # number of its first row in the sheet, from 1
    above: int  # rows above the header


def sheet_of(source: Source) -> Sheet:
    """The table in the source's sheet, or in the only one that has cells.

    Raises
    ------
    DataError : it cannot be read, the sheet is not there, or several have cells.
    """
    with databases.named_errors(source):
        assert source.path is not None
        status = source.path.stat()
        return _sheet(source, status.st_mtime_ns, status.st_size)


@functools.lru_cache(maxsize=8)
def _sheet(source: Source, _changed: int, _size: int) -> Sheet:
    import python_calamine

    try:
        with python_calamine.load_workbook(str(source.path)) as book:
            rows = {sheet: book.get_sheet_by_name(sheet).to_python(skip_empty_area=False) for sheet in book.sheet_names}
    except python_calamine.CalamineError as error:
        raise DataError(f"{source}: cannot be read as a spreadsheet ({' '.join(str(error).split())})") from None
    filled = [name for name, cells in rows.items() if any(map(_any, cells))]
    name = _chosen(source, list(rows), filled)
    table = rows[name]
    texts = [["" if cell is None else str(cell) for cell in row] for row in table[: dialect.RECORDS]]
    above = dialect.titles_above(texts)
    header = dialect.has_header(texts[above:]) if source.header is None else source.header
    top = [text.strip() for text in texts[above]]
    names = top if header else [f"column{i}" for i in range(1, len(top) + 1)]
    body = table[above + header :]
    start = next((i for i, row in enumerate(body) if _any(row)), len(body))
    end = next((i for i in range(len(body), start, -1) if _any(body[i - 1])), start)
    cells = [[None if row[i] == "" else row[i] for row in body[start:end]] for i in range(len(names))]
    kept = [i for i, name in enumerate(names) if name or any(cell is not None for cell in cells[i])]
    if twice := sorted({names[i] for i in kept if [names[j] for j in kept].count(names[i]) > 1}):
        raise DataError(f"{source}: several columns are called {', '.join(twice)}; give each a name of its own")
    columns = {names[i]: cells[i] for i in kept}
    return Sheet(name, len(filled) < 2, header, columns, above + header + start + 1, above)


def _any(row: Sequence[Any]) -> bool:
    return any(cell not in ("", None) for cell in row)


def _chosen(source: Source, names: Sequence[str], filled: Sequence[str]) -> str:
    """The name of the sheet to read."""
    wanted = source.sheet
    if not filled:
        raise DataError(f"{source}: no sheet has any cell")
    if wanted is None:
        if len(filled) > 1:
            told = ", ".join(f"{names.index(name) + 1} ({name})" for name in filled)
            raise DataError(f"{source}: several sheets have cells: {told}; name one, as {{path: FILE, sheet: 1}}")
        return filled[0]
    if wanted in names:
        return wanted
    if wanted.isdigit() and 1 <= int(wanted) <= len(names):
        return names[int(wanted) - 1]
    near = closest(wanted, names)
    hint = f". Did you mean {near!r}?" if near else ""
    raise DataError(f"{source}: has no sheet {wanted!r}; it has {len(names)}: {', '.join(names)}{hint}")


def as_texts(cells: Sequence[Any]) -> list[str | None] | None:
    """Cells of texts, or of texts and numbers, all as texts; None where there are others, as dates."""
    if any(isinstance(cell, bool | datetime.date | datetime.time | datetime.timedelta) for cell in cells):
        return None
    whole = map(without_point, cells)
    return [None if cell is None else str(cell) for cell in whole]
