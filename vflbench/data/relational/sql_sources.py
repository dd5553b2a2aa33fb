"""Tables where they lie: CSV and Parquet files, SQLite, DuckDB and PostgreSQL, opened read-only and read column by column.

A password comes from an environment variable, and no message repeats one: what an error says of a source is `str(source)`, and what a
database says is cleaned of the password before it is passed on.
"""

from __future__ import annotations

import contextlib
import datetime
import decimal
import gzip
import hashlib
import importlib.util
import os
import re
import uuid
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vflbench.types import DataError, Problem, closest

SEPARATORS = {".csv": ",", ".tsv": "\t"}
PARQUET = (".parquet", ".pq")
FORMS = "a file (.csv, .tsv, .parquet), sqlite:///file, duckdb:///file or postgresql://user@host:port/database"
TYPES = ("number", "text", "date")  # what a column may be; where no cell has a value it is "empty"
BLOCK = 20_000  # rows that are fetched from a database at a time
EXACT = 2**53  # integers below it are exact as float64

_HOST = r"(?:[^:@/?#,\s\[\]]*|\[[0-9a-fA-F:.]+\])(?::\d+)?"
# Anything else is not shown: it may hold a password where we do not expect one.
_POSTGRES = re.compile(rf"postgres(?:ql)?://(?:[^:@/?#\s]+@)?{_HOST}(?:,{_HOST})*/[^:@/?#\s]+(?:\?[^@#\s]*)?")


@dataclass(frozen=True)
class Source:
    """Where one horizontal part of a table lies."""

    url: str
    table: str | None = None  # in a database: its name there,
    query: str | None = None  # or a SELECT
    password_env: str | None = None  # PostgreSQL: the environment variable with the password

    @property
    def kind(self) -> str:
        """csv | parquet | sqlite | duckdb | postgresql; empty for anything else."""
        scheme, found, _ = self.url.partition("://")
        if found:
            return {"postgres": "postgresql"}.get(scheme, scheme if scheme in ("sqlite", "duckdb", "postgresql") else "")
        return "parquet" if self.url.endswith(PARQUET) else "csv" if _suffix(self.url) in SEPARATORS else ""

    @property
    def path(self) -> Path | None:
        """The file, relative to where vflbench was started; None for a server."""
        if self.kind == "postgresql":
            return None
        return Path(self.url.removeprefix(f"{self.kind}:///")).expanduser()

    def __str__(self) -> str:
        where = shown(self.url)
        return where if self.kind in ("csv", "parquet") else f"{where}, {f'table {self.table}' if self.table else 'query'}"


def _suffix(url: str) -> str:
    return Path(url.removesuffix(".gz")).suffix.lower()


def shown(url: str) -> str:
    """`url` as a message may show it: of a server nothing but user, host and database, and nothing that is not surely one of these."""
    scheme, found, _ = url.partition("://")
    if not found or scheme in ("sqlite", "duckdb"):
        return url
    return url.partition("?")[0] if _POSTGRES.fullmatch(url) else f"{scheme}://***"


def holds_password(url: str) -> bool:
    """Whether a URL of a server has a password, before the @ or as a parameter."""
    scheme, found, rest = url.partition("://")
    address, _, parameters = rest.partition("?")
    secret = any("password" in pair.partition("=")[0].lower() for pair in parameters.split("&"))
    return bool(found) and scheme not in ("sqlite", "duckdb") and (secret or ":" in address.rpartition("@")[0])


