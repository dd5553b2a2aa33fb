"""Laplace noise on labels."""

from vflbench.cards.privacy import keys
from vflbench.defaults import from_conf
from vflbench.types import OptionInfo

OPTIONS = (OptionInfo("label_dp", "Laplace noise on one-hot labels", units=("label",)),)


@from_conf()
class Config(keys.Labels):
    """Keys of label_dp."""

    name: str


check = keys.check_budget
