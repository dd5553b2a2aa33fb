"""Graph networks."""

from typing import Annotated, Literal

from vflbench.defaults import from_conf
from vflbench.types import Count, Range

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
