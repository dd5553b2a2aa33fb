"""Made-up facts and dimensions."""

from dataclasses import dataclass
from typing import Annotated, Literal

from vflbench.types import Count, DatasetInfo, Range

DATASETS = (
    DatasetInfo(
        name="star_schema",
        summary="made-up facts and dimensions, joined length = rows x duplication; needs no files",
        layouts=("relational", "aligned"),
        sources=("synthetic",),
    ),
)


@dataclass
class Config:
    """Keys of the data set."""

    name: str = "star_schema"
    source: Literal["auto", "synthetic"] = "auto"  # it is always made up
    variant: Literal["auto"] = "auto"
    rows: Annotated[int, Range(at_least=10)] = 10_000  # of the fact table, which has the labels
    dimensions: Count = 2  # tables besides it
    dimension_rows: Count = 1_000  # of each
    # rows of the first dimension that a fact row joins with: the joined table has rows x duplication rows
    duplication: Count = 4
    width: Count = 8  # features of each table
    # standard deviation of the part that no feature explains; that of the explained part is 1
    noise: Annotated[float, Range(at_least=0)] = 0.5
    task: Literal["regression", "classes"] = "regression"
    classes: Annotated[int, Range(at_least=2)] = 3  # task=classes: how many, about equally frequent
    validation: float = 0.15  # fraction of the fact rows
    test: float = 0.15
