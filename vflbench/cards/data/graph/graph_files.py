"""The user's own graph."""

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from vflbench.cards.data import divide
from vflbench.types import DatasetInfo, Range

DATASETS = (
    DatasetInfo(
        name="graph_files",
        summary="your own graph: features, edges and labels as CSV, parquet, npy or npz, or a torch_geometric Data",
        layouts=("graph",),
        sources=("real",),
    ),
)


@dataclass
class Config(divide.Division):
    """Keys of the data set."""

    name: str = "graph_files"
    source: Literal["auto", "real"] = "auto"  # your files are never replaced by made-up data
    variant: Literal["auto"] = "auto"
    # file of features, a row per node; paths below data_root, or relative to where vflbench is started
    features: str | None = None
    edges: str | None = None  # file of edges, two node ids a row; direction does not matter
    labels: str | None = None  # file of labels, a row per node; -1 or empty: none
    pyg: str | None = None  # in place of these three: a saved torch_geometric Data, or the folder of a data set
    # the column that names a node, in features and labels; edges use its values. null: found, else row numbers
    id: str | None = None
    leave_out: list[str] = field(default_factory=list)  # columns of features that are neither features nor IDs
    # columns that are features, although they look like IDs: distinct whole numbers, or row numbers in any order
    numbers: list[str] = field(default_factory=list)
    # take train_mask, val_mask and test_mask, or train_idx, ..., if the Data or an archive of arrays has them
    masks: bool = True
    # per client a list of its columns: names, numbers or ranges "0:10"; null: random equal blocks
    blocks: list[Any] | None = None
    client_edges: list[str] | None = None  # per client its own file of edges; null: every client has part of `edges`
    # file with columns node,split (train, val, test), or npz with arrays train, val, test; null: drawn
    split: str | None = None
    classes: Annotated[int, Range(at_least=2)] | None = None  # number of classes; null: the largest label + 1
    train: float = 0.2  # fraction of each class for training
    test: float = 0.5  # fraction for testing; the rest is for validation
