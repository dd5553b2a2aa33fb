"""Split networks for columns."""

from dataclasses import dataclass
from typing import Literal

from vflbench.types import Count

MODEL_NAMES = ("auto", "split_mlp")


@dataclass
class Config:
    """Keys of split networks for columns."""

    name: str = "auto"
    hidden: Count = 32  # split_mlp: width of the hidden layer of every client's network
    embedding: Count = 16  # E: width of a representation
    dtype: Literal["float32", "float64"] = "float32"  # float32 | float64; convex objectives are always float64
