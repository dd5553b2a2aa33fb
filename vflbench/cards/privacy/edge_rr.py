"""Randomised response on edges."""

from dataclasses import dataclass
from typing import Annotated

from vflbench.cards.privacy import keys
from vflbench.cards.privacy.keys import SEARCH_END
from vflbench.types import OptionInfo, Positive, Range

OPTIONS = (
    OptionInfo(
        "edge_rr",
        "randomised response on each client's edges; noise on rows that are sent, if asked",
        units=("edge", "feature_row", "gradient_row"),
    ),
)
SEARCH = keys.CLIP


@dataclass
class Config(keys.Budget):
    """Keys of edge_rr; `epsilon` is that of an edge."""

    name: str = "edge_rr"
    # of all releases of a row together, by gaussian_embedding; inf: clipped; null: rows are sent as they are
    row_epsilon: Annotated[float, Range(above=0, at_most=SEARCH_END, infinite=True)] | None = None
    clip: Positive = 1.0  # row_epsilon: largest L2 norm of a row
