"""Noise on embeddings and randomised labels."""

from typing import Annotated

from vflbench.cards.privacy import gdp
from vflbench.cards.privacy.keys import SEARCH_END
from vflbench.defaults import from_conf
from vflbench.types import OptionInfo, Range

OPTIONS = (OptionInfo("embedding_and_label", "gdp_embedding and label_rr together", units=("feature_row", "label")),)


@from_conf()
class Config(gdp.Config):
    """Keys of embedding_and_label."""

    label_epsilon: Annotated[float, Range(above=0, at_most=SEARCH_END, infinite=True)] | None
    debias: bool


check = gdp.check
