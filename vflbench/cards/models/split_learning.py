"""Networks of split learning: `mlp10` and `residual_mlp`."""

from dataclasses import dataclass
from typing import Literal

from vflbench.types import Count

MODEL_NAMES = ("mlp10", "residual_mlp")


@dataclass
class Config:
    """Keys of mlp10 and residual_mlp."""

    name: str = "mlp10"
    depth: Count = 10  # linear layers of a bottom network; residual_mlp: the first, the last, and two in each block
    width: Count = 64  # hidden units of a bottom network
    embedding: Count = 32  # d_e: width of a bottom network's output
    top_width: Count = 32  # hidden units of the top network
    dtype: Literal["float32", "float64"] = "float32"  # float32 | float64, of parameters and messages
