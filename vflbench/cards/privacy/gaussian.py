"""Gaussian noise on representations: `gaussian_embedding`."""

from dataclasses import dataclass
from typing import Annotated, Literal

from vflbench.cards.privacy import keys
from vflbench.types import OptionInfo, Range

OPTIONS = (
    OptionInfo(
        "gaussian_embedding",
        "clip and Gaussian noise on every representation that is sent",
        units=("feature_row", "gradient_row"),
    ),
)
SEARCH = keys.CLIP


@dataclass
class Config(keys.Released):
    """Keys of gaussian_embedding."""

    name: str = "gaussian_embedding"
    neighbouring: Literal["replace_one", "add_remove"] = "replace_one"
    serving: keys.Serving = "clean"
    # share of the released rows whose releases all get noise of their own; the others repeat what they have sent
    release_quantile: Annotated[float, Range(above=0, at_most=1)] = 1.0
