"""The user's own graph."""

from typing import Annotated, Any, Literal

from vflbench.cards.data import divide
from vflbench.defaults import from_conf
from vflbench.types import DatasetInfo, Range

DATASETS = (
    DatasetInfo(
        name="graph_files",
        summary="your own graph: features, edges and labels as CSV, parquet, npy or npz, or a torch_geometric Data",
        layouts=("graph",),
        sources=("real",),
    ),
)


@from_conf()
class Config(divide.Division):
    """Keys of the data set."""

    name: str
    source: Literal["auto", "real"]
    variant: Literal["auto"]
    features: str | None
    edges: str | None
    labels: str | None
    pyg: str | None
    id: str | None
    leave_out: list[str]
    numbers: list[str]
    masks: bool
    blocks: list[Any] | None
    client_edges: list[str] | None
    split: str | None
    classes: Annotated[int, Range(at_least=2)] | None
    train: float
    test: float
