"""Losses of a sum of partial predictions: value, gradient, and the ADMM's update of the auxiliary variable z.

All rows at once: `h`, `z`, `dual` are (N, d_c); `y` is (N,) float targets (squared loss, d_c = 1) or int64 classes
(cross-entropy).

References
----------
Xu et al.: TablePuppet, arXiv 2403.15839, equation 7 (z-update).
"""

import torch
import torch.nn.functional as F
from torch import Tensor

NEWTON_STEPS = 50
HALVINGS = 20


class Squared:
    """l = (z - y)^2 / 2."""

    def mean(self, z: Tensor, y: Tensor) -> float:
        """Mean of l over the rows."""
        return float((z[:, 0] - y).square().mean() / 2)

    def gradient(self, z: Tensor, y: Tensor) -> Tensor:
        """dl/dz of every row, (N, d_c)."""
        return z - y[:, None]

    def z_update(self, y: Tensor, dual: Tensor, h: Tensor, rho: float, z: Tensor, solver: str) -> Tensor:
        """argmin_z l(z; y) - dual^T z + (rho / 2) ||h - z||^2 per row (equation 7), warm-started at `z`."""
        return (y[:, None] + dual + rho * h) / (1 + rho)


class CrossEntropy:
    """l = -log softmax(z)_y: logistic regression with two classes."""

    def mean(self, z: Tensor, y: Tensor) -> float:
        return float(F.cross_entropy(z, y))

    def gradient(self, z: Tensor, y: Tensor) -> Tensor:
        p = torch.softmax(z, dim=1)
        return p.sub_(F.one_hot(y, z.shape[1]))

    def z_update(self, y: Tensor, dual: Tensor, h: Tensor, rho: float, z: Tensor, solver: str) -> Tensor:
        # the part of the gradient that z does not change, with the sign changed
        slope = dual + F.one_hot(y, z.shape[1])
        return _newton(slope, h, rho, z) if solver == "newton" else _adam(slope, h, rho, z)


Loss = Squared | CrossEntropy


def make(classes: int) -> Loss:
    """Squared loss for regression (`classes` 0), else cross-entropy."""
    return CrossEntropy() if classes else Squared()


def _residual(z: Tensor, slope: Tensor, h: Tensor, rho: float) -> tuple[Tensor, Tensor]:
    """softmax(z), and the gradient of equation 7's objective at z."""
    p = torch.softmax(z, dim=1)
    return p, p - slope + rho * (z - h)


def _newton(slope: Tensor, h: Tensor, rho: float, z: Tensor) -> Tensor:
    """Damped Newton of every row: the Hessian is diag(p + rho) - p p^T, whose inverse is a rank-one correction of a
    diagonal.

    A row whose gradient would grow takes half the step, until it shrinks: the objective is strongly convex, so it does.
    """
    tolerance = 1e-11 if z.dtype == torch.float64 else 1e-6
    p, gradient = _residual(z, slope, h, rho)
    size = gradient.abs().amax(dim=1)
    for _ in range(NEWTON_STEPS):
        if not bool((size > tolerance * (1 + h.abs().amax(dim=1))).any()):
            break
        scaled, weight = gradient / (p + rho), p / (p + rho)
        step = scaled + weight * ((p * scaled).sum(dim=1, keepdim=True) / (1 - (p * weight).sum(dim=1, keepdim=True)))
        length = torch.ones_like(size)
        for _ in range(HALVINGS):
            new = z - length[:, None] * step
            new_p, new_gradient = _residual(new, slope, h, rho)
            new_size = new_gradient.abs().amax(dim=1)
            grows = new_size > size
            if not bool(grows.any()):
                break
            length = torch.where(grows, length / 2, length)
        better = new_size <= size
        z = torch.where(better[:, None], new, z)
        if not bool((new_size < size).any()):  # rounding: no row gains any more
            break
        p, gradient, size = (
            torch.where(better[:, None], new_p, p),
            torch.where(better[:, None], new_gradient, gradient),
            torch.minimum(new_size, size),
        )
    return z


def _adam(slope: Tensor, h: Tensor, rho: float, z: Tensor) -> Tensor:
    """The released code's: 100 Adam steps of learning rate 1."""
    z = z.clone()
    optimizer = torch.optim.Adam([z], lr=1.0)
    for _ in range(100):
        z.grad = _residual(z, slope, h, rho)[1]
        optimizer.step()
    return z.detach()
