"""Gaussian noise on gradient rows."""

from dataclasses import dataclass

from vflbench.cards.privacy import keys
from vflbench.types import OptionInfo

OPTIONS = (
    OptionInfo(
        "gaussian_gradient",
        "clip and Gaussian noise on every gradient row that a passive party gets",
        units=("gradient_row",),
    ),
)
SEARCH = keys.CLIP


@dataclass
class Config(keys.Released):
    """Keys of gaussian_gradient."""

    name: str = "gaussian_gradient"
