"""Hetero-LR: its reductions to regression in one place, and its bytes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from tests.algorithms.small_columns import _task, classes
from tests.options import privacy_config, topology_config
from vflbench.algorithms.split import hetero_lr, vfl
from vflbench.data.tasks import AlignedTask
from vflbench.federation import topology
from vflbench.federation.ledger import COLUMN
from vflbench.federation.simulated import SimulatedEngine
from vflbench.models.partial import Config as Linear
from vflbench.runner.evaluate import Observer
from vflbench.seeding import batches
from vflbench.types import ComputeConfig, ConfigError, EngineConfig, Metric, NetworkConfig, RunConfig


def config(module: ModuleType, task: AlignedTask, rounds: int = 2, dtype: str = "float64", **keys: Any) -> RunConfig:
    algorithm = module.Config(**{"parties": task.parties, "batch_size": 8, "lr": 0.05, "optimizer": "sgd"} | keys)
    groups = NetworkConfig("ideal"), topology_config("star"), privacy_config(), EngineConfig(), ComputeConfig()
    run = RunConfig(algorithm, None, Linear(dtype=dtype), *groups)  # type: ignore[arg-type]
    return replace(run, rounds=rounds, device="cpu", seed=0)


def trained(module: ModuleType, task: AlignedTask, *how: Any, **keys: Any) -> tuple[dict[str, np.ndarray], Any, Any]:
    """Parameters by party, the observer and the engine."""
    cfg = config(module, task, *how, **keys)
    specs, observer = module.parties(task, cfg), Observer(task, cfg)
    graph = topology.build(cfg.topology, ["active"], [name for name in specs if name != "active"], cfg.seed)
    engine = SimulatedEngine(
        specs, task.public, cfg, rounds=cfg.rounds or 1, seed=0, connected=graph.connected,
        neighbours=graph.neighbours, on_report=observer.on_report, on_round=observer.on_round,
    )  # fmt: skip
    engine.run()
    return {party.name: party.state.model.theta.numpy().copy() for party in engine.order}, observer, engine


def noisy(samples: int = 400, features: int = 6, parties: int = 3) -> AlignedTask:
    """Two classes that no line separates."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(samples, features))
    y = (rng.random(samples) < 1 / (1 + np.exp(-x @ rng.normal(size=features) - 0.5))).astype(np.int64)
    return _task(x, y, 2, parties, None, None, Metric("accuracy", "max"), held_out=100)


def whole(thetas: dict[str, np.ndarray]) -> np.ndarray:
    """Weights of all columns in order, then the intercept."""
    return np.concatenate([thetas["active"][:-1], *list(thetas.values())[1:], thetas["active"][-1:]])


def joined(task: AlignedTask) -> np.ndarray:
    x = np.concatenate(task.features, axis=1)
    return np.concatenate([x, np.ones((len(x), 1))], axis=1)


@pytest.mark.parametrize("gradient", ["exact", "taylor"])
def test_it_is_gradient_descent_on_the_joined_columns(gradient: str) -> None:
    task = noisy()
    thetas, observer, _ = trained(hetero_lr, task, 3, gradient=gradient, alpha=0.01)
    x, y, w = joined(task), task.labels, np.zeros(7)
    for t in (1, 2, 3):
        for rows in batches(0, t, len(x), 8):
            u = x[rows] @ w
            r = 1 / (1 + np.exp(-u)) - y[rows] if gradient == "exact" else u / 4 - (y[rows] - 0.5)
            w = w - 0.05 * (x[rows].T @ r / len(rows) + 0.01 * w)
    np.testing.assert_allclose(whole(thetas), w, rtol=0, atol=1e-12)
    test = np.concatenate(task.held_out_features["test"], axis=1)
    right = ((test @ w[:-1] + w[-1] > 0) == task.held_out_labels["test"]).mean()
    assert observer.rows[-1]["test_accuracy"] == pytest.approx(right)


def test_full_batches_reach_what_each_loss_is_least_at() -> None:
    task = noisy()
    x, y = joined(task), task.labels
    full: dict[str, Any] = {"batch_size": len(y), "lr": 0.5}
    exact = LogisticRegression(C=np.inf, tol=1e-10).fit(x[:, :-1], y)
    found = whole(trained(hetero_lr, task, 3000, **full)[0])
    np.testing.assert_allclose(found, [*exact.coef_[0], exact.intercept_[0]], rtol=0, atol=1e-4)
    found = whole(trained(hetero_lr, task, 3000, gradient="taylor", **full)[0])
    np.testing.assert_allclose(found, np.linalg.lstsq(x, 2 * (2.0 * y - 1))[0], rtol=0, atol=1e-8)
    lines = classes(samples=60, features=6, parties=2, classes=0)
    found = whole(trained(hetero_lr, lines, 3000, batch_size=40, lr=0.2)[0]) * lines.labels.std()
    found[-1] += lines.labels.mean()
    np.testing.assert_allclose(found, np.linalg.lstsq(joined(lines), lines.labels)[0], rtol=0, atol=1e-8)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_of_three_classes_it_is_vfl_with_linear_shares(optimizer: str) -> None:
    task = classes(samples=44, parties=3)
    ours, theirs = (trained(module, task, optimizer=optimizer)[0] for module in (hetero_lr, vfl))
    for name, theta in ours.items():
        np.testing.assert_allclose(theta, theirs[name], rtol=0, atol=1e-12)


@pytest.mark.parametrize(("task", "width"), [(noisy(), 1), (classes(samples=44, parties=3), 3)])
def test_a_row_takes_a_number_each_way_of_two_classes(task: AlignedTask, width: int) -> None:
    _, _, engine = trained(hetero_lr, task, 2, "float32")
    sent: Counter[str] = Counter()
    tags = list(engine.tags)
    for row in engine.ledger.take():
        sent[tags[int(row[COLUMN["tag"]])]] += int(row[COLUMN["bytes"]])
    each = 2 * (task.parties - 1) * 4 * width * task.public.samples
    assert sent == {"score": each, "residual": each}


def test_what_has_no_taylor_loss_is_told() -> None:
    for task in (classes(samples=44, parties=3), classes(samples=44, parties=2, classes=0)):
        with pytest.raises(ConfigError, match=r"algorithm\.gradient=taylor: is of the logistic loss of two classes"):
            hetero_lr.parties(task, config(hetero_lr, task, gradient="taylor"))
    private = replace(config(hetero_lr, noisy(), gradient="taylor"), privacy=privacy_config("label_rr"))
    assert [problem.key for problem in hetero_lr.check(private)] == ["algorithm.gradient"]
    bent = replace(config(hetero_lr, noisy()), model=Linear(relu_output=True))
    assert [problem.key for problem in hetero_lr.check(bent)] == ["model.relu_output"]
