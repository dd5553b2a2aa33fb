"""Centralized baseline of GLASU: one party has all features and all edges.

Zhang, Hong, Chen, arXiv 2303.09531, section 5 ("Cent."): the network, sampler, batch size and optimiser of GLASU with
M = 1, so that nothing is aggregated and no message is sent. The program is in alone.py.

Departures from the paper: those of GLASU about optimiser, adjacency and prediction (glasu.py, numbers 3, 4 and 6).
"""

from vflbench.algorithms.graph.alone import client
from vflbench.cards.algorithms.graph.centralized_gnn import Config
from vflbench.data.tasks import GraphTask
from vflbench.federation.party import PartySpec, party_names
from vflbench.types import RunConfig


def parties(task: GraphTask, config: RunConfig[Config]) -> dict[str, PartySpec]:
    """One party with everything."""
    return {party_names("client", 1)[0]: PartySpec(client, task.joined())}
