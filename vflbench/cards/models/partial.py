"""Sums of shares: `linear` and `mlp`."""

from dataclasses import dataclass
from typing import Literal

from vflbench.types import Count

MODEL_NAMES = ("linear", "mlp")  # vertical.SHARES


@dataclass
class Config:
    """Keys of linear and mlp."""

    name: str = "linear"
    hidden: Count = 16  # mlp: hidden units per party
    # label (the labels' owner only) | tables (every table) | none
    intercept: Literal["label", "tables", "none"] = "label"
    relu_output: bool = False  # relu on each table's output, as in the released code: the model is then not linear
    dtype: Literal["float32", "float64"] = "float32"  # float32 | float64, of parameters and messages
