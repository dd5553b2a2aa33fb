"""A query that is no query: it writes nothing, reads nothing but its own database, and comes to an end. On real
databases."""

import contextlib
import math
import os
import signal
import sqlite3
from pathlib import Path

import duckdb
import psycopg
import pytest

from tests.data.relational.conftest import PASSWORD
from tests.every import few_fast
from vflbench.cards.data.readers import table_sources as table_sources_card
from vflbench.cards.data.relational.sql import Config
from vflbench.config import convert
from vflbench.data.readers import databases, table_sources
from vflbench.data.readers.table_sources import Source
from vflbench.types import DataError

DATABASES = ("duckdb", "sqlite", "postgresql")
ROWS = [(1, "x"), (2, "y")]
ENDLESS = {
    "duckdb": "SELECT count(*) AS id FROM range(100000000000) a, range(100000000000) b",
    "sqlite": "WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n) SELECT count(*) AS id FROM n",
    "postgresql": "WITH RECURSIVE n(id) AS (SELECT 1::bigint UNION ALL SELECT id + 1 FROM n) SELECT count(*) AS id "
    "FROM n",
}
# Each block of rows comes at once, and there is no last one.
TRICKLING = {
    "sqlite": "WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n) SELECT id FROM n",
    "postgresql": "SELECT g AS id FROM generate_series(1, 1000000000000) g",
}


@pytest.fixture
def make(here, request, monkeypatch):
    """A function: kind, query, timeout -> a Source of a database whose table t has the columns id and name."""

    def made(kind, query, timeout=table_sources_card.QUERY_TIMEOUT):
        if kind == "postgresql":
            server = request.getfixturevalue("server")
            monkeypatch.setenv("SHOP_PASSWORD", PASSWORD)
            with server.connect() as connection:
                connection.execute("DROP TABLE IF EXISTS t")
                connection.execute("CREATE TABLE t (id integer, name text)")
                connection.execute("INSERT INTO t VALUES (1, 'x'), (2, 'y')")
            return Source(server.url, None, query, "SHOP_PASSWORD", timeout)
        Path(f"t.{kind}").unlink(missing_ok=True)
        if kind == "duckdb":
            with duckdb.connect("t.duckdb") as connection:
                connection.execute("CREATE TABLE t (id integer, name text)")
                connection.executemany("INSERT INTO t VALUES (?, ?)", ROWS)
        else:
            with contextlib.closing(sqlite3.connect("t.sqlite")) as connection:
                connection.execute("CREATE TABLE t (id integer, name text)")
                connection.executemany("INSERT INTO t VALUES (?, ?)", ROWS)
                connection.commit()
        return Source(f"{kind}:///t.{kind}", None, query, None, timeout)

    return made


def whole(source):
    """Rows of the columns id and name of table t, whatever the source's query is."""
    found = table_sources.read(Source(source.url, "t", None, source.password_env), ["id", "name"], {})
    return sorted(zip(found["id"].values.tolist(), found["name"].values.tolist(), strict=True))


@pytest.mark.parametrize("kind", ["duckdb", "postgresql"])
def test_two_columns_of_one_name_are_refused(make, kind):
    with pytest.raises(DataError, match="several columns are called id; give each a name of its own"):
        table_sources.columns(make(kind, "SELECT id, name, id FROM t"))


@pytest.mark.parametrize("kind", few_fast(DATABASES))
@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM t",
        "  SELECT * FROM t ;\n",
        "SELECT * FROM t -- all of it",
        "/* all */ SELECT name, id FROM t ORDER BY 1",
        "WITH part AS (SELECT id, name FROM t) SELECT * FROM part",
        "SELECT column1 AS id, column2 AS name FROM (VALUES (1, 'x'), (2, 'y')) AS v(column1, column2)",
        "SELECT a.id, max(b.name) AS name FROM t a JOIN t b ON a.id = b.id GROUP BY a.id",
        "SELECT id, ';--' AS odd, name FROM t",
    ],
)
def test_a_query_is_any_one_select(make, kind, query):
    if kind == "sqlite" and "v(column1" in query:
        query = "SELECT column1 AS id, column2 AS name FROM (VALUES (1, 'x'), (2, 'y'))"
    source = make(kind, query)
    assert {"id", "name"} <= set(table_sources.columns(source))
    found = table_sources.read(source, ["id", "name"], {})
    assert sorted(zip(found["id"].values.tolist(), found["name"].values.tolist(), strict=True)) == ROWS