def check(source: Source, key: str) -> list[Problem]:
    """What is wrong with where a part lies; `key` is the table's in the configuration. Looks whether files are there, opens none."""
    url, address = f"{key}.url", shown(source.url)
    if not source.kind:
        scheme, found, _ = source.url.partition("://")
        near = closest(scheme, ("sqlite", "duckdb", "postgresql")) if found else None
        return [Problem(url, address, f"must be {FORMS}", near and f"{near}://")]
    problems = []
    if source.kind == "postgresql" and not _POSTGRES.fullmatch(source.url):
        form = "must be of the form postgresql://user@host:port/database, without the password (password_env names its variable)"
        problems.append(Problem(url, address, f"{form} and with special characters as %40, %2F"))
    if source.kind in ("sqlite", "duckdb") and not source.url.startswith(f"{source.kind}:///"):
        allowed = f"must be of the form {source.kind}:///folder/file; a fourth slash begins an absolute path"
        return [Problem(url, address, allowed)]
    if source.path is not None and not source.path.is_file():
        beside = source.path.parent
        near = closest(source.path.name, (p.name for p in beside.iterdir() if p.is_file())) if beside.is_dir() else None
        allowed = "there is no such file; a relative path begins in the folder where vflbench is started"
        problems.append(Problem(url, address, allowed, near))
    module, extra = {"postgresql": ("psycopg", "postgres"), "duckdb": ("duckdb", "duckdb")}.get(source.kind, ("csv", ""))
    if importlib.util.find_spec(module) is None:
        problems.append(Problem(url, address, f"needs the package {module}: pip install 'vflbench[{extra}]'"))
    if source.kind in ("csv", "parquet"):
        given = [f"{key}.{name}" for name in ("table", "query") if getattr(source, name)]
        problems += [Problem(name, "(given)", f"is for databases; {address} is a file") for name in given]
    elif bool(source.table) == bool(source.query):
        problems.append(Problem(f"{key}.table", source.table, f"{address} is a database: give a table or a query, one of the two"))
    if source.password_env is not None:
        if source.kind != "postgresql":
            problems.append(Problem(f"{key}.password_env", source.password_env, f"{address} takes no password"))
        elif source.password_env not in os.environ:
            allowed = "there is no environment variable of this name; it has to hold the password"
            named = re.fullmatch(r"[A-Z_][A-Z0-9_]*", source.password_env)  # else it may be the password itself: not shown
            shown_name, near = (source.password_env, closest(source.password_env, os.environ)) if named else ("(not shown)", None)
            problems.append(Problem(f"{key}.password_env", shown_name, allowed, near))
    return problems


# --- columns ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Column:
    """The cells of one column, brought to one of few forms, as join.py takes them.

    A `number` is int64; float64 with NaN; or, where integers above 2**53 stand beside NULL, objects. `text`: objects with None. `date`:
    datetime64[us] in UTC. `empty`: NaN. Any other kind is the name of what was found, its values the objects themselves.
    """

    kind: str
    values: np.ndarray

    @property
    def null(self) -> np.ndarray:
        """(n,) bool."""
        import pandas as pd

        missing: np.ndarray = pd.isna(self.values)
        return missing


def _integers(values: np.ndarray, null: np.ndarray) -> Column:
    """int64 `values`; those at `null` mean nothing."""
    if null.any():
        known = values[~null]
        if known.max() < EXACT and known.min() > -EXACT:
            values = np.where(null, np.nan, values)
        else:
            values = values.astype(object)
            values[null] = None
    return Column("number", values)


def of_objects(cells: Sequence[Any]) -> Column:
    """What a database's driver returned."""
    import pandas as pd

    values = np.empty(len(cells), dtype=object)
    values[:] = cells
    null = pd.isna(values)
    present = values[~null]
    kinds = set(map(type, present))
    if not kinds:
        return Column("empty", np.full(len(values), np.nan))
    if kinds == {decimal.Decimal} and all(cell.is_finite() and cell == cell.to_integral_value() for cell in present):
        present, kinds = np.array([int(cell) for cell in present], dtype=object), {int}
    if all(issubclass(kind, int | np.integer) for kind in kinds):
        whole = np.zeros(len(values), dtype=np.int64)
        try:
            whole[~null] = present.astype(np.int64)
        except OverflowError:
            return Column("integers beyond 64 bits", values)
        return _integers(whole, null)
    if all(issubclass(kind, int | float | decimal.Decimal | np.number) for kind in kinds):
        values[null] = np.nan
        return Column("number", values.astype(np.float64))
    if kinds <= {str, uuid.UUID}:
        values[~null] = [str(cell) for cell in present]
        values[null] = None
        return Column("text", values)
    if kinds <= {datetime.date, datetime.datetime, pd.Timestamp}:
        dates = np.full(len(values), np.datetime64("NaT"), dtype="datetime64[us]")
        dates[~null] = [_utc(cell) for cell in present]
        return Column("date", dates)
    return Column(" and ".join(sorted(kind.__name__ for kind in kinds)), values)


