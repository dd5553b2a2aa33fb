"""`resnet` with batch normalisation, as EF-VFL's public code has it.

A client normalises with the statistics of its batch in training, and with their running mean in evaluation (momentum
0.1). These statistics are the client's own: no token carries them, and the copies of all tokens share them.
"""

from dataclasses import dataclass
from typing import Literal

from vflbench.models import image, resnet
from vflbench.types import Count

MODEL_NAMES = ("resnet_bn",)


@dataclass
class Config:
    """Keys of resnet_bn."""

    name: str = "resnet_bn"
    width: int = 32  # channels of the first stage; the others have 2, 4 and 8 times as many
    # small (3 x 3, stride 1, no max-pool) | large (7 x 7, stride 2, max-pool)
    stem: Literal["small", "large"] = "small"
    norm: Literal["batch"] = "batch"  # batch; groups of channels: model=resnet
    embedding: Count = 16  # E: width of a representation
    dtype: Literal["float32", "float64"] = "float32"  # float32 | float64, of parameters and messages


check = image.check
build = resnet.build
