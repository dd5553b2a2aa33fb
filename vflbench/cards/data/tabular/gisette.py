"""Gisette."""

from vflbench.cards.data.tabular import table
from vflbench.defaults import from_conf
from vflbench.types import DatasetInfo

DATASETS = (
    DatasetInfo(
        name="gisette",
        summary="Gisette: 6,000 samples, 5,000 columns, 13 % not zero, sparse logistic regression (MTCD) or learning",
        layouts=("aligned", "sharded", "relational"),
        folder="gisette",
    ),
)


@from_conf()
class Config(table.ClassKeys):
    """Keys of the data set."""
