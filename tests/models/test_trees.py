"""Boosted trees: what they predict, and that validation rows alone choose the iteration."""

import itertools

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from threadpoolctl import threadpool_limits

from vflbench.models import trees
from vflbench.models.metrics import METRICS
from vflbench.seeding import derive


def rows(classes, count=240, seed=0):
    """Features and labels, of which one column tells most."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, 4)).astype(np.float32)
    signal = x[:, 0] + 0.5 * rng.normal(size=count)
    return x, (np.digitize(signal, np.linspace(-0.7, 0.7, classes - 1)) if classes else signal)


def grown(classes, metric, **keys):
    return trees.fit(*rows(classes), *rows(classes, 80, 1), classes=classes, metric=metric, seed=3, **keys)


@pytest.mark.parametrize(("classes", "metric"), [(0, "rmse"), (2, "auroc"), (2, "accuracy"), (3, "accuracy")])
def test_the_iteration_is_the_first_best_one_on_validation_rows(classes, metric):
    model = grown(classes, metric, patience=5)
    x, y = rows(classes, 80, 1)
    values = [METRICS[metric](scores, y) for scores in model.staged(x)]
    assert values == list(model.values) and len(values) == model.grown < 250
    best = min(values) if metric == "rmse" else max(values)
    assert values.index(best) + 1 == model.best == model.grown - 5
    assert METRICS[metric](model.scores(x), y) == best
    assert model.scores(x).shape == (80, classes or 1)


@pytest.mark.parametrize("classes", [0, 2, 3])
def test_growing_in_pieces_grows_the_same_trees_as_growing_at_once(classes):
    kind = HistGradientBoostingClassifier if classes else HistGradientBoostingRegressor
    metric, (x, y) = "accuracy" if classes else "rmse", rows(classes)
    with threadpool_limits(1):
        whole = kind(max_iter=60, early_stopping=False, random_state=derive(3, "trees") % 2**32).fit(x, y)
    model = grown(classes, metric, iterations=60, patience=7)
    there = list(model.staged(x))
    once = whole.staged_decision_function(x) if classes else whole.staged_predict(x)
    for ours, theirs in zip(there, itertools.islice(once, len(there)), strict=True):
        difference = ours[:, 1] - ours[:, 0] if classes == 2 else ours if classes else ours[:, 0]
        assert np.array_equal(difference, theirs.reshape(difference.shape))


def test_a_class_without_training_rows_is_never_predicted():
    x, y = rows(3)
    model = trees.fit(x[y != 1], y[y != 1], x, y, classes=3, metric="accuracy", seed=0, iterations=5)
    scores = model.scores(x)
    assert scores.shape == (240, 3) and np.isfinite(scores).all()
    assert set(scores.argmax(axis=1)) == {0, 2}
    one = trees.fit(x[y == 1], y[y == 1], x, y, classes=3, metric="accuracy", seed=0, iterations=5)
    assert set(one.scores(x).argmax(axis=1)) == {1}


def test_without_validation_rows_all_iterations_are_made():
    model = trees.fit(*rows(0), np.empty((0, 4)), np.empty(0), classes=0, metric="rmse", seed=0, iterations=12)
    assert (model.grown, model.best, model.values) == (12, 12, ())
    assert len(list(model.staged(rows(0)[0]))) == 12


@pytest.mark.parametrize(
    ("values", "seen"), [([1, 2, 2, 2, 9], 4), ([1, 2, 2, 3, 3], 5), ([3, 2, 1, 4], 3), ([1], 1), ([], 0)]
)
def test_patience_counts_from_the_best_value(values, seen):
    assert trees._stop(values, 2) == seen
