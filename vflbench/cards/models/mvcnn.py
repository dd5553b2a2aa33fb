"""MVCNN, a network for views of an object."""

from dataclasses import dataclass, field
from typing import Literal

from vflbench.types import Count

MODEL_NAMES = ("mvcnn",)


@dataclass
class Config:
    """Keys of mvcnn."""

    name: str = "mvcnn"
    channels: list[int] = field(default_factory=lambda: [16, 32, 64])  # of each convolution, which halves the picture
    norm: Literal["group", "none"] = "group"  # group (8 channels a group) | none, after each convolution
    embedding: Count = 16  # E: width of a representation
    dtype: Literal["float32", "float64"] = "float32"  # float32 | float64, of parameters and messages
