"""HeriGraph: Suzhou, Amsterdam and Venice."""

from typing import Literal

from vflbench.defaults import from_conf
from vflbench.types import DatasetInfo

DATASETS = (
    DatasetInfo(
        name="suzhou",
        summary="HeriGraph Suzhou: 3,137 posts, 3 graphs, 3 image blocks",
        layouts=("graph",),
        folder="herigraph",
    ),
    DatasetInfo(
        name="amsterdam",
        summary="HeriGraph Amsterdam: 3,727 posts, 3 graphs, 3 image blocks",
        layouts=("graph",),
        folder="herigraph",
    ),
    DatasetInfo(
        name="venice",
        summary="HeriGraph Venice: 2,951 posts, 3 graphs, 3 image blocks",
        layouts=("graph",),
        sources=("real", "partial", "synthetic"),
        folder="herigraph",
    ),
)


@from_conf()
class Config:
    """Keys of the data set."""

    name: str
    source: Literal["auto", "real", "synthetic"]
    variant: Literal["auto"]
    verify: bool
    train: float
    test: float
