"""A column that alone gives the label away is found in every writing; one that is only good is not."""

from __future__ import annotations

import numpy as np
import pytest

from vflbench.data.columns.leaks import LIMIT, sampled, strength

N = 400
RNG = np.random.default_rng(0)
Y = (RNG.random(N) < 0.3).astype(np.int64)
NOISE = RNG.normal(size=N)


def value(column: np.ndarray, labels: np.ndarray = Y, classes: int = 2, category: bool = False) -> float:
    sample = sampled(labels, classes)
    assert sample is not None
    return strength(column.astype(np.float64)[sample.rows], category, sample)[1]


@pytest.mark.parametrize(
    "column",
    [
        pytest.param(Y, id="a copy"),
        pytest.param(7 - 3 * Y, id="other numbers"),
        pytest.param(NOISE + 10 * Y, id="shifted numbers"),
        pytest.param(np.where(Y == 1, NOISE, np.nan), id="a date that survivors lack"),
        pytest.param(np.abs(NOISE) * np.where(Y == 1, -1, 1) + np.where(Y == 1, -1, 0), id="a sign"),
        pytest.param(np.where(Y == 1, 5, np.where(NOISE > 0, 1, 9)) + NOISE / 100, id="between others"),
    ],
)
def test_recodings_of_two_classes(column):
    assert value(column) > LIMIT
    assert value(column[::-1]) < 0.8  # of other rows


def test_codes_of_many_classes():
    labels = RNG.integers(0, 7, N)
    order = np.array([3, 6, 0, 5, 1, 4, 2])
    assert value(order[labels], labels, 7, category=True) > LIMIT and value(order[labels], labels, 7) > LIMIT
    detailed = order[labels] * 5 + RNG.integers(0, 5, N)  # a finer code, as a diagnosis
    assert value(detailed, labels, 7, category=True) > LIMIT
    labels[:2] = 8  # a class of two rows is not judged
    assert value(order[labels.clip(max=6)], labels, 9) > LIMIT


@pytest.mark.parametrize("target", [RNG.normal(size=N), RNG.exponential(size=N), RNG.integers(0, 300, N).astype(float)])
def test_targets(target):
    assert value(1.8 * target + 32, target, 0) > LIMIT
    assert value(np.exp(target / target.std()), target, 0) > LIMIT
    assert value(target + target.std() * NOISE / 4, target, 0) < LIMIT and value(NOISE, target, 0) < 0.5


def test_good_columns_are_no_leaks():
    assert value(Y + NOISE / 3) < LIMIT and value(np.where(NOISE > 2, 1 - Y, Y)) < LIMIT
    assert value(np.arange(N)) < 0.8 and value(RNG.integers(0, 200, N), category=True) < 0.8


def test_entities_are_held_out_whole():
    """A patient's own number says how the patient's other rows end, but nothing of other patients."""
    patient = np.repeat(np.arange(80), 5)
    labels = RNG.integers(0, 2, 80)[patient]
    assert value(patient, labels, category=True) > LIMIT
    sample = sampled(labels, 2, patient)
    assert strength(patient.astype(float)[sample.rows], True, sample)[1] < 0.7
    assert strength(labels.astype(float)[sample.rows], False, sample)[1] > LIMIT
    for fold in range(5):
        assert not {*patient[sample.rows[sample.folds == fold]]} & {*patient[sample.rows[sample.folds != fold]]}


@pytest.mark.slow
def test_few_positives_do_not_alarm_by_chance():
    """Ten thousand columns of noise, and three rows of a class; a copy is found all the same."""
    labels = np.zeros(60, dtype=np.int64)
    labels[[3, 20, 40]] = 1
    rng = np.random.default_rng(1)
    numbers, codes = rng.normal(size=(500, 60)), rng.integers(0, 10, (500, 60))
    assert max(value(column, labels) for column in numbers) < LIMIT
    assert max(value(column, labels, category=True) for column in codes) < LIMIT
    assert value(labels, labels) > LIMIT
    labels[3] = 0
    assert sampled(labels, 2) is None  # two rows show nothing
