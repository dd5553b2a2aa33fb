"""Hetero-LR: its reductions to regression in one place, its bytes, and what encryption adds."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from tests.algorithms.small_columns import _task, classes
from tests.options import card_of, option, privacy_config, topology_config
from vflbench.algorithms.split import hetero_lr, vfl
from vflbench.cards.algorithms.split import hetero_lr as hetero_lr_card
from vflbench.cards.federation.codecs import int8 as int8_card
from vflbench.cards.federation.protections import paillier as paillier_card
from vflbench.cards.models.partial import Config as Linear
from vflbench.data.tasks import AlignedTask
from vflbench.federation import topology
from vflbench.federation.codecs import int8
from vflbench.federation.ledger import COLUMN
from vflbench.federation.protections import paillier
from vflbench.federation.simulated import SimulatedEngine
from vflbench.runner.evaluate import Observer
from vflbench.seeding import batches, stream
from vflbench.types import ComputeConfig, ConfigError, EngineConfig, Metric, NetworkConfig, RunConfig


def config(
    module: ModuleType, task: AlignedTask, rounds: int = 2, dtype: str = "float64", protection: Any = None,
    codec: str = "none", **keys: Any,
) -> RunConfig:  # fmt: skip
    algorithm = card_of(module).Config(
        **{"parties": task.parties, "batch_size": 8, "lr": 0.05, "optimizer": "sgd"} | keys
    )
    groups = NetworkConfig("ideal"), topology_config("star"), privacy_config(), EngineConfig(), ComputeConfig()
    run = RunConfig(algorithm, None, Linear(dtype=dtype), *groups)  # type: ignore[arg-type]
    return replace(
        run,
        rounds=rounds,
        eval_every=1 + rounds // 100,
        device="cpu",
        seed=0,
        protection=protection or option("protection", "none"),
        codec=option("codec", codec),
    )


def trained(
    module: ModuleType, task: AlignedTask, *how: Any, on_read: Any = None, **keys: Any
) -> tuple[dict[str, np.ndarray], Any, Any]:
    """Parameters by party, the observer and the engine."""
    cfg = config(module, task, *how, **keys)
    specs, observer = module.parties(task, cfg), Observer(task, cfg)
    servers = [name for name, spec in specs.items() if spec.role == "server"]
    graph = topology.build(cfg.topology, servers, [name for name in specs if name not in servers], cfg.seed)
    engine = SimulatedEngine(
        specs, task.public, cfg, rounds=cfg.rounds or 1, seed=0, connected=graph.connected,
        neighbours=graph.neighbours, on_report=observer.on_report, on_round=observer.on_round, on_read=on_read,
        codec=cfg.codec,
    )  # fmt: skip
    engine.run()
    learnt = [party for party in engine.order if party.name != "arbiter"]
    return {party.name: party.state.model.theta.numpy().copy() for party in learnt}, observer, engine


def sent(engine: Any) -> Counter[str]:
    """Bytes of the rounds by tag."""
    found: Counter[str] = Counter()
    tags = list(engine.tags)
    for row in engine.ledger.take():
        found[tags[int(row[COLUMN["tag"]])]] += int(row[COLUMN["bytes"]])
    return found


def noisy(samples: int = 400, features: int = 6, parties: int = 3) -> AlignedTask:
    """Two classes that no line separates."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(samples, features))
    y = (rng.random(samples) < 1 / (1 + np.exp(-x @ rng.normal(size=features) - 0.5))).astype(np.int64)
    return _task(x, y, 2, parties, None, None, Metric("accuracy", "max"), held_out=100)


def numbers(parties: int) -> AlignedTask:
    """A regression whose targets have mean 0 and variance 1: Hetero-LR makes them so, linear `vfl` centres them."""
    task = classes(samples=44, parties=parties, classes=0)
    return replace(task, labels=(task.labels - task.labels.mean()) / task.labels.std())


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


