"""scikit-learn's make_classification."""

from typing import Annotated, Literal

from vflbench.cards.data.tabular import table
from vflbench.defaults import from_conf
from vflbench.types import DatasetInfo, Range

DATASETS = (
    DatasetInfo(
        name="synthetic",
        summary="scikit-learn's make_classification: 1,000,000 rows, 500 columns or as many as you say, two classes; "
        "needs no files",
        layouts=("aligned", "sharded", "relational"),
        sources=("synthetic",),
    ),
)


@from_conf()
class Config(table.ClassKeys):
    """Keys of the data set."""

    source: Literal["auto", "synthetic"]
    features: Annotated[int, Range(at_least=2)]
    informative: Annotated[int, Range(at_least=2)]
    redundant: Annotated[int, Range(at_least=0)]
