"""Randomised response on labels."""

from vflbench.cards.privacy import keys
from vflbench.defaults import from_conf
from vflbench.types import OptionInfo

OPTIONS = (OptionInfo("label_rr", "randomised response on training labels, before anything else", units=("label",)),)


@from_conf()
class Config(keys.Budget):
    """Keys of label_rr."""

    name: str
    debias: bool


check = keys.check_budget
