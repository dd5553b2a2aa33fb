"""Reddit."""

from dataclasses import dataclass
from typing import Annotated, Literal

from vflbench.cards.data import divide
from vflbench.types import DatasetInfo, Positive, Range

DATASETS = (
    DatasetInfo(
        name="reddit",
        summary="Reddit: 232,965 posts, 602 features, 41 communities",
        layouts=("graph",),
        folder="reddit",
    ),
)
CLASSES = 41


@dataclass
class Config(divide.Division):
    """Keys of the data set."""

    name: str = "reddit"
    source: Literal["auto", "real", "synthetic"] = "auto"
    variant: Literal["auto"] = "auto"
    verify: bool = True  # check what is known of the files
    # posts of the synthetic twin, ten a class (the real data has 232,965)
    nodes: Annotated[int, Range(at_least=10 * CLASSES)] = 10000
    mean_degree: Positive = 50.0  # edges at a post of the synthetic twin (the real data has 492)
    split: Literal["random", "public"] = "random"  # random (GLASU's, drawn by the run's seed) | public (by day)
    # split=random: fraction of nodes for training, in equal shares per class
    train: Annotated[float, Range(above=0, below=1)] = 0.66