def _utc(cell: datetime.date) -> datetime.date:
    aware = isinstance(cell, datetime.datetime) and cell.tzinfo is not None
    return cell.astimezone(datetime.UTC).replace(tzinfo=None) if aware else cell  # type: ignore[attr-defined]


def of_arrow(cells: Any) -> Column:
    """A column of an Arrow table."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(cells.type):
        cells = cells.cast(cells.type.value_type)
    kind, rows = cells.type, len(cells)
    if cells.null_count == rows:
        return Column("empty", np.full(rows, np.nan))
    null = np.zeros(rows, dtype=bool) if not cells.null_count else cells.is_null().to_numpy()
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        filled = cells.fill_null(False if pa.types.is_boolean(kind) else 0)
        if pa.types.is_uint64(kind) and pc.max(filled).as_py() >= 2**63:
            return Column("integers beyond 64 bits", filled.to_numpy())
        return _integers(filled.to_numpy().astype(np.int64), null)
    if pa.types.is_floating(kind):
        return Column("number", cells.cast(pa.float64()).to_numpy())
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return Column("text", cells.to_numpy().astype(object))
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return Column("date", cells.cast(pa.timestamp("us"), safe=False).to_numpy().astype("datetime64[us]"))
    return of_objects(cells.to_pylist())


def concatenate(columns: Sequence[Column]) -> Column:
    """Blocks or parts of one column as one. Unlike kinds become a kind of their own that nothing accepts."""
    kinds = sorted({column.kind for column in columns} - {"empty"})
    if not kinds:
        return Column("empty", np.concatenate([column.values for column in columns]))
    if len(kinds) > 1:
        return Column(" and ".join(kinds), np.concatenate([column.values.astype(object) for column in columns]))
    if kinds[0] == "number":
        whole = [_whole(column) for column in columns]
        if all(part is not None for part in whole):
            return _integers(np.concatenate([part for part in whole if part is not None]), np.concatenate([c.null for c in columns]))
        return Column("number", np.concatenate([column.values.astype(np.float64) for column in columns]))
    if kinds[0] == "date":
        nat = np.datetime64("NaT", "us")
        return Column("date", np.concatenate([c.values if c.kind == "date" else np.full(len(c.values), nat) for c in columns]))
    none = [np.full(len(c.values), None, dtype=object) if c.kind == "empty" else c.values for c in columns]
    return Column(kinds[0], np.concatenate(none))


def _whole(column: Column) -> np.ndarray | None:
    """int64 values of a number column, 0 where NULL; None if some are not integers that float64 holds exactly."""
    if column.values.dtype == np.int64:
        return column.values
    filled = np.where(column.null, 0, column.values)
    if column.values.dtype == object:
        return filled.astype(np.int64)
    exact = np.abs(filled).max(initial=0.0) < EXACT and bool((filled == np.floor(filled)).all())
    return filled.astype(np.int64) if exact else None


class Wrong(Exception):
    """Cell number `row` of a column is not what it is declared to be."""

    def __init__(self, row: int, reason: str) -> None:
        self.row, self.reason = row, reason


def as_type(column: Column, kind: str) -> Column:
    """The column as a `number`, `text` or `date`, as the user declared it.

    Raises
    ------
    Wrong : a cell that cannot be one.
    """
    import pandas as pd

    if column.kind in ("empty", kind):
        return column
    null = column.null
    present = column.values[~null]
    if kind == "text":
        text = np.full(len(null), None, dtype=object)
        if column.kind == "date":
            present = np.datetime_as_string(present, unit="auto")
        text[~null] = [str(int(cell)) if isinstance(cell, float) and cell.is_integer() else str(cell) for cell in present.tolist()]
        return Column("text", text)
    if column.kind != "text":
        raise Wrong(int(np.flatnonzero(~null)[0]), f"{present[0]} is a {column.kind}, not a {kind}")
    cells = pd.Series(present, dtype=object)
    if kind == "number":
        numbers = _numbers(present)
        if numbers is None:
            bad = int(np.flatnonzero(~null)[pd.to_numeric(cells, errors="coerce").isna().argmax()])
            raise Wrong(bad, f"{column.values[bad]!r} is not a number")
        return _scatter(numbers, null)
    dates = pd.to_datetime(cells, errors="coerce", format="ISO8601", utc=True)
    if dates.isna().any():
        bad = int(np.flatnonzero(~null)[dates.isna().argmax()])
        raise Wrong(bad, f"{column.values[bad]!r} is not a date in ISO form, as 2024-01-31 or 2024-01-31 18:30:00")
    found = np.full(len(null), np.datetime64("NaT"), dtype="datetime64[us]")
    found[~null] = dates.dt.tz_localize(None).to_numpy().astype("datetime64[us]")
    return Column("date", found)


def _numbers(texts: np.ndarray) -> np.ndarray | None:
    """int64 or float64 of texts; None if one is no number."""
    import pandas as pd

    parsed = pd.to_numeric(pd.Series(texts, dtype=object), errors="coerce").to_numpy()
    if parsed.dtype.kind == "f" and np.isnan(parsed).any():
        return None
    return parsed if parsed.dtype == np.int64 else parsed.astype(np.float64)


def _scatter(numbers: np.ndarray, null: np.ndarray) -> Column:
    """`numbers` of the cells that are not `null`, at their places."""
    values = np.zeros(len(null), dtype=numbers.dtype)
    values[~null] = numbers
    return _integers(values, null) if values.dtype == np.int64 else Column("number", np.where(null, np.nan, values))


def infer(cells: Any) -> Column:
    """A column of texts in an Arrow table as what it looks like: numbers, true and false, else text.

    007 is text, not the key 7; so are whole numbers that no number type keeps apart. Among numbers, words like NA are missing values; in
    a column of text they are text: NA may be Namibia.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    known = _known(cells)
    if known.null_count == len(cells):
        return of_arrow(known)
    trimmed = pc.replace_substring_regex(pc.utf8_trim_whitespace(known), r"^\+", "")
    if pc.any(pc.match_substring_regex(trimmed, r"^-?0[0-9xX]")).as_py():
        return of_arrow(cells)
    with contextlib.suppress(pa.ArrowInvalid):
        return of_arrow(trimmed.cast(pa.int64()))
    with contextlib.suppress(pa.ArrowInvalid):
        numbers = trimmed.cast(pa.float64())
        return of_arrow(known if pc.any(pc.match_substring_regex(trimmed, r"^-?\d{16,}$")).as_py() else numbers)
    lowered = pc.utf8_lower(trimmed)
    if pc.all(pc.is_in(lowered, pa.array(["true", "false", None]))).as_py():
        return of_arrow(pc.equal(lowered, "true"))
    return of_arrow(cells)


