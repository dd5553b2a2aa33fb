"""ResNet with batch normalisation."""

from typing import Literal

from vflbench.cards.models import image, resnet
from vflbench.defaults import from_conf

MODEL_NAMES = ("resnet_bn",)


@from_conf()
class Config(resnet.Config):
    """Keys of resnet_bn."""

    norm: Literal["batch"]  # type: ignore[assignment]


check = image.check
