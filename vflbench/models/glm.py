"""Generalised linear models divided by columns: one client's block, and the convex objectives (data.tasks.Objective).

With u = sum_k X_k theta_k, (N,), an objective is f = loss(u, y) + sum_k penalty(theta_k). A holder of u and of its own
X_k and theta_k has the exact partial gradient X_k^T loss'(u) + penalty'(theta_k). All is NumPy in float64: for vectors
of a few thousand numbers it has half the overhead of torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    from vflbench.data.tasks import Objective

LARGEST_DENSE = 400  # sides of a Gram matrix whose eigenvalues are all computed


def signs(labels: np.ndarray) -> np.ndarray:
    """Classes 0 and 1 as -1.0 and 1.0."""
    return np.where(labels > 0, 1.0, -1.0)


class Loss:
    """The part of an objective that depends on u.

    It is (1/2) ||u - y||^2 for ridge, and (1/N) sum_j log(1 + exp(-y_j u_j)) for sparse_logistic.

    Parameters
    ----------
    labels : (N,) targets, or classes 0 and 1.
    """

    def __init__(self, objective: Objective, labels: np.ndarray) -> None:
        self.ridge = objective.kind == "ridge"
        self.y = np.asarray(labels, dtype=np.float64) if self.ridge else signs(np.asarray(labels))
        self.decay = objective.weight if self.ridge else 0.0  # alpha of (alpha / 2) ||theta||^2
        self.l1 = 0.0 if self.ridge else objective.weight  # beta of beta ||theta||_1
        self._flipped = -self.y
        self._scaled = self._flipped / len(self.y)
        self.curvature = 1.0 if self.ridge else 1 / (4 * len(self.y))  # largest second derivative

    def value(self, u: np.ndarray) -> float:
        """The loss at u, (N,)."""
        if self.ridge:
            return float(np.sum((u - self.y) ** 2) / 2)
        return float(np.mean(np.logaddexp(0.0, -self.y * u)))

    def gradient(self, u: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
        """The gradient at u, (N,).

        With `rows` (B,) it is that of these rows, (B,), times N / B, so that its mean over batches is the whole's.
        """
        slopes = self.slopes(u, rows)
        return slopes if rows is None else slopes * (len(self.y) / len(rows))

    def slopes(self, u: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
        """Each sample's part of the gradient at u, (N,), or with `rows` (B,) of these alone."""
        slopes: np.ndarray
        if self.ridge:
            slopes = u - (self.y if rows is None else self.y[rows])
        else:
            slopes = sigmoid((self._flipped if rows is None else self._flipped[rows]) * u)
            slopes *= self._scaled if rows is None else self._scaled[rows]
        return slopes

    def step(self, theta: np.ndarray, gradient: np.ndarray, lr: float) -> np.ndarray:
        """The change of theta by a (proximal) step, given the loss's `gradient`, which is overwritten."""
        if self.decay:
            gradient += self.decay * theta
        gradient *= -lr
        return soft_threshold(theta + gradient, lr * self.l1) - theta if self.l1 else gradient

    def penalty(self, theta: np.ndarray) -> float:
        """The penalty, (alpha / 2) ||theta||^2 or beta ||theta||_1."""
        return float(self.decay / 2 * (theta @ theta) + self.l1 * np.abs(theta).sum())

    def prox_conjugate(self, z: np.ndarray, c: float, last: tuple[np.ndarray, np.ndarray] | None = None) -> np.ndarray:
        """The proximal step of the conjugate of g = this loss: argmin_y g*(y) + ||y - z||^2 / (2 c), (N,).

        Ridge: (z - c y) / (1 + c). Logistic has no closed form: by Moreau it is z - c prox_{g/c}(z / c), by Newton's
        method per sample.

        Parameters
        ----------
        last : z and the result of an earlier step, (N,): what its search found is where this one starts.
        """
        if self.ridge:
            return (z - c * self.y) / (1 + c)
        return z - c * self._prox(z / c, 1 / c, None if last is None else (last[0] - last[1]) / c)

    def _prox(self, v: np.ndarray, c: float, near: np.ndarray | None) -> np.ndarray:
        """argmin_u loss(u) + ||u - v||^2 / (2 c) of the logistic loss, for every sample separately.

        The derivative (u - v) / c - y s(-y u) / N is increasing, and its root lies between v and v + c y / N. Newton's
        step is taken where it stays inside and is less than half of the one before. Else the interval is halved.
        """
        n = len(self.y)
        low, high = np.minimum(v, v + c * self.y / n), np.maximum(v, v + c * self.y / n)
        u: np.ndarray
        u, before = (low + high) / 2 if near is None else np.clip(near, low, high), high - low
        settled = np.zeros(n, dtype=bool)
        for _ in range(100):
            share = sigmoid(-self.y * u)
            slope = (u - v) / c - self.y * share / n
            low, high = np.where(slope < 0, u, low), np.where(slope > 0, u, high)
            step = -slope / (1 / c + share * (1 - share) / n)
            good = (u + step > low) & (u + step < high) & (np.abs(step) < before / 2)
            new = np.where(good, u + step, (low + high) / 2)
            settled |= np.abs(step) <= 1e-14 * (1 + np.abs(u))
            new = np.where(settled, u, new)
            before, u = np.abs(new - u), new
            if settled.all():
                break
        return u


