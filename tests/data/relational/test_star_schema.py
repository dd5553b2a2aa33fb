from dataclasses import replace

import numpy as np
import pytest

from vflbench.cards.data.relational.star_schema import Config
from vflbench.config import convert
from vflbench.data.relational.star_schema import load, make
from vflbench.data.tasks.join import hand_over, join
from vflbench.types import ConfigError

SMALL = Config(rows=200, dimension_rows=64, width=3)


def joined(raw):
    return join({t.name: hand_over(t.keys, len(t.features), "none") for t in raw.tables}, raw.joins, raw.label_table)


@pytest.mark.parametrize("duplication", [1, 4, 16, 64])
def test_the_join_is_duplication_times_as_long_and_no_table_is(duplication):
    raw = make(replace(SMALL, duplication=duplication))
    assert [len(table.features) for table in raw.tables] == [200, 64, 64]
    rows = joined(raw)
    assert len(rows["facts"]) == 200 * duplication
    assert set(np.bincount(rows["facts"], minlength=200)) == {duplication}
    pairs = set(zip(rows["facts"].tolist(), rows["dimension_1"].tolist(), strict=True))
    assert len(pairs) == 200 * duplication, "another row of the first dimension each time"


def test_there_are_as_many_dimensions_as_asked_for_and_the_join_is_no_longer() -> None:
    task = load(replace(SMALL, dimensions=3), "relational", 1, 0, None)
    assert task.tables == ("facts", "dimension_1", "dimension_2", "dimension_3") and len(task.joins) == 3
    assert {len(rows) for rows in joined(make(replace(SMALL, dimensions=3))).values()} == {200 * SMALL.duplication}


def test_rows_that_are_left_over_join_with_nothing():
    raw = make(replace(SMALL, duplication=5))  # 64 = 12 x 5 + 4
    rows = joined(raw)
    assert len(rows["facts"]) == 1000
    keys = raw.tables[1].keys["key"]
    assert (keys == -1).sum() == 4 and not np.isin(np.flatnonzero(keys == -1), rows["dimension_1"]).any()


@pytest.mark.parametrize("duplication", [1, 16])
def test_every_table_helps_to_predict(duplication):
    config = Config(duplication=duplication)
    task = load(config, "aligned", 1, 0, None)
    assert len(task.labels) == 7000 * duplication

    def error(owners):
        """Root mean squared test error of least squares on the blocks of `owners`."""
        blocks = [
            np.concatenate([b[i] for i in owners], axis=1) for b in (task.features, task.held_out_features["test"])
        ]
        solution = np.linalg.lstsq(blocks[0], task.labels - task.labels.mean(), rcond=None)[0]
        return np.sqrt(np.mean((blocks[1] @ solution + task.labels.mean() - task.held_out_labels["test"]) ** 2))

    # By construction a column of weights has length 1, of the 1 + 2 * 0.64 of explained variance; per dimension 0.64 *
    # 0.36 of it is hidden by what sets rows of one key apart.
    explained = 1 + 2 * 0.64
    everything = np.sqrt(0.5**2 + 2 * 0.64 * 0.36 / explained)
    assert error([0, 1, 2]) == pytest.approx(everything, abs=0.05)
    assert all(error(owners) > everything + 0.05 for owners in ([0, 1], [0, 2], [1, 2]))


def test_classes_are_about_equally_frequent():
    raw = make(Config(task="classes", classes=4))
    assert raw.classes == 4 and raw.labels.dtype == np.int64
    assert np.bincount(raw.labels, minlength=4).min() > 0.15 * 10_000


def test_the_tables_are_the_same_for_every_seed_and_the_split_is_not():
    first, second = (load(SMALL, "relational", 2, seed, None) for seed in (0, 1))
    assert [(part.table, part.rows) for part in first.clients] == [
        *[("facts", 70)] * 2, *[("dimension_1", 32)] * 2, *[("dimension_2", 32)] * 2,
    ]  # fmt: skip
    np.testing.assert_array_equal(first.clients[2].features, second.clients[2].features)
    assert not np.array_equal(first.clients[0].features, second.clients[0].features)
    assert first.source.kind == "synthetic" and first.metric.name == "rmse"


def test_the_width_moves_no_key():
    narrow, wide = make(SMALL), make(replace(SMALL, width=20))
    for a, b in zip(narrow.tables, wide.tables, strict=True):
        assert b.features.shape[1] == 20
        for column in a.keys:
            np.testing.assert_array_equal(a.keys[column], b.keys[column])


def test_all_that_is_wrong_is_told_at_once():
    with pytest.raises(ConfigError) as error:
        load(Config(duplication=2000, test=0.9, validation=0.2), "relational", 1, 0, None)
    assert [problem.key for problem in error.value.problems] == [
        "dataset.validation, dataset.test",
        "dataset.duplication",
    ]
    _, problems = convert(Config, {"source": "real", "width": 0, "noise": -1.0, "task": "clases", "rows": 9})
    assert [problem.key for problem in problems] == ["source", "rows", "width", "noise", "task"]
    assert problems[-1].closest == "classes"
