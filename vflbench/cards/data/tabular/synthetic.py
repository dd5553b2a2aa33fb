"""scikit-learn's make_classification."""

from dataclasses import dataclass
from typing import Annotated, Literal

from vflbench.cards.data.tabular import table
from vflbench.types import DatasetInfo, Positive, Range

DATASETS = (
    DatasetInfo(
        name="synthetic",
        summary="scikit-learn's make_classification: 1,000,000 rows, 500 columns or as many as you say, two classes; "
        "needs no files",
        layouts=("aligned", "sharded", "relational"),
        sources=("synthetic",),
    ),
)


@dataclass
class Config(table.ClassKeys):
    """Keys of the data set."""

    name: str = "synthetic"
    source: Literal["auto", "synthetic"] = "auto"  # it is always made up
    samples: table.Samples = 1_000_000  # null: 1,000,000
    features: Annotated[int, Range(at_least=2)] = 500
    informative: Annotated[int, Range(at_least=2)] = 50  # columns that tell the classes apart
    redundant: Annotated[int, Range(at_least=0)] = 50  # linear combinations of those
    separation: Positive = 1.0  # how far the classes' clusters lie apart
    flipped: Annotated[float, Range(at_least=0, below=1)] = 0.01  # fraction of the labels drawn at random
