"""MIMIC-III."""

from dataclasses import dataclass
from typing import Literal

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


@dataclass
class Config:
    """Keys of the data set."""

    name: str = "mimic3"
    source: Literal["auto", "real", "synthetic"] = "auto"
    variant: Literal["auto", "full", "demo"] = "auto"  # full | demo (100 patients) | auto: the fullest found
    # benchmark (mimic3-benchmarks' stays and hours) | all (every charted hour) | auto: full benchmark, demo all
    cohort: Literal["auto", "benchmark", "all"] = "auto"
    validation: float = 0.15  # fraction of the patients for validation
    test: float = 0.15  # fraction of the patients for testing
    length_of_stay: bool = False  # a feature of the stays, known only afterwards; the paper's code has it
    split_seed: int | None = None  # of the split by patients; null: the run's seed
    width: Count | None = 8  # source=synthetic: most features of a table; null: all
