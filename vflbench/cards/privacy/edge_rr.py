"""Randomised response on edges."""

from typing import Annotated

from vflbench.cards.privacy import keys
from vflbench.cards.privacy.keys import SEARCH_END
from vflbench.defaults import from_conf
from vflbench.types import OptionInfo, Positive, Range

OPTIONS = (
    OptionInfo(
        "edge_rr",
        "randomised response on each client's edges; noise on rows that are sent, if asked",
        units=("edge", "feature_row", "gradient_row"),
    ),
)


@from_conf()
class Config(keys.Budget):
    """Keys of edge_rr; `epsilon` is that of an edge."""

    name: str
    row_epsilon: Annotated[float, Range(above=0, at_most=SEARCH_END, infinite=True)] | None
    clip: Positive


check = keys.check_budget
