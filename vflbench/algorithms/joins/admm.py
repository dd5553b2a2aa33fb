"""The two halves of a round of the sharing ADMM: the server's update of z and lambda, and a table's of its parameters.

References
----------
Xu et al.: TablePuppet, arXiv 2403.15839, equations 7, 8, 14, 16 and 22.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from vflbench.cards.algorithms.joins.join_methods import AdmmKeys
from vflbench.federation.party import Party
from vflbench.models.losses import Loss
from vflbench.models.partial import Partial
from vflbench.privacy import tables
from vflbench.privacy.gradients import NoisyGradients
from vflbench.types import RunConfig

CHUNK = 65536
MOST_CACHED = 200_000_000  # numbers in the cached batch matrices of one client: 1.6 GB
TINY = 1e-12  # for a table that has nothing but zeros
# relative: one-hot columns that add up to a constant make the exact system singular, in directions that predict nothing
JITTER = 1e-10


def dual_step(
    h_own: Sequence[Tensor], z: Tensor, dual: Tensor, y: Tensor, loss: Loss, rho: float
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """The server's half.

    Parameters
    ----------
    h_own : per table its predictions of the joined rows, (N, d_c).
    z, dual : (N, d_c); `dual` is lambda.
    y : labels.

    Returns
    -------
    The new z and lambda, and per table lambda + rho s_i, (N, d_c): the pull on its predictions of each joined row.
    """
    h = sum_of(h_own)
    z = loss.z_update(y, dual, h, rho, z)  # (7)
    # in place: of millions of rows, new memory takes longer than the arithmetic
    dual = (h - z).mul_(rho).add_(dual)  # (8)
    shared = (h - z).mul_(rho).add_(dual)
    pulls = [torch.sub(shared, scaled, out=scaled) for scaled in (rho * own for own in h_own)]
    return z, dual, pulls  # (14), before the sum over G_i(r)


def sum_of(parts: Sequence[Tensor]) -> Tensor:
    """The sum of the parts, added in their order; of one part, that part itself."""
    total = parts[0] + parts[1] if len(parts) > 1 else parts[0]
    for part in parts[2:]:
        total += part
    return total


@dataclass(frozen=True)
class Objective:
    """The factors of `ThetaUpdate`'s objective, which are constant over the rounds."""

    rho: float
    proximal: float = 0.0
    decay: float = 0.0
    share: float = 1.0
    pull: float = 0.0


