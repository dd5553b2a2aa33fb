"""Noise on embeddings and randomised labels."""

from dataclasses import dataclass
from typing import Annotated

from vflbench.cards.privacy import gdp
from vflbench.cards.privacy.keys import SEARCH_END
from vflbench.types import OptionInfo, Range

OPTIONS = (OptionInfo("embedding_and_label", "gdp_embedding and label_rr together", units=("feature_row", "label")),)
SEARCH = gdp.SEARCH


@dataclass
class Config(gdp.Config):
    """Keys of embedding_and_label."""

    name: str = "embedding_and_label"
    # of a label; null: epsilon, or 8 where mu or noise_multiplier is given
    label_epsilon: Annotated[float, Range(above=0, at_most=SEARCH_END, infinite=True)] | None = None
    debias: bool = False  # the loss corrects for the labels that were changed
