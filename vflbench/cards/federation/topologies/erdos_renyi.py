"""Random graphs."""

from dataclasses import dataclass
from typing import Annotated

from vflbench.types import OptionConfig, OptionInfo, Range, Seed

OPTIONS = (OptionInfo("erdos_renyi", "a random graph in which all hang together"),)


@dataclass
class Config(OptionConfig):
    """The keys of topology=erdos_renyi."""

    name: str = "erdos_renyi"
    probability: Annotated[float, Range(above=0, at_most=1)] = 0.3  # of an edge between two clients
    seed: Seed | None = None  # null: the run's seed
