"""ResNet for images."""

from typing import Literal

from vflbench.cards.models import image
from vflbench.defaults import from_conf
from vflbench.types import Count

MODEL_NAMES = ("resnet",)


@from_conf()
class Config:
    """Keys of resnet."""

    name: str
    width: int
    stem: Literal["small", "large"]
    norm: Literal["group", "none"]
    embedding: Count
    dtype: Literal["float32", "float64"]


check = image.check
