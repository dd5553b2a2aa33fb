"""Sources of tables: texts, spreadsheets, Parquet, SQLite, DuckDB and PostgreSQL, opened read-only, read by columns.

This is the one door to a user's files and databases. `read_table` reads one, and `columns` names its columns before.
`place` names the line of a row, and `form` says how the file is written. Separator, decimal sign, encoding, header and
sheet are inferred, unless the `Source` has them: `Source("a.csv", separator=";", encoding="cp1252", header=False)`.

A password comes from an environment variable, and no message shows it. Errors name a source by `str(source)`, and the
password is removed from a database's own message.
"""

import hashlib
import importlib.util
import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vflbench.cards.data.readers.table_sources import POSTGRES, QUERY_TIMEOUT, redacted
from vflbench.data.readers import databases, delimited, dialect, identifiers, packed, spreadsheets, written_numbers
from vflbench.data.readers.cells import (
    EXACT,
    Column,
    Wrong,
    as_type,
    as_written,
    concatenate,
    infer,
    missing_as_null,
    of_arrow,
    of_objects,
    trimmed,
)
from vflbench.types import DataError, Problem, closest

TEXTS = (".csv", ".tsv", ".tab", ".txt", ".dat", ".data")  # also packed
PARQUET = (".parquet", ".pq")
FILES = ("csv", "excel", "parquet")  # kinds of a file that is one table
OVERRIDES = ("separator", "decimal", "encoding", "header", "sheet")  # of a file: what is else inferred
TABLES = "a text file (.csv, .tsv, .txt, also .gz, .bz2, .zip), .parquet, .xlsx, .xls or .ods"
FORMS = f"{TABLES}, sqlite:///file, duckdb:///file or postgresql://user@host:port/database"
BLOCK = 20_000  # rows that are fetched from a database at a time


@dataclass(frozen=True)
class Source:
    """Where one horizontal part of a table lies."""

    url: str
    table: str | None = None  # in a database: its name there,
    query: str | None = None  # or a SELECT
    password_env: str | None = None  # PostgreSQL: the environment variable with the password
    timeout: float = QUERY_TIMEOUT  # of a database: seconds that reading may take, from the query to the last row
    # of a text file or a spreadsheet, None: inferred
    separator: str | None = None
    decimal: str | None = None  # of columns whose numbers can be read in two ways, as 1,234
    encoding: str | None = None  # a codec of Python
    header: bool | None = None  # whether its first line names the columns
    sheet: str | None = None  # its name, or its number from 1

    @property
    def kind(self) -> str:
        """One of csv, excel, parquet, sqlite, duckdb, postgresql; empty for anything else."""
        scheme, found, _ = self.url.partition("://")
        if found:
            known = {"postgres": "postgresql", "postgresql": "postgresql", "sqlite": "sqlite", "duckdb": "duckdb"}
            return known.get(scheme, "")
        name = packed.unpacked_name(self.url)
        ending = Path(name).suffix.lower()
        if name == self.url and ending in (*PARQUET, *spreadsheets.ENDINGS):
            return "parquet" if ending in PARQUET else "excel"
        return "csv" if ending in TEXTS or (name != self.url and not ending) else ""

    @property
    def path(self) -> Path | None:
        """The file, relative to where vflbench was started; None for a server."""
        if self.kind == "postgresql":
            return None
        return Path(self.url.removeprefix(f"{self.kind}:///")).expanduser()

    def __str__(self) -> str:
        where = redacted(self.url)
        if self.kind in FILES:
            return where
        return f"{where}, table {self.table}" if self.table else f"{where}, query"


@dataclass(frozen=True)
class ReadTable:
    """Columns of one file of the user's, or of one table in a database, as read."""

    source: Source
    columns: dict[str, Column]  # each with `rows` cells
    rows: int
    stamp: str | None = None  # SHA-256 of the file, where the reader of the table wants one

    @property
    def decimal(self) -> str:
        """The decimal sign of its texts."""
        return decimal(self.source)

    def place(self, row: int) -> str:
        """How a message names row `row`."""
        return place(self.source, row)

    def __str__(self) -> str:
        return str(self.source)


