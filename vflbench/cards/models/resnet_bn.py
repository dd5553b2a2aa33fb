"""ResNet with batch normalisation."""

from dataclasses import dataclass
from typing import Literal

from vflbench.cards.models import resnet

MODEL_NAMES = ("resnet_bn",)


@dataclass
class Config(resnet.Config):
    """Keys of resnet_bn."""

    name: str = "resnet_bn"
    norm: Literal["batch"] = "batch"  # type: ignore[assignment]  # batch; groups of channels: model=resnet
