"""Appliances energy."""

from dataclasses import dataclass

from vflbench.cards.data.tabular.table import TimedKeys
from vflbench.types import DatasetInfo

DATASETS = (
    DatasetInfo(
        name="energy",
        summary="Appliances energy: 19,735 readings of a house, 27 columns, regression; also as ridge regression",
        layouts=("aligned", "sharded", "relational"),
        folder="appliances_energy",
    ),
)


@dataclass
class Config(TimedKeys):
    """Keys of the data set."""

    name: str = "energy"
