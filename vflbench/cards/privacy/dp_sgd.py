"""DP-SGD."""

from typing import Literal

from vflbench.cards.privacy import keys
from vflbench.defaults import from_conf
from vflbench.types import OptionInfo, Problem

OPTIONS = (
    OptionInfo("dp_sgd", "every gradient clipped, Gaussian noise on the sum over a random batch", units=("example",)),
)


@from_conf()
class Config(keys.Gradients):
    """Keys of dp_sgd."""

    name: str
    accountant: Literal["rdp", "prv", "gdp"]
    clip_unit: Literal["example", "batch"]


def check(config: Config) -> list[Problem]:
    """What is wrong with the keys."""
    return keys.check_gradients(config, rdp=config.accountant == "rdp")
