"""MNIST."""

from typing import Annotated, Literal

from vflbench.cards.data import divide
from vflbench.defaults import from_conf
from vflbench.types import DatasetInfo, Range

DATASETS = (
    DatasetInfo(
        name="mnist",
        summary="MNIST: 70,000 handwritten digits, 28 x 28 grey values",
        layouts=("sharded",),
        folder="mnist/MNIST/raw",
    ),
)
TRAIN = 60_000


@from_conf()
class Config(divide.Sharding):
    """Keys of the data set."""

    name: str
    source: Literal["auto", "real", "synthetic"]
    variant: Literal["auto"]
    verify: bool
    validation: Annotated[int, Range(at_least=0, at_most=TRAIN - 1)]
