"""Random graphs."""

from typing import Annotated

from vflbench.defaults import from_conf
from vflbench.types import OptionConfig, OptionInfo, Range, Seed

OPTIONS = (OptionInfo("erdos_renyi", "a random graph in which all hang together"),)


@from_conf()
class Config(OptionConfig):
    """The keys of topology=erdos_renyi."""

    name: str
    probability: Annotated[float, Range(above=0, at_most=1)]
    seed: Seed | None
