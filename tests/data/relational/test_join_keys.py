"""Keys on which tables of dataset=sql are joined: exact or refused, and compared in one writing."""

import contextlib
import sqlite3
import unicodedata
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.every import few_fast
from vflbench.cards.data.relational.sql import Config, Table
from vflbench.data.relational.sql import load
from vflbench.types import DataError

N = 30


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(frame: pd.DataFrame, kind: str, name: str) -> dict[str, str]:
    if kind in ("sqlite", "duckdb"):
        url = {"url": f"{kind}:///{name}.{kind}", "table": "t"}
        if kind == "sqlite":
            with contextlib.closing(sqlite3.connect(f"{name}.{kind}")) as connection:
                frame.to_sql("t", connection, index=False)
        else:
            import duckdb

            with duckdb.connect(f"{name}.{kind}") as connection:
                connection.execute("CREATE TABLE t AS SELECT * FROM frame")
        return url
    getattr(frame, f"to_{kind}")(f"{name}.{kind}", index=False)
    return {"url": f"{name}.{kind}"}


def joined(left, right, kind="csv", **types) -> int:
    """How many rows the join has."""
    one = pd.DataFrame({"k": left, "x": np.arange(len(left)) / 7, "y": np.arange(len(left)) % 5.0})
    other = pd.DataFrame({"k": right, "z": np.arange(len(right)) / 3})
    tables = {"left": Table(**write(one, kind, "left"), label="y", types=types)}
    tables["right"] = Table(**write(other, kind, "right"), types=types)
    task = load(Config(tables=tables, joins=["left.k = right.k"]), "aligned", 2, 0, None)
    return len(task.labels) + sum(map(len, task.held_out_labels.values()))


BIG = [2**53 + i for i in range(N)]


@pytest.mark.parametrize("kind", few_fast(["csv", "parquet", "sqlite", "duckdb"]))
@pytest.mark.parametrize("types", [{}, {"k": "text"}])
def test_rounded_keys_are_refused_in_every_source(here, kind, types):
    assert joined(BIG, BIG[::-1], kind, **types) == N
    for file in here.iterdir():
        file.unlink()
    with pytest.raises(DataError, match=r"right\..*column k: .*(rounded|scientific notation)"):
        joined(BIG, [float(cell) for cell in BIG], kind, **types)


def test_a_key_of_more_digits_than_the_others_stays_exact(here):
    assert joined([*range(1, N), 2**64 + 1], [*range(1, N), 2**64 + 2]) == N - 1


def test_a_spreadsheets_writing_of_long_numbers_is_refused(here):
    with pytest.raises(DataError, match=r"right\.csv, line 2, column k: '1\.23457E\+15' is in scientific notation"):
        joined(range(N), ["1.23457E+15", *range(1, N)])
    with pytest.raises(DataError, match=r"line 5, column k: .*scientific notation"):
        joined(range(N), [*range(3), "2e3"], k="number")


def test_texts_that_look_alike_are_one_key(here):
    names = [f"Müller{i}" for i in range(N)]
    assert joined(names, [f"\ufeff{unicodedata.normalize('NFD', name)} " for name in names]) == N
    assert joined(range(1000, 1000 + N), [f"'{i:,}" for i in range(1000, 1000 + N)]) == N
    with pytest.raises(
        DataError, match=r"left\.csv, line 32, column k: 'Müller2' \(U\+00FC\) and .*U\+0308.*write them"
    ):
        joined([*names, unicodedata.normalize("NFD", names[2])], names)


def test_similar_keys_are_named_and_not_joined(here, caplog):
    assert joined([f"A{i}" for i in range(N)], [f"a{i}" if i < 4 else f"A{i}" for i in range(N)]) == N - 4
    assert (
        "4 keys of left.k and right.k differ only in blanks, capitals" in caplog.text and "'A0' and 'a0'" in caplog.text
    )