def _known(cells: Any) -> Any:
    """`cells` of text with NULL for the words that stand for a missing number."""
    import pyarrow as pa
    import pyarrow.compute as pc

    words = pa.array(["NULL", "null", "NaN", "nan", "NA", "N/A", "n/a", "None"])
    return pc.if_else(pc.is_in(cells, words), pa.scalar(None, pa.string()), cells)


def hashes(columns: Sequence[Column]) -> np.ndarray:
    """(n,) uint64: a hash of each row, the same on every machine."""
    from pandas.util import hash_array

    total = np.zeros(len(columns[0].values), dtype=np.uint64)
    for column in columns:
        values = column.values if column.kind in (*TYPES, "empty") else np.array([repr(cell) for cell in column.values], dtype=object)
        total = total * np.uint64(1_000_003) + hash_array(values)
    return total


def digest(columns: Sequence[Column]) -> tuple[int, int]:
    """(rows, checksum): equal for the same rows in whatever order."""
    found = hashes(columns)
    return len(found), int(found.sum(dtype=np.uint64))


def stable_order(columns: Mapping[str, Column], keys: Sequence[str]) -> np.ndarray:
    """Order by the keys, then by content: a table of a database has none of its own that lasts."""
    import pandas as pd

    ranks = [pd.factorize(columns[key].values, sort=True)[0] for key in reversed(keys)]
    return np.lexsort([hashes(list(columns.values())), *ranks])


# --- reading ----------------------------------------------------------------------------------------------------------------


