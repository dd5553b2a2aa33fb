"""TensorBoard."""

from typing import Any

from vflbench.cards.runner.loggers import extras
from vflbench.defaults import from_conf
from vflbench.types import OptionConfig, OptionInfo, Problem

OPTIONS = (OptionInfo("tensorboard", "event files of TensorBoard"),)


@from_conf()
class Config(OptionConfig):
    """Where the files go."""

    name: str
    dir: str | None


def check(config: Any) -> list[Problem]:
    """A problem if the package is not installed."""
    return extras.needs("tensorboard", "tensorboard")
