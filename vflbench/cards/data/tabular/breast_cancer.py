"""scikit-learn's breast cancer data."""

from typing import Literal

from vflbench.cards.data.tabular import table
from vflbench.defaults import from_conf
from vflbench.types import DatasetInfo

DATASETS = (
    DatasetInfo(
        name="breast_cancer",
        summary="scikit-learn's breast cancer data: 569 tumours, 30 columns, sparse logistic regression or learning; "
        "needs no files",
        layouts=("aligned", "sharded", "relational"),
        sources=("real",),
        comes_with="comes with scikit-learn",
    ),
)


@from_conf()
class Config(table.ClassKeys):
    """Keys of the data set."""

    source: Literal["auto", "real"]
