"""Weights & Biases."""

from dataclasses import dataclass
from typing import Any, Literal

from vflbench.cards.runner.loggers import shared
from vflbench.types import OptionConfig, OptionInfo, Problem

OPTIONS = (OptionInfo("wandb", "runs of Weights & Biases, offline unless a key says otherwise"),)


@dataclass
class Config(OptionConfig):
    """Where the run goes, and whether it is sent."""

    name: str = "wandb"
    mode: Literal["offline", "online"] = "offline"
    dir: str | None = None
    project: str = "vflbench"
    entity: str | None = None


def check(config: Any) -> list[Problem]:
    """A problem if the package is not installed."""
    return shared.needs("wandb", "wandb")
