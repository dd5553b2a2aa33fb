"""Randomised response on bin numbers."""

from dataclasses import dataclass
from typing import Annotated

from vflbench.cards.privacy import keys
from vflbench.types import OptionInfo, Range

OPTIONS = (
    OptionInfo("rr_bins", "randomised response on bin numbers, at an epsilon for each row", units=("feature_row",)),
)


@dataclass
class Config(keys.Budget):
    """Keys of rr_bins."""

    name: str = "rr_bins"
    # of a cell, instead of epsilon, which is a row's: the sum over its columns
    cell_epsilon: Annotated[float, Range(above=0, at_most=100)] | None = None
    serving: keys.Serving = "clean"
