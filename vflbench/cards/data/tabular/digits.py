"""scikit-learn's digits as columns."""

from typing import Literal

from vflbench.cards.data.tabular import table
from vflbench.defaults import from_conf
from vflbench.types import DatasetInfo

DATASETS = (
    DatasetInfo(
        name="digits",
        summary="scikit-learn's digits: 1,797 images, 64 pixels, 10 classes, or odd against even (sparse logistic); "
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
