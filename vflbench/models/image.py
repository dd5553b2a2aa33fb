"""Networks for image views in split learning: one per client, (B, C, H, W) -> (B, E), and a fusion layer.

`make_client` builds the network that the configuration names (mvcnn.py, resnet.py, resnet_bn.py). All of them
- take pixels from 0 to 255, of any type, and divide them by 255 first: data keep views as uint8, a quarter of float32;
- normalise groups of channels, if at all, each sample by itself. Batch normalisation couples the samples of a batch,
  and keeps running statistics that are no parameters. Only `resnet_bn` has it, for methods whose clients keep their
  network: the statistics stay with the client, and no message has them;
- are drawn from the generator that is given; no global generator is used.
"""

from typing import Any, Literal

import torch
from torch import Tensor, nn

from vflbench.cards.models.image import CHANNELS_PER_GROUP
from vflbench.models import DTYPES
from vflbench.types import module_of

Kind = Literal["group", "batch", "none"]  # of normalisation


def make_client(config: Any, channels: int, generator: torch.Generator) -> nn.Module:
    """A client's network, (B, channels, H, W) -> (B, E); `config` is that of a module of this room."""
    with torch.device("meta"):  # shapes only: torch's own initialisation would draw from the global generator
        network: nn.Module = module_of(config).build(config, channels)
    return initialise(network, DTYPES[config.dtype], generator)


class Scaled(nn.Module):
    """Turns pixels from 0 to 255, of any type, into numbers from 0 to 1 of the parameters' type."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype

    def forward(self, x: Tensor) -> Tensor:
        """The pixels as numbers."""
        return x.to(self.dtype) / 255


class Fusion(nn.Module):
    """The fusion network phi: the scores, by one linear layer on the aggregate of K representations.

    It divides a sum by K, so that neither scores nor step sizes grow with K (EF-VFL's public code has the mean of
    representations). The aggregate that travels is still the sum. A concatenation is taken as it is.
    """

    def __init__(self, width: int, outputs: int, scale: float) -> None:
        super().__init__()
        self.scale = scale
        self.linear = nn.Linear(width, outputs)

    def forward(self, a: Tensor) -> Tensor:
        """Scores (B, outputs) of A, which is (B, E), or (B, K E) for a concatenation."""
        scores: Tensor = self.linear(a * self.scale)
        return scores


def initialise(network: nn.Module, dtype: torch.dtype, generator: torch.Generator) -> nn.Module:
    """The network in memory, with parameters drawn in the order of its modules.

    Convolutions are drawn after He et al. (fan out), linear layers as torch does.
    """
    network = network.to_empty(device="cpu").to(dtype)
    with torch.no_grad():
        for module in network.modules():
            if isinstance(module, nn.Conv2d):
                fan = module.out_channels * module.weight[0, 0].numel()
                module.weight.normal_(0, (2 / fan) ** 0.5, generator=generator)
                if module.bias is not None:
                    module.bias.zero_()
            elif isinstance(module, nn.Linear):
                for parameter in module.parameters():
                    parameter.uniform_(-(module.in_features**-0.5), module.in_features**-0.5, generator=generator)
            elif isinstance(module, nn.GroupNorm | nn.BatchNorm2d):
                module.weight.fill_(1)
                module.bias.zero_()
                if isinstance(module, nn.BatchNorm2d):
                    module.reset_running_stats()
            elif any(True for _ in module.parameters(recurse=False)):
                raise TypeError(f"no initialisation of {type(module).__name__} is known")
    return network


def norm(kind: Kind, channels: int) -> nn.Module:
    """The normalisation of so many channels."""
    if kind == "group":
        return nn.GroupNorm(channels // CHANNELS_PER_GROUP, channels)
    return nn.BatchNorm2d(channels) if kind == "batch" else nn.Identity()
