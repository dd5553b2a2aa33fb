"""Simulated-centralized baseline of GLASU: clients have all edges and some features, and aggregate after every layer.

Zhang, Hong, Chen: GLASU, arXiv 2303.09531, section 5 ("Sim."), after Ni et al., A Vertical Federated Learning Framework
for Graph Convolutional Network, arXiv 2106.11593: K = L with the exact gradient of the sum of losses. Every level is
aggregated, so every level is common to all clients.

The programs and the departures from the paper are in exact.py.
"""

from vflbench.algorithms.graph import exact
from vflbench.cards.algorithms.graph.simulated_centralized import Config
from vflbench.data.tasks import GraphTask
from vflbench.federation.party import PartySpec
from vflbench.types import RunConfig


def max_releases(config: RunConfig[Config], rounds: int) -> int:
    """How often a client sends a row of a node at most: as exact.py."""
    return exact.releases(rounds, range(config.algorithm.layers))


def parties(task: GraphTask, config: RunConfig[Config]) -> dict[str, PartySpec]:
    """The server, and one client per part of the task, with all edges."""
    return exact.specs(task, config, range(config.algorithm.layers), full_edges=True)
