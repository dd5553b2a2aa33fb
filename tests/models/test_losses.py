"""Losses against autograd, and the z-update (TablePuppet's equation 7) against a general minimiser."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from tests.every import few_fast
from vflbench.models import losses

ROWS, CLASSES = 12, 4


def case(classes: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """z, h and dual (rows, d_c), y (rows,)."""
    rng = np.random.default_rng(seed)
    z, h, dual = (torch.from_numpy(rng.normal(scale=2, size=(ROWS, classes or 1))) for _ in range(3))
    y = torch.from_numpy(rng.integers(0, classes, ROWS) if classes else rng.normal(size=ROWS))
    return z, h, dual, y


def value(classes: int, z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Sum of the losses, written apart."""
    return -torch.log_softmax(z, 1)[torch.arange(len(y)), y].sum() if classes else ((z[:, 0] - y) ** 2).sum() / 2


@pytest.mark.parametrize("classes", [0, 2, CLASSES])
def test_mean_and_gradient_are_autograds(classes: int) -> None:
    z, _, _, y = case(classes)
    loss, variable = losses.make(classes), z.clone().requires_grad_()
    total = value(classes, variable, y)
    total.backward()
    assert variable.grad is not None
    assert loss.mean(z, y) == pytest.approx(total.item() / ROWS, rel=1e-6)
    torch.testing.assert_close(loss.gradient(z, y), variable.grad, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("rho", few_fast([0.01, 1.0, 10.0]))
@pytest.mark.parametrize("classes", [0, 2, CLASSES])
def test_the_z_update_minimises_equation_7(classes: int, rho: float) -> None:
    z, h, dual, y = case(classes)
    dual = dual / 4  # bounded below for small rho in few steps
    found = losses.make(classes).z_update(y, dual, h, rho, z)
    for row in range(ROWS):

        def objective(flat: np.ndarray, row: int = row) -> tuple[float, np.ndarray]:
            v = torch.from_numpy(flat.copy())[None].requires_grad_()
            f = value(classes, v, y[row : row + 1]) - (dual[row] * v).sum() + rho / 2 * ((h[row] - v) ** 2).sum()
            f.backward()
            return f.item(), v.grad[0].numpy()  # type: ignore[index]

        best = minimize(objective, np.zeros(classes or 1), jac=True, method="BFGS", options={"gtol": 1e-10})
        np.testing.assert_allclose(found[row], best.x, atol=2e-5)
        assert abs(objective(found[row].numpy())[1]).max() < 1e-8
