"""Graph networks of PyTorch Geometric's layers."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from vflbench.types import Count, Range

MODEL_NAMES = ("pyg",)


@dataclass
class Config:
    """Keys of pyg."""

    name: str = "pyg"
    conv: str = "SAGEConv"  # a class of torch_geometric.nn
    conv_options: dict[str, Any] | None = None  # its keys; null: all as it has them
    hidden: Count = 64  # width of every representation
    # share of entries that are dropped from the features and every layer's input
    dropout: Annotated[float, Range(at_least=0, below=1)] = 0.5
    dtype: Literal["float32", "float64"] = "float32"  # float32 | float64
