"""f* by hand, by CVXPY, by its own optimality conditions; and the cache."""

import json

import cvxpy
import numpy as np
import pytest

from vflbench.cards.data.tabular import gisette as gisette_card
from vflbench.cards.data.tabular import ridge as ridge_card
from vflbench.data import sources
from vflbench.data.tabular import convex, gisette, ridge
from vflbench.data.tabular.table import divide
from vflbench.data.tasks import Objective
from vflbench.types import DataError, DataSource, Metric


def made(samples: int, width: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """X, real labels, classes."""
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((samples, width))
    score = features[:, :3] @ [2.0, -1.0, 1.0] + rng.standard_normal(samples)
    return features, score, (score > 0).astype(np.int64)


def test_ridge_by_hand():
    # theta = (1 + 6) / (5 + 1) = 7/6; f = ((1/6)^2 + (4/6)^2 + (7/6)^2) / 2 = 66/72
    columns, labels = np.array([[1.0], [2.0]]), np.array([1.0, 3.0])
    assert convex.minimum(Objective("ridge", 1.0), columns, labels) == pytest.approx(11 / 12, rel=1e-14)
    # wider than long: theta = X' 3 / (5 + 1) = (1/2, 1); f = (1/4 + 1/4 + 1) / 2
    assert convex.minimum(Objective("ridge", 1.0), np.array([[1.0, 2.0]]), np.array([3.0])) == pytest.approx(
        0.75, rel=1e-14
    )


def test_sparse_logistic_by_hand():
    # One column of ones, three of four positive: -(3/4)(1 - p) + p/4 + beta = 0, so p = 3/4 - beta.
    column, labels = np.ones((4, 1)), np.array([1, 1, 0, 1])
    objective = Objective("sparse_logistic", 0.05)
    assert convex.minimiser(objective, column, labels)[0] == pytest.approx(np.log(7 / 3), rel=1e-6)
    expected = -0.75 * np.log(0.7) - 0.25 * np.log(0.3) + 0.05 * np.log(7 / 3)
    assert convex.minimum(objective, column, labels) == pytest.approx(expected, rel=1e-12)
    # beta at or above 1/4: theta = 0
    assert convex.minimum(Objective("sparse_logistic", 0.3), column, labels) == pytest.approx(np.log(2), rel=1e-12)


def by_cvxpy(objective: Objective, features: np.ndarray, labels: np.ndarray) -> float:
    theta = cvxpy.Variable(features.shape[1])
    u = features @ theta
    if objective.kind == "ridge":
        f = cvxpy.sum_squares(u - labels) / 2 + objective.weight / 2 * cvxpy.sum_squares(theta)
    else:
        margins = cvxpy.multiply(2 * labels - 1, u)
        f = cvxpy.sum(cvxpy.logistic(-margins)) / len(labels) + objective.weight * cvxpy.norm1(theta)
    return float(cvxpy.Problem(cvxpy.Minimize(f)).solve(solver="CLARABEL"))


@pytest.mark.parametrize("shape", [(60, 12), (15, 40)])
@pytest.mark.parametrize(("kind", "weight"), [("ridge", 0.3), ("sparse_logistic", 0.02), ("sparse_logistic", 0.002)])
def test_cvxpy_finds_the_same_minimum(kind, weight, shape):
    features, real, classes = made(*shape)
    objective, labels = Objective(kind, weight), real if kind == "ridge" else classes
    assert convex.minimum(objective, features, labels) == pytest.approx(by_cvxpy(objective, features, labels), rel=1e-6)


@pytest.mark.parametrize("twice", [False, True])
def test_the_sparse_minimiser_meets_its_conditions(twice):
    """|gradient| <= beta everywhere, and = -beta sign where theta is not 0; also with every column there twice."""
    features, _, labels = made(150, 60)
    if twice:
        features = np.concatenate([features, features], axis=1)
    objective = Objective("sparse_logistic", 0.01)
    theta = convex.minimiser(objective, features, labels)
    signs = 2 * labels - 1
    gradient = -(features.T @ (signs / (1 + np.exp(signs * (features @ theta))))) / len(labels)
    assert np.abs(gradient).max() <= 0.01 * (1 + 1e-8)
    used = theta != 0
    np.testing.assert_allclose(gradient[used], -0.01 * np.sign(theta[used]), rtol=1e-8)
    assert 3 <= used.sum() < 0.7 * len(theta)
    # nothing nearby is lower
    rng = np.random.default_rng(1)
    least = convex.value(objective, features, labels, theta)
    assert all(
        convex.value(objective, features, labels, theta + 1e-3 * rng.standard_normal(len(theta))) > least
        for _ in range(20)
    )


def test_value_is_the_definition():
    features, real, classes = made(5, 3)
    theta = np.array([0.5, -2.0, 0.0])
    u = features @ theta
    assert convex.value(Objective("ridge", 3.0), features, real, theta) == pytest.approx(
        ((u - real) ** 2).sum() / 2 + 1.5 * 4.25
    )
    logistic = np.log(1 + np.exp(-np.where(classes == 1, 1, -1) * u)).mean() + 0.1 * 2.5
    assert convex.value(Objective("sparse_logistic", 0.1), features, classes, theta) == pytest.approx(logistic)


@pytest.fixture
def solved(monkeypatch):
    """Which problems were solved, not remembered."""
    calls = []
    solve = convex.minimiser

    def counted(objective, features, labels):
        calls.append(objective)
        return solve(objective, features, labels)

    monkeypatch.setattr(convex, "minimiser", counted)
    return calls


def test_a_minimum_is_remembered_by_content_not_by_division(solved):
    tasks = [
        ridge.load(ridge_card.Config(samples=40, features=13), "aligned", parties, seed, None)
        for parties, seed in ((1, 0), (4, 1), (13, 2))
    ]
    assert len(solved) == 1 and len({task.optimum for task in tasks}) == 1
    folder = sources.cache_folder() / "optima"
    (kept,) = folder.iterdir()
    assert kept.stat().st_size < 250
    kept.write_text('{"minimum": ')  # cut short
    assert (
        ridge.load(ridge_card.Config(samples=40, features=13), "aligned", 2, 0, None).optimum == tasks[0].optimum
        and len(solved) == 2
    )
    text = json.loads(kept.read_text())
    for minimum in (text["minimum"] / 2, text["minimum"] * (1 + 1e-12)):  # changed
        kept.write_text(json.dumps(text | {"minimum": minimum}))
        assert ridge.load(ridge_card.Config(samples=40, features=13), "aligned", 2, 0, None).optimum == tasks[0].optimum
    assert len(solved) == 4 and folder.stat().st_mode & 0o077 == 0
    ridge.load(ridge_card.Config(samples=40, features=13, alpha=2.0), "aligned", 2, 0, None)
    ridge.load(ridge_card.Config(samples=40, features=13, noise=0.2), "aligned", 2, 0, None)
    assert len(solved) == 6 and len(list(folder.iterdir())) == 3


def test_a_cache_that_cannot_be_written_is_no_error(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert convex.minimum(Objective("ridge", 1.0), np.array([[1.0], [2.0]]), np.array([1.0, 3.0])) == pytest.approx(
        11 / 12
    )


def test_what_has_no_minimum_to_compare_with_is_an_error():
    features, _, labels = made(20, 4)
    with pytest.raises(DataError, match="all samples are of one class"):
        convex.minimum(Objective("sparse_logistic", 0.1), features, np.ones_like(labels))
    with pytest.raises(DataError, match=r"minimum of this ridge problem is 0\.0"):
        convex.minimum(Objective("ridge", 1.0), features, np.zeros(20))


def test_a_gap_that_is_not_closed_is_an_error(monkeypatch):
    monkeypatch.setattr(convex, "NEWTON_STEPS", 1)
    features, _, labels = made(100, 30)
    with pytest.raises(DataError, match=r"duality gap .* larger dataset\.beta"):
        convex.minimum(Objective("sparse_logistic", 1e-4), features, labels)


@pytest.mark.slow
def test_gisettes_twin_at_full_size():
    """The minimum at Gisette's size, proved by its duality gap within the solver; an l1 problem: most of theta is 0."""
    task = divide(
        gisette_card.Config(source="synthetic"),
        gisette.twin(),
        DataSource("synthetic"),
        Metric("accuracy", "max"),
        layout="aligned",
        parties=40,
        seed=0,
        scaling="range",
    )
    features = np.concatenate(task.features, axis=1)
    assert features.shape == (6000, 5000) and 0.12 < np.count_nonzero(features) / features.size < 0.14
    theta = convex.minimiser(task.objective, features, task.labels)
    assert convex.value(task.objective, features, task.labels, theta) == pytest.approx(task.optimum, rel=1e-12)
    assert 50 < np.count_nonzero(theta) < 1500 and task.optimum < 0.5 * np.log(2)
