"""Gaussian noise on representations: `gaussian_embedding`."""

from typing import Annotated, Literal

from vflbench.cards.privacy import keys
from vflbench.defaults import from_conf
from vflbench.types import OptionInfo, Range

OPTIONS = (
    OptionInfo(
        "gaussian_embedding",
        "clip and Gaussian noise on every representation that is sent",
        units=("feature_row", "gradient_row"),
    ),
)


@from_conf()
class Config(keys.Released):
    """Keys of gaussian_embedding."""

    name: str
    neighbouring: Literal["replace_one", "add_remove"]
    serving: keys.Serving
    release_quantile: Annotated[float, Range(above=0, at_most=1)]


check = keys.check_budget
