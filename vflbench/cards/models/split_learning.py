"""Networks of split learning: `mlp10` and `residual_mlp`."""

from typing import Literal

from vflbench.defaults import from_conf
from vflbench.types import Count, Problem

MODEL_NAMES = ("mlp10", "residual_mlp")


@from_conf()
class Config:
    """Keys of mlp10 and residual_mlp."""

    name: str
    depth: Count
    width: Count
    embedding: Count
    top_width: Count
    dtype: Literal["float32", "float64"]


def check(config: Config) -> list[Problem]:
    """What is wrong with the depth."""
    if config.depth < 2:
        return [Problem("model.depth", config.depth, "must be at least 2")]
    odd = config.name == "residual_mlp" and config.depth % 2
    return [Problem("model.depth", config.depth, "must be even: a block has two layers")] if odd else []