@pytest.mark.slow
def test_full_batches_reach_what_each_loss_is_least_at() -> None:
    task = noisy()
    x, y = joined(task), task.labels
    full: dict[str, Any] = {"batch_size": len(y), "lr": 4.0}
    exact = LogisticRegression(C=np.inf, tol=1e-10).fit(x[:, :-1], y)
    found = whole(trained(hetero_lr, task, 300, **full)[0])
    np.testing.assert_allclose(found, [*exact.coef_[0], exact.intercept_[0]], rtol=0, atol=1e-4)
    found = whole(trained(hetero_lr, task, 100, gradient="taylor", **full)[0])
    np.testing.assert_allclose(found, np.linalg.lstsq(x, 2 * (2.0 * y - 1))[0], rtol=0, atol=1e-8)
    lines = classes(samples=60, features=6, parties=2, classes=0)
    found = whole(trained(hetero_lr, lines, 100, batch_size=40, lr=0.8)[0]) * lines.labels.std()
    found[-1] += lines.labels.mean()
    np.testing.assert_allclose(found, np.linalg.lstsq(joined(lines), lines.labels)[0], rtol=0, atol=1e-8)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_of_three_classes_it_is_vfl_with_linear_shares(optimizer: str) -> None:
    task = classes(samples=44, parties=3)
    ours, theirs = (trained(module, task, optimizer=optimizer)[0] for module in (hetero_lr, vfl))
    for name, theta in ours.items():
        np.testing.assert_allclose(theta, theirs[name], rtol=0, atol=1e-12)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_of_numbers_it_is_vfl_with_linear_shares_of_width_one(optimizer: str) -> None:
    task = numbers(parties=3)
    ours, theirs = (trained(module, task, optimizer=optimizer)[0] for module in (hetero_lr, vfl))
    for name, theta in ours.items():
        np.testing.assert_allclose(theta, theirs[name], rtol=0, atol=1e-12)


def test_of_two_classes_it_is_the_difference_of_vfls_two_scores_at_half_the_step() -> None:
    """Both of those move, and by opposite gradients."""
    ours, theirs = trained(hetero_lr, noisy(), lr=0.1)[0], trained(vfl, noisy(), lr=0.05)[0]
    for name, theta in ours.items():
        score = theirs[name].reshape(-1, 2)
        np.testing.assert_allclose(theta, score[:, 1] - score[:, 0], rtol=0, atol=1e-12)


@pytest.mark.parametrize(("module", "beside"), [(hetero_lr, 0), (vfl, 3 * 8)])
def test_one_number_a_row_under_int8_is_a_quantised_score(module: ModuleType, beside: int) -> None:
    """By hand: what arrives of a score, and of a residual, is a whole multiple of a scale.

    Beside them `vfl` sends the batch's number, the attempt and a time.
    """
    task = numbers(parties=2)
    thetas, _, engine = trained(module, task, codec="int8")
    draws = {name: stream(0, f"codec/{name}") for name in ("active", "passive_1")}

    def arrived(values: np.ndarray, sender: str) -> np.ndarray:
        codes, scale = int8.encode(torch.from_numpy(values), draws[sender], int8_card.Config())
        return codes.numpy() * float(scale)

    own, other = np.column_stack([task.features[0], np.ones(24)]), task.features[1]
    w, v = np.zeros(7), np.zeros(6)
    for t in (1, 2):
        for rows in batches(0, t, 24, 8):
            r = (own[rows] @ w + arrived(other[rows] @ v, "passive_1") - task.labels[rows]) / 8
            w, v = w - 0.05 * own[rows].T @ r, v - 0.05 * other[rows].T @ arrived(r, "active")
    np.testing.assert_allclose(thetas["active"], w, rtol=0, atol=1e-12)
    np.testing.assert_allclose(thetas["passive_1"], v, rtol=0, atol=1e-12)
    assert set(sent(engine).values()) == {6 * (8 + 4 + beside)}  # of six batches


@pytest.mark.parametrize(("task", "width"), [(noisy(), 1), (classes(samples=44, parties=3), 3)])
def test_a_row_takes_a_number_each_way_of_two_classes(task: AlignedTask, width: int) -> None:
    each = 2 * (task.parties - 1) * 4 * width * task.public.samples
    assert sent(trained(hetero_lr, task, 2, "float32")[2]) == {"score": each, "residual": each}


# --- under encryption -------------------------------------------------------------------------------------------------


PAILLIER = paillier_card.Config(key_bits=1024)
LINES = classes(samples=60, features=6, parties=2, classes=0)


@pytest.mark.parametrize("task", [noisy(parties=2), noisy(parties=3), LINES], ids=["host", "hosts", "numbers"])
@pytest.mark.parametrize(("dtype", "optimizer"), [("float64", "sgd"), ("float32", "adam")])
def test_encryption_leaves_the_model_as_it_is(task: AlignedTask, dtype: str, optimizer: str) -> None:
    keys = {"optimizer": optimizer, "gradient": "taylor" if task.classes else "exact"}
    clear, seen, _ = trained(hetero_lr, task, 2, dtype, **keys)
    hidden, also, _ = trained(hetero_lr, task, 2, dtype, PAILLIER, **keys)
    assert all(np.array_equal(theta, hidden[name]) for name, theta in clear.items())
    assert [{**row, "bytes": 0} for row in seen.rows] == [{**row, "bytes": 0} for row in also.rows]


