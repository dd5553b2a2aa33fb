"""Clients in separate groups of equal size (to one client), each group with its own graph; a server reaches all."""

import itertools
from collections.abc import Iterable

import numpy as np

from vflbench.cards.federation.topologies.clusters import Config
from vflbench.federation.topologies.shapes import SHAPES
from vflbench.types import ConfigError, Problem


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
