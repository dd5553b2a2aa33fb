"""Made-up facts and dimensions."""

from typing import Annotated, Literal

from vflbench.defaults import from_conf
from vflbench.types import Count, DatasetInfo, Range

DATASETS = (
    DatasetInfo(
        name="star_schema",
        summary="synthetic facts and dimensions, joined length = rows x duplication; needs no files",
        layouts=("relational", "aligned"),
        sources=("synthetic",),
    ),
)


@from_conf()
class Config:
    """Keys of the data set."""

    name: str
    source: Literal["auto", "synthetic"]
    variant: Literal["auto"]
    rows: Annotated[int, Range(at_least=10)]
    dimensions: Count
    dimension_rows: Count
    duplication: Count
    width: Count
    noise: Annotated[float, Range(at_least=0)]
    task: Literal["regression", "classes"]
    classes: Annotated[int, Range(at_least=2)]
    validation: float
    test: float
