"""A vertical network that its keys compose: `vertical`."""

from typing import Literal

from vflbench.defaults import from_conf
from vflbench.types import Count, Problem

MODEL_NAMES = ("vertical",)


@from_conf()
class Config:
    """Keys of vertical."""

    name: str
    bottom: Literal["linear", "mlp", "residual_mlp"]
    depth: Count
    width: Count
    embedding: Count
    aggregate: Literal["sum", "mean", "concat"]
    top: Literal["none", "linear", "mlp"]
    top_width: Count
    dtype: Literal["float32", "float64"]


def check(config: Config) -> list[Problem]:
    """What is wrong across the keys."""
    problems = []
    if config.top == "none" and config.aggregate != "sum":
        problems.append(Problem("model.aggregate", config.aggregate, "top=none: the scores are a sum, use sum"))
    if config.bottom != "linear" and config.depth < 2:
        allowed = f"{config.bottom} has at least 2 layers; or use bottom=linear"
        problems.append(Problem("model.depth", config.depth, allowed))
    if config.bottom == "residual_mlp" and config.depth % 2:
        problems.append(Problem("model.depth", config.depth, "must be even: a block has two layers"))
    return problems
