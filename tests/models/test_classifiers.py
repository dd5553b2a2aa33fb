"""Gradients by hand are autograd's; clipped ones are those of torch.func's per-sample gradients; initial values come
from the generator."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from vflbench.cards.models.classifiers import Config, check
from vflbench.data.tasks import ShardedPublic
from vflbench.models import classifiers
from vflbench.types import ConfigError

CASES = [("mlp3", 4), ("cnn3", 4), ("logistic", 3), ("logistic", 0)]


def made(name: str, classes: int, rows: int = 9) -> tuple[torch.nn.Sequential, classifiers.Network, Tensor, Tensor]:
    config, public = Config(name, [6, 5], [3, 4], 3, "float64"), ShardedPublic((rows,), (2, 8, 8), classes)
    generator = torch.Generator().manual_seed(3)
    model = classifiers.build(config, public.shape, public.outputs, generator)
    x = torch.randn(rows, 2, 8, 8, dtype=torch.float64, generator=generator)
    y = (
        torch.randint(classes, (rows,), generator=generator)
        if classes
        else torch.randn(rows, dtype=torch.float64, generator=generator)
    )
    return model, classifiers.network(config, public), x, y


def per_sample(model: torch.nn.Sequential, x: Tensor, y: Tensor, classes: int) -> Tensor:
    """(n, D): torch.vmap of torch.func.grad, the slow and plain way."""
    names = [name for name, _ in model.named_parameters()]

    def loss(parameters: tuple[Tensor, ...], x: Tensor, y: Tensor) -> Tensor:
        z = torch.func.functional_call(model, dict(zip(names, parameters, strict=True)), (x[None],))
        return F.cross_entropy(z, y[None]) if classes else (z[0, 0] - y).square() / 2

    found = torch.func.vmap(torch.func.grad(loss), (None, 0, 0))(tuple(model.parameters()), x, y)
    return torch.cat([part.flatten(1) for part in found], dim=1)


@pytest.mark.parametrize(("name", "classes"), CASES)
def test_gradients_are_autograds(name: str, classes: int) -> None:
    model, network, x, y = made(name, classes)
    theta = classifiers.flat(model)
    torch.testing.assert_close(network.predict(theta, x), model(x))
    loss, gradient = network.gradient(theta, x, y)
    reference = per_sample(model, x, y, classes)
    torch.testing.assert_close(gradient, reference.mean(dim=0), rtol=1e-10, atol=1e-13)
    z = model(x)
    torch.testing.assert_close(loss, F.cross_entropy(z, y) if classes else (z[:, 0] - y).square().mean() / 2)


@pytest.mark.parametrize(("name", "classes"), CASES)
def test_clipped_sums_are_those_of_per_sample_gradients(name: str, classes: int) -> None:
    """Half of the norms above the clip; rows that only fill up count nothing; none left is longer than the clip."""
    model, network, x, y = made(name, classes)
    theta, counts = classifiers.flat(model), torch.ones(len(x), dtype=torch.float64)
    counts[-2:] = 0
    reference = per_sample(model, x, y, classes)
    norms = reference.norm(dim=1)
    clip = float(norms[:-2].median())
    clipped = reference / (norms / clip).clamp_min(1)[:, None]
    assert float(clipped.norm(dim=1).max()) <= clip * (1 + 1e-12)
    losses, total = network.clipped_gradient(theta, x, y, counts, clip)
    torch.testing.assert_close(total, clipped[:-2].sum(dim=0), rtol=1e-10, atol=1e-13)
    torch.testing.assert_close(losses.mean(), network.gradient(theta, x, y)[0])
    assert not torch.allclose(total, reference[:-2].sum(dim=0))


@pytest.mark.parametrize("name", ["mlp3", "cnn3"])
def test_a_cohort_in_one_call_is_the_loop(name: str) -> None:
    model, network, x, y = made(name, 4)
    thetas = torch.stack([classifiers.flat(model) * scale for scale in (0.5, 1.0, 2.0)])
    counts = torch.ones(3, len(x), dtype=torch.float64)
    batches = x[None] * torch.tensor([1.0, -1.0, 0.3], dtype=torch.float64).view(3, 1, 1, 1, 1)
    together = torch.func.vmap(network.clipped_gradient, (0, 0, None, 0, None))(thetas, batches, y, counts, 0.5)
    for m in range(3):
        for part, alone in zip(
            together, network.clipped_gradient(thetas[m], batches[m], y, counts[m], 0.5), strict=True
        ):
            torch.testing.assert_close(part[m], alone, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize(("name", "classes"), [case for case in CASES if case[0] != "cnn3"])
def test_steps_in_place_of_several_models_are_their_gradients(name: str, classes: int) -> None:
    model, network, x, y = made(name, classes, rows=8)
    assert network.dense and not made("cnn3", 4)[1].dense
    theta = torch.stack([classifiers.flat(model), classifiers.flat(model) / 2])
    xs, ys = x.view(2, 4, *x.shape[1:]), y.view(2, 4)
    expected = [network.gradient(*rows) for rows in zip(theta, xs, ys, strict=True)]
    want = torch.stack([0.75 * own - 0.1 * gradient for own, (_, gradient) in zip(theta, expected, strict=True)])
    losses = network.descend(theta, xs, ys, 0.75, 0.1)
    torch.testing.assert_close(theta, want, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(losses, torch.stack([loss for loss, _ in expected]), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(("name", "classes"), [case for case in CASES if case[0] != "cnn3"])
def test_gradients_of_several_models_have_the_very_numbers_of_vmap(name: str, classes: int) -> None:
    _, network, x, y = made(name, classes, 12)
    thetas = torch.randn(3, sum(network.sizes), dtype=torch.float64)
    xs, ys = x.view(3, 4, *x.shape[1:]), y.view(3, 4)
    losses, found = network.gradients(thetas, xs, ys, -0.3)
    expected = torch.func.vmap(lambda theta, x, y: network.gradient(theta, x, y, -0.3))(thetas, xs, ys)
    assert torch.equal(losses, expected[0])
    assert torch.equal(found, expected[1])


def test_initial_values_come_from_the_generator_alone() -> None:
    torch.manual_seed(0)
    first = classifiers.flat(made("mlp3", 4)[0])
    torch.manual_seed(1)
    assert torch.equal(first, classifiers.flat(made("mlp3", 4)[0]))
    weight = made("mlp3", 4)[0][1].weight
    assert 0.9 / 128**0.5 < float(weight.abs().max()) <= 1 / 128**0.5  # 128 inputs


def test_what_cannot_be_is_told() -> None:
    assert [p.key for p in check(Config(widths=[], channels=[0], kernel=2))] == [
        "model.widths",
        "model.channels",
        "model.kernel",
    ]
    with pytest.raises(ConfigError, match="needs images of at least 4 pixels"):
        classifiers.check_fits(Config("cnn3"), ShardedPublic((9,), (12,), 2))
