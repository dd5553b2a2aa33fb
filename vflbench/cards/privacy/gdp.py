"""Gaussian noise on embeddings, in mu-GDP: `gdp_embedding`."""

from typing import Literal

from vflbench.cards.privacy import keys
from vflbench.defaults import from_conf
from vflbench.types import OptionInfo, Problem

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


def check(config: Config) -> list[Problem]:
    """As `keys.check_budget`, and what is wrong with the calibration."""
    problems = keys.check_budget(config)
    if config.calibration == "paper" and config.noise_multiplier is not None:
        allowed = "turns mu or epsilon into noise, and privacy.noise_multiplier gives the noise: use guaranteed"
        problems.append(Problem("privacy.calibration", "paper", allowed))
    return problems
