"""Criteo's click logs."""

from dataclasses import dataclass
from typing import Annotated, Literal

from vflbench.cards.data.tabular import table
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


@dataclass
class Config:
    """Keys of the data set."""

    name: str = "criteo"
    source: Literal["auto", "real", "synthetic"] = "auto"
    # auto (the first that is there) | kaggle | terabyte | sample
    variant: Literal["auto", "kaggle", "terabyte", "sample"] = "auto"
    days: Annotated[int, Range(at_least=1, at_most=24)] = 1  # variant=terabyte: how many of its 24 files, from day_0
    # at most this many rows, the first ones; null: all, or 100,000 of the twin
    samples: Annotated[int, Range(at_least=10)] | None = None
    # columns that the categories of each party are hashed into
    hashed: Annotated[int, Range(at_least=1, at_most=2**31 - 1)] = 128
    # how many of the 39 columns each party has, party 0 (the labels' owner) first; null: evenly
    columns: list[int] | None = None
    order: table.Order = "file"  # of the columns before they are divided: see table.party_columns
    validation: float = 0.1  # fraction of the rows
    test: float = 0.3
    # draws the splits; null: the run's seed, so that each seed has encoded arrays of its own on disk
    split_seed: int | None = None
