"""Appliances energy."""

from vflbench.cards.data.tabular.table import TimedKeys
from vflbench.defaults import from_conf
from vflbench.types import DatasetInfo

DATASETS = (
    DatasetInfo(
        name="energy",
        summary="Appliances energy: 19,735 readings of a house, 27 columns, regression; also as ridge regression",
        layouts=("aligned", "sharded", "relational"),
        folder="appliances_energy",
    ),
)


@from_conf()
class Config(TimedKeys):
    """Keys of the data set."""
