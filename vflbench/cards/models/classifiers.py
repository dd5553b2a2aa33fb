"""Networks for whole rows: `mlp3`, `cnn3` and `logistic`."""

from dataclasses import dataclass, field
from typing import Literal

MODEL_NAMES = ("mlp3", "cnn3", "logistic")


@dataclass
class Config:
    """Keys of mlp3, cnn3 and logistic."""

    name: str = "mlp3"
    widths: list[int] = field(default_factory=lambda: [128, 64])  # mlp3: hidden layers
    # cnn3: channels of the convolutions, each followed by a 2 x 2 maximum
    channels: list[int] = field(default_factory=lambda: [16, 32])
    kernel: int = 5  # cnn3: side of a convolution, odd
    dtype: Literal["float32", "float64"] = "float32"  # float32 | float64, of parameters and messages
