"""SQLite, DuckDB and PostgreSQL, of which one SELECT is read, and nothing is written.

Whoever writes a configuration need not be the one who runs it, so a query is no command. It is one statement, a SELECT,
and reads its own database alone: a DuckDB has no access to files, other databases and extensions, a SQLite's authorizer
refuses all but reading, PostgreSQL has a read-only transaction. What functions a PostgreSQL server lets its user call
(pg_read_file, lo_export, dblink) is the server's to say: name a user that may only read.
"""

from __future__ import annotations

import contextlib
import importlib
import math
import os
import socket
import threading
import time
import zlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from vflbench.types import DataError

if TYPE_CHECKING:
    from vflbench.data.relational.sql_sources import Source

# Files, Python's own variables and whatever an extension reads would be tables too; nor can the query take any of this
# back.
WAL_AT = 18  # byte of a SQLite file that says by 2 that changes go to a log first
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
    """(names of the columns, cursor; DuckDB: relation) of the columns `names`, on a connection of its own that ends
    with the block.

    Parameters
    ----------
    names : None: of all, and no rows.

    Raises
    ------
    DataError : also a query that is no single SELECT, and one that takes longer than the source's timeout.
    """
    hint = _ONE_SELECT if source.query else ""
    select = _select(source, names) + (" LIMIT 0" if names is None else "")
    with named_errors(source), contextlib.closing(_connect(source)) as connection, _limited(source, connection):
        with named_errors(source, hint):
            if source.query:
                _check_query(source, connection)
            if source.query and names is None and source.kind == "duckdb":
                select = source.query  # as a part of another, columns of one name would be given others
            cursor = connection.sql(select) if source.kind == "duckdb" else _cursor(source, connection).execute(select)
        yield [column[0] for column in cursor.description], cursor


def _cursor(source: Source, connection: Any) -> Any:
    """PostgreSQL's cursor with a name stays at the server: rows come in blocks, and it takes nothing but one SELECT."""
    return connection.cursor(name="vflbench") if source.kind == "postgresql" else connection.cursor()


def _check_query(source: Source, connection: Any) -> None:
    """That the query by itself is one statement that reads, before it becomes a part of another; the driver's error if
    not."""
    if source.kind == "duckdb":
        kinds = [statement.type.name for statement in connection.extract_statements(source.query)]
        if kinds != ["SELECT"]:
            raise DataError(f"{source}: cannot be read (the query is {' and '.join(kinds) or 'empty'}){_ONE_SELECT}")
        return
    with contextlib.closing(_cursor(source, connection)) as cursor:
        cursor.execute(source.query if source.kind == "postgresql" else f"EXPLAIN {source.query}")


def _select(source: Source, names: Sequence[str] | None) -> str:
    """The SELECT for columns `names`; None: of all."""
    whence = ".".join(map(_quoted, (source.table or "").split(".")))
    if source.query:
        whence = f"(\n{source.query.strip().rstrip(';')}\n) AS part"  # a comment may end its last line
    return f"SELECT {'*' if names is None else ', '.join(map(_quoted, names))} FROM {whence}"


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

    extra = {} if "connect_timeout=" in source.url else {"connect_timeout": "10"}
    connection = psycopg.connect(source.url, password=password(source), application_name="vflbench", **extra)  # type: ignore[arg-type]
    connection.read_only = True
    # The server gives up with us, also where it does not notice that we have; a shorter time of its own holds.
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
        # nobody has it open, and to read it as it is SQLite would begin a log beside it
        closed = file.read(1) == b"\2" and not logged
    database = sqlite3.connect(f"{source.path.absolute().as_uri()}?mode=ro{'&immutable=1' if closed else ''}", uri=True)
    pages, size = (database.execute(f"PRAGMA page_{what}").fetchone()[0] for what in ("count", "size"))
    if source.path.stat().st_size < pages * size and not logged:  # SQLite would read what is missing as NULL
        database.close()
        raise OSError("cut short; get the file again")
    database.execute("PRAGMA query_only = ON")
    # the file's own views and triggers call no function with side effects
    database.execute("PRAGMA trusted_schema = OFF")
    reading = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
    # How SQLite's own tables, as json_each and full text search, are opened; sqlite_master cannot be written all the
    # same.
    opening = {(sqlite3.SQLITE_UPDATE, "sqlite_master"), (sqlite3.SQLITE_PRAGMA, "data_version")}

    def allowed(action: int, what: str | None, *_: str | None) -> int:
        return sqlite3.SQLITE_OK if action in reading or (action, what) in opening else sqlite3.SQLITE_DENY

    database.set_authorizer(allowed)
    return database


def password(source: Source) -> str | None:
    """Of a server's user."""
    return os.environ.get(source.password_env) if source.password_env else None


@contextlib.contextmanager
def _limited(source: Source, connection: Any) -> Iterator[None]:
    """Ends what the block does on `connection` after the source's timeout, with a DataError that says so."""
    done, begun = threading.Event(), time.monotonic()

    def watch() -> None:
        if done.wait(source.timeout):
            return
        while not done.is_set():  # again, where one came between two statements
            with contextlib.suppress(*_failures(source)):
                if source.kind == "postgresql":  # a server that hangs would not hear of a cancelling either
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
        if time.monotonic() - begun >= source.timeout:  # whoever ended it: a server with the same limit may be first
            much = f"reading took longer than dataset.query_timeout={source.timeout:g} seconds"
            raise DataError(f"{source}: {much}; raise it, or ask for less") from None
        raise
    finally:
        done.set()
        watcher.join()


# --- what is said -----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def named_errors(source: Source, hint: str = "") -> Iterator[None]:
    """Errors of files and drivers as a DataError that names the source, and no password; `hint`: what is allowed."""
    try:
        yield
    except _failures(source) as error:
        reason = " ".join(str(error).split())
        if isinstance(error, OSError) and error.strerror:
            reason = error.strerror
        if source.kind == "postgresql" and ("password" in reason or "authentication" in reason):
            variable = (
                f"the password in {source.password_env}"
                if source.password_env
                else "name the password's variable as password_env"
            )
            hint = f". Check the user, and {variable}"
        if secret := password(source):
            reason = reason.replace(secret, "***")
        raise DataError(f"{source}: cannot be read ({reason.rstrip('.')}){hint}") from None


def _failures(source: Source) -> tuple[type[Exception], ...]:
    """What reading a source can raise that is no mistake of ours."""
    import sqlite3

    import pyarrow as pa

    failures: tuple[type[Exception], ...] = (
        OSError,
        EOFError,
        zlib.error,
        sqlite3.Error,
        pa.ArrowException,
        ImportError,
    )
    driver = {"postgresql": "psycopg", "duckdb": "duckdb"}.get(source.kind)
    with contextlib.suppress(ImportError):
        failures = (*failures, importlib.import_module(driver).Error) if driver else failures
    return failures
