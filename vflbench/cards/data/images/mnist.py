"""MNIST."""

from dataclasses import dataclass
from typing import Annotated, Literal

from vflbench.cards.data import divide
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


@dataclass
class Config(divide.Sharding):
    """Keys of the data set."""

    name: str = "mnist"
    source: Literal["auto", "real", "synthetic"] = "auto"
    variant: Literal["auto"] = "auto"
    verify: bool = True  # compare the files with the published checksums
    # training images drawn at random, which no worker has
    validation: Annotated[int, Range(at_least=0, at_most=TRAIN - 1)] = 5000
