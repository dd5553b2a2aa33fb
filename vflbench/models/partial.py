"""The share of a prediction of a table: h = f(theta; x), summed over tables. Linear, or one hidden layer
(`vertical.Share`).

The parameters are one vector `theta`, as in the paper's equations; gradients are written by hand, because autograd
costs five times the arithmetic of networks this small (a table of a million rows has ten thousand batches a round).

- `linear`: x W + b. With cross-entropy on the sum: logistic (two classes) or softmax regression.
- `mlp`: relu(x W1 + b1) W2 + b2, `hidden` units per table.

Intercepts decide whether the ADMM is stable: with one per table the tables' column spaces share the constant.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from torch import Tensor

from vflbench.models.vertical import Held, Share, intercept
from vflbench.types import Count

if TYPE_CHECKING:
    from vflbench.privacy.tables import NoisyGradients

MODEL_NAMES = ("linear", "mlp")  # vertical.SHARES


@dataclass
class Config:
    name: str = "linear"
    hidden: Count = 16  # mlp: hidden units per party
    # label (of the labels' owner only) | tables (of each) | none
    intercept: Literal["label", "tables", "none"] = "label"
    relu_output: bool = False  # relu on each table's output, as the released code has it: then it is no linear model
    dtype: Literal["float32", "float64"] = "float32"  # float32 | float64, of parameters and messages


class Partial(Held):
    """f_i of one table: `vertical.Share` with gradients written by hand.

    Parameters
    ----------
    width, outputs : of the features and of the prediction (d_i, d_c).
    is_label : it is the label table.
    rng : draws the initial hidden layer; a linear model starts at 0.
    """

    network: Share

    def __init__(
        self, config: Config, width: int, outputs: int, is_label: bool, rng: np.random.Generator, device: str
    ) -> None:
        network = Share(config, width, outputs, is_label)
        super().__init__(network, network.initial(rng).to(device))
        self.width, self.outputs, self.bias = width, outputs, network.bias

    @property
    def linear(self) -> bool:
        """Whether predictions are linear in theta."""
        return not self.network.hidden and not self.network.relu_output

    def gradient(self, x: Tensor, cotangent: Tensor, out: Tensor, inside: Tensor) -> Tensor:
        """sum_r (d f_r / d theta)^T cotangent_r, a vector like theta; `out`, `inside` are `Share.inside`'s."""
        first, _, last, bias = self.network.views(self.theta)
        if self.network.relu_output:
            cotangent = cotangent * (out > 0)
        parts = [] if bias is None else [cotangent.sum(dim=0)]
        parts.insert(0, (inside.T @ cotangent).reshape(-1))
        if first is not None:
            back = (cotangent @ last.T).mul_(inside > 0)
            parts[:0] = [(x.T @ back).reshape(-1), back.sum(dim=0)]
        return torch.cat(parts)

    def pull_back(self, x: Tensor, cotangent: Tensor, private: NoisyGradients | None = None) -> Tensor:
        """`gradient` of a fresh forward pass; with `private`, clipped per row and noised."""
        out, inside = self.network.inside(self.theta, x)
        return (
            self.gradient(x, cotangent, out, inside)
            if private is None
            else private.gradient(self, x, cotangent, out, inside)
        )

    def descend(self, gradient: Tensor, lr: float, decay: float) -> None:
        """One step: theta <- theta - lr (gradient + decay theta)."""
        self.theta.mul_(1 - lr * decay).sub_(gradient, alpha=lr)

    def row_norms(self, x: Tensor, cotangent: Tensor, out: Tensor, inside: Tensor) -> Tensor:
        """(n,) L2 norm of every row's own gradient: a layer's is an outer product, so its norm is the product of two
        norms."""
        first, _, last, _ = self.network.views(self.theta)
        if self.network.relu_output:
            cotangent = cotangent * (out > 0)
        square = cotangent.square().sum(dim=1) * (inside.square().sum(dim=1) + int(self.bias))
        if first is not None:
            back = (cotangent @ last.T).mul_(inside > 0)
            square = square + back.square().sum(dim=1) * (x.square().sum(dim=1) + 1)
        return square.sqrt()


def intercepts(config: Config, tables: int, owner: int) -> list[bool]:
    """Of every table, whether its linear model has an intercept; the table `owner` has the labels."""
    return [intercept(config, table == owner) for table in range(tables)]
