"""A table's share of a prediction, h = f(theta; x), to be summed over tables: linear, or with one hidden layer.

The parameters are one vector `theta`, as in the paper's equations (`vertical.Share`). Gradients are written by hand,
because autograd costs five times the arithmetic of networks this small (a table of a million rows has ten thousand
batches a round).

- `linear`: x W + b. With cross-entropy on the sum: logistic (two classes) or softmax regression.
- `mlp`: relu(x W1 + b1) W2 + b2, with `hidden` units per table.

Intercepts decide whether the ADMM is stable: with one per table, the tables' column spaces share the constant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from vflbench.cards.models.partial import Config
from vflbench.models import scalar
from vflbench.models.vertical import Held, Share, intercept

if TYPE_CHECKING:
    from vflbench.privacy.gradients import NoisyGradients


class Partial(Held):
    """The model f_i of one table: `vertical.Share` with gradients written by hand.

    Parameters
    ----------
    width, outputs : d_i and d_c, the widths of the features and of the prediction.
    is_label : whether it is the label table.
    rng : draws the initial hidden layer; a linear model starts at 0.
    """

    network: Share

    def __init__(
        self, config: Config, width: int, outputs: int, is_label: bool, rng: np.random.Generator, device: str
    ) -> None:
        network = Share(config, width, outputs, is_label)
        super().__init__(network, network.initial(rng).to(device))
        self.width, self.outputs, self.bias = width, outputs, network.bias
        self.flat = self.theta.detach()  # shares its memory, since every update of theta is in place
        self.views = network.views(self.flat)

    @property
    def linear(self) -> bool:
        """Whether predictions are linear in theta."""
        return not self.network.hidden and not self.network.relu_output

    def gradient(self, x: Tensor, cotangent: Tensor, out: Tensor, inside: Tensor) -> Tensor:
        """The vector sum_r (d f_r / d theta)^T cotangent_r; `out` and `inside` are what `inside` returns."""
        first, _, last, bias = self.views
        if self.network.relu_output:
            cotangent = cotangent * (out > 0)
        parts = [] if bias is None else [cotangent.sum(dim=0)]
        parts.insert(0, (inside.T @ cotangent).reshape(-1))
        if first is not None:
            back = (cotangent @ last.T).mul_(inside > 0)
            parts[:0] = [(x.T @ back).reshape(-1), back.sum(dim=0)]
        return torch.cat(parts) if len(parts) > 1 else parts[0]

    def inside(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The prediction of rows x, and the input of the last layer: what `gradient` needs of the forward pass."""
        return self.network.passed(self.views, x)

    def private_gradient(
        self, x: Tensor, cotangent: Tensor, out: Tensor, inside: Tensor, private: NoisyGradients | None
    ) -> Tensor:
        """The `gradient`; with `private`, clipped per row and with noise."""
        if private is not None:
            return private.gradient(self, x, cotangent, out, inside)
        return self.gradient(x, cotangent, out, inside)

    def descend(self, gradient: Tensor, lr: float, decay: float) -> None:
        """Take one step: theta <- theta - lr (gradient + decay theta)."""
        self.flat.mul_(scalar(1 - lr * decay, gradient.dtype)).sub_(gradient, alpha=lr)

    def row_norms(self, x: Tensor, cotangent: Tensor, out: Tensor, inside: Tensor) -> Tensor:
        """The L2 norm of every row's own gradient, (n,).

        A layer's gradient is an outer product, so its norm is the product of two norms.
        """
        first, _, last, _ = self.views
        if self.network.relu_output:
            cotangent = cotangent * (out > 0)
        square = cotangent.square().sum(dim=1) * (inside.square().sum(dim=1) + int(self.bias))
        if first is not None:
            back = (cotangent @ last.T).mul_(inside > 0)
            square = square + back.square().sum(dim=1) * (x.square().sum(dim=1) + 1)
        return square.sqrt()


def intercepts(config: Config, tables: int, owner: int) -> list[bool]:
    """Whether each table's linear model has an intercept; the table `owner` has the labels."""
    return [intercept(config, table == owner) for table in range(tables)]
