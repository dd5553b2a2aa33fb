"""Split networks for columns."""

from typing import Literal

from vflbench.defaults import from_conf
from vflbench.types import Count

MODEL_NAMES = ("auto", "split_mlp")


@from_conf()
class Config:
    """Keys of split networks for columns."""

    name: str
    hidden: Count
    embedding: Count
    dtype: Literal["float32", "float64"]
