"""The table mapping is SQL's inner join: against brute force on random tables, and what it refuses."""

from __future__ import annotations

import itertools
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from vflbench.data.tasks import Equality
from vflbench.data.tasks.join import hand_over, join, unite
from vflbench.types import DataError

Table = dict[str, list[Any]]


def mapped(
    tables: dict[str, Table], joins: list[Equality], how: str, cut: dict[str, int] | None = None
) -> list[tuple[int, ...]]:
    """Rows behind each joined row, by our join; `cut` divides a table into two parts there."""
    keys = {}
    for name, columns in tables.items():
        rows = len(next(iter(columns.values())))
        at = (cut or {}).get(name, rows)
        arrays = {c: np.array(v, dtype=object) for c, v in columns.items()}
        parts = [{c: v[:at] for c, v in arrays.items()}, {c: v[at:] for c, v in arrays.items()}]
        keys[name] = unite([hand_over(part, len(next(iter(part.values()))), how, name) for part in parts], name)
    found = join(keys, joins, next(iter(tables)))
    return list(zip(*(found[name].tolist() for name in tables), strict=True))


def brute(tables: dict[str, Table], joins: list[Equality]) -> list[tuple[int, ...]]:
    names = list(tables)
    sizes = [range(len(next(iter(tables[name].values())))) for name in names]

    def fulfils(rows: tuple[int, ...]) -> bool:
        at = dict(zip(names, rows, strict=True))
        pairs = [
            (tables[e.left[0]][e.left[1]][at[e.left[0]]], tables[e.right[0]][e.right[1]][at[e.right[0]]]) for e in joins
        ]
        return all(a is not None and b is not None and a == b for a, b in pairs)

    return [rows for rows in itertools.product(*sizes) if fulfils(rows)]


def columns(kind: st.SearchStrategy[Any], *names: str) -> st.SearchStrategy[Table]:
    row = st.tuples(*(st.one_of(st.none(), kind) for _ in names))
    return st.lists(row, min_size=1, max_size=7).map(
        lambda rows: {name: [r[i] for r in rows] for i, name in enumerate(names)}
    )


NUMBERS, TEXTS = st.integers(0, 3), st.sampled_from(["a", "b", "ä", "1"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "how"),
    [
        pytest.param(NUMBERS, "sha256", id="numbers-sha256"),
        pytest.param(TEXTS, "none", id="texts-none"),
        pytest.param(NUMBERS, "none", id="numbers-none", marks=pytest.mark.slow),
        pytest.param(TEXTS, "sha256", id="texts-sha256", marks=pytest.mark.slow),
    ],
)
def test_the_mapping_is_the_inner_join(how: str, kind: st.SearchStrategy[Any]) -> None:
    """Many to many, unmatched rows, NULLs, a composite key (two columns to `b`), a chain to `c`, and tables in two
    parts."""
    joins = [Equality(("a", "x"), ("b", "x")), Equality(("b", "y"), ("a", "y")), Equality(("c", "z"), ("b", "x"))]

    @settings(max_examples=60, deadline=None)
    @given(columns(kind, "x", "y"), columns(kind, "x", "y"), columns(kind, "z"), st.integers(0, 7))
    def check(a: Table, b: Table, c: Table, cut: int) -> None:
        tables = {"a": a, "b": b, "c": c}
        expected = brute(tables, joins)
        if not expected:
            with pytest.raises(DataError, match="the join is empty"):
                mapped(tables, joins, how)
            return
        assert sorted(mapped(tables, joins, how)) == sorted(expected)
        in_parts = mapped(tables, joins, how, cut={"a": min(cut, len(a["x"])), "c": min(cut, len(c["z"]))})
        assert sorted(in_parts) == sorted(expected)

    check()


def test_rows_come_in_the_order_of_the_label_table_then_of_the_others() -> None:
    found = mapped({"a": {"x": [2, 1, 2]}, "b": {"y": [2, 2, 1]}}, [Equality(("a", "x"), ("b", "y"))], "none")
    assert found == [(0, 0), (0, 1), (1, 2), (2, 0), (2, 1)]


@pytest.mark.parametrize("how", ["sha256", "none"])
def test_a_number_is_the_same_key_whatever_its_type(how: str) -> None:
    ints = np.array([1, 2, 3], dtype=np.int32)
    for other in (
        np.array([3, 1], np.int64),
        np.array([3.0, 1.0, np.nan], np.float32),
        np.array([3.0, 2.5, 1.0]),
        np.array([3, None, 1], object),
    ):
        keys = {"a": hand_over({"x": ints}, 3, how), "b": hand_over({"y": other}, len(other), how)}
        found = join(keys, [Equality(("a", "x"), ("b", "y"))], "a")
        assert [other[row] for row in found["b"]] == [1, 3]


@pytest.mark.parametrize("how", ["sha256", "none"])
def test_large_whole_floats_are_the_integers_they_are(how: str) -> None:
    ints, floats = np.array([2**60, 2**60 + 1, 7]), np.array([2.0**60, 7.0, 1e300])
    keys = {"a": hand_over({"x": ints}, 3, how), "b": hand_over({"y": floats}, 3, how)}
    found = join(keys, [Equality(("a", "x"), ("b", "y"))], "a")
    assert found["a"].tolist() == [0, 2] and found["b"].tolist() == [0, 1]


def test_dates_join_whatever_their_unit() -> None:
    days, seconds = np.array(["2020-01-02", "NaT"], "M8[D]"), np.array(["2020-01-02T00:00:00", "2020-01-03"], "M8[s]")
    keys = {"a": hand_over({"x": days}, 2, "sha256"), "b": hand_over({"y": seconds}, 2, "sha256")}
    found = join(keys, [Equality(("a", "x"), ("b", "y"))], "a")
    assert (found["a"].tolist(), found["b"].tolist()) == ([0], [0])


def refusal(a: Table, b: Table, *joins: Equality) -> str:
    with pytest.raises(DataError) as refused:
        mapped({"a": a, "b": b}, list(joins), "none")
    return str(refused.value)


def test_what_cannot_be_joined_is_said_with_table_and_column() -> None:
    xy = Equality(("a", "x"), ("b", "y"))
    assert "a.x is a number column and b.y a text column" in refusal({"x": [1]}, {"y": ["1"]}, xy)
    assert "the join is empty: no rows fulfil a.x = b.y" in refusal({"x": [1]}, {"y": [2]}, xy)
    assert "no key column 'z'" in refusal({"x": [1]}, {"y": [2]}, Equality(("a", "z"), ("b", "y")))
    assert "no join predicate connects b" in refusal({"x": [1]}, {"y": [2]})
    assert "table a, key column x" in refusal({"x": [1, "b"]}, {"y": [2]}, xy)


def test_a_hash_is_of_kind_and_value_and_nothing_else_is_handed_over() -> None:
    import hashlib

    keys = hand_over({"x": np.array([7, 7, 9])}, 3, "sha256")
    expected = np.frombuffer(hashlib.sha256(b"number:7").digest()[:8], dtype=np.int64)[0]
    assert keys.columns["x"][0] == keys.columns["x"][1] == expected != keys.columns["x"][2]
    assert keys.ids.tolist() == [0, 1, 2] and keys.columns["x"].dtype == np.int64
