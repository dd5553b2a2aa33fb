"""TensorBoard."""

from dataclasses import dataclass
from typing import Any

from vflbench.cards.runner.loggers import shared
from vflbench.types import OptionConfig, OptionInfo, Problem

OPTIONS = (OptionInfo("tensorboard", "event files of TensorBoard"),)


@dataclass
class Config(OptionConfig):
    """Where the files go."""

    name: str = "tensorboard"
    dir: str | None = None


def check(config: Any) -> list[Problem]:
    """A problem if the package is not installed."""
    return shared.needs("tensorboard", "tensorboard")
