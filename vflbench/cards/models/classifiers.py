"""Networks for whole rows: `mlp3`, `cnn3` and `logistic`."""

from typing import Literal

from vflbench.defaults import from_conf

MODEL_NAMES = ("mlp3", "cnn3", "logistic")


@from_conf()
class Config:
    """Keys of mlp3, cnn3 and logistic."""

    name: str
    widths: list[int]
    channels: list[int]
    kernel: int
    dtype: Literal["float32", "float64"]
