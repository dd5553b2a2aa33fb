"""MovieLens."""

from typing import Literal

from vflbench.defaults import from_conf
from vflbench.types import Count, DatasetInfo

DATASETS = (
    DatasetInfo(
        name="movielens",
        summary="MovieLens-1M or 100K: ratings of movies by users, three tables joined by movie and user",
        layouts=("relational", "aligned"),
        folder="ml-1m",
    ),
)


@from_conf()
class Config:
    """Keys of the data set."""

    name: str
    source: Literal["auto", "real", "synthetic"]
    variant: Literal["auto", "1m", "1m_sample", "100k"]
    verify: bool
    task: Literal["regression", "classes"]
    text_encoder: str | None
    validation: float
    test: float
    width: Count | None
