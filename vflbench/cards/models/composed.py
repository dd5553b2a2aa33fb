"""A vertical network that its keys compose: `vertical`."""

from typing import Literal

from vflbench.defaults import from_conf
from vflbench.types import Count

MODEL_NAMES = ("vertical",)


@from_conf()
class Config:
    """Keys of vertical."""

    name: str
    bottom: Literal["linear", "mlp", "residual_mlp"]
    depth: Count
    width: Count
    embedding: Count
    aggregate: Literal["sum", "mean", "concat"]
    top: Literal["none", "linear", "mlp"]
    top_width: Count
    dtype: Literal["float32", "float64"]
