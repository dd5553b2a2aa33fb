"""What every task must have: labels that differ, features that differ, rows to be scored on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from vflbench.data import sanity
from vflbench.data.tasks import (
    AlignedTask,
    GraphTask,
    HeldOut,
    RelationalPart,
    RelationalTask,
    Shard,
    ShardedTask,
    Task,
)
from vflbench.types import DataError, DataSource, Metric

REAL, ACCURACY, AUROC, RMSE = (
    DataSource("real"),
    Metric("accuracy", "max"),
    Metric("auroc", "max"),
    Metric("rmse", "min"),
)
X, Y = np.arange(24.0).reshape(12, 2).astype(np.float32), np.arange(12) % 2


def aligned(labels: np.ndarray = Y, metric: Metric = AUROC, classes: int = 2, **changes: Any) -> AlignedTask:
    held_out = {"val": labels[:4], "test": labels[4:8]}
    blocks = {split: (X[:4], X[:4]) for split in held_out}
    return replace(AlignedTask("mine", REAL, metric, classes, 0, (X, X), labels, blocks, held_out), **changes)


def graph(labels: np.ndarray = Y, test: Any = (8, 9, 10, 11), **changes: Any) -> GraphTask:
    splits = {"train": np.arange(4), "val": np.arange(4, 8), "test": np.array(test, np.int64)}
    edges = np.empty((2, 0), np.int64)
    return replace(GraphTask("mine", REAL, ACCURACY, 2, labels, splits, (X, X), (edges, edges), edges), **changes)


def relational(features: tuple[np.ndarray, ...] = (X, X), labels: np.ndarray = Y, **changes: Any) -> RelationalTask:
    clients = tuple(RelationalPart(f"t{i}", {}, block, labels if i == 0 else None) for i, block in enumerate(features))
    held_out = {"test": HeldOut((), labels[:4])}
    return replace(
        RelationalTask("mine", REAL, ACCURACY, 2, tuple(c.table for c in clients), "t0", (), clients, held_out),
        **changes,
    )


def sharded(labels: np.ndarray = Y, features: np.ndarray = X, **changes: Any) -> ShardedTask:
    shards = (Shard(features[:6], labels[:6]), Shard(features[6:], labels[6:]))
    return replace(ShardedTask("mine", REAL, ACCURACY, 2, shards, {"test": Shard(X[:4], Y[:4])}), **changes)


def refused(task: Task) -> str:
    with pytest.raises(DataError) as error:
        sanity.check(task)
    return str(error.value)


@pytest.mark.parametrize(
    "task", [aligned(), graph(), relational(), sharded(), aligned(np.linspace(0, 1, 12), RMSE, 0)], ids=repr
)
def test_what_can_be_learnt_and_scored_is_let_through(task: Task, caplog: pytest.LogCaptureFixture) -> None:
    sanity.check(task)
    assert not caplog.records


@pytest.mark.parametrize("make", [aligned, graph, relational, sharded])
def test_labels_that_are_all_equal_are_refused(make: Any) -> None:
    count = 4 if make is graph else 12
    said = refused(make(labels=np.ones(12, np.int64)))
    assert said.startswith(f"dataset mine: all {count} training labels are 1: there is nothing to learn")
    # where other rows have the other class, too, it counts them
    assert said.endswith("learn") is (make is not sharded)


def test_a_target_that_does_not_vary_or_varies_beyond_all_numbers_is_refused() -> None:
    assert "all 12 training labels are 3: there is nothing to learn" in refused(aligned(np.full(12, 3.0), RMSE, 0))
    for wild in (1e308 * (-1.0) ** np.arange(12), np.where(np.arange(12) == 3, np.nan, 1.5 * np.arange(12))):
        assert "not finite" in refused(aligned(wild, RMSE, 0))


def test_a_task_without_training_rows_is_refused() -> None:
    none = np.empty(0, np.int64)
    assert "no row is left for training" in refused(graph(splits={"train": none, "val": none, "test": np.arange(4)}))


@pytest.mark.parametrize(
    "task", [aligned(held_out_labels={"val": Y[:4]}), graph(test=()), sharded(held_out={}), relational(held_out={})]
)
def test_an_empty_test_split_is_refused_since_nothing_would_be_scored(task: Task) -> None:
    assert refused(task) == "dataset mine: no row is left for the test split, so nothing could be scored"


@pytest.mark.parametrize("split", ["val", "test"])
def test_a_split_of_one_class_has_no_auroc(split: str) -> None:
    labels = {"val": Y[:4], "test": Y[:4]} | {split: np.zeros(3, np.int64)}
    assert f"all 3 rows of the {split} split are of class 0, of which there is no AUROC" in refused(
        aligned(held_out_labels=labels)
    )
    sanity.check(aligned(held_out_labels=labels, metric=ACCURACY))


def test_a_class_without_a_training_row_is_said(caplog: pytest.LogCaptureFixture) -> None:
    sanity.check(aligned(classes=4, metric=ACCURACY, held_out_labels={"val": Y[:4], "test": np.array([0, 1, 3])}))
    assert [record.getMessage() for record in caplog.records] == [
        "dataset mine: no training row is of class 3, which the test split has."
    ]


def test_features_that_never_differ_are_refused_and_those_of_one_party_are_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    flat = np.ones_like(X)
    for task in (aligned(features=(flat, flat)), relational((flat, flat)), sharded(features=flat)):
        assert (
            refused(task)
            == "dataset mine: no feature differs between the training rows: there is nothing to learn from"
        )
    sanity.check(aligned(features=(flat, X)))
    sanity.check(relational((X, flat)))
    sanity.check(relational((X, np.empty((12, 0), np.float32))))  # keys alone, on purpose
    sanity.check(graph(features=(flat, flat)))  # its edges still tell something
    assert [record.getMessage() for record in caplog.records] == [
        f"dataset mine: no feature of {who} differs between the training rows: it contributes nothing."
        for who in ("party 0", "table t1")
    ]


def test_a_difference_far_down_or_between_two_blocks_is_found() -> None:
    late = np.zeros((3 * sanity.CHUNK, 1), np.float32)
    assert not sanity.varies([late])
    late[-1] = 1
    assert sanity.varies([late]) and sanity.varies([np.zeros((2, 1)), np.ones((2, 1))])
