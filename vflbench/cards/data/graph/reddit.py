"""Reddit."""

from typing import Annotated, Literal

from vflbench.cards.data import divide
from vflbench.defaults import from_conf
from vflbench.types import DatasetInfo, Range

DATASETS = (
    DatasetInfo(
        name="reddit",
        summary="Reddit: 232,965 posts, 602 features, 41 communities",
        layouts=("graph",),
        folder="reddit",
    ),
)
CLASSES = 41


@from_conf()
class Config(divide.Division):
    """Keys of the data set."""

    name: str
    source: Literal["auto", "real", "synthetic"]
    variant: Literal["auto"]
    verify: bool
    nodes: Annotated[int, Range(at_least=500)]
    split: Literal["random", "public"]
    train: Annotated[float, Range(above=0, below=1)]
