"""Separate groups of clients."""

from typing import Literal

from vflbench.defaults import from_conf
from vflbench.types import Count, OptionConfig, OptionInfo

OPTIONS = (
    OptionInfo("clusters", "separate groups of clients"),
    OptionInfo("semi_decentralized", "clusters, by the name that the literature has with a server"),
)


@from_conf()
class Config(OptionConfig):
    """The keys of topology=clusters."""

    name: str
    clusters: Count
    inside: Literal["complete", "ring", "path"]
