"""Criteo's click logs."""

from typing import Annotated, Literal

from vflbench.cards.data.tabular import table
from vflbench.defaults import from_conf
from vflbench.types import DatasetInfo, Range

DATASETS = (
    DatasetInfo(
        name="criteo",
        summary="Criteo's click logs (Kaggle or Terabyte format): 13 numbers, 26 hashed categories, streamed to disk, "
        "all its rows",
        layouts=("aligned",),
        folder="criteo",
    ),
)


@from_conf()
class Config:
    """Keys of the data set."""

    name: str
    source: Literal["auto", "real", "synthetic"]
    variant: Literal["auto", "kaggle", "terabyte", "sample"]
    days: Annotated[int, Range(at_least=1, at_most=24)]
    samples: Annotated[int, Range(at_least=10)] | None
    hashed: Annotated[int, Range(at_least=1, at_most=2**31 - 1)]
    columns: list[int] | None
    order: table.Order
    validation: float
    test: float
    split_seed: int | None
