"""Separate groups of clients."""

from dataclasses import dataclass
from typing import Literal

from vflbench.types import Count, OptionConfig, OptionInfo

OPTIONS = (
    OptionInfo("clusters", "separate groups of clients"),
    OptionInfo("semi_decentralized", "clusters, by the name that the literature has with a server"),
)


@dataclass
class Config(OptionConfig):
    """The keys of topology=clusters."""

    name: str = "clusters"
    clusters: Count = 2
    inside: Literal["complete", "ring", "path"] = "complete"  # the graph within a cluster
