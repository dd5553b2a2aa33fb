"""SQLite, DuckDB and PostgreSQL: one SELECT is read, and nothing is written.

The author of a configuration may not be its user. So a query must do no harm: it is a single SELECT and reads its own
database alone. DuckDB gets no access to files, other databases and extensions. SQLite's authorizer refuses all but
reading. PostgreSQL has a read-only transaction. But the server decides which functions its user may call (pg_read_file,
lo_export, dblink): name a user that may only read.
"""

from __future__ import annotations

import contextlib
import importlib
import math
import os
import socket
import threading
import time
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from vflbench.types import DataError

if TYPE_CHECKING:
    from vflbench.data.readers.table_sources import Source

WAL_AT = 18  # byte of a SQLite file: 2 means that changes go to a log first
# Otherwise a query could read files, Python variables and extensions as tables. It cannot change these settings.
_DUCKDB: dict[str, str | bool | int | float | list[str]] = {
    "enable_external_access": False,
    "python_enable_replacements": False,
    "autoload_known_extensions": False,
    "autoinstall_known_extensions": False,
    "lock_configuration": True,
}
_ONE_SELECT = ". A query is one SELECT, which reads this database and nothing else"


@contextlib.contextmanager
def rows(source: Source, names: Sequence[str] | None) -> Iterator[tuple[list[str], Any]]:
    """Read the columns `names` over a connection of its own, which ends with the block.

    Parameters
    ----------
    names : None: the names of all columns, and no rows.

    Returns
    -------
    names of the columns, and a cursor (DuckDB: a relation).

    Raises
    ------
    DataError : it cannot be read; the query is no single SELECT, or takes longer than the source's timeout.
    """
    hint = _ONE_SELECT if source.query else ""
    select = _select(source, names) + (" LIMIT 0" if names is None else "")
    with named_errors(source), contextlib.closing(_connect(source)) as connection, _limited(source, connection):
        with named_errors(source, hint):
            if source.query:
                _check_query(source, connection)
            if source.query and names is None and source.kind == "duckdb":
                select = source.query  # in a subquery, DuckDB would rename columns of one name
            cursor = connection.sql(select) if source.kind == "duckdb" else _cursor(source, connection).execute(select)
        yield [column[0] for column in cursor.description], cursor


def _cursor(source: Source, connection: Any) -> Any:
    """A cursor. PostgreSQL keeps one with a name at the server: it sends rows in blocks and takes only one SELECT."""
    return connection.cursor(name="vflbench") if source.kind == "postgresql" else connection.cursor()


def _check_query(source: Source, connection: Any) -> None:
    """Check that the query by itself is one statement that reads, before it becomes a subquery.

    Raises
    ------
    DataError, or the driver's error : it is not.
    """
    if source.kind == "duckdb":
        kinds = [statement.type.name for statement in connection.extract_statements(source.query)]
        if kinds != ["SELECT"]:
            raise DataError(f"{source}: cannot be read (the query is {' and '.join(kinds) or 'empty'}){_ONE_SELECT}")
        return
    with contextlib.closing(_cursor(source, connection)) as cursor:
        cursor.execute(source.query if source.kind == "postgresql" else f"EXPLAIN {source.query}")


def _select(source: Source, names: Sequence[str] | None) -> str:
    """The SELECT of the columns `names`, or of all columns."""
    table = ".".join(map(_quoted, (source.table or "").split(".")))
    if source.query:
        table = f"(\n{source.query.strip().rstrip(';')}\n) AS part"  # its last line may end with a comment
    return f"SELECT {'*' if names is None else ', '.join(map(_quoted, names))} FROM {table}"


def _quoted(name: str) -> str:
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


# --- connections ------------------------------------------------------------------------------------------------------


def _connect(source: Source) -> Any:
    if source.kind == "sqlite":
        return _sqlite(source)
    if source.kind == "duckdb":
        import duckdb

        return duckdb.connect(str(source.path), read_only=True, config=_DUCKDB)
    import psycopg

    settings: dict[str, Any] = {} if "connect_timeout=" in source.url else {"connect_timeout": "10"}
    connection = psycopg.connect(source.url, password=password(source), application_name="vflbench", **settings)
    connection.read_only = True
    # The server gives up when we do, even if it does not notice that we have. A shorter limit of its own stays.
    limit = math.ceil(1000 * source.timeout)
    own = "(SELECT setting::bigint FROM pg_settings WHERE name = 'statement_timeout')"
    connection.execute(
        f"SELECT set_config('statement_timeout', '{limit}', false) WHERE {own} NOT BETWEEN 1 AND {limit}"
    )
    return connection


