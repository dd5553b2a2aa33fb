"""Gaussian noise on embeddings, in mu-GDP: `gdp_embedding`."""

from dataclasses import dataclass
from typing import Literal

from vflbench.cards.privacy import keys
from vflbench.types import OptionInfo

OPTIONS = (
    OptionInfo(
        "gdp_embedding",
        "clip and Gaussian noise on every embedding that is published, in mu-GDP",
        units=("feature_row",),
    ),
)
SEARCH = keys.CLIP


@dataclass
class Config(keys.Released):
    """Keys of gdp_embedding."""

    name: str = "gdp_embedding"
    serving: keys.Serving = "clean"
    calibration: Literal["guaranteed", "paper"] = "guaranteed"  # how a target becomes noise
