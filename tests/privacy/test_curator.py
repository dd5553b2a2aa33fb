"""DP-SGD of centralized references: what a trusted curator could release. Noise and clips against slow references."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.stats import norm

import vflbench
from tests.algorithms import small_columns, small_joins
from tests.every import few_fast
from tests.options import privacy_config
from vflbench import seeding
from vflbench.algorithms.joins import centralized_join
from vflbench.algorithms.tokens import centralized_gd
from vflbench.privacy import mechanisms
from vflbench.privacy.examples import ExamplePrivacy
from vflbench.runner.evaluate import Observer
from vflbench.types import ConfigError, VflbenchError

NONE = privacy_config()
OFF = privacy_config("dp_sgd", clip=1e9, noise_multiplier=0.0)


def secrets(privacy: Any) -> dict[str, Any]:
    made = mechanisms.make(privacy, mechanisms.Facts("aligned", alone=True))
    return {} if made is None else {"client_0": made}


def joined(privacy: Any, classes: int = 3, **options: Any) -> small_joins.Result:
    task = small_joins.aligned(classes=classes)
    cfg = replace(small_joins.config(centralized_join, **{"rounds": 3, **options}), privacy=privacy)
    return small_joins.run(centralized_join, task, cfg, privacy=secrets(privacy))


def columns(privacy: Any, task: Any, **options: Any) -> small_columns.Result:
    cfg = replace(small_columns.config(centralized_gd, task, **{"rounds": 3, "lr": 0.05, **options}), privacy=privacy)
    return small_columns.run(centralized_gd, task, cfg, privacy=secrets(privacy))


def parameters(result: Any) -> torch.Tensor:
    model = result.engine.parties["client_0"].state.model
    return torch.cat([one.detach().double().flatten() for one in model.parameters()])


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    """The batches of a run, as they were drawn."""
    found: list[np.ndarray] = []
    sample = ExamplePrivacy.sample

    def recorded(self: ExamplePrivacy, rng: Any) -> np.ndarray:
        found.append(sample(self, rng))
        return found[-1]

    monkeypatch.setattr(ExamplePrivacy, "sample", recorded)
    return found


def noisy_mean(rows: Sequence[torch.Tensor], like: torch.Tensor, clip: float, sigma: float, size: int) -> torch.Tensor:
    """(sum of rows scaled down to `clip` + N(0, (sigma clip)^2)) / size, with the noise of the first step."""
    total = sum((row / max(1.0, float(row.norm()) / clip) for row in rows), torch.zeros_like(like))
    drawn = torch.randn(like.shape, dtype=like.dtype, generator=seeding.torch_stream(0, "noise/client_0"))
    return (total + sigma * clip * drawn) / size


# --- nothing changes without noise ------------------------------------------------------------------------------------


@pytest.mark.parametrize("classes", few_fast([0, 3]))
@pytest.mark.parametrize("model", [{"name": "linear"}, {"name": "mlp", "hidden": 3}], ids=lambda m: m["name"])
def test_a_wide_clip_without_noise_is_no_privacy_to_the_last_bit(model: dict[str, Any], classes: int) -> None:
    keys = {"batch_size": 10**6, "model": model, "weight_decay": 0.01}
    plain, off = joined(NONE, classes, **keys), joined(OFF, classes, **keys)
    assert torch.equal(parameters(off), parameters(plain)) and off.losses == plain.losses
    clipped = joined(privacy_config("dp_sgd", clip=1e-3, noise_multiplier=0.0), classes, **keys)
    assert not torch.allclose(parameters(clipped), parameters(plain), rtol=1e-3)


@pytest.mark.parametrize(
    "task", [small_columns.ridge(), small_columns.sparse(), small_columns.classes(), small_columns.classes(classes=0)]
)
def test_the_same_of_columns(task: Any) -> None:
    plain, off = columns(NONE, task), columns(OFF, task)
    assert torch.equal(parameters(off), parameters(plain)) and float(parameters(plain).abs().max()) > 0
    clipped = columns(privacy_config("dp_sgd", clip=1e-3, noise_multiplier=0.0), task)
    assert not torch.allclose(parameters(clipped), parameters(plain), rtol=1e-3)


# --- slow references --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", few_fast([{"name": "linear"}, {"name": "mlp", "hidden": 3}]), ids=lambda m: m["name"])
def test_a_joined_rows_gradient_is_clipped_over_all_tables(model: dict[str, Any], batches: list[np.ndarray]) -> None:
    clip, sigma, size, lr = 0.3, 0.7, 16, 0.2
    keys = {"batch_size": size, "lr": lr, "weight_decay": 0.0, "model": model, "rounds": 1}
    start = joined(NONE, **{**keys, "lr": 1e-300})
    result = joined(privacy_config("dp_sgd", clip=clip, noise_multiplier=sigma), **{**keys, "rounds": 1})
    parts, task = start.engine.parties["client_0"].state.model, small_joins.aligned(classes=3)
    theta = parameters(start)
    xs = [torch.tensor(np.asarray(task.part(m).features), dtype=torch.float64) for m in range(task.parties)]
    y = torch.tensor(task.labels)
    sizes = [part.theta.numel() for part in parts]

    def loss(flat: torch.Tensor, r: int) -> torch.Tensor:
        z = sum(
            part.network.passed(part.network.views(own), x[[r]])[0]
            for part, own, x in zip(parts, flat.split(sizes), xs, strict=True)
        )
        return F.cross_entropy(z, y[[r]])

    generator = seeding.torch_stream(0, "noise/client_0")
    for chosen in batches:  # of one epoch
        rows = [torch.func.grad(loss)(theta, int(r)) for r in chosen]
        total = sum((row / max(1.0, float(row.norm()) / clip) for row in rows), torch.zeros_like(theta))
        drawn = torch.randn(theta.shape, dtype=theta.dtype, generator=generator)
        theta = theta - lr * (total + sigma * clip * drawn) / size
    assert len(batches) == math.ceil(len(y) / size) and len({len(chosen) for chosen in batches}) > 1
    torch.testing.assert_close(parameters(result), theta, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("task", few_fast([small_columns.ridge(), small_columns.sparse()]), ids=["ridge", "sparse"])
def test_a_rows_gradient_is_clipped_over_all_columns(task: Any, batches: list[np.ndarray]) -> None:
    """The gradient of a row's own loss; an objective that is their sum takes N times the mean."""
    clip, sigma, size, lr = 0.05, 0.7, 9, 0.01
    result = columns(
        privacy_config("dp_sgd", clip=clip, noise_multiplier=sigma), task, rounds=1, batch_size=size, lr=lr
    )
    x = torch.tensor(np.concatenate(task.features, axis=1), dtype=torch.float64)
    y = torch.tensor(np.asarray(task.labels, dtype=np.float64))
    ridge = task.objective.kind == "ridge"
    start = torch.zeros(x.shape[1], dtype=torch.float64)

    def loss(theta: torch.Tensor, r: int) -> torch.Tensor:
        return (x[r] @ theta - y[r]) ** 2 / 2 if ridge else F.softplus(-(2 * y[r] - 1) * (x[r] @ theta))

    (chosen,) = batches
    rows = [torch.func.grad(loss)(start, int(r)) for r in chosen]
    assert any(float(row.norm()) > clip for row in rows)
    mean = noisy_mean(rows, start, clip, sigma, size)
    expected = -lr * mean * (len(y) if ridge else 1)
    if not ridge:
        expected = torch.sign(expected) * (expected.abs() - lr * task.objective.weight).clamp(min=0)
    torch.testing.assert_close(parameters(result), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("labels", [0, 3])
def test_a_rows_gradient_is_clipped_over_all_networks(labels: int, batches: list[np.ndarray]) -> None:
    clip, sigma, size, lr = 0.2, 0.7, 9, 0.1
    task = small_columns.classes(classes=labels)
    options = {"rounds": 1, "batch_size": size, "lr": lr}
    start = columns(NONE, task, **{**options, "lr": 1e-300}).engine.parties["client_0"].state.model
    result = columns(privacy_config("dp_sgd", clip=clip, noise_multiplier=sigma), task, **options)
    own = list(start.parameters())
    y = start.centre.y

    def gradient(r: int) -> torch.Tensor:
        scores = start(*(block.x[[r]] for block in start.clients))
        loss = F.cross_entropy(scores, y[[r]]) if labels else (scores[0, 0] - y[r]) ** 2 / 2
        return torch.cat([one.flatten() for one in torch.autograd.grad(loss, own)])

    (chosen,) = batches
    theta = torch.cat([one.detach().flatten() for one in own])
    mean = noisy_mean([gradient(int(r)) for r in chosen], theta, clip, sigma, size)
    torch.testing.assert_close(parameters(result), theta - lr * mean, rtol=1e-9, atol=1e-11)


# --- what is said -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("module", [centralized_join, centralized_gd])
def test_the_model_is_covered_and_the_budget_is_spent(module: ModuleType) -> None:
    asked = privacy_config("dp_sgd", epsilon=2.0)
    if module is centralized_join:
        result: Any = joined(asked, batch_size=16)
    else:
        result = columns(asked, small_columns.ridge(), batch_size=9, local_steps=2)
    spent = result.engine.parties["client_0"].privacy.spent()
    assert spent["covers"] == "model" and 1.98 < spent["epsilon"] <= 2.0
    assert spent["releases"] == {"planned": 9 if module is centralized_join else 6, "done": spent["steps"]}
    assert "all parties" in spent["unit"] and any("mean label" in phrase for phrase in spent["not_covered"])


@pytest.mark.parametrize("module", few_fast([centralized_join, centralized_gd]))
def test_full_batches_are_plain_gaussian_releases(module: ModuleType) -> None:
    """mu is sqrt(steps) / noise, and delta(epsilon) that of mu-GDP (Dong, Roth, Su 2022, corollary 1)."""
    asked, rounds = privacy_config("dp_sgd", epsilon=2.0), 5
    if module is centralized_join:
        result: Any = joined(asked, rounds=rounds, batch_size=10**6)
    else:
        result = columns(asked, small_columns.ridge(), rounds=rounds)
    spent = result.engine.parties["client_0"].privacy.spent()
    assert (spent["accountant"], spent["sampling"], spent["steps"]) == ("exact", "none", rounds)
    mu, epsilon = math.sqrt(rounds) / spent["noise_multiplier"], spent["epsilon"]
    delta = norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
    assert 2.0 * (1 - 1e-6) < epsilon <= 2.0 and spent["mu"] == pytest.approx(mu)
    assert delta == pytest.approx(spent["delta"], rel=1e-4)


def test_what_cannot_be_is_told() -> None:
    with pytest.raises(ConfigError, match=r"algorithm\.lr.*1 / L, which is computed from the data"):
        columns(privacy_config("dp_sgd", epsilon=1.0), small_columns.ridge(), lr=None)
    with pytest.raises(ConfigError, match="send no predictions"):
        joined(privacy_config("dp_sgd", epsilon=1.0, split=[0.5, 0.5]))
    with pytest.raises(ConfigError, match="only workers with rows of their own can choose"):
        joined(privacy_config("dp_sgd", epsilon=1.0, clip_unit="batch"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ["algorithm=centralized_gd", "dataset=breast_cancer", "algorithm.lr=0.1", "algorithm.batch_size=64"],
        ["algorithm=centralized_join", "dataset=star_schema", "dataset.rows=200", "dataset.task=classes"],
    ],
    ids=["columns", "join"],
)
def test_it_goes_on_where_it_was_stopped(words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same noise and batches, and what was spent before the stop still counts."""
    more = ["rounds=4", "checkpoint_every=2", "privacy=dp_sgd", "privacy.epsilon=2", "plot=none", "floor=none"]

    def run(folder: str, *others: str) -> vflbench.Run:
        return vflbench.run([*words, *more, *others, "engine.threads=1", f"hydra.run.dir={tmp_path / folder}"])

    whole, on_round = run("whole"), Observer.on_round

    def breaks(self: Observer, round: int, engine: Any) -> bool:
        if round == 4:
            raise VflbenchError("the power went")
        return on_round(self, round, engine)

    monkeypatch.setattr(Observer, "on_round", breaks)
    with pytest.raises(VflbenchError, match="the power went"):
        run("stopped")
    monkeypatch.undo()
    goes_on = run("stopped", "resume=true")
    assert goes_on.curve.equals(whole.curve)
    assert goes_on.summary["privacy"] == whole.summary["privacy"] and whole.summary["privacy"]["steps"] >= 4
