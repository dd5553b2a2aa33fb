"""What sending data takes, worked by hand."""

import numpy as np
import pytest

from vflbench.cards.data.relational import star_schema as star_schema_card
from vflbench.data import shipping
from vflbench.data.relational import star_schema
from vflbench.data.shipping import Size

REAL = np.random.default_rng(0).normal(size=(600, 3)).astype(np.float32)


def test_numbers_without_a_smaller_form_are_sent_as_they_are_stored():
    assert shipping.rows(REAL) == Size(600 * 3 * 4, "float32", 600 * 3 * 4)
    assert shipping.rows(REAL.astype(np.float64)).bytes == 600 * 3 * 8


def test_at_most_256_values_are_a_byte_each_and_their_table():
    grey = np.random.default_rng(1).permutation(np.arange(2560) % 256).reshape(160, 4, 4).astype(np.float32) - 0.13
    assert shipping.rows(grey) == Size(2560 + 256 * 4, "bytes", 2560 * 4)
    grey[0, 0, 0] = 1000
    assert shipping.rows(grey).form == "float32"


def test_a_column_of_two_values_is_a_bit_each_and_a_constant_one_a_number():
    made = np.column_stack([REAL, np.arange(600) % 2 - 0.3, np.full(600, 7)]).astype(np.float32)
    found = shipping.rows(made[:, [0, 3, 4, 1]])
    # two columns of numbers; a bit for each of 600 rows and the two values; one number
    assert found.bytes == 2 * 600 * 4 + (75 + 2 * 4) + 4
    assert found.form == "1 columns constant and 1 columns as bits and 2 columns as float32"


@pytest.mark.parametrize(("value", "size"), [(1.0, 0), (2.0, 4)])
def test_few_numbers_that_are_not_0_are_sparse_rows(value, size):
    """A number of two bytes for each column, four bytes for where a row ends; values unless all are 1."""
    values = np.zeros((40, 300), np.float32)
    values[np.arange(40), np.arange(40) * 7] = value
    values[5, 3] = value
    values[6, 5] = 5.0 if value != 1 else 1.0
    assert shipping.rows(values) == Size(42 * 2 + 41 * 4 + 42 * size, "sparse rows", 40 * 300 * 4)


def test_a_missing_number_is_a_number():
    made = np.where(REAL > 0, np.nan, REAL)
    assert shipping.rows(made).bytes == made.nbytes


def test_ids_and_keys():
    assert shipping.ids(10, 65536).bytes == 20 and shipping.ids(10, 65537).bytes == 40
    assert shipping.keys(np.array([3, 200], np.int64)).bytes == 2
    assert shipping.keys(np.array([-3, 200], np.int64)).bytes == 4
    assert shipping.keys(np.array([-3, 2**40], np.int64)).bytes == 16
    assert shipping.keys(np.array(["a", "größe"], object)).bytes == 1 + 7 + 8
    assert shipping.keys(np.array([0.5, np.nan])).bytes == 16


def test_what_is_empty_takes_nothing():
    assert shipping.rows(REAL[:0]).bytes == 0
    assert shipping.together([]) == Size(0, "", 0)


def test_tables_take_the_same_whether_they_are_joined_before_or_not():
    tasks = [star_schema.load(star_schema_card.Config(), layout, 1, 0, None) for layout in ("relational", "aligned")]
    apart, joined = (shipping.together(list(task.shipped().values())) for task in tasks)
    assert apart == joined and 0 < joined.bytes < shipping.rows(np.hstack(tasks[1].features)).bytes