def columns(source: Source) -> list[str]:
    """The names of the columns at `source`.

    Raises
    ------
    DataError : it cannot be opened.
    """
    if source.kind == "csv":
        return _csv_header(source)
    if source.kind == "parquet":
        import pyarrow.parquet as pq

        with _told(source):
            names = list(pq.read_schema(source.path).names)
    else:
        with _rows(source, _select(source, None)) as (names, _):
            pass
    return _distinct(names, source)


def _distinct(names: list[str], source: Source) -> list[str]:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DataError(f"{source}: several columns are called {', '.join(twice)}; give each a name of its own")
    return names


def read(source: Source, names: Sequence[str], types: Mapping[str, str]) -> dict[str, Column]:
    """The columns `names`, each of the type declared for it in `types`, else as it is.

    Raises
    ------
    DataError : it cannot be read, the connection was lost, a line is malformed, a cell is not of the declared type.
    """
    if source.kind == "csv":
        texts = _read_csv(source, names)
        found = {name: infer(cells) for name, cells in texts.items() if name not in types}
        found |= {name: of_arrow(texts[name] if kind == "text" else _known(texts[name])) for name, kind in types.items() if name in texts}
        found = {name: found[name] for name in texts}
    elif source.kind == "parquet":
        import pyarrow.parquet as pq

        with _told(source):
            table = pq.read_table(source.path, columns=list(names), partitioning=None)
            found = {name: of_arrow(table.column(name)) for name in names}
    elif source.kind == "duckdb":
        with _rows(source, _select(source, names)) as (_, relation):
            table = relation.to_arrow_table()
            found = {name: of_arrow(table.column(name)) for name in names}
    else:
        blocks: dict[str, list[Column]] = {name: [] for name in names}
        with _rows(source, _select(source, names)) as (_, cursor):
            while rows := cursor.fetchmany(BLOCK):
                for name, cells in zip(names, zip(*rows, strict=True), strict=True):
                    blocks[name].append(of_objects(cells))
        found = {name: concatenate(parts) if parts else of_objects([]) for name, parts in blocks.items()}
    for name in types.keys() & found.keys():
        try:
            found[name] = as_type(found[name], types[name])
        except Wrong as wrong:
            raise DataError(f"{place(source, wrong.row)}, column {name}: {wrong.reason}") from None
    return found


def place(source: Source, row: int) -> str:
    """How a message names row number `row`: a CSV's line; a database's rows have no numbers."""
    if source.kind == "csv":
        return f"{source}, line {_line(source, row)}"
    return f"{source}, row {row}" if source.kind == "parquet" else str(source)


def stamp(source: Source) -> str | None:
    """sha256 of the file; None for a server."""
    if source.path is None:
        return None
    with _told(source), source.path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# --- databases --------------------------------------------------------------------------------------------------------------


def _select(source: Source, names: Sequence[str] | None) -> str:
    """The SELECT for columns `names`; None: for no row of any, to learn their names."""
    chosen = "*" if names is None else ", ".join(map(_quoted, names))
    if source.query:
        whence = f"({source.query.strip().rstrip(';')}) AS part"
    else:
        whence = ".".join(map(_quoted, (source.table or "").split(".")))
    return f"SELECT {chosen} FROM {whence}" + (" LIMIT 0" if names is None else "")


def _quoted(name: str) -> str:
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


@contextlib.contextmanager
def _rows(source: Source, statement: str) -> Iterator[tuple[list[str], Any]]:
    """(names of the columns, cursor; DuckDB: relation) of a statement, on a connection of its own that ends with the block."""
    with _told(source), contextlib.closing(_connect(source)) as connection:
        if source.kind == "duckdb":
            relation = connection.sql(statement)
            yield list(relation.columns), relation
            return
        # PostgreSQL's cursor with a name stays at the server: the rows come in blocks.
        cursor = connection.cursor(name="vflbench") if source.kind == "postgresql" else connection.cursor()
        with contextlib.closing(cursor):
            cursor.execute(statement)
            yield [column[0] for column in cursor.description], cursor


