"""MLflow."""

from dataclasses import dataclass
from typing import Any

from vflbench.cards.runner.loggers import shared
from vflbench.types import OptionConfig, OptionInfo, Problem

OPTIONS = (OptionInfo("mlflow", "runs of MLflow, in a SQLite file here or on a server that you name"),)


@dataclass
class Config(OptionConfig):
    """Where the run goes, and under which experiment."""

    name: str = "mlflow"
    uri: str | None = None
    dir: str | None = None
    experiment: str = "vflbench"


def check(config: Any) -> list[Problem]:
    """A problem if the package is not installed."""
    return shared.needs("mlflow", "mlflow")
