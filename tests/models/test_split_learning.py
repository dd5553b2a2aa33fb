"""Split networks: against torch.nn, gradients at parameters of the past, batches, initial parameters, averages."""

from __future__ import annotations

import itertools
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from vflbench.algorithms.split.worker_replica import average
from vflbench.cards.models.split_learning import Config, check
from vflbench.config import convert
from vflbench.models.split_learning import Active, Passive
from vflbench.models.vertical import Deep, Top
from vflbench.seeding import batches

SMALL = Config(depth=4, width=5, embedding=3, top_width=4, dtype="float64")


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def rows(count: int, width: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(count, width, generator=generator(seed), dtype=torch.float64)


def active(
    classes: int = 3, parties: int = 3, **keys: Any
) -> tuple[Active, torch.Tensor, torch.Tensor, list[torch.Tensor]]:
    """A model, own rows, labels and the passive parties' embeddings."""
    labels = np.arange(7) % classes if classes else np.linspace(-3.0, 11.0, 7)
    public = SimpleNamespace(parties=parties, classes=classes, outputs=classes or 1)
    model = Active(replace(SMALL, **keys), (6,), public, labels, generator())
    return model, rows(7, 6), torch.from_numpy(labels), [rows(7, 3, seed) for seed in range(2, parties + 1)]


def test_the_paper_sized_bottom_has_ten_layers() -> None:
    bottom = Deep(Config(), 20, 32, "mlp10")
    widths = [20, *[64] * 9, 32]
    assert bottom.size == sum(i * o + o for i, o in itertools.pairwise(widths))
    residual = Deep(Config(), 20, 32, "residual_mlp")
    assert residual.shapes == bottom.shapes  # the first layer, four blocks of two, the last one


def test_ten_layers_are_torchs() -> None:
    bottom = Deep(replace(SMALL, depth=10), 6, SMALL.embedding, "mlp10")
    theta = bottom.initial(generator())
    widths = [6, *[5] * 9, 3]
    layers = [torch.nn.Linear(i, o).double() for i, o in itertools.pairwise(widths)]
    torch.nn.utils.vector_to_parameters(theta, torch.nn.ModuleList(layers).parameters())
    x = expected = rows(7, 6)
    for i, layer in enumerate(layers):
        expected = layer(expected if i == 0 else expected.relu())
    torch.testing.assert_close(bottom(theta, x), expected.detach(), rtol=1e-12, atol=1e-12)


def test_a_residual_block_whose_weights_are_zero_passes_its_input() -> None:
    bottom = Deep(SMALL, 6, SMALL.embedding, "residual_mlp")
    theta = bottom.initial(generator())
    parts = list(theta.split(bottom.sizes))
    for inner in parts[2:6]:
        inner.zero_()
    first, shift, last, bias = (parts[k].view(bottom.shapes[k]) for k in (0, 1, 6, 7))
    x = rows(7, 6)
    expected = F.linear(F.relu(F.layer_norm(F.linear(x, first, shift), (5,))), last, bias)
    torch.testing.assert_close(bottom(theta, x), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["mlp10", "residual_mlp"])
def test_an_embedding_is_a_function_of_its_row(name: str) -> None:
    model = Passive(replace(SMALL, name=name), (6,), generator())
    x = rows(7, 6)
    assert model(x).shape == (7, 3)
    torch.testing.assert_close(model(x)[2:3], model(x[2:3]), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("keeps", [True, False])
def test_a_passive_gradient_is_at_the_parameters_of_its_embedding(keeps: bool) -> None:
    model, x, dz = Passive(SMALL, (6,), generator()), rows(7, 6), rows(7, 3, seed=9)
    at = model.theta.clone().requires_grad_()
    z = model.network(at, x)
    (z * dz).sum().backward()
    asked: list[None] = []

    def again() -> torch.Tensor:
        asked.append(None)
        return x

    halved = SimpleNamespace(clip=lambda z: z / 2)  # a gradient passes through what privacy does to an embedding
    for privacy, expected in ((None, at.grad), (halved, at.grad / 2)):  # type: ignore[operator]
        made = model.embed(x, keeps)
        assert torch.equal(made.z, z) and made.z.requires_grad == keeps
        model.theta.mul_(2)  # a step, before the gradient comes
        torch.testing.assert_close(model.gradient(made, again, dz, privacy), expected, rtol=1e-12, atol=1e-12)
        model.theta.div_(2)
    assert len(asked) == 2 * (not keeps) and model.theta.grad is None and not model.theta.requires_grad


@pytest.mark.parametrize("classes", [3, 0])
def test_active_gradients_are_numerical_derivatives(classes: int) -> None:
    model, x, y, zs = active(classes)
    loss, gradient, dz = model.gradients(x, y, zs)

    def value(theta: torch.Tensor, zs: list[torch.Tensor]) -> float:
        out = model.outputs(theta, x, zs)
        target = (y - model.shift) / model.scale
        return float(F.cross_entropy(out, y) if classes else ((out[:, 0] - target) ** 2).mean())

    assert loss == pytest.approx(value(model.theta, zs), abs=1e-12)
    assert gradient.shape == model.theta.shape and [d.shape for d in dz] == [(7, 3), (7, 3)]
    for direction in range(3):
        d = torch.randn(gradient.shape, generator=generator(direction), dtype=torch.float64)
        slope = (value(model.theta + 1e-6 * d, zs) - value(model.theta - 1e-6 * d, zs)) / 2e-6
        assert float(gradient @ d) == pytest.approx(slope, abs=1e-6)
        for k in range(2):
            e = rows(7, 3, seed=20 + direction)
            there, back = ([z + sign * 1e-6 * e * (i == k) for i, z in enumerate(zs)] for sign in (1, -1))
            assert float((dz[k] * e).sum()) == pytest.approx(
                (value(model.theta, there) - value(model.theta, back)) / 2e-6, abs=1e-6
            )


def test_a_regressions_scores_are_targets() -> None:
    model, x, y, zs = active(classes=0)
    assert (float(model.shift), float(model.scale)) == pytest.approx((y.mean().item(), y.std(correction=0).item()))
    torch.testing.assert_close(model(x, zs), model.outputs(model.theta, x, zs) * model.scale + model.shift)
    public = SimpleNamespace(parties=2, classes=0, outputs=1)
    flat = Active(SMALL, (6,), public, np.full(7, 2.5), generator())  # a target that does not vary
    assert (float(flat.shift), float(flat.scale)) == (2.5, 1.0)


def test_the_order_of_the_parties_counts() -> None:
    model, x, _, zs = active()
    assert Top(SMALL, 9, 2).shapes == [(4, 9), (4,), (2, 4), (2,)]
    assert not torch.allclose(model(x, zs), model(x, zs[::-1]))


def test_initial_parameters_are_he_normal_and_drawn_alike_for_both_dtypes() -> None:
    bottom = Deep(Config(width=200, depth=3), 100, 32, "mlp10")
    theta = bottom.initial(generator(3))
    weights = [part for part, shape in zip(theta.split(bottom.sizes), bottom.shapes, strict=True) if len(shape) == 2]
    shifts = [part for part, shape in zip(theta.split(bottom.sizes), bottom.shapes, strict=True) if len(shape) == 1]
    assert [w.std().item() for w in weights] == pytest.approx([(2 / n) ** 0.5 for n in (100, 200, 200)], rel=0.03)
    assert all(not shift.any() for shift in shifts)
    assert theta.dtype == torch.float32
    double = Deep(Config(width=200, depth=3, dtype="float64"), 100, 32, "mlp10").initial(generator(3))
    assert torch.equal(double.float(), theta)


def test_batches_are_every_row_once_and_the_same_for_all() -> None:
    for epoch in (1, 2):
        cut = batches(4, epoch, 23, 5)
        assert [len(b) for b in cut] == [5, 5, 5, 5, 3]
        assert sorted(np.concatenate(cut)) == list(range(23))
        assert all(np.array_equal(a, b) for a, b in zip(cut, batches(4, epoch, 23, 5), strict=True))
    assert not np.array_equal(batches(4, 1, 23, 5)[0], batches(4, 2, 23, 5)[0])
    assert not np.array_equal(batches(4, 1, 23, 5)[0], batches(5, 1, 23, 5)[0])
    assert [len(b) for b in batches(0, 1, 23, 23)] == [23]


def test_the_mean_of_replicas() -> None:
    replicas = [torch.tensor([1.0, 2.0]), torch.tensor([3.0, 6.0]), torch.tensor([8.0, 1.0])]
    assert average(replicas).tolist() == pytest.approx([4.0, 3.0])
    assert average(replicas, [3, 1, 0]).tolist() == pytest.approx([1.5, 3.0])
    assert torch.equal(average(replicas[:1]), replicas[0])


def test_what_is_wrong_is_told_together() -> None:
    assert check(SMALL) == [] and check(Config("residual_mlp")) == []
    bad = {"depth": 0, "width": 0, "embedding": 0, "top_width": -1}
    assert {p.key for p in convert(Config, bad)[1]} == bad.keys()
    assert [p.key for p in check(Config("mlp10", depth=1))] == ["model.depth"]
    assert [p.allowed for p in check(Config("residual_mlp", depth=5))] == ["must be even: a block has two layers"]
