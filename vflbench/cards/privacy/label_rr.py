"""Randomised response on labels."""

from dataclasses import dataclass

from vflbench.cards.privacy import keys
from vflbench.types import OptionInfo

OPTIONS = (OptionInfo("label_rr", "randomised response on training labels, before anything else", units=("label",)),)


@dataclass
class Config(keys.Budget):
    """Keys of label_rr."""

    name: str = "label_rr"
    debias: bool = False  # the loss corrects for the labels that were changed
