"""A CSV file of evaluations."""

from vflbench.defaults import from_conf
from vflbench.types import OptionConfig, OptionInfo

OPTIONS = (OptionInfo("csv", "writes each evaluation as a line of logs/csv.csv, as soon as it is made"),)


@from_conf()
class Config(OptionConfig):
    """It has no keys of its own."""

    name: str
