"""The network of a client that holds image views: the one that the model's configuration names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from vflbench.models import image, mvcnn, resnet


def make_client(config: Any, channels: int, size: int | Sequence[int], generator: torch.Generator) -> nn.Module:
    """A client's network, (B, channels, H, W) -> (B, E), as the model's configuration says.

    Parameters
    ----------
    config : `mvcnn.Config` or `resnet.Config`.
    size : H = W in pixels, or (H, W).
    """
    height, width = (size, size) if isinstance(size, int) else size
    module = mvcnn if config.name in mvcnn.MODEL_NAMES else resnet
    with torch.device("meta"):  # shapes only: torch's own initialisation would draw from the global generator
        network = module.build(config, channels, (height, width))
    return image.initialise(network, image.DTYPES[config.dtype], generator)
