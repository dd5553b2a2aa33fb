"""`vertical`: the one vertical model (models/vertical.py) put together by hand, for networks that no option names."""

from dataclasses import dataclass
from typing import Literal

from vflbench.types import Count, Problem

MODEL_NAMES = ("vertical",)


@dataclass
class Config:
    """Keys of vertical."""

    name: str = "vertical"
    bottom: Literal["linear", "mlp", "residual_mlp"] = "mlp"
    depth: Count = 2  # linear layers of a bottom network; residual_mlp: the first, the last, and two in each block
    width: Count = 32  # hidden units of a bottom network
    embedding: Count = 16  # width of a bottom network's output; top=none: that of the scores
    aggregate: Literal["sum", "mean", "concat"] = "concat"
    top: Literal["none", "linear", "mlp"] = "mlp"
    top_width: Count = 32  # hidden units of the top network
    dtype: Literal["float32", "float64"] = "float32"


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
