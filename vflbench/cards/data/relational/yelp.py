"""Yelp."""

from typing import Literal

from vflbench.defaults import from_conf
from vflbench.types import Count, DatasetInfo

DATASETS = (
    DatasetInfo(
        name="yelp",
        summary="Yelp: reviews of restaurants by users, three tables joined by business and user; 1 to 5 stars",
        layouts=("relational", "aligned"),
        folder="yelp",
    ),
)


@from_conf()
class Config:
    """Keys of the data set."""

    name: str
    source: Literal["auto", "real", "synthetic"]
    variant: Literal["auto"]
    verify: bool
    text_encoder: str | None
    validation: float
    test: float
    split_seed: int | None
    star_averages: bool
    width: Count | None
