"""Randomised response on labels: probabilities, what is spent, the loss that corrects, and what is refused."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import vflbench
from tests.options import check_keys, privacy_config
from vflbench.privacy import mechanisms
from vflbench.privacy.label_rr import RandomisedLabels
from vflbench.privacy.tables import NoisyLabels, label_noise
from vflbench.seeding import Secret, stream
from vflbench.types import ConfigError, FederationError


def mechanism(classes: int = 2, **keys: object) -> RandomisedLabels:
    made = mechanisms.make(privacy_config("label_rr", **keys), mechanisms.Facts("aligned", classes=classes), True)  # type: ignore[arg-type]
    assert isinstance(made, RandomisedLabels)
    return made


@pytest.mark.parametrize("secret", [False, True])
@pytest.mark.parametrize("classes", [2, 5])
def test_a_label_stays_as_often_as_epsilon_allows(classes: int, secret: bool) -> None:
    """Each other class is as likely; the largest ratio of two probabilities is e^epsilon."""
    n, epsilon = 60_000, 1.2
    private = mechanism(classes, epsilon=epsilon)
    labels = np.full(n, 1)
    rng = Secret().stream("labels") if secret else stream(0, "labels/active")
    shown = private.respond(labels, rng)
    expected = np.full(classes, private.flip)
    expected[1] = private.keep
    assert expected.sum() == pytest.approx(1, rel=1e-12)
    assert private.keep / private.flip == pytest.approx(math.exp(epsilon), rel=1e-12)
    assert private.keep == pytest.approx(math.exp(epsilon) / (math.exp(epsilon) + classes - 1), rel=1e-12)
    np.testing.assert_allclose(np.bincount(shown, minlength=classes) / n, expected, atol=5 * 0.5 / np.sqrt(n))
    assert shown.dtype == labels.dtype and (labels == 1).all()


def test_it_repeats_itself_by_its_stream_and_is_used_once() -> None:
    labels = np.arange(3000) % 3
    shown = [mechanism(3, epsilon=1.0).respond(labels, stream(seed, "labels/active")) for seed in (0, 0, 1)]
    assert (shown[0] == shown[1]).all() and (shown[0] != shown[2]).any()
    private = mechanism(3)
    assert private.spent()["epsilon"] == 0 and private.spent()["releases"] == {"planned": 1, "done": 0}
    private.respond(labels, stream(0, "labels/active"))
    with pytest.raises(FederationError, match="labels are randomised once: a second response would double"):
        private.respond(labels, stream(0, "labels/active"))
    again = mechanism(3)
    again.load_state_dict(private.state_dict())
    assert again.spent() == private.spent()
    with pytest.raises(FederationError, match="randomised once"):
        again.respond(labels, stream(0, "labels/active"))


def test_what_is_spent_is_what_was_asked() -> None:
    private = mechanism(4, epsilon=3.0)
    private.respond(np.zeros(5, np.int64), stream(0, "labels/active"))
    found = private.spent()
    assert (found["epsilon"], found["delta"], found["spent_of_target"]) == (3.0, 0.0, 1.0)
    assert (found["unit"], found["covers"]) == ("the label of one training row", "transcript")
    assert (found["accountant"], found["neighbouring"]) == ("pure", "replace_one")
    assert mechanism(2).epsilon == 8.0  # where no key says it
    free = mechanism(3, epsilon=math.inf)
    labels = np.arange(100) % 3
    assert (free.respond(labels, stream(0, "labels/active")) == labels).all() and free.spent()["epsilon"] == math.inf


@given(epsilon=st.floats(0.05, 20), classes=st.integers(2, 6), seed=st.integers(0, 10**6))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_the_gradient_of_the_corrected_loss_by_hand(epsilon: float, classes: int, seed: int) -> None:
    """With p' = flip + (keep - flip) p: d(-log p'_y)/ds_j = -(keep - flip) p_y (1[j = y] - p_j) / p'_y."""
    rng, n = np.random.default_rng(seed), 4
    private = mechanism(classes, epsilon=epsilon, debias=True)
    values, labels = 3 * rng.normal(size=(n, classes)), rng.integers(classes, size=n)
    scores = torch.tensor(values, requires_grad=True)
    loss = private.loss(scores, torch.from_numpy(labels))
    (gradient,) = torch.autograd.grad(loss, scores)
    p = np.exp(values - values.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    slope = private.keep - private.flip
    shown = (private.flip + slope * p)[np.arange(n), labels]
    own = p[np.arange(n), labels]
    by_hand = -(slope * own / shown)[:, None] * (np.eye(classes)[labels] - p) / n
    assert float(loss.detach()) == pytest.approx(-np.log(shown).mean(), rel=1e-9, abs=1e-12)
    np.testing.assert_allclose(gradient.numpy(), by_hand, rtol=1e-7, atol=1e-12)


def test_the_corrected_loss_finds_the_share_of_a_rare_class() -> None:
    """At epsilon 1 a share of 5 % is shown as 29 %; one score for all rows, fitted to these, gives 5 % again."""
    labels = (np.arange(40_000) % 20 == 0).astype(np.int64)
    found = {}
    for debias in (False, True):
        private = mechanism(2, epsilon=1.0, debias=debias)
        shown = torch.from_numpy(private.respond(labels, stream(0, "labels/active")))
        score = torch.zeros((), dtype=torch.float64, requires_grad=True)
        optimiser = torch.optim.LBFGS([score], max_iter=50)

        def closure(
            private: RandomisedLabels = private,
            shown: torch.Tensor = shown,
            score: torch.Tensor = score,
            optimiser: torch.optim.Optimizer = optimiser,
        ) -> torch.Tensor:
            optimiser.zero_grad()
            both = torch.stack([torch.zeros_like(score), score]).expand(len(shown), 2)
            loss = private.loss(both, shown)
            loss.backward()
            return loss

        optimiser.step(closure)
        found[debias] = float(torch.sigmoid(score.detach()))
    assert found[False] == pytest.approx(0.05 + 0.9 * mechanism(2, epsilon=1.0).flip, abs=0.01)
    assert found[True] == pytest.approx(0.05, abs=0.01)


@pytest.mark.parametrize("epsilon", [500.0, 1e-30])
def test_no_epsilon_overflows(epsilon: float) -> None:
    private = mechanism(3, epsilon=epsilon, debias=True)
    scores = torch.tensor([[40.0, -40.0, 0.0], [-90.0, 90.0, 0.0]], requires_grad=True)
    loss = private.loss(scores, torch.tensor([0, 0]))
    (gradient,) = torch.autograd.grad(loss, scores)
    assert loss.isfinite() and gradient.isfinite().all()


@pytest.mark.parametrize("name", ["label_rr", "embedding_and_label"])
def test_numbers_are_refused_by_name(name: str, tmp_path: Path) -> None:
    words = ["algorithm=vfl", "dataset=star_schema", "dataset.rows=200", "dataset.dimension_rows=20"]
    words += ["dataset.task=regression", f"privacy={name}", f"hydra.run.dir={tmp_path / 'run'}"]
    told = rf"privacy={name}: randomises classes, and these labels are numbers: choose a data set's classes, or gauss"
    with pytest.raises(ConfigError, match=told):
        vflbench.run(words)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("name", "keys", "wrong"),
    [
        ("label_rr", {"epsilon": 0.0}, ["epsilon"]),
        ("label_rr", {"epsilon": 501.0}, ["epsilon"]),
        ("embedding_and_label", {"label_epsilon": -1.0}, ["label_epsilon"]),
        ("embedding_and_label", {"epsilon": 1.0, "mu": 1.0}, ["privacy.epsilon"]),
        ("embedding_and_label", {"noise_multiplier": 1.0, "calibration": "paper"}, ["privacy.calibration"]),
        ("gdp_embedding", {"noise_multiplier": 1.0, "calibration": "paper"}, ["privacy.calibration"]),
        ("gaussian_gradient", {"clip": 0.0}, ["clip"]),
        ("gaussian_gradient", {"mu": 1.0, "noise_multiplier": 1.0}, ["privacy.mu"]),
    ],
)
def test_check(name: str, keys: dict[str, Any], wrong: list[str]) -> None:
    assert [problem.key for problem in check_keys(privacy_config(name, **keys))] == wrong


def test_it_keeps_more_labels_than_noise_on_one_hot_vectors() -> None:
    """Of 5 classes at epsilon 5.657, which is a deviation of 0.5: 0.986 against 0.81, as the page says."""
    epsilon, labels = 4 * math.sqrt(2), np.arange(50_000) % 5
    assert mechanism(5, epsilon=epsilon).keep == pytest.approx(0.986, abs=5e-4)
    noisy = NoisyLabels(label_noise(epsilon), 5).protect(labels, 5, np.random.default_rng(0))
    assert np.mean(noisy == labels) == pytest.approx(0.81, abs=0.01)