def check(source: Source, key: str) -> list[Problem]:
    """What is wrong with the source of a part; files must be there, but are not opened.

    Parameters
    ----------
    key : the table's key in the configuration.
    """
    url, address = f"{key}.url", redacted(source.url)
    if not source.kind:
        scheme, found, _ = source.url.partition("://")
        near = closest(scheme, ("sqlite", "duckdb", "postgresql")) if found else None
        return [Problem(url, address, f"must be {FORMS}", near and f"{near}://")]
    problems = []
    if source.kind == "postgresql" and not POSTGRES.fullmatch(source.url):
        form = "postgresql://user@host:port/database, without the password (password_env names its variable)"
        allowed = f"must be of the form {form} and with special characters as %40, %2F"
        problems.append(Problem(url, address, allowed))
    if source.kind in ("sqlite", "duckdb") and not source.url.startswith(f"{source.kind}:///"):
        allowed = f"must be of the form {source.kind}:///folder/file; a fourth slash begins an absolute path"
        return [Problem(url, address, allowed)]
    if source.path is not None and not source.path.is_file():
        folder = source.path.parent
        near = closest(source.path.name, (p.name for p in folder.iterdir() if p.is_file())) if folder.is_dir() else None
        allowed = "there is no such file; a relative path begins in the folder where vflbench is started"
        problems.append(Problem(url, address, allowed, near))
    problems += check_package(source, url)
    problems += check_form(source, key)
    if source.kind in FILES:
        given = [f"{key}.{name}" for name in ("table", "query") if getattr(source, name)]
        problems += [Problem(name, "(given)", f"is for databases; {address} is a file") for name in given]
    elif bool(source.table) == bool(source.query):
        allowed = f"{address} is a database: give a table or a query, one of the two"
        problems.append(Problem(f"{key}.table", source.table, allowed))
    return problems + _check_password(source, f"{key}.password_env")


def check_package(source: Source, key: str) -> list[Problem]:
    """The package that reading the source needs and that is not installed, as a problem of `key`."""
    packages = {"postgresql": ("psycopg", "postgres"), "duckdb": ("duckdb", "duckdb")}
    packages["excel"] = ("python_calamine", "excel")
    module, extra = packages.get(source.kind, ("csv", ""))
    if importlib.util.find_spec(module) is not None:
        return []
    return [Problem(key, redacted(source.url), f"needs the package {module}: pip install 'vflbench[{extra}]'")]


def check_form(source: Source, key: str) -> list[Problem]:
    """What is wrong with what the user says of how a file is written.

    Parameters
    ----------
    key : the file's key in the configuration.
    """
    problems = []

    def refused(name: str, allowed: str, near: str | None = None) -> None:
        problems.append(Problem(f"{key}.{name}", getattr(source, name), allowed, near))

    for name in OVERRIDES:
        fitting = {"sheet": ("excel",), "header": ("csv", "excel"), "decimal": ("csv", "excel")}.get(name, ("csv",))
        if getattr(source, name) is not None and source.kind not in fitting:
            whose = "a spreadsheet" if name == "sheet" else "a text file"
            refused(name, f"is for {whose}, and {redacted(source.url)} is none")
    if source.separator is not None and not dialect.can_separate(source.separator):
        refused("separator", "must be one character, as , ; | or tab")
    if source.decimal not in (None, *written_numbers.DECIMALS):
        refused("decimal", "must be '.' or ','")
    if source.encoding is not None and not dialect.known_encoding(source.encoding):
        near = closest(source.encoding, dialect.ENCODINGS)
        refused("encoding", f"is no encoding that Python knows, as {', '.join(dialect.ENCODINGS[:4])}", near)
    return problems


def _check_password(source: Source, key: str) -> list[Problem]:
    name = source.password_env
    if name is None:
        return []
    if source.kind != "postgresql":
        return [Problem(key, name, f"{redacted(source.url)} takes no password")]
    if name in os.environ:
        return []
    allowed = "there is no environment variable of this name; it has to hold the password"
    if not re.fullmatch(r"[A-Z_][A-Z0-9_]*", name):  # it may be the password itself
        return [Problem(key, "(not shown)", allowed)]
    return [Problem(key, name, allowed, closest(name, os.environ))]


# --- reading ----------------------------------------------------------------------------------------------------------


