"""Made-up ridge regression."""

from typing import Annotated, Literal

from vflbench.cards.data.tabular import table
from vflbench.defaults import from_conf
from vflbench.types import Count, DatasetInfo, Range

DATASETS = (
    DatasetInfo(
        name="ridge",
        summary="synthetic ridge regression with its exact minimum (MTCD); needs no files",
        layouts=("aligned", "sharded", "relational"),
        sources=("synthetic",),
    ),
)


@from_conf()
class Config(table.RegressionKeys):
    """Keys of the data set."""

    source: Literal["auto", "synthetic"]
    features: Count
    noise: Annotated[float, Range(at_least=0)]
