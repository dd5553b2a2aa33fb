"""Laplace noise on labels."""

from dataclasses import dataclass

from vflbench.cards.privacy import keys
from vflbench.types import OptionInfo

OPTIONS = (OptionInfo("label_dp", "Laplace noise on one-hot labels", units=("label",)),)


@dataclass
class Config(keys.Labels):
    """Keys of label_dp."""

    name: str = "label_dp"