def _connect(source: Source) -> Any:
    if source.kind == "sqlite":
        import sqlite3

        assert source.path is not None
        database = sqlite3.connect(f"{source.path.absolute().as_uri()}?mode=ro", uri=True)
        pages, size = (database.execute(f"PRAGMA page_{what}").fetchone()[0] for what in ("count", "size"))
        logged = source.path.with_name(f"{source.path.name}-wal").exists()  # pages that are not yet in the file itself
        if source.path.stat().st_size < pages * size and not logged:  # SQLite would read what is missing as NULL
            database.close()
            raise OSError("cut short; get the file again")
        return database
    if source.kind == "duckdb":
        import duckdb

        return duckdb.connect(str(source.path), read_only=True)
    import psycopg

    extra = {} if "connect_timeout=" in source.url else {"connect_timeout": "10"}
    connection = psycopg.connect(source.url, password=_password(source), application_name="vflbench", **extra)  # type: ignore[arg-type]
    connection.read_only = True
    return connection


def _password(source: Source) -> str | None:
    return os.environ.get(source.password_env) if source.password_env else None


@contextlib.contextmanager
def _told(source: Source) -> Iterator[None]:
    """Errors of files and drivers as a DataError that names the source, and no password."""
    import sqlite3

    import pyarrow as pa

    failures: tuple[type[Exception], ...] = (OSError, EOFError, zlib.error, sqlite3.Error, pa.ArrowException, ImportError)
    with contextlib.suppress(ImportError):
        if source.kind == "postgresql":
            import psycopg

            failures = (*failures, psycopg.Error)
        elif source.kind == "duckdb":
            import duckdb

            failures = (*failures, duckdb.Error)
    try:
        yield
    except failures as error:
        reason = " ".join(str(error).split())
        if isinstance(error, OSError) and error.strerror:
            reason = error.strerror
        hint = ""
        if source.kind == "postgresql" and ("password" in reason or "authentication" in reason):
            variable = f"the password in {source.password_env}" if source.password_env else "name the password's variable as password_env"
            hint = f". Check the user, and {variable}"
        if password := _password(source):
            reason = reason.replace(password, "***")
        raise DataError(f"{source}: cannot be read ({reason.rstrip('.')}){hint}") from None


# --- CSV --------------------------------------------------------------------------------------------------------------------


def _opened(source: Source, mode: str, **how: Any) -> Any:
    assert source.path is not None
    return (gzip.open if source.path.suffix == ".gz" else open)(source.path, mode, **how)


def _csv_records(source: Source) -> Iterator[tuple[int, list[str]]]:
    """(line where it begins, cells) of every record but blank ones, by the slow reader that knows its lines."""
    import csv

    csv.field_size_limit(2**31 - 1)  # a review may be long
    with _opened(source, "rt", encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, delimiter=SEPARATORS[_suffix(source.url)], strict=True)
        begins = 1
        try:
            for cells in reader:
                if cells:
                    yield begins, cells
                begins = reader.line_num + 1
        except csv.Error as error:
            raise DataError(f"{source}, line {begins}: malformed, a quotation mark may lack its partner ({error})") from None
        except UnicodeDecodeError:  # the decoder reads ahead: the lines are counted up to the byte itself
            raise DataError(f"{source}, line {_line_of_byte(source)}: not UTF-8 text; convert the file") from None


def _line_of_byte(source: Source) -> int:
    with _opened(source, "rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError:
                return number
    return 1


def _csv_header(source: Source) -> list[str]:
    with _told(source):
        header = next((cells for _, cells in _csv_records(source)), None)
    if header is None:
        raise DataError(f"{source}: empty, without even a line of column names")
    return _distinct(header, source)


def _line(source: Source, row: int) -> int:
    """The line at which data row `row` begins."""
    return next(line for number, (line, _) in enumerate(_csv_records(source)) if number == row + 1)


def _read_csv(source: Source, names: Sequence[str]) -> dict[str, Any]:
    """Columns of an Arrow table, all of text: pyarrow would guess types from the first megabyte."""
    import pyarrow as pa
    import pyarrow.csv as pc

    with _told(source):
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
                    quoted_strings_can_be_null=False,
                ),
            )
        except pa.ArrowInvalid:
            _complain_of_csv(source)
            raise
    return {name: table.column(name) for name in names}


def _complain_of_csv(source: Source) -> None:
    """Raise the DataError that names the malformed line, if the slow reader finds one."""
    width = len(_csv_header(source))
    for line, cells in _csv_records(source):
        if len(cells) != width:
            raise DataError(f"{source}, line {line}: {len(cells)} cells, but there are {width} columns")
