"""Graph networks."""

from dataclasses import dataclass
from typing import Annotated, Literal

from vflbench.types import Count, Range

MODEL_NAMES = ("gcn", "gat", "gcnii", "residual_gcn")


@dataclass
class Config:
    """Keys of the graph networks."""

    name: str = "gcnii"
    hidden: Count = 64  # width of every representation
    # share of entries that are dropped from a layer's input; residual_gcn: from its output
    dropout: Annotated[float, Range(at_least=0, below=1)] = 0.5
    alpha: Annotated[float, Range(at_least=0, at_most=1)] = 0.1  # gcnii: weight of the initial representation
    lambda_: Annotated[float, Range(at_least=0)] = 0.5  # gcnii: layer l mixes W in with beta = log(lambda / l + 1)
    heads: Count = 8  # gat: attention heads, which divide the width
    # residual_gcn: weight of a segment's output against its input
    mu: Annotated[float, Range(at_least=0, at_most=1)] = 0.5
    dtype: Literal["float32", "float64"] = "float32"  # float32 | float64
