"""One table's share of a prediction: h = f(theta; x), summed over tables. Linear, or one hidden layer.

The parameters are one vector `theta`, as in the paper's equations; gradients are written by hand, because autograd costs five times
the arithmetic of networks this small (a table of a million rows has ten thousand batches a round).

- `linear`: x W + b. With cross-entropy on the sum: logistic (two classes) or softmax regression.
- `mlp`: relu(x W1 + b1) W2 + b2, `hidden` units per table.

Intercepts decide whether the ADMM is stable: with one per table the tables' column spaces share the constant (papers: TablePuppet, 10.2).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from vflbench.types import Problem

MODEL_NAMES = ("linear", "mlp")
DTYPES = {"float32": torch.float32, "float64": torch.float64}


@dataclass
class Config:
    name: str = "linear"
    hidden: int = 16  # mlp: hidden units per table
    intercept: Literal["label", "tables", "none"] = "label"  # label (of the label table's output only) | tables (of each) | none
    relu_output: bool = False  # relu on each table's output, as the released code has it: then it is no linear model
    dtype: Literal["float32", "float64"] = "float32"  # float32 | float64, of parameters and messages


def check(config: Config) -> list[Problem]:
    """What is wrong with the model's configuration."""
    return [] if config.hidden >= 1 else [Problem("model.hidden", config.hidden, "must be at least 1")]


class NoisySteps(Protocol):
    """Mini-batch steps by DP-SGD: draws the batches and noises the gradients (privacy/tables.py)."""

    def sample(self, rows: int, rate: float) -> np.ndarray: ...
    def gradient(self, model: Partial, x: Tensor, cotangent: Tensor, out: Tensor, inside: Tensor) -> Tensor: ...


class Partial(nn.Module):
    """f_i of one table.

    Parameters
    ----------
    width, outputs : of the features and of the prediction (d_i, d_c).
    bias : whether the output has an intercept.
    rng : draws the initial hidden layer; a linear model starts at 0.
    """

    def __init__(self, config: Config, width: int, outputs: int, bias: bool, rng: np.random.Generator, device: str = "cpu") -> None:
        super().__init__()
        self.width, self.outputs, self.bias = width, outputs, bias
        self.hidden = config.hidden if config.name == "mlp" else 0
        self.relu_output = config.relu_output
        values = []
        if self.hidden:
            # torch's own initialisation of a linear layer: uniform within 1 / sqrt(inputs)
            bound = 1 / np.sqrt(max(width, 1))
            values += [rng.uniform(-bound, bound, (width + 1) * self.hidden)]
            values += [rng.uniform(-1, 1, self.hidden * outputs) / np.sqrt(self.hidden)]
        else:
            values += [np.zeros(width * outputs)]
        values += [np.zeros(outputs * bias)]
        theta = torch.from_numpy(np.concatenate(values)).to(device=device, dtype=DTYPES[config.dtype])
        self.theta = nn.Parameter(theta, requires_grad=False)

    @property
    def linear(self) -> bool:
        """Whether predictions are linear in theta."""
        return not self.hidden and not self.relu_output

    def _views(self, theta: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor, Tensor | None]:
        """W1 (d, hidden), b1, W2 (hidden or d, d_c), b2 as views into `theta`."""
        at, first, shift = 0, None, None
        if self.hidden:
            at = self.width * self.hidden
            first, shift = theta[:at].view(self.width, self.hidden), theta[at : at + self.hidden]
            at += self.hidden
        rows = self.hidden or self.width
        last = theta[at : at + rows * self.outputs].view(rows, self.outputs)
        return first, shift, last, theta[at + rows * self.outputs :] if self.bias else None

    def forward(self, x: Tensor, theta: Tensor | None = None) -> Tensor:
        """Predictions (n, d_c) of rows x (n, d), without a graph."""
        return self._pass(x, self.theta if theta is None else theta)[0]

    def _pass(self, x: Tensor, theta: Tensor) -> tuple[Tensor, Tensor]:
        """Predictions, and what enters the last layer."""
        first, shift, last, bias = self._views(theta.detach())
        inside = x if first is None else torch.addmm(shift, x, first).relu_()  # type: ignore[arg-type]
        out = inside @ last if bias is None else torch.addmm(bias, inside, last)
        return (out.relu_() if self.relu_output else out), inside

    def gradient(self, x: Tensor, cotangent: Tensor, out: Tensor, inside: Tensor) -> Tensor:
        """sum_r (d f_r / d theta)^T cotangent_r, a vector like theta; `out`, `inside` are `_pass`'s."""
        first, _, last, bias = self._views(self.theta.detach())
        if self.relu_output:
            cotangent = cotangent * (out > 0)
        parts = [] if bias is None else [cotangent.sum(dim=0)]
        parts.insert(0, (inside.T @ cotangent).reshape(-1))
        if first is not None:
            back = (cotangent @ last.T).mul_(inside > 0)
            parts[:0] = [(x.T @ back).reshape(-1), back.sum(dim=0)]
        return torch.cat(parts)

    def pull_back(self, x: Tensor, cotangent: Tensor, private: NoisySteps | None = None) -> Tensor:
        """`gradient` of a fresh forward pass; with `private`, clipped per row and noised."""
        out, inside = self._pass(x, self.theta)
        return self.gradient(x, cotangent, out, inside) if private is None else private.gradient(self, x, cotangent, out, inside)

    def descend(self, gradient: Tensor, lr: float, decay: float) -> None:
        """One step: theta <- theta - lr (gradient + decay theta)."""
        self.theta.mul_(1 - lr * decay).sub_(gradient, alpha=lr)

    def row_norms(self, x: Tensor, cotangent: Tensor, out: Tensor, inside: Tensor) -> Tensor:
        """(n,) L2 norm of every row's own gradient: a layer's is an outer product, so its norm is the product of two norms."""
        first, _, last, _ = self._views(self.theta.detach())
        if self.relu_output:
            cotangent = cotangent * (out > 0)
        square = cotangent.square().sum(dim=1) * (inside.square().sum(dim=1) + int(self.bias))
        if first is not None:
            back = (cotangent @ last.T).mul_(inside > 0)
            square = square + back.square().sum(dim=1) * (x.square().sum(dim=1) + 1)
        return square.sqrt()


def make(config: Config, width: int, outputs: int, is_label: bool, rng: np.random.Generator, device: str) -> Partial:
    """The partial model of a table; `is_label`: it is the label table."""
    bias = config.intercept == "tables" or (config.intercept == "label" and is_label)
    return Partial(config, width, outputs, bias, rng, device)