def columns(source: Source) -> list[str]:
    """The names of the columns at `source`.

    Raises
    ------
    DataError : it cannot be opened, or two columns have the same name.
    """
    if source.kind == "csv":
        return _distinct(list(delimited.dialect_of(source).names), source)
    if source.kind == "excel":
        return _distinct(list(spreadsheets.sheet_of(source).columns), source)
    if source.kind == "parquet":
        import pyarrow.parquet as pq

        with databases.named_errors(source):
            names = list(pq.read_schema(source.path).names)
    else:
        with databases.rows(source, None) as (names, _):
            pass
    return _distinct(names, source)


def _distinct(names: list[str], source: Source) -> list[str]:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DataError(f"{source}: several columns are called {', '.join(twice)}; give each a name of its own")
    return names


def read(source: Source, names: Sequence[str], types: Mapping[str, str]) -> dict[str, Column]:
    """The columns `names`, each of the type that `types` declares for it, else of its own type.

    An `id` is text in a CSV, else of its own type; what a float rounds is refused.

    Raises
    ------
    DataError : it cannot be read, the connection was lost, a line is malformed, or a cell is not of the declared type.
    """
    if source.kind == "csv":
        found = _read_texts(source, names, types)
    elif source.kind == "excel":
        found = {name: _of_sheet(source, name, types.get(name)) for name in names}
    elif source.kind == "parquet":
        import pyarrow.parquet as pq

        with databases.named_errors(source):
            table = pq.read_table(source.path, columns=list(names), partitioning=None)
            found = {name: of_arrow(table.column(name)) for name in names}
    elif source.kind == "duckdb":
        with databases.rows(source, names) as (_, relation):
            table = relation.to_arrow_table()
            found = {name: of_arrow(table.column(name)) for name in names}
    else:
        blocks: dict[str, list[Column]] = {name: [] for name in names}
        with databases.rows(source, names) as (_, cursor):
            while rows := cursor.fetchmany(BLOCK):
                for name, cells in zip(names, zip(*rows, strict=True), strict=True):
                    blocks[name].append(of_objects(cells))
        found = {name: concatenate(parts) if parts else of_objects([]) for name, parts in blocks.items()}
    for name in types.keys() & found.keys():
        try:
            found[name] = as_type(found[name], types[name])
        except Wrong as error:
            raise DataError(f"{place(source, error.row)}, column {name}: {error.reason}") from None
    return found


def read_table(
    entry: Source, names: Sequence[str], types: Mapping[str, str] | None = None, joined: Collection[str] = ()
) -> ReadTable:
    """The columns `names` of a file, or of a table in a database, as `read` reads them.

    Parameters
    ----------
    types : per column the type that it is declared to have.
    joined : the columns whose keys are compared with other tables': they are exact, and in one writing.

    Raises
    ------
    DataError : as `read`; a key was rounded, or is written in two ways.
    """
    types = types or {}
    found = read(entry, names, {**types, **dict.fromkeys(joined, "id")})
    for name in joined:
        try:
            found[name] = _key(entry, name, found[name], types.get(name))
        except Wrong as error:
            raise DataError(f"{place(entry, error.row)}, column {name}: {error.reason}") from None
    return ReadTable(entry, found, next((len(column.values) for column in found.values()), 0))


def _key(source: Source, name: str, column: Column, declared: str | None) -> Column:
    import pyarrow as pa

    if column.kind == "text":
        ids = identifiers.ids(column)
        ids.refuse_clashes()
        column = Column("text", ids.values)
        if source.kind in ("csv", "excel") and declared != "text":
            decimal = delimited.numbers_of(source).decimal if source.kind == "csv" else source.decimal
            cells = pa.chunked_array([pa.array(ids.values, pa.string())])
            numbers = _of_text(source, name, cells, declared, decimal)
            rounded = numbers.values.dtype.kind == "f" and np.abs(numbers.values).max(initial=0, where=~numbers.null)
            column = numbers if rounded < EXACT else column
    return as_type(column, declared) if declared else column


def _read_texts(source: Source, names: Sequence[str], types: Mapping[str, str]) -> dict[str, Column]:
    decimal = delimited.numbers_of(source).decimal
    return {
        name: _of_text(source, name, cells, types.get(name), decimal)
        for name, cells in delimited.columns(source, names).items()
    }


