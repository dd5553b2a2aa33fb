"""Losses of a sum of partial predictions: value, gradient, and the ADMM's update of the auxiliary variable z.

All rows are computed at once: `h`, `z`, `dual` are (N, d_c); `y` is (N,) float targets (squared loss, d_c = 1) or int64
classes (cross-entropy).

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
    """The squared loss l = (z - y)^2 / 2."""

    def mean(self, z: Tensor, y: Tensor, gradient: Tensor | None = None) -> float:
        """The mean of l over the rows; `gradient`, where it is known, spares work."""
        off = z[:, 0] - y if gradient is None else gradient[:, 0]
        return float(off.square().mean()) / 2

    def gradient(self, z: Tensor, y: Tensor) -> Tensor:
        """The derivative dl/dz of every row, (N, d_c)."""
        return z - y[:, None]

    def z_update(self, y: Tensor, dual: Tensor, h: Tensor, rho: float, z: Tensor) -> Tensor:
        """Per row, argmin_z l(z; y) - dual^T z + (rho / 2) ||h - z||^2 (equation 7); the search starts at `z`."""
        return (y[:, None] + dual).add_(rho * h).div_(1 + rho)


class CrossEntropy:
    """The cross-entropy l = -log softmax(z)_y, which for two classes is logistic regression."""

    def mean(self, z: Tensor, y: Tensor, gradient: Tensor | None = None) -> float:
        """As `Squared.mean`."""
        return float(F.cross_entropy(z, y))

    def gradient(self, z: Tensor, y: Tensor) -> Tensor:
        """As `Squared.gradient`."""
        p = torch.softmax(z, dim=1)
        return p.sub_(F.one_hot(y, z.shape[1]))

    def z_update(self, y: Tensor, dual: Tensor, h: Tensor, rho: float, z: Tensor) -> Tensor:
        """As `Squared.z_update`, by Newton's method."""
        # minus the part of the gradient that does not depend on z
        slope = dual + F.one_hot(y, z.shape[1])
        return _newton(slope, h, rho, z)


Loss = Squared | CrossEntropy


def make(classes: int) -> Loss:
    """The squared loss for regression (`classes` 0), else the cross-entropy."""
    return CrossEntropy() if classes else Squared()


def _residual(z: Tensor, slope: Tensor, h: Tensor, rho: float) -> tuple[Tensor, Tensor]:
    """The softmax of z, and the gradient of equation 7's objective at z."""
    p = torch.softmax(z, dim=1)
    return p, p - slope + rho * (z - h)


def _newton(slope: Tensor, h: Tensor, rho: float, z: Tensor) -> Tensor:
    """A damped Newton method for every row.

    The Hessian is diag(p + rho) - p p^T, whose inverse is a rank-one correction of a diagonal. A row whose gradient
    would grow halves its step until the gradient shrinks, which it does because the objective is strongly convex.
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
