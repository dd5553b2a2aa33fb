"""TablePuppet's noise on labels and gradients."""

from vflbench.cards.privacy import keys
from vflbench.defaults import from_conf
from vflbench.types import OptionInfo

OPTIONS = (OptionInfo("tablepuppet", "label_dp and dp_sgd together", units=("example", "label")),)


@from_conf()
class Config(keys.Gradients, keys.Labels):
    """Keys of tablepuppet."""

    name: str


check = keys.check_gradients
