"""Convex problems over aligned blocks (tasks.Objective), and the exact minimum f* that MTCD and its kin are scored by.

Ridge has a closed form: the smaller of the primal and the dual system is solved. For sparse logistic regression
scikit-learn's liblinear gets near the minimum. Newton steps on the non-zero coordinates follow until the duality gap
proves f* to a relative 1e-10. The user's cache folder keeps f* under a hash of all that it depends on. It is the same
however the columns are divided.
"""

import contextlib
import hashlib
import json
import logging
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from vflbench.data import sources
from vflbench.data.tasks import AlignedTask, Objective
from vflbench.types import DataError, DataSource, Metric

log = logging.getLogger(__name__)

WEIGHT: dict[str, str] = {"ridge": "alpha", "sparse_logistic": "beta"}  # convex problem -> the key that has its weight
GAP = 1e-10  # relative duality gap at which a minimum counts as found
NEWTON_STEPS = 200


def task(
    name: str, source: DataSource, blocks: Sequence[np.ndarray], labels: np.ndarray, objective: Objective
) -> AlignedTask:
    """The task to minimise `objective` over all samples; none is held out, and party 0 has the labels.

    Parameters
    ----------
    blocks : per party (N, d_k) float64; side by side they are X.
    labels : ridge (N,) float64; sparse_logistic (N,) int64 classes 0 and 1.

    Raises
    ------
    DataError : as `minimum`; f* is too small for a relative gap; or all parameters are 0 at the minimum.
    """
    features = np.concatenate(list(blocks), axis=1)
    optimum = minimum(objective, features, labels)
    start, key = value(objective, features, labels, np.zeros(features.shape[1])), WEIGHT[objective.kind]
    if optimum < GAP * start:
        reason = f"the minimum is {optimum:.3g}, against {start:.3g} at theta = 0: too small for a relative gap"
        raise DataError(f"dataset {name}: {reason}; choose a larger dataset.{key}, here {objective.weight:g}")
    if start - optimum < GAP * start:
        reason = f"dataset.{key}={objective.weight:g} is so large that all parameters are 0 at the minimum"
        raise DataError(f"dataset {name}: {reason}: there is nothing to learn")
    classes = 2 if objective.kind == "sparse_logistic" else 0
    return AlignedTask(
        name, source, Metric("suboptimality", "min"), classes, 0, tuple(blocks), labels, {}, {}, objective, optimum
    )


def value(objective: Objective, features: np.ndarray, labels: np.ndarray, theta: np.ndarray) -> float:
    """f(theta), as data/tasks/aligned.py defines it.

    Parameters
    ----------
    features : X (N, d).
    labels : as `task` takes them.
    theta : (d,).
    """
    u = features @ theta
    if objective.kind == "ridge":
        return float(((u - labels) ** 2).sum() / 2 + objective.weight / 2 * (theta**2).sum())
    return float(np.logaddexp(0, -_signs(labels) * u).mean() + objective.weight * np.abs(theta).sum())


def _digest(key: str, minimum: float) -> str:
    """Checksum that detects a minimum that was changed or belongs to another problem."""
    return hashlib.sha256(f"{key} {minimum!r}".encode()).hexdigest()


def minimum(objective: Objective, features: np.ndarray, labels: np.ndarray) -> float:
    """f*, from the cache if it is there.

    Raises
    ------
    DataError : f* is 0 or not finite, so that no gap can be relative to it; or it cannot be proved to a relative 1e-10.
    """
    key = _key(objective, features, labels)
    path = sources.cache_folder() / "optima" / f"{key}.json"
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):  # not there, or damaged: solved again
        cached = json.loads(path.read_text(encoding="utf-8"))
        kept = float(cached["minimum"])
        if np.isfinite(kept) and kept > 0 and cached["sha256"] == _digest(key, kept):
            return kept
    found = value(objective, features, labels, minimiser(objective, features, labels))
    if not (np.isfinite(found) and found > 0):
        raise DataError(f"the minimum of this {objective.kind} problem is {found}: a gap relative to it has no meaning")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        text = json.dumps(
            {"kind": objective.kind, "weight": objective.weight, "minimum": found, "sha256": _digest(key, found)}
        )
        with sources.atomic(path) as place:
            place.write_text(text, encoding="utf-8")
    except OSError as error:
        log.info("the minimum is not kept for the next run: %s", error)
    return found


