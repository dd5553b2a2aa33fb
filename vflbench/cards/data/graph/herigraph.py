"""HeriGraph: Suzhou, Amsterdam and Venice."""

from dataclasses import dataclass
from typing import Literal

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


@dataclass
class Config:
    """Keys of the data set."""

    name: str = "suzhou"
    source: Literal["auto", "real", "synthetic"] = "auto"
    variant: Literal["auto"] = "auto"
    verify: bool = True  # compare the files with the published checksums
    train: float = 0.2  # fraction of each class's labelled posts for training
    test: float = 0.5  # fraction for testing; the rest is for validation
    normalize_features: bool = False  # rows of each client's block scaled to sum 1
