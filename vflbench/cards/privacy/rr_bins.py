"""Randomised response on bin numbers."""

from typing import Annotated

from vflbench.cards.privacy import keys
from vflbench.defaults import from_conf
from vflbench.types import OptionInfo, Range

OPTIONS = (
    OptionInfo("rr_bins", "randomised response on bin numbers, at an epsilon for each row", units=("feature_row",)),
)


@from_conf()
class Config(keys.Budget):
    """Keys of rr_bins."""

    name: str
    cell_epsilon: Annotated[float, Range(above=0, at_most=100)] | None
    serving: keys.Serving


check = keys.check_budget