@pytest.mark.parametrize(
    "kind", ["duckdb", *(pytest.param(kind, marks=pytest.mark.slow) for kind in DATABASES if kind != "duckdb")]
)
@pytest.mark.parametrize(
    "query",
    few_fast(
        [
            "SELECT * FROM t) AS part; COPY (SELECT 1) TO 'written.csv'; SELECT * FROM (SELECT * FROM t",
            "SELECT * FROM t) AS part; DROP TABLE t; SELECT * FROM (SELECT 1",
            "SELECT * FROM t) AS one, (SELECT * FROM t",
            "SELECT * FROM t; DROP TABLE t",
            "SELECT * FROM t; SELECT * FROM t",
            "SELECT 1; COMMIT; BEGIN; DROP TABLE t; SELECT * FROM t",
            "SELECT 1; ROLLBACK; SET default_transaction_read_only = off; DROP TABLE t",
            "DROP TABLE t",
            "DELETE FROM t",
            "DELETE FROM t RETURNING id, name",
            "INSERT INTO t VALUES (3, 'z')",
            "UPDATE t SET name = 'z' RETURNING id, name",
            "WITH gone AS (DELETE FROM t RETURNING id, name) SELECT * FROM gone",
            "CREATE TABLE u AS SELECT * FROM t",
            "SELECT * INTO u FROM t",
            "COPY (SELECT 1) TO 'written.csv'",
            "COPY t TO PROGRAM 'touch written.csv'",
            "EXPORT DATABASE 'written.csv'",
            "VACUUM INTO 'written.csv'",
            "ATTACH 'written.csv' AS other",
            "ATTACH DATABASE 'written.csv' AS other",
            "INSTALL httpfs",
            "LOAD httpfs",
            "SET threads = 1",
            "PRAGMA journal_mode = WAL",
            "PRAGMA user_version = 7",
            "CALL pg_sleep(0)",
            "EXPLAIN SELECT * FROM t",
            "EXPLAIN ANALYZE DELETE FROM t",
            "",
            " ; ",
            "-- nothing",
            "SELECT * FROM t /*",
            "SELECT '",
            "SELECT \0 1",
        ],
        12,
    ),
)
def test_whatever_is_no_single_select_is_refused_and_changes_nothing(make, kind, query):
    source = make(kind, query)
    with pytest.raises(DataError) as error:
        table_sources.read(source, ["id", "name"], {})
    assert str(error.value).startswith(f"{source}: cannot be read (") and PASSWORD not in str(error.value)
    if query.strip():
        assert "A query is one SELECT, which reads this database and nothing else" in str(error.value)
    assert whole(source) == ROWS
    assert not Path("written.csv").exists() and {path.suffix for path in Path().iterdir()} <= {f".{kind}"}


@pytest.mark.parametrize(
    "query",
    few_fast(
        [
            "SELECT * FROM read_csv('secret.csv')",
            "SELECT * FROM 'secret.csv'",
            "SELECT content AS id FROM read_text('secret.csv')",
            "SELECT content AS id FROM read_blob('secret.csv')",
            "SELECT file AS id FROM glob('*')",
            "SELECT * FROM read_duckdb('other.duckdb')",
            "SELECT * FROM behind",  # a view of the database's own
            "SELECT * FROM (SELECT * FROM query('FROM ''secret.csv'''))",
        ],
        3,
    ),
)
def test_duckdb_reads_no_other_file(make, query):
    source = make("duckdb", query)
    Path("secret.csv").write_text("id,name\n7,secret\n")
    with duckdb.connect("other.duckdb") as other:
        other.execute("CREATE TABLE t AS SELECT 7 AS id, 'secret' AS name")
    with duckdb.connect("t.duckdb") as own:
        own.execute("CREATE VIEW behind AS SELECT * FROM read_csv('secret.csv')")
    with pytest.raises(
        DataError, match=r"t\.duckdb, query: cannot be read \(Permission Error: Cannot access file"
    ) as error:
        table_sources.columns(source)
    assert "secret," not in str(error.value)


def test_duckdb_reads_no_variable_of_ours(make):
    """DuckDB takes a name that is no table for a variable of the Python that asks: `names` is one of `rows`."""
    for query in ("SELECT * FROM names", "SELECT * FROM table_of_ours"):
        with pytest.raises(DataError, match=r"does not exist"):
            table_sources.read(make("duckdb", query), ["id"], {})


def test_the_tables_that_sqlite_makes_itself_are_read(make):
    source = make("sqlite", "SELECT rowid AS id, body AS name FROM notes('hello')")
    with contextlib.closing(sqlite3.connect("t.sqlite")) as connection:
        connection.execute("CREATE VIRTUAL TABLE notes USING fts5(body)")
        connection.execute("INSERT INTO notes VALUES ('hello there')")
        connection.commit()
    assert table_sources.read(source, ["name"], {})["name"].values.tolist() == ["hello there"]
    source = make("sqlite", "SELECT key AS id, value AS name FROM json_each('[\"x\"]')")
    assert table_sources.read(source, ["name"], {})["name"].values.tolist() == ["x"]