def sigmoid(values: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-values)), in place: by torch, which takes a fifth of SciPy's time."""
    shares: np.ndarray = torch.from_numpy(values).sigmoid_().numpy()
    return shares


def soft_threshold(theta: np.ndarray, by: float) -> np.ndarray:
    """The proximal step of by * ||theta||_1."""
    shrunk: np.ndarray = np.sign(theta) * np.maximum(np.abs(theta) - by, 0.0)
    return shrunk


def largest_eigenvalue(x: np.ndarray) -> float:
    """The largest eigenvalue of X^T X, with X (N, d)."""
    n, d = x.shape
    if min(n, d) == 0:
        return 0.0
    if min(n, d) <= LARGEST_DENSE:
        return float(np.linalg.eigvalsh(x.T @ x if d <= n else x @ x.T)[-1])
    from scipy.sparse.linalg import LinearOperator, eigsh

    gram = LinearOperator((d, d), matvec=lambda v: x.T @ (x @ v), dtype=np.float64)
    return float(eigsh(gram, k=1, which="LA", v0=np.ones(d), return_eigenvectors=False, tol=1e-6)[0])


class Glm(torch.nn.Module):
    """One client's block: X_k theta_k, its partial gradient, and the steps that a token's visit allows.

    Parameters
    ----------
    features : X_k (N, d_k).
    labels : (N,).
    objective : what is minimised.
    """

    def __init__(self, features: np.ndarray, labels: np.ndarray, objective: Objective) -> None:
        super().__init__()
        self.x = np.ascontiguousarray(features, dtype=np.float64)
        self.loss = Loss(objective, labels)
        self.parameter = torch.nn.Parameter(torch.zeros(self.x.shape[1], dtype=torch.float64), requires_grad=False)
        self._theta = self.parameter.numpy()  # shares its memory, also after load_state_dict

    @property
    def theta(self) -> np.ndarray:
        """The parameters, (d_k,) float64: 0 at the start, so that every representation is 0 and need not be sent."""
        return self._theta

    def move(self, theta: np.ndarray) -> None:
        """Set the parameters; a property's setter would pass `nn.Module.__setattr__`, which takes as long as a step."""
        self._theta[:] = theta

    @property
    def smoothness(self) -> float:
        """L_k, the largest eigenvalue of the objective's second derivative in theta_k."""
        return self.loss.curvature * largest_eigenvalue(self.x) + self.loss.decay

    def represent(self, rows: np.ndarray | None = None, theta: np.ndarray | None = None) -> np.ndarray:
        """The representation h_k = X_k theta_k of all samples, (N,), or of `rows`, (B,), also at another `theta`."""
        h: np.ndarray = (self.x if rows is None else self.x[rows]) @ (self._theta if theta is None else theta)
        return h

    def added(self, u: np.ndarray, change: np.ndarray) -> np.ndarray:
        """The token u with `change` added to this block's part of it."""
        changed: np.ndarray = u + change
        return changed

    def score(self) -> dict[str, Any]:
        """The block's report to the observer: its part of u on the training samples, and its part of the penalty."""
        return {"partial": {"train": self.represent()}, "penalty": self.loss.penalty(self._theta)}

    def visit(
        self,
        theta: np.ndarray,
        u: np.ndarray,
        rows: np.ndarray | None,
        steps: int,
        lr: float,
        h: np.ndarray | None = None,
        onward: bool = True,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Take (proximal) gradient steps on theta_k from `theta`, and keep the token u in accordance.

        Parameters
        ----------
        u : the token, (N,) or (B,).
        h : not used: a split network's graph.
        onward : whether the token is needed afterwards; else it lacks the last step.

        Returns
        -------
        The new theta_k, as a copy, and the new u; the old ones stay as they are.
        """
        loss = self.loss
        x = self.x if rows is None else self.x[rows]
        transposed, theta = x.T, theta.copy()
        for place in range(1, steps + 1):
            step = loss.step(theta, transposed @ loss.gradient(u, rows), lr)
            theta += step
            if onward or place < steps:
                moved = x @ step
                moved += u
                u = moved
        return theta, u
