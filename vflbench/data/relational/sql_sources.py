"""Sources of tables: CSV and Parquet files, SQLite, DuckDB and PostgreSQL, opened read-only and read by columns.

A password comes from an environment variable, and no message shows it. Errors name a source by `str(source)`, and the
password is removed from a database's own message.
"""

import gzip
import hashlib
import importlib.util
import itertools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vflbench.data.relational import databases
from vflbench.data.relational.cells import (
    Column,
    Wrong,
    as_type,
    concatenate,
    infer,
    missing_as_null,
    of_arrow,
    of_objects,
)
from vflbench.types import DataError, Problem, closest

SEPARATORS = {".csv": ",", ".tsv": "\t"}
PARQUET = (".parquet", ".pq")
FORMS = "a file (.csv, .tsv, .parquet), sqlite:///file, duckdb:///file or postgresql://user@host:port/database"
QUERY_TIMEOUT = 600.0  # seconds
BLOCK = 20_000  # rows that are fetched from a database at a time

_HOST = r"(?:[^:@/?#,\s\[\]]*|\[[0-9a-fA-F:.]+\])(?::\d+)?"
# No other URL is shown: it may hold a password at an unexpected place.
_POSTGRES = re.compile(rf"postgres(?:ql)?://(?:[^:@/?#\s]+@)?{_HOST}(?:,{_HOST})*/[^:@/?#\s]+(?:\?[^@#\s]*)?")


@dataclass(frozen=True)
class Source:
    """Where one horizontal part of a table lies."""

    url: str
    table: str | None = None  # in a database: its name there,
    query: str | None = None  # or a SELECT
    password_env: str | None = None  # PostgreSQL: the environment variable with the password
    timeout: float = QUERY_TIMEOUT  # of a database: seconds that reading may take, from the query to the last row

    @property
    def kind(self) -> str:
        """One of csv, parquet, sqlite, duckdb, postgresql; empty for anything else."""
        scheme, found, _ = self.url.partition("://")
        if found:
            known = {"postgres": "postgresql", "postgresql": "postgresql", "sqlite": "sqlite", "duckdb": "duckdb"}
            return known.get(scheme, "")
        return "parquet" if self.url.endswith(PARQUET) else "csv" if _suffix(self.url) in SEPARATORS else ""

    @property
    def path(self) -> Path | None:
        """The file, relative to where vflbench was started; None for a server."""
        if self.kind == "postgresql":
            return None
        return Path(self.url.removeprefix(f"{self.kind}:///")).expanduser()

    def __str__(self) -> str:
        where = shown(self.url)
        if self.kind in ("csv", "parquet"):
            return where
        return f"{where}, table {self.table}" if self.table else f"{where}, query"


def _suffix(url: str) -> str:
    return Path(url.removesuffix(".gz")).suffix.lower()


def shown(url: str) -> str:
    """`url` as a message may show it: of a server only user, host and database, and only if they are surely these."""
    scheme, found, _ = url.partition("://")
    if not found or scheme in ("sqlite", "duckdb"):
        return url
    return url.partition("?")[0] if _POSTGRES.fullmatch(url) else f"{scheme}://***"


def holds_password(url: str) -> bool:
    """Whether the URL of a server has a password, before the @ or as a parameter."""
    scheme, found, rest = url.partition("://")
    address, _, parameters = rest.partition("?")
    secret = any("password" in pair.partition("=")[0].lower() for pair in parameters.split("&"))
    return bool(found) and scheme not in ("sqlite", "duckdb") and (secret or ":" in address.rpartition("@")[0])


def check(source: Source, key: str) -> list[Problem]:
    """What is wrong with the source of a part; files must be there, but are not opened.

    Parameters
    ----------
    key : the table's key in the configuration.
    """
    url, address = f"{key}.url", shown(source.url)
    if not source.kind:
        scheme, found, _ = source.url.partition("://")
        near = closest(scheme, ("sqlite", "duckdb", "postgresql")) if found else None
        return [Problem(url, address, f"must be {FORMS}", near and f"{near}://")]
    problems = []
    if source.kind == "postgresql" and not _POSTGRES.fullmatch(source.url):
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
    packages = {"postgresql": ("psycopg", "postgres"), "duckdb": ("duckdb", "duckdb")}
    module, extra = packages.get(source.kind, ("csv", ""))
    if importlib.util.find_spec(module) is None:
        problems.append(Problem(url, address, f"needs the package {module}: pip install 'vflbench[{extra}]'"))
    if source.kind in ("csv", "parquet"):
        given = [f"{key}.{name}" for name in ("table", "query") if getattr(source, name)]
        problems += [Problem(name, "(given)", f"is for databases; {address} is a file") for name in given]
    elif bool(source.table) == bool(source.query):
        allowed = f"{address} is a database: give a table or a query, one of the two"
        problems.append(Problem(f"{key}.table", source.table, allowed))
    return problems + _check_password(source, f"{key}.password_env")


