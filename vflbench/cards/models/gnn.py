"""Graph networks."""

from typing import Annotated, Literal

from vflbench.defaults import from_conf
from vflbench.types import Count, Problem, Range

MODEL_NAMES = ("gcnii", "gcn", "gat", "residual_gcn")


@from_conf()
class Config:
    """Keys of the graph networks."""

    name: str
    hidden: Count
    dropout: Annotated[float, Range(at_least=0, below=1)]
    alpha: Annotated[float, Range(at_least=0, at_most=1)]
    lambda_: Annotated[float, Range(at_least=0)]
    heads: Count
    mu: Annotated[float, Range(at_least=0, at_most=1)]
    dtype: Literal["float32", "float64"]


def check_width(config: Config, parties: int = 1, aggregate: str = "avg") -> list[Problem]:
    """Return a problem where the width does not divide by the heads, nor, with aggregate=cat, by the parties."""
    heads = config.heads if config.name == "gat" else 1
    return width_problems(config.hidden, heads, parties if aggregate == "cat" else 1)


def width_problems(hidden: int, heads: int, shares: int) -> list[Problem]:
    """A problem where `hidden` does not divide into `shares` of parties times `heads`."""
    if hidden % (shares * heads):
        below = hidden // (shares * heads) * (shares * heads)
        nearest = " or ".join(str(width) for width in (below, below + shares * heads) if width)
        by = [f"{shares} parties (algorithm.aggregate=cat)"] * (shares > 1) + [f"{heads} heads"] * (heads > 1)
        return [Problem("model.hidden", hidden, f"must divide by {' times '.join(by)}; nearest: {nearest}")]
    return []
