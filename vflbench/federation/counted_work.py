"""The work of a computation, counted while it runs: what `compute=reference` charges for.

It depends on the model and on the batch, and not on the machine that simulates. Three constants of a machine turn it
into seconds (`vflbench data profile` fits them).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter
from torch.utils.flop_counter import FlopCounterMode

from vflbench.types import ComputeConfig

# Not counted: whether rows must be copied to the device depends on the device that simulates.
COPIES = (torch.ops.aten._to_copy, torch.ops.aten.copy_, torch.ops.aten.clone)


@dataclass(frozen=True)
class Work:
    """What a computation does; nothing where it does not use PyTorch."""

    operations: float = 0.0  # PyTorch's, each with a cost of its own
    flops: float = 0.0  # of matrix products and convolutions
    numbers: float = 0.0  # that operations write

    def seconds(self, config: ComputeConfig) -> float:
        """Seconds on one core of the machine whose constants `config` has."""
        return (
            self.operations * config.operation_seconds
            + self.flops * config.flop_seconds
            + self.numbers * config.number_seconds
        )

    def __add__(self, other: Work) -> Work:
        return Work(self.operations + other.operations, self.flops + other.flops, self.numbers + other.numbers)

    def at_rows(self, few: Work, rows: int) -> Work:
        """The work for `rows` rows, where this is that for 3 and `few` that for 2: each part is linear in the rows."""
        pairs = [(few.operations, self.operations), (few.flops, self.flops), (few.numbers, self.numbers)]
        return Work(*(two + (three - two) * (rows - 2) for two, three in pairs))


class _Counter(TorchDispatchMode):
    """Counts operations, and the numbers that they write."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations = self.numbers = 0

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if func.overloadpacket in COPIES:
            return result
        self.operations += 1
        self.numbers += sum(leaf.numel() for leaf in tree_iter(result) if isinstance(leaf, Tensor))
        return result


def counted(function: Callable[..., Any], *args: Any) -> tuple[Any, Work]:
    """What `function` returns, and the work that it did."""
    with _Counter() as counter, FlopCounterMode(display=False) as flops:
        result = function(*args)
    return result, Work(counter.operations, flops.get_total_flops(), counter.numbers)


def step(optimiser: torch.optim.Optimizer, theta: Tensor) -> Work:
    """The work of a step of such an optimiser on `theta`, after its first; neither changes.

    It is counted on the CPU: on a GPU the optimiser calls other operations for the same arithmetic.
    """
    copy = torch.nn.Parameter(theta.detach().to("cpu", copy=True))
    same: Any = type(optimiser)
    other = same([copy], optimiser.param_groups[0]["lr"])
    copy.grad = torch.zeros_like(copy)
    other.step()  # the first one makes the moments
    return counted(other.step)[1]
