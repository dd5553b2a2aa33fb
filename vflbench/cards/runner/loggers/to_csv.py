"""A CSV file of evaluations."""

from dataclasses import dataclass

from vflbench.types import OptionConfig, OptionInfo

OPTIONS = (OptionInfo("csv", "writes each evaluation as a line of logs/csv.csv, as soon as it is made"),)


@dataclass
class Config(OptionConfig):
    """It has no keys of its own."""

    name: str = "csv"
