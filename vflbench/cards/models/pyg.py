"""Graph networks of PyTorch Geometric's layers."""

from typing import Annotated, Any, Literal

from vflbench.defaults import from_conf
from vflbench.types import Count, Range

MODEL_NAMES = ("pyg",)


@from_conf()
class Config:
    """Keys of pyg."""

    name: str
    conv: str
    conv_options: dict[str, Any] | None
    hidden: Count
    dropout: Annotated[float, Range(at_least=0, below=1)]
    dtype: Literal["float32", "float64"]


# They ask torch_geometric which convolutions there are, and try the chosen one.
check = "vflbench.models.pyg:check_convolution"
check_width = "vflbench.models.pyg:check_width"
