"""Weights & Biases."""

from typing import Any, Literal

from vflbench.cards.runner.loggers import extras
from vflbench.defaults import from_conf
from vflbench.types import OptionConfig, OptionInfo, Problem

OPTIONS = (OptionInfo("wandb", "runs of Weights & Biases, offline unless a key says otherwise"),)


@from_conf()
class Config(OptionConfig):
    """Where the run goes, and whether it is sent."""

    name: str
    mode: Literal["offline", "online"]
    dir: str | None
    project: str
    entity: str | None


def check(config: Any) -> list[Problem]:
    """A problem if the package is not installed."""
    return extras.needs("wandb", "wandb")