def test_sqlite_loads_no_library(make):
    with pytest.raises(DataError, match=r"query: cannot be read \(not authorized\)"):
        table_sources.read(make("sqlite", "SELECT load_extension('written.so') AS id"), ["id"], {})


@pytest.mark.parametrize("kind", DATABASES)
def test_names_are_names_whatever_they_are(make, kind):
    """Columns and a table whose names would be commands."""
    table, column = 'a"; DROP TABLE t; --', 'b" FROM t; DROP TABLE t; --'
    source = make(kind, None)
    statement = "CREATE TABLE {} AS SELECT 7 AS {}".format(
        *('"' + name.replace('"', '""') + '"' for name in (table, column))
    )
    if kind == "postgresql":
        with psycopg.connect(source.url, password=PASSWORD, autocommit=True) as connection:
            connection.execute('DROP TABLE IF EXISTS "a""; DROP TABLE t; --"')
            connection.execute(statement)
    elif kind == "duckdb":
        with duckdb.connect("t.duckdb") as connection:
            connection.execute(statement)
    else:
        with contextlib.closing(sqlite3.connect("t.sqlite")) as connection:
            connection.execute(statement)
            connection.commit()
    own = Source(source.url, table, None, source.password_env)
    assert table_sources.columns(own) == [column]
    assert table_sources.read(own, [column], {})[column].values.tolist() == [7]
    assert whole(source) == ROWS


# --- the time limit ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kind", DATABASES)
def test_an_endless_query_ends_and_is_named(make, kind):
    source = make(kind, ENDLESS[kind], 0.4)
    assert table_sources.columns(source) == ["id"]  # asks for no row
    with pytest.raises(DataError) as error:
        table_sources.read(source, ["id"], {})
    wanted = f"{source}: reading took longer than dataset.query_timeout=0.4 seconds; raise it, or ask for less"
    assert str(error.value) == wanted
    assert whole(source) == ROWS


def test_a_server_that_ends_an_endless_query_before_we_do_is_told_alike(make, monkeypatch):
    source = make("postgresql", ENDLESS["postgresql"], 0.4)

    def too_late(_: int) -> int:
        raise OSError

    monkeypatch.setattr(databases.os, "dup", too_late)
    with pytest.raises(DataError, match=r"took longer than dataset.query_timeout=0.4 seconds"):
        table_sources.read(source, ["id"], {})


@pytest.mark.parametrize("kind", TRICKLING)
def test_rows_without_end_end_too(make, kind, monkeypatch):
    monkeypatch.setattr(table_sources, "BLOCK", 100)
    with pytest.raises(DataError, match=r"query: reading took longer than dataset\.query_timeout=0\.4 seconds"):
        table_sources.read(make(kind, TRICKLING[kind], 0.4), ["id"], {})


def test_a_postgresql_server_that_hangs(make, server):
    """It takes what is sent, and never answers."""
    source = make("postgresql", "SELECT * FROM t", 0.5)
    with (
        pytest.raises(DataError, match=r"reading took longer than dataset\.query_timeout=0\.5 seconds"),
        databases.rows(source, ["id"]) as (
            _,
            cursor,
        ),
    ):
        own = cursor.connection.info.backend_pid
        os.kill(own, signal.SIGSTOP)
        try:
            cursor.fetchmany(10)
        finally:
            os.kill(own, signal.SIGCONT)


def test_the_server_gives_up_with_us_and_its_own_shorter_time_holds(make, server):
    def told(source):
        with databases.rows(source, ["timeout"]) as (_, cursor):
            return cursor.fetchone()[0]

    query = "SELECT current_setting('statement_timeout') || ' ' || current_setting('transaction_read_only') AS timeout"
    assert told(make("postgresql", query, 30.0)) == "30s on"
    with server.connect() as connection:
        connection.execute("ALTER ROLE owner SET statement_timeout = '5s'")
    try:
        assert told(make("postgresql", query, 30.0)) == "5s on"
        assert told(make("postgresql", query, 2.0)) == "2s on"
    finally:
        with server.connect() as connection:
            connection.execute("ALTER ROLE owner RESET statement_timeout")


@pytest.mark.parametrize("query", ["SELECT set_config('statement_timeout', '0', false) AS id, pg_sleep(60) AS name"])
def test_a_query_cannot_take_the_limit_back(make, query):
    with pytest.raises(DataError, match=r"reading took longer than"):
        table_sources.read(make("postgresql", query, 0.4), ["id", "name"], {})


@pytest.mark.parametrize("value", [0, -1, math.inf, math.nan, 1e7])
def test_the_limit_is_some_seconds(value):
    _, problems = convert(Config, {"name": "sql", "query_timeout": value})
    assert [problem.key for problem in problems] == ["query_timeout"]
