"""MIMIC-III."""

from typing import Literal

from vflbench.defaults import from_conf
from vflbench.types import Count, DatasetInfo

DATASETS = (
    DatasetInfo(
        name="mimic3",
        summary="MIMIC-III: decompensation of intensive-care patients, five tables; full (credentialed) or the open "
        "demo of 100 patients",
        layouts=("relational", "aligned"),
        folder="mimic3",
    ),
)


@from_conf()
class Config:
    """Keys of the data set."""

    name: str
    source: Literal["auto", "real", "synthetic"]
    variant: Literal["auto", "full", "demo"]
    cohort: Literal["auto", "benchmark", "all"]
    validation: float
    test: float
    length_of_stay: bool
    split_seed: int | None
    width: Count | None
