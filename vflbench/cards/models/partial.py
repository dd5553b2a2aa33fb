"""Sums of shares: `linear` and `mlp`."""

from typing import Literal

from vflbench.defaults import from_conf
from vflbench.types import Count

MODEL_NAMES = ("linear", "mlp")  # vertical.SHARES


@from_conf()
class Config:
    """Keys of linear and mlp."""

    name: str
    hidden: Count
    intercept: Literal["label", "tables", "none"]
    relu_output: bool
    dtype: Literal["float32", "float64"]