def minimiser(objective: Objective, features: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """theta*, (d,).

    Raises
    ------
    DataError : as `minimum`.
    """
    if objective.kind == "ridge":
        return _ridge(features, labels, objective.weight)
    return _sparse_logistic(features, labels, objective.weight)


def _key(objective: Objective, features: np.ndarray, labels: np.ndarray) -> str:
    digest = hashlib.sha256(
        f"1/{objective.kind}/{objective.weight!r}/{features.shape}/{features.dtype}/{labels.dtype}/".encode()
    )
    digest.update(np.ascontiguousarray(features).data)
    digest.update(np.ascontiguousarray(labels).data)
    return digest.hexdigest()


def _signs(labels: np.ndarray) -> np.ndarray:
    return 2.0 * labels - 1


def _ridge(features: np.ndarray, labels: np.ndarray, alpha: float) -> np.ndarray:
    from scipy.linalg import solve

    samples, width = features.shape
    if width <= samples:  # (X'X + alpha I) theta = X'y
        return np.asarray(solve(features.T @ features + alpha * np.eye(width), features.T @ labels, assume_a="pos"))
    return np.asarray(features.T @ solve(features @ features.T + alpha * np.eye(samples), labels, assume_a="pos"))


def _sparse_logistic(features: np.ndarray, labels: np.ndarray, beta: float) -> np.ndarray:
    from scipy.sparse import csr_matrix
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    if len(np.unique(labels)) < 2:
        raise DataError("all samples are of one class: there is nothing to learn")
    samples = len(labels)
    sparse = np.count_nonzero(features) < 0.3 * features.size
    # from scikit-learn 1.8 on it is `l1_ratio`; `penalty` is deprecated
    before_1_8 = LogisticRegression().penalty == "l2"
    l1: dict[str, Any] = {"penalty": "l1"} if before_1_8 else {"l1_ratio": 1.0}
    solver = LogisticRegression(
        solver="liblinear", C=1 / (samples * beta), fit_intercept=False, tol=1e-3, max_iter=100, random_state=0, **l1
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the Newton steps do the rest
        solver.fit(csr_matrix(features) if sparse else features, labels)
    theta, gap = _newton(features, _signs(labels), beta, solver.coef_[0].astype(np.float64))
    if gap > GAP:
        reason = f"the minimum of the sparse logistic problem was not found: duality gap {gap:.1e} of its value"
        raise DataError(f"{reason}. Choose a larger dataset.beta.")
    return theta


def _newton(features: np.ndarray, signs: np.ndarray, beta: float, theta: np.ndarray) -> tuple[np.ndarray, float]:
    """Projected Newton steps on the coordinates that are not 0 or must leave 0.

    The lower bound of the gap: log(1 + exp(-z)) = max over a in [0, 1] of H(a) - a z, with H the entropy. So the mean
    of H(a_j) is at most f* where |X'(a s)| / N <= beta everywhere. a is the samples' probability of being
    misclassified, scaled down until that holds.

    Returns
    -------
    The point, (d,), and its relative duality gap.
    """
    from scipy.special import entr, expit

    samples = len(signs)
    gap = np.inf
    for _ in range(NEWTON_STEPS):
        u = features @ theta
        value = np.logaddexp(0, -signs * u).mean() + beta * np.abs(theta).sum()
        missed = expit(-signs * u)
        gradient = -(features.T @ (signs * missed)) / samples
        inside = missed * min(1.0, beta / max(np.abs(gradient).max(), 1e-300))
        gap = (value - (entr(inside) + entr(1 - inside)).mean()) / value
        if gap <= GAP:
            break
        active = np.flatnonzero((theta != 0) | (np.abs(gradient) > beta))
        side = np.where(theta != 0, np.sign(theta), -np.sign(gradient))
        step = np.zeros(0)
        while len(active):
            block = features[:, active]
            curvature = block.T @ (block * (missed * (1 - missed) / samples)[:, None])
            curvature[np.diag_indices(len(active))] += 1e-10 * np.trace(curvature) / len(active) + 1e-300
            step = np.linalg.solve(curvature, -(gradient[active] + beta * side[active]))
            # a coordinate at 0 that the step would move the other way: no direction of descent
            stays = (theta[active] == 0) & (step * side[active] <= 0)
            if not stays.any():
                break
            active = active[~stays]
        length, moved = 1.0, False
        while len(active) and length > 1e-10 and not moved:
            new = theta.copy()
            new[active] += length * step
            new[active] = np.where(new[active] * side[active] < 0, 0, new[active])
            reached = np.logaddexp(0, -signs * (features @ new)).mean() + beta * np.abs(new).sum()
            moved = reached <= value * (1 + 1e-14)  # the last steps change f by less than its rounding
            length /= 2
        if not moved:
            break
        theta = new
    return theta, float(gap)
