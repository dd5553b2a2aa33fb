"""MovieLens."""

from dataclasses import dataclass
from typing import Literal

from vflbench.types import Count, DatasetInfo

DATASETS = (
    DatasetInfo(
        name="movielens",
        summary="MovieLens-1M or 100K: ratings of movies by users, three tables joined by movie and user",
        layouts=("relational", "aligned"),
        folder="ml-1m",
    ),
)


@dataclass
class Config:
    """Keys of the data set."""

    name: str = "movielens"
    source: Literal["auto", "real", "synthetic"] = "auto"
    # auto: the fullest found; 1m_sample: 100,000 of its ratings
    variant: Literal["auto", "1m", "1m_sample", "100k"] = "auto"
    verify: bool = True  # compare the files with the known checksums
    task: Literal["regression", "classes"] = "regression"  # the rating itself, or classes 0 to 4
    text_encoder: str | None = None  # folder of a Hugging Face model for the titles; null: hashed TF-IDF
    validation: float = 0.15  # fraction of the ratings; the twin has a split of its own
    test: float = 0.15
    width: Count | None = None  # twin: at most this many features per table; null: all