def test_the_loss_is_one_that_encryption_can_have_unless_another_is_asked_for() -> None:
    task = noisy(parties=2)
    hidden, asked = (
        trained(hetero_lr, task, 2, protection=PAILLIER, **keys)[0] for keys in ({}, {"gradient": "taylor"})
    )
    assert all(np.array_equal(theta, asked[name]) for name, theta in hidden.items())
    clear, exact = (trained(hetero_lr, task, 2, **keys)[0] for keys in ({}, {"gradient": "exact"}))
    assert all(np.array_equal(theta, exact[name]) for name, theta in clear.items())
    trained(hetero_lr, LINES, 1, protection=PAILLIER)  # numbers have their own loss


def test_bytes_and_operations_under_encryption_are_the_formula() -> None:
    """rivals.md 6.2, for two hosts; the intercept is the guest's."""
    task = noisy(parties=3)
    n, d, hosts, batches_ = task.public.samples, 6 + 1, 2, -(-task.public.samples // 64)
    _, _, engine = trained(hetero_lr, task, 1, "float32", PAILLIER, gradient="taylor", batch_size=64)
    each = hosts * n * 256
    masked, unmasked = batches_ * d * 256, batches_ * d * 8
    assert sent(engine) == {"score": each, "residual": each, "masked": masked, "unmasked": unmasked}
    counts = {name: party.state.counts for name, party in engine.parties.items()}
    assert counts["arbiter"] == {"decrypted": batches_ * d}
    products = n * 2  # each party has two columns
    assert counts["passive_1"] == {"encrypted": n, "multiplied": products, "added": products + 2 * batches_}
    own = {"encrypted": n, "multiplied": products, "added": hosts * n + products + n + 3 * batches_}
    assert counts["active"] == own


def test_the_arbiter_sees_gradients_under_masks_alone() -> None:
    task, read = noisy(parties=2), []

    def on_read(sender: str, reader: str, tag: str, round: int, payload: Any) -> None:
        if reader == "arbiter":
            read.append((sender, tag, paillier.unseal(payload, len(payload), 1, np.float64, 1)))

    trained(hetero_lr, task, 1, protection=PAILLIER, gradient="taylor", batch_size=200, on_read=on_read)
    assert {(sender, tag) for sender, tag, _ in read} == {("active", "masked"), ("passive_1", "masked")}
    bits = np.concatenate([values.ravel().view(np.uint64) for _, _, values in read])
    assert len(set(bits.tolist())) == len(bits) and 0.3 < np.unpackbits(bits.view(np.uint8)).mean() < 0.7
    seen = np.concatenate([values.ravel() for _, _, values in read])
    assert not np.any((np.abs(seen) > 1e-6) & (np.abs(seen) < 1))  # where gradients are


def test_what_encryption_cannot_do_is_told() -> None:
    task = noisy(parties=2)
    with pytest.raises(ConfigError, match=r"algorithm\.gradient=exact: is not linear .* needs: taylor"):
        hetero_lr.parties(task, config(hetero_lr, task, protection=PAILLIER, gradient="exact"))
    three = classes(samples=44, parties=3)
    with pytest.raises(ConfigError, match=r"protection=paillier: adds up ciphertexts, and the softmax of 3 classes"):
        hetero_lr.parties(three, config(hetero_lr, three, protection=PAILLIER))
    made = config(hetero_lr, task, protection=PAILLIER)
    both = replace(made, privacy=privacy_config("gdp_embedding"), codec=option("codec", "int8"))
    assert [problem.key for problem in hetero_lr_card.check(both)] == ["privacy", "codec"]


# --- what is refused --------------------------------------------------------------------------------------------------


def test_what_has_no_taylor_loss_is_told() -> None:
    for task in (classes(samples=44, parties=3), classes(samples=44, parties=2, classes=0)):
        with pytest.raises(ConfigError, match=r"algorithm\.gradient=taylor: is of the logistic loss of two classes"):
            hetero_lr.parties(task, config(hetero_lr, task, gradient="taylor"))
    private = replace(config(hetero_lr, noisy(), gradient="taylor"), privacy=privacy_config("label_rr"))
    assert [problem.key for problem in hetero_lr_card.check(private)] == ["algorithm.gradient"]
    bent = replace(config(hetero_lr, noisy()), model=Linear(relu_output=True))
    assert [problem.key for problem in hetero_lr_card.check(bent)] == ["model.relu_output"]
