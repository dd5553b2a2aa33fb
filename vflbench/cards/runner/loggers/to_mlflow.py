"""MLflow."""

from typing import Any

from vflbench.cards.runner.loggers import extras
from vflbench.defaults import from_conf
from vflbench.types import OptionConfig, OptionInfo, Problem

OPTIONS = (OptionInfo("mlflow", "runs of MLflow, in a SQLite file here or on a server that you name"),)


@from_conf()
class Config(OptionConfig):
    """Where the run goes, and under which experiment."""

    name: str
    uri: str | None
    dir: str | None
    experiment: str


def check(config: Any) -> list[Problem]:
    """A problem if the package is not installed."""
    return extras.needs("mlflow", "mlflow")
