"""Yelp."""

from dataclasses import dataclass
from typing import Annotated, Literal

from vflbench.types import Count, DatasetInfo, Range

DATASETS = (
    DatasetInfo(
        name="yelp",
        summary="Yelp: reviews of restaurants by users, three tables joined by business and user; 1 to 5 stars",
        layouts=("relational", "aligned"),
        folder="yelp",
    ),
)


@dataclass
class Config:
    """Keys of the data set."""

    name: str = "yelp"
    source: Literal["auto", "real", "synthetic"] = "auto"
    variant: Literal["auto"] = "auto"
    verify: bool = True  # no checksums are known
    text_encoder: str | None = None  # folder of a Hugging Face model for the reviews; null: hashed TF-IDF
    validation: float = 0.15  # fraction of the reviews; the twin has a split of its own
    test: float = 0.15
    split_seed: int | None = 0  # of the split; null: the run's seed (and a file of review features for each seed)
    # a restaurant's stars and a user's average stars, which are means of labels, are features
    star_averages: bool = False
    # larger review features are never held in memory whole
    memory_gb: Annotated[float, Range(at_least=0)] = 2.0
    width: Count | None = 16  # twin: at most this many features per table; null: all
