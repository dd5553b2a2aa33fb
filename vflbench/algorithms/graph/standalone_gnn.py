"""Standalone baseline of GLASU: every client trains alone on its own features and edges.

Zhang, Hong, Chen, arXiv 2303.09531, section 5 ("StAl."): the network, sampler, batch size and optimiser of GLASU; no
messages.

Departures from the paper
1. Accuracy is the mean over all clients; the released code reports one client. Its clients lost more edges than
   GLASU's; here the clients are the same.
2. Those of GLASU about optimiser, adjacency and prediction (glasu.py, numbers 3, 4 and 6).
"""

from vflbench.algorithms.graph.alone import client
from vflbench.cards.algorithms.graph.standalone_gnn import Config
from vflbench.data.tasks import GraphTask
from vflbench.federation.party import PartySpec, party_names
from vflbench.types import RunConfig


def parties(task: GraphTask, config: RunConfig[Config]) -> dict[str, PartySpec]:
    """One client per part of the task."""
    return {name: PartySpec(client, task.part(m)) for m, name in enumerate(party_names("client", task.parties))}
