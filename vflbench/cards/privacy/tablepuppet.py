"""TablePuppet's noise on labels and gradients."""

from dataclasses import dataclass

from vflbench.cards.privacy import keys
from vflbench.types import OptionInfo

OPTIONS = (OptionInfo("tablepuppet", "label_dp and dp_sgd together", units=("example", "label")),)
SEARCH = keys.CLIP


@dataclass
class Config(keys.Gradients, keys.Labels):
    """Keys of tablepuppet."""

    name: str = "tablepuppet"
