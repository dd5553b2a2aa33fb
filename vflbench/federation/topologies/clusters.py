"""Clients in separate groups of equal size (to one client), each group with its own graph; a server reaches all."""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from vflbench.federation.topologies.shapes import SHAPES
from vflbench.types import ConfigError, Count, OptionConfig, OptionInfo, Problem

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


def edges(config: Config, servers: list[str], clients: list[str], seed: int) -> Iterable[tuple[str, str]]:
    """The edges within the clusters, and a server's to all clients.

    Raises
    ------
    ConfigError
        There are fewer clients than clusters.
    """
    if clients and config.clusters > len(clients):
        allowed = f"must be at most the number of clients, {len(clients)}"
        raise ConfigError([Problem("topology.clusters", config.clusters, allowed)])
    members = (
        clients[part[0] : part[-1] + 1]
        for part in np.array_split(np.arange(len(clients)), config.clusters)
        if len(part)
    )
    return (*itertools.product(servers, clients), *(edge for group in members for edge in SHAPES[config.inside](group)))
