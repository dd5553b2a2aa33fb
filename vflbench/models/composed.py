"""`vertical`: the one vertical model (models/vertical.py) put together by hand, for networks that no option names."""

from vflbench.cards.models.composed import Config
from vflbench.types import Problem


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
