"""Centralized baseline of GLASU: one party has all features and all edges.

Zhang, Hong, Chen, arXiv 2303.09531, section 5 ("Cent."): the network, sampler, batch size and optimiser of GLASU with
M = 1, so that nothing is aggregated and no message is sent. The program is in alone.py.

Departures from the paper: those of GLASU about optimiser, adjacency and prediction (glasu.py, numbers 3, 4 and 6).
"""

from dataclasses import dataclass

from vflbench.algorithms.graph import shared
from vflbench.algorithms.graph.alone import client
from vflbench.data.tasks import GraphTask
from vflbench.federation.party import PartySpec, party_names
from vflbench.types import AlgorithmInfo, RunConfig

ALGORITHM = AlgorithmInfo(
    name="centralized_gnn",
    summary="GLASU's upper reference: one party with all features and edges, no messages",
    paper="Zhang, Hong, Chen 2023, arXiv 2303.09531, section 5",
    label="Centralized GNN",
    place=1,
    **shared.FAMILY,
    exact="it sends nothing",
    refuses=(
        ("dp_sgd", "a node's features are in the gradients of all nodes within L hops, and degrees have no bound"),
        ("any", "it sends nothing"),
    ),
    assumes=("pooled",),
    accounting=("strict",),
)
EXPOSES = ()
check = shared.check


@dataclass
class Config(shared.Keys):
    """Keys of the centralized baseline."""

    name: str = "centralized_gnn"
    # parties that the data set is split between before it is joined again: so the data are the other methods'
    parties: int = 3


def parties(task: GraphTask, config: RunConfig) -> dict[str, PartySpec]:
    """One party with everything."""
    return {party_names("client", 1)[0]: PartySpec(client, task.joined())}
