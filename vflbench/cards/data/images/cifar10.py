"""CIFAR-10."""

from typing import Annotated, Literal

from vflbench.cards.data import divide
from vflbench.defaults import from_conf
from vflbench.types import DatasetInfo, Range

DATASETS = (
    DatasetInfo(
        name="cifar10",
        summary="CIFAR-10: 60,000 colour images of 10 kinds, a quadrant per party, or whole images dealt to workers",
        layouts=("aligned", "sharded"),
        folder="cifar10",
    ),
)


@from_conf()
class Config(divide.Sharding):
    """Keys of the data set."""

    name: str
    source: Literal["auto", "real", "synthetic"]
    variant: Literal["auto", "full", "jpeg10k", "sample1000"]
    verify: bool
    validation: Annotated[float, Range(at_least=0, below=1)]
    augment: Annotated[int, Range(at_least=0)]
