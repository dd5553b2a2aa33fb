"""Networks of split learning: `mlp10` and `residual_mlp`."""

from typing import Literal

from vflbench.defaults import from_conf
from vflbench.types import Count

MODEL_NAMES = ("mlp10", "residual_mlp")


@from_conf()
class Config:
    """Keys of mlp10 and residual_mlp."""

    name: str
    depth: Count
    width: Count
    embedding: Count
    top_width: Count
    dtype: Literal["float32", "float64"]
