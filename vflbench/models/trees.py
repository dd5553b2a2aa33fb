"""Boosted trees: scikit-learn's HistGradientBoosting, with the iteration chosen on validation rows.

References
----------
Ke et al.: LightGBM, NeurIPS 2017, whose histograms and growth by leaves scikit-learn follows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from vflbench.models.metrics import METRICS
from vflbench.seeding import derive

LEARNER = "boosted trees"


@dataclass(frozen=True)
class Trees:
    """Trees that were grown one iteration after another. Iterations count from 1."""

    model: Any  #: scikit-learn's
    classes: int  #: 0: regression
    grown: int  #: iterations; more than `best`, where the next ones were no better
    best: int  #: the first iteration with the best metric on validation rows
    values: tuple[float, ...]  #: metric on validation rows after each iteration; empty without such rows

    def staged(self, x: np.ndarray) -> Iterator[np.ndarray]:
        """Scores of the rows of `x` after each of the `grown` iterations: (n, 1), or of classes (n, classes) logits.

        A class that no training row has is scored below all others.
        """
        if not self.classes:
            yield from (values[:, None] for values in islice(self.model.staged_predict(x), self.grown))
            return
        known = self.model.classes_
        for raw in islice(self.model.staged_decision_function(x), self.grown):
            # of two classes scikit-learn gives the difference
            own = np.stack([np.zeros(len(raw)), raw.reshape(len(raw))], axis=1) if len(known) <= 2 else raw
            scores = np.repeat(own.min(axis=1, keepdims=True) - 1, self.classes, axis=1)
            scores[:, known] = own[:, -len(known) :]
            yield scores

    def scores(self, x: np.ndarray) -> np.ndarray:
        """Scores of the rows of `x` after iteration `best`, as `staged` gives them."""
        return next(islice(self.staged(x), self.best - 1, None))


def fit(
    x: np.ndarray,
    y: np.ndarray,
    x_val: np.ndarray,
    y_val: np.ndarray,
    *,
    classes: int,
    metric: str,
    seed: int,
    learning_rate: float = 0.1,
    leaves: int = 31,
    iterations: int = 250,
    patience: int = 15,
) -> Trees:
    """Grow trees on training rows until validation rows are predicted no better for `patience` iterations.

    One thread grows them: sums of several differ in their last bits, and then so do trees.

    Parameters
    ----------
    x, x_val : (n, d) and (n_val, d) numbers; NaN is a missing one.
    y, y_val : targets, or classes 0 .. classes - 1. Without validation rows all iterations are made, the last is best.
    classes : 0 for regression.
    metric : accuracy | auroc | rmse: what chooses the iteration.
    seed : of the run; it matters above 200,000 rows only, of which scikit-learn draws some to place its bins.
    leaves : the most that a tree has.
    iterations : the most that are made.
    """
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
    from threadpoolctl import threadpool_limits

    kind = HistGradientBoostingClassifier if classes else HistGradientBoostingRegressor
    model = kind(
        learning_rate=learning_rate,
        max_leaf_nodes=leaves,
        early_stopping=False,
        warm_start=True,
        random_state=derive(seed, "trees") % 2**32,
    )
    sign, values = (-1 if metric == "rmse" else 1), list[float]()
    with threadpool_limits(1):
        # Each call grows as many again, since a call bins the rows and stages the predictions anew.
        grown = 0
        while grown < iterations:
            grown = min(max(2 * patience, 2 * grown), iterations) if len(y_val) else iterations
            model.set_params(max_iter=grown).fit(x, y)
            trees = Trees(model, classes, grown, grown, ())
            if not len(y_val):
                return trees
            values = [METRICS[metric](scores, y_val) for scores in trees.staged(x_val)]
            stop = _stop([sign * value for value in values], patience)
            if stop < grown:
                break
    values = values[:stop]
    return Trees(model, classes, stop, 1 + int(np.argmax([sign * value for value in values])), tuple(values))


def _stop(values: list[float], patience: int) -> int:
    """How many of `values`, larger is better, are seen before `patience` of them are no better than one before."""
    best = 0
    for at, value in enumerate(values):
        if value > values[best]:
            best = at
        elif at - best >= patience:
            return at + 1
    return len(values)
