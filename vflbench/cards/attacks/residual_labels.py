"""Labels read from residuals."""

from vflbench.defaults import from_conf
from vflbench.types import Count, OptionInfo

OPTIONS = (OptionInfo("residual_labels", "a table's owner reads labels from the first residual that it receives"),)


@from_conf()
class Config:
    """Keys of residual_labels."""

    name: str
    rounds: Count
