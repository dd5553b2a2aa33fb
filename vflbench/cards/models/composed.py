"""A vertical network that its keys compose: `vertical`."""

from dataclasses import dataclass
from typing import Literal

from vflbench.types import Count

MODEL_NAMES = ("vertical",)


@dataclass
class Config:
    """Keys of vertical."""

    name: str = "vertical"
    bottom: Literal["linear", "mlp", "residual_mlp"] = "mlp"
    depth: Count = 2  # linear layers of a bottom network; residual_mlp: the first, the last, and two in each block
    width: Count = 32  # hidden units of a bottom network
    embedding: Count = 16  # width of a bottom network's output; top=none: that of the scores
    aggregate: Literal["sum", "mean", "concat"] = "concat"
    top: Literal["none", "linear", "mlp"] = "mlp"
    top_width: Count = 32  # hidden units of the top network
    dtype: Literal["float32", "float64"] = "float32"