def _of_text(source: Source, name: str, cells: Any, kind: str | None, decimal: str | None) -> Column:
    """A column of text, as numbers where it holds numbers and is not declared as something else."""
    if kind not in (None, "number"):
        return of_arrow(missing_as_null(cells) if kind == "date" else cells)
    try:
        return infer(cells, decimal) if kind is None else of_arrow(as_written(trimmed(cells), decimal))
    except written_numbers.Undecided:
        row, cell = next((i, cell) for i, cell in enumerate(cells.to_pylist()) if cell and not cell.strip().isdigit())
        either = "its numbers may have a thousands sign or decimals, and no other column tells"
        where = f"{place(source, row)}, column {name}"
        raise DataError(f"{where}: {cell!r}: {either}; say the decimal sign, as {{path: FILE, decimal: ','}}") from None


def _of_sheet(source: Source, name: str, kind: str | None) -> Column:
    """A column of a spreadsheet; a column of texts is read as one of a text file."""
    import pyarrow as pa

    cells = spreadsheets.sheet_of(source).columns[name]
    if any(isinstance(cell, str) for cell in cells) and (texts := spreadsheets.as_texts(cells)) is not None:
        return _of_text(source, name, pa.chunked_array([pa.array(texts, pa.string())]), kind, source.decimal)
    return of_objects(cells)


def decimal(source: Source) -> str:
    """The decimal sign of a file's texts, where a number can be read in two ways; a point where nothing tells."""
    found = delimited.numbers_of(source).decimal if source.kind == "csv" else source.decimal
    return found or "."


@dataclass(frozen=True)
class Form:
    """How a text file or a spreadsheet is written, for the user to check."""

    plain: bool  # as a program would write it: nothing to say
    words: str
    details: dict[str, Any]  # the same by key; `given` lists the keys that the user said


def form(source: Source) -> Form | None:
    """How the file is written; None for Parquet and databases.

    Raises
    ------
    DataError : it cannot be read.
    """
    given = [key for key in OVERRIDES if getattr(source, key) is not None]
    if source.kind == "excel":
        sheet = spreadsheets.sheet_of(source)
        details = {"sheet": sheet.name, "header": sheet.header, "skipped": sheet.above, "given": given}
        words = [f"sheet {sheet.name!r}", *dialect.header_in_words(sheet.header, len(sheet.columns), sheet.above)]
        return Form(sheet.header and not sheet.above and sheet.alone, ", ".join(words), details)
    if source.kind != "csv":
        return None
    assert source.path is not None
    how, numbers, packing = delimited.dialect_of(source), delimited.numbers_of(source), packed.packing(source.path)
    first, *others = how.in_words()
    words = [first, *numbers.in_words(), *others, *([packing] if packing else [])]
    details = {"separator": how.separator, "decimal": list(numbers.decimals), "thousands": list(numbers.groups)}
    details |= {"encoding": how.encoding, "header": how.header, "skipped": how.above, "packed": packing, "given": given}
    return Form(how.plain and not numbers.in_words(), ", ".join(words), details)


def place(source: Source, row: int) -> str:
    """How a message names row `row`: by the line of a text; a database's rows have no numbers."""
    if source.kind == "csv":
        return f"{source}, line {delimited.line(source, row)}"
    if source.kind == "excel":
        return f"{source}, row {spreadsheets.sheet_of(source).first + row}"
    return f"{source}, row {row}" if source.kind == "parquet" else str(source)


def within(source: Source, row: int) -> str:
    """As `place`, where the message has named the file already."""
    return place(source, row).removeprefix(f"{source}, ")


def beside(source: Source) -> list[tuple[str, str]]:
    """Name and SHA-256 of the file with rows that are not yet in a SQLite database's own, where that is in use."""
    if source.kind != "sqlite" or source.path is None:
        return []
    log = source.path.with_name(f"{source.path.name}-wal")
    with databases.named_errors(source):
        content = log.read_bytes() if log.is_file() else b""
    return [(log.name, hashlib.sha256(content).hexdigest())] if content else []


def stamp(source: Source) -> str | None:
    """SHA-256 of the file; None for a server."""
    if source.path is None:
        return None
    with databases.named_errors(source), source.path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
