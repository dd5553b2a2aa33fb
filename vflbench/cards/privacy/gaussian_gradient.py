"""Gaussian noise on gradient rows."""

from vflbench.cards.privacy import keys
from vflbench.defaults import from_conf
from vflbench.types import OptionInfo

OPTIONS = (
    OptionInfo(
        "gaussian_gradient",
        "clip and Gaussian noise on every gradient row that a passive party gets",
        units=("gradient_row",),
    ),
)


@from_conf()
class Config(keys.Released):
    """Keys of gaussian_gradient."""

    name: str


check = keys.check_budget
