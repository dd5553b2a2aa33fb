"""Every two clients meet with the same probability; drawn again until the graph is connected."""

import itertools
import math
from collections.abc import Iterable

from vflbench.cards.federation.topologies.erdos_renyi import Config
from vflbench.seeding import stream
from vflbench.types import ConfigError, Problem

DRAWS = 100


def edges(config: Config, servers: list[str], clients: list[str], seed: int) -> Iterable[tuple[str, str]]:
    """The edges of the first connected graph drawn, and a server's to all clients.

    Raises
    ------
    ConfigError
        None of the graphs drawn is connected.
    """
    import networkx as nx

    n, rng = len(clients), stream(seed if config.seed is None else config.seed, "topology")
    for _ in range(DRAWS):
        graph = nx.fast_gnp_random_graph(n, config.probability, seed=rng)
        if n == 0 or nx.is_connected(graph):
            return (*itertools.product(servers, clients), *((clients[i], clients[j]) for i, j in graph.edges))
    allowed = (
        f"{DRAWS} draws gave no connected graph of {n} clients; take clearly more than log(n)/n = {math.log(n) / n:.2g}"
    )
    raise ConfigError([Problem("topology.probability", config.probability, allowed)])
