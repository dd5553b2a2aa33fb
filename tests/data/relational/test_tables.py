"""Standardisation: what it refuses, naming table, column and row, and what it gives."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from vflbench.data.divide.raw_tables import RawTable, RawTables, kept, standardize
from vflbench.data.tasks import Equality
from vflbench.types import DataError


def table(values: np.ndarray) -> RawTable:
    return RawTable("users", {"id": np.arange(len(values))}, values, ("age", "income"))


@pytest.mark.parametrize("value", [np.inf, -np.inf])
@pytest.mark.parametrize("row", [1, 5])  # one to fit on, and one held out
def test_an_infinite_value_is_named(value: float, row: int) -> None:
    values = np.ones((6, 2), np.float32)
    values[row, 1] = value
    values[2, 1] = np.nan  # missing, not wrong
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(DataError, match=rf"table users, column income, row {row}: {value} is not a finite number"):
            standardize(table(values), np.arange(4))


def test_a_column_too_large_to_square_is_named() -> None:
    values = np.ones((4, 2))
    values[3, 0] = 1e200
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(DataError, match=r"table users, column age, row 3: 1e\+200 is too large a number"):
            standardize(table(values))


def test_missing_values_become_the_mean_and_constant_columns_zero() -> None:
    """Fitted on rows 0 to 2 of 1, 3, missing: mean 2, standard deviation 1; the held-out 5 is 3 deviations above."""
    values = np.array([[1, 7], [3, 7], [np.nan, 7], [5, 7]], np.float32)
    np.testing.assert_array_equal(standardize(table(values), np.arange(3)), [[-1, 0], [1, 0], [0, 0], [3, 0]])


def test_kept_tables_are_made_once_and_found_as_they_were() -> None:
    ratings = RawTable("ratings", {"user": np.array([2, 1, 2])}, np.arange(3, dtype=np.float32)[:, None], ("time",))
    users = RawTable(
        "users", {"user": np.array([1, 2])}, np.array([[1, np.nan], [2, 3]], np.float32), ("age", "income")
    )
    joins = (Equality(("ratings", "user"), ("users", "user")),)
    made = RawTables((ratings, users), "ratings", np.array([4.0, 5, 1]), 0, joins)
    splits = {"train": np.array([0, 1]), "val": np.array([], np.int64), "test": np.array([2])}
    calls = []

    def make() -> tuple[RawTables, dict[str, np.ndarray]]:
        calls.append(1)
        return made, splits

    for _ in range(2):
        raw, rows = kept("some", make, 7)
        assert (raw.label_table, raw.classes, raw.joins) == ("ratings", 0, joins)
        np.testing.assert_array_equal(raw.labels, made.labels, strict=True)
        for table_, other in zip(raw.tables, made.tables, strict=True):
            assert (table_.name, table_.columns, list(table_.keys)) == (other.name, other.columns, list(other.keys))
            np.testing.assert_array_equal(table_.features, other.features, strict=True)
            np.testing.assert_array_equal(table_.keys["user"], other.keys["user"], strict=True)
        assert {name: found.tolist() for name, found in rows.items()} == {"train": [0, 1], "val": [], "test": [2]}
    assert len(calls) == 1
    kept("some", make, 8)
    assert len(calls) == 2, "made of something else"
