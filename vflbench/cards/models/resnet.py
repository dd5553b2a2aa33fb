"""ResNet for images."""

from dataclasses import dataclass
from typing import Literal

from vflbench.types import Count

MODEL_NAMES = ("resnet",)


@dataclass
class Config:
    """Keys of resnet."""

    name: str = "resnet"
    width: int = 32  # channels of the first stage; the others have 2, 4 and 8 times as many
    # small (3 x 3, stride 1, no max-pool) | large (7 x 7, stride 2, max-pool)
    stem: Literal["small", "large"] = "small"
    norm: Literal["group", "none"] = "group"  # group (8 channels a group) | none
    embedding: Count = 16  # E: width of a representation
    dtype: Literal["float32", "float64"] = "float32"  # float32 | float64, of parameters and messages
