"""Gaussian noise on embeddings, in mu-GDP: `gdp_embedding`."""

from typing import Literal

from vflbench.cards.privacy import keys
from vflbench.defaults import from_conf
from vflbench.types import OptionInfo

OPTIONS = (
    OptionInfo(
        "gdp_embedding",
        "clip and Gaussian noise on every embedding that is published, in mu-GDP",
        units=("feature_row",),
    ),
)


@from_conf()
class Config(keys.Released):
    """Keys of gdp_embedding."""

    name: str
    serving: keys.Serving
    calibration: Literal["guaranteed", "paper"]