def _check_password(source: Source, key: str) -> list[Problem]:
    name = source.password_env
    if name is None:
        return []
    if source.kind != "postgresql":
        return [Problem(key, name, f"{shown(source.url)} takes no password")]
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
        return _csv_header(source)
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

    Raises
    ------
    DataError : it cannot be read, the connection was lost, a line is malformed, or a cell is not of the declared type.
    """
    if source.kind == "csv":
        found = {name: _of_text(cells, types.get(name)) for name, cells in _read_csv(source, names).items()}
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


def _of_text(cells: Any, kind: str | None) -> Column:
    if kind is None:
        return infer(cells)
    return of_arrow(cells if kind == "text" else missing_as_null(cells))


def place(source: Source, row: int) -> str:
    """How a message names row `row`: by the line of a CSV; a database's rows have no numbers."""
    if source.kind == "csv":
        lines = (line for line, _ in _csv_records(source))
        return f"{source}, line {next(itertools.islice(lines, row + 1, None))}"
    return f"{source}, row {row}" if source.kind == "parquet" else str(source)


def stamp(source: Source) -> str | None:
    """SHA-256 of the file; None for a server."""
    if source.path is None:
        return None
    with databases.named_errors(source), source.path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# --- CSV --------------------------------------------------------------------------------------------------------------


def _opened(source: Source, mode: str, **how: Any) -> Any:
    assert source.path is not None
    return (gzip.open if source.path.suffix == ".gz" else open)(source.path, mode, **how)


def _csv_records(source: Source) -> Iterator[tuple[int, list[str]]]:
    """The first line and the cells of every record that is not blank, by a slow reader that counts lines."""
    import csv

    csv.field_size_limit(2**31 - 1)  # a text may be long
    with _opened(source, "rt", encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, delimiter=SEPARATORS[_suffix(source.url)], strict=True)
        begins = 1
        try:
            for cells in reader:
                if cells:
                    yield begins, cells
                begins = reader.line_num + 1
        except csv.Error as error:
            reason = f"malformed, a quotation mark may lack its partner ({error})"
            raise DataError(f"{source}, line {begins}: {reason}") from None
        except UnicodeDecodeError:  # the decoder reads ahead, so lines are counted anew
            raise DataError(f"{source}, line {_line_of_byte(source)}: not UTF-8 text; convert the file") from None


def _line_of_byte(source: Source) -> int:
    with _opened(source, "rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError:
                return number
    return 1


def separator(source: Source) -> str:
    """What separates the cells of a text file."""
    return SEPARATORS[_suffix(source.url)]


def _csv_header(source: Source) -> list[str]:
    with databases.named_errors(source):
        header = next((cells for _, cells in _csv_records(source)), None)
    if header is None:
        raise DataError(f"{source}: empty, without even a line of column names")
    return _distinct(header, source)


def _read_csv(source: Source, names: Sequence[str]) -> dict[str, Any]:
    """Columns of an Arrow table, all as text, since pyarrow would guess types from the first megabyte."""
    import pyarrow as pa
    import pyarrow.csv as pc

    with databases.named_errors(source):
        with _opened(source, "rb") as file:
            quotes = sum(chunk.count(b'"') for chunk in iter(lambda: file.read(1 << 20), b""))
        if quotes % 2:  # pyarrow would take the rest of the file as one cell
            _complain_of_csv(source)
        try:
            table = pc.read_csv(
                source.path,
                parse_options=pc.ParseOptions(delimiter=SEPARATORS[_suffix(source.url)], newlines_in_values=True),
                convert_options=pc.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.string()),
                    include_columns=list(names),
                    null_values=[""],
                    strings_can_be_null=True,
                ),
            )
        except pa.ArrowInvalid:
            _complain_of_csv(source)
            raise
    return {name: table.column(name) for name in names}


def _complain_of_csv(source: Source) -> None:
    """Raise a DataError that names the malformed line, if the slow reader finds one."""
    width = len(_csv_header(source))
    for line, cells in _csv_records(source):
        if len(cells) != width:
            raise DataError(f"{source}, line {line}: {len(cells)} cells, but there are {width} columns")
