"""What local training needs whatever the network: the optimiser and its learning rate."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch


def make_optimizer(name: str, parameters: Iterable[torch.nn.Parameter], lr: float, weight_decay: float) -> torch.optim.Optimizer:
    """Adam (L2 weight decay, fused: one kernel for all parameters) or plain SGD."""
    if name == "adam":
        return torch.optim.Adam(parameters, lr=lr, weight_decay=weight_decay, fused=True)
    return torch.optim.SGD(parameters, lr=lr, weight_decay=weight_decay)


def set_lr(optimizer: torch.optim.Optimizer, schedule: str, lr: float, round: int, rounds: int) -> None:
    """The learning rate of `round` in 1..rounds: constant, or from `lr` along half a cosine towards 0."""
    factor = (1 + math.cos(math.pi * (round - 1) / rounds)) / 2 if schedule == "cosine" else 1.0
    for group in optimizer.param_groups:
        group["lr"] = lr * factor


def update(optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> None:
    """One step down the gradient of `loss`."""
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