def _sqlite(source: Source) -> Any:
    import sqlite3

    assert source.path is not None
    logged = source.path.with_name(f"{source.path.name}-wal").exists()  # pages that are not yet in the file itself
    with source.path.open("rb") as file:
        file.seek(WAL_AT)
        # No program has it open. Without `immutable` SQLite would create a log file just to read it.
        closed = file.read(1) == b"\2" and not logged
    database = sqlite3.connect(f"{source.path.absolute().as_uri()}?mode=ro{'&immutable=1' if closed else ''}", uri=True)
    pages, size = (database.execute(f"PRAGMA page_{what}").fetchone()[0] for what in ("count", "size"))
    if source.path.stat().st_size < pages * size and not logged:  # SQLite would read what is missing as NULL
        database.close()
        raise OSError("cut short; get the file again")
    database.execute("PRAGMA query_only = ON")
    # so that the file's own views and triggers call no function with side effects
    database.execute("PRAGMA trusted_schema = OFF")
    reading = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
    # SQLite opens json_each, full text search and the like in this way. Still nothing can write to sqlite_master.
    opening = {(sqlite3.SQLITE_UPDATE, "sqlite_master"), (sqlite3.SQLITE_PRAGMA, "data_version")}

    def allowed(action: int, what: str | None, *_: str | None) -> int:
        return sqlite3.SQLITE_OK if action in reading or (action, what) in opening else sqlite3.SQLITE_DENY

    database.set_authorizer(allowed)
    return database


def password(source: Source) -> str | None:
    """The password of a server's user, from the environment."""
    return os.environ.get(source.password_env) if source.password_env else None


@contextlib.contextmanager
def _limited(source: Source, connection: Any) -> Iterator[None]:
    """Stop what the block does on `connection` after the source's timeout, with a DataError that says so."""
    done, begun = threading.Event(), time.monotonic()

    def watch() -> None:
        if done.wait(source.timeout):
            return
        while not done.is_set():  # again, as an interrupt between two statements has no effect
            with contextlib.suppress(*_failures(source)):
                if source.kind == "postgresql":  # a server that hangs would not react to a cancel request
                    with socket.socket(fileno=os.dup(connection.fileno())) as line:
                        line.shutdown(socket.SHUT_RDWR)
                else:
                    connection.interrupt()
            done.wait(0.1)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    except Exception:
        if time.monotonic() - begun >= source.timeout:  # also where a server with the same limit was first
            reason = f"reading took longer than dataset.query_timeout={source.timeout:g} seconds"
            raise DataError(f"{source}: {reason}; raise it, or ask for less") from None
        raise
    finally:
        done.set()
        watcher.join()


# --- errors -----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def named_errors(source: Source, hint: str = "") -> Iterator[None]:
    """Turn errors of files and drivers into a DataError that names the source but no password.

    Parameters
    ----------
    hint : what is allowed, for the end of the message.
    """
    try:
        yield
    except _failures(source) as error:
        reason = " ".join(str(error).split())
        if isinstance(error, OSError) and error.strerror:
            reason = error.strerror
        if source.kind == "postgresql" and ("password" in reason or "authentication" in reason):
            advice = f"the password in {source.password_env}"
            if not source.password_env:
                advice = "name the password's variable as password_env"
            hint = f". Check the user, and {advice}"
        if secret := password(source):
            reason = reason.replace(secret, "***")
        raise DataError(f"{source}: cannot be read ({reason.rstrip('.')}){hint}") from None


def _failures(source: Source) -> tuple[type[Exception], ...]:
    """The errors that reading a source can raise."""
    import sqlite3

    import pyarrow as pa

    failures: tuple[type[Exception], ...] = (
        OSError,
        EOFError,
        zlib.error,
        zipfile.BadZipFile,
        sqlite3.Error,
        pa.ArrowException,
        ImportError,
    )
    driver = {"postgresql": "psycopg", "duckdb": "duckdb"}.get(source.kind)
    with contextlib.suppress(ImportError):
        failures = (*failures, importlib.import_module(driver).Error) if driver else failures
    return failures