def local_steps(rows: int, batch_size: int, epochs: int) -> tuple[float, int]:
    """The rate at which a batch of `NoisyGradients` takes rows, and the number of batches of an update."""
    return min(1.0, batch_size / max(rows, 1)), epochs * -(-rows // batch_size)


class ThetaUpdate:
    """Updates `model.theta` in place (equations 16, 22).

    With S = sum_r G_r over the client's rows, and f_r = f(theta; x_r), it minimises

        share / S * sum_r [ Y_r^T f_r + rho G_r / 2 ||f_r||^2 + proximal rho G_r / 2 ||f_r - f_r^old||^2 ]
            + decay / 2 ||theta||^2 + pull / 2 ||theta - centre||^2

    Parameters
    ----------
    x, counts : the client's rows (n, d) and G (n,), all above 0.
    keys : solver is `exact` (linear models: one Cholesky factor serves all rounds) or `sgd`: `local_epochs` passes over
        contiguous batches in a fixed order, with learning rate `lr`. A batch's sum of gradients is divided by the mean
        sum of G of a batch.
    private : if given, a batch takes each row with probability batch_size / n. The gradient of a row is divided by the
        mean G of the client's rows and clipped. The noisy sum is divided by batch_size, whatever the batch's own size
        and sum of G.
    """

    def __init__(
        self,
        model: Partial,
        x: Tensor,
        counts: Tensor,
        objective: Objective,
        keys: AdmmKeys,
        private: NoisyGradients | None = None,
    ) -> None:
        self.model, self.x, self.counts, self.objective, self.private = model, x, counts, objective, private
        self.epochs, self.batch_size, self.lr = keys.local_epochs, keys.batch_size, keys.lr
        self.total = float(counts.sum())
        self.factor: Tensor | None = None
        self.steps: np.ndarray | None = None  # per batch I - lr A_b
        # One divisor for all batches: with its own, a batch of rare rows would count as much as one of common rows.
        self.scale = objective.share / self.total * max(len(x) / self.batch_size, 1.0) if len(x) else 0.0
        columns = model.width + int(model.bias)
        batches = -(-len(x) // self.batch_size)
        self.cached = model.linear and columns <= self.batch_size and batches * columns**2 <= MOST_CACHED
        if private is not None:
            self.solve = self._noisy
        else:
            self.solve = self._exact if keys.solver == "exact" else self._recursion if self.cached else self._batches

    def old(self) -> Tensor | None:
        """The predictions f^old (n, d_c) that the proximal term holds on to; None without that term."""
        return self.model(self.x) if self.objective.proximal else None

    def __call__(self, residual: Tensor, centre: Tensor | None = None, old: Tensor | None = None) -> None:
        """Take one update.

        Parameters
        ----------
        residual : Y, (n, d_c).
        centre : of theta's shape, where `pull` is not 0.
        old : f^old; None: the predictions of now.
        """
        if len(self.x):
            self.solve(residual, self.old() if old is None else old, centre)
        elif centre is not None:  # none of this client's rows joins
            self.model.theta.copy_(centre)

    # --- linear models ------------------------------------------------------------------------------------------------

    def _with_bias(self, x: Tensor) -> Tensor:
        x = x.double()
        return torch.cat([x, x.new_ones(len(x), 1)], dim=1) if self.model.bias else x

    def _right(self, residual: Tensor, old: Tensor | None) -> Tensor:
        """Y - proximal rho G f^old: the factor of x in the part of the gradient that does not depend on theta."""
        if old is None:
            return residual
        return residual - self.objective.proximal * self.objective.rho * self.counts[:, None] * old

    def _exact(self, residual: Tensor, old: Tensor | None, centre: Tensor | None) -> None:
        o, model = self.objective, self.model
        if self.factor is None:
            gram = sum_of([_weighted_gram(self._with_bias(x), g.double()) for x, g in _chunks(self.x, self.counts)])
            matrix = o.share / self.total * (1 + o.proximal) * o.rho * gram
            matrix.diagonal().add_(o.decay + o.pull + JITTER * float(matrix.diagonal().mean()) + TINY)
            self.factor = torch.linalg.cholesky(matrix)
        right = self._right(residual, old)
        b = sum_of([self._with_bias(x).T @ r.double() for x, r in _chunks(self.x, right)]) * (-o.share / self.total)
        if centre is not None:
            b = b + o.pull * centre.double().view(b.shape)
        model.theta.copy_(torch.cholesky_solve(b, self.factor).reshape(-1))

    def _recursion(self, residual: Tensor, old: Tensor | None, centre: Tensor | None) -> None:
        """The mini-batch steps of a linear model: theta <- (I - lr A_b) theta - lr c_b, with constant A_b."""
        o, model, size = self.objective, self.model, self.batch_size
        if self.steps is None:
            columns = model.width + int(model.bias)
            identity = torch.eye(columns, dtype=torch.float64)
            curvature, still = self.scale * (1 + o.proximal) * o.rho, identity * (1 - self.lr * (o.decay + o.pull))
            grams = (
                _weighted_gram(self._with_bias(x), g.double()).cpu() for x, g in _chunks(self.x, self.counts, size=size)
            )
            self.steps = torch.stack([still - self.lr * curvature * gram for gram in grams]).numpy()
        right = self._right(residual, old)
        sums = (
            torch.stack([self._with_bias(x).T @ r.double() for x, r in _chunks(self.x, right, size=size)]).cpu().numpy()
        )
        shifts = self.lr * self.scale * sums
        theta = model.theta.double().cpu().numpy().reshape(-1, model.outputs)
        if centre is not None:
            shifts = shifts - self.lr * o.pull * centre.double().cpu().numpy().reshape(theta.shape)
        for _ in range(self.epochs):
            for matrix, shift in zip(self.steps, shifts, strict=True):
                theta = matrix @ theta - shift
        model.theta.copy_(torch.from_numpy(theta).reshape(-1))

    # --- any model ----------------------------------------------------------------------------------------------------

    def _batches(self, residual: Tensor, old: Tensor | None, centre: Tensor | None) -> None:
        o, model = self.objective, self.model
        rho, right = o.rho * (1 + o.proximal), self._right(residual, old)
        batches = list(zip(*(t.split(self.batch_size) for t in (self.x, self.counts[:, None], right)), strict=True))
        for _ in range(self.epochs):
            for x, g, r in batches:
                out, inside = model.inside(x)
                self._descend(
                    model.gradient(x, torch.addcmul(r, g, out, value=rho), out, inside).mul_(self.scale), centre
                )

    def _noisy(self, residual: Tensor, old: Tensor | None, centre: Tensor | None) -> None:
        """DP-SGD: decay and pull do not depend on rows, and are neither clipped nor noised."""
        o, model, private, rows = self.objective, self.model, self.private, len(self.x)
        assert private is not None
        rho, right = o.rho * (1 + o.proximal), self._right(residual, old)
        scale, size = rows / self.total, min(self.batch_size, rows)
        rate, steps = local_steps(rows, self.batch_size, self.epochs)
        for _ in range(steps):
            chosen = torch.from_numpy(private.sample(rows, rate)).to(self.x.device)
            x, g, r = self.x[chosen], self.counts[chosen, None], right[chosen]
            out, inside = model.inside(x)
            cotangent = torch.addcmul(r, g, out, value=rho).mul_(scale)
            self._descend(private.gradient(model, x, cotangent, out, inside).mul_(o.share / size), centre)

    def _descend(self, gradient: Tensor, centre: Tensor | None) -> None:
        """Take one step down the rows' `gradient`, decay and pull."""
        o, theta = self.objective, self.model.theta
        if o.decay:
            gradient.add_(theta, alpha=o.decay)
        if centre is not None:
            gradient.add_(theta - centre, alpha=o.pull)
        theta.sub_(gradient, alpha=self.lr)


def theta_update(
    me: Party,
    config: RunConfig[AdmmKeys],
    model: Partial,
    x: Tensor,
    counts: Tensor,
    objective: Objective,
    per_round: int = 1,
) -> ThetaUpdate:
    """A client's `ThetaUpdate`, with noise for `per_round` updates a round.

    Call it in the first round: a resumed run has its state back by then.
    """
    cfg = config.algorithm
    rate, steps = local_steps(len(x), cfg.batch_size, cfg.local_epochs * per_round)
    noisy = tables.noisy_steps(me, config, rate, steps, drawn_by_server=False)
    return ThetaUpdate(model, x, counts, objective, cfg, noisy)


def _weighted_gram(x: Tensor, weights: Tensor) -> Tensor:
    return x.T @ (x * weights[:, None])


def _chunks(*tensors: Tensor, size: int = CHUNK) -> zip[tuple[Tensor, ...]]:
    return zip(*(t.split(size) for t in tensors), strict=True)
