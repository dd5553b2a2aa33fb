"""DP-SGD."""

from dataclasses import dataclass
from typing import Literal

from vflbench.cards.privacy import keys
from vflbench.types import OptionInfo

OPTIONS = (
    OptionInfo("dp_sgd", "every gradient clipped, Gaussian noise on the sum over a random batch", units=("example",)),
)
SEARCH = keys.CLIP


@dataclass
class Config(keys.Gradients):
    """Keys of dp_sgd."""

    name: str = "dp_sgd"
    accountant: Literal["rdp", "prv", "gdp"] = "rdp"  # of whole rows; a centralized method's full batches: exact
    # on sharded rows: what is clipped: every example's gradient | the whole batch's
    clip_unit: Literal["example", "batch"] = "example"
