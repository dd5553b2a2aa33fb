"""GLASU with server back-propagation: the exact gradient of the sum of all clients' losses, one update per round.

Zhang, Hong, Chen: GLASU, arXiv 2303.09531, section 2.1. Communication is about twice that of GLASU with one local step;
nothing is stale. The programs and the departures from the paper are in exact.py.
"""

from vflbench.algorithms.graph import exact
from vflbench.algorithms.graph.joint import aggregation_layers
from vflbench.cards.algorithms.graph.glasu_exact import Config
from vflbench.data.tasks import GraphTask
from vflbench.federation.party import PartySpec
from vflbench.types import RunConfig


def max_releases(config: RunConfig[Config], rounds: int) -> int:
    """How often a client sends a row of a node at most: as exact.py."""
    return exact.releases(rounds, ends(config.algorithm))


def ends(cfg: Config) -> tuple[int, ...]:
    """I."""
    return aggregation_layers(cfg.layers, cfg.aggregations, cfg.aggregation_layers)


def parties(task: GraphTask, config: RunConfig[Config]) -> dict[str, PartySpec]:
    """The server, and one client per part of the task."""
    return exact.specs(task, config, ends(config.algorithm), full_edges=False)
