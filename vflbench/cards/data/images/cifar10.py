"""CIFAR-10."""

from dataclasses import dataclass
from typing import Annotated, Literal

from vflbench.cards.data import divide
from vflbench.types import DatasetInfo, Range

DATASETS = (
    DatasetInfo(
        name="cifar10",
        summary="CIFAR-10: 60,000 colour images of 10 kinds, a quadrant per party, or whole images dealt to workers",
        layouts=("aligned", "sharded"),
        folder="cifar10",
    ),
)


@dataclass
class Config(divide.Sharding):
    """Keys of the data set."""

    name: str = "cifar10"
    source: Literal["auto", "real", "synthetic"] = "auto"
    # auto: the fullest found; jpeg10k: 10,000 and 2,000 images, decoded from JPEG; sample1000: 800 and 200 of the
    # training images
    variant: Literal["auto", "full", "jpeg10k", "sample1000"] = "auto"
    verify: bool = True  # compare the files with the known checksums
    # fraction of each class's training images, drawn by the run's seed
    validation: Annotated[float, Range(at_least=0, below=1)] = 0.1
    # aligned: so many random crops and flips of each training image are the training rows; 0: the images themselves
    augment: Annotated[int, Range(at_least=0)] = 0
