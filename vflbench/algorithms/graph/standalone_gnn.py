"""Standalone baseline of GLASU: every client trains alone on its own features and edges.

Zhang, Hong, Chen, arXiv 2303.09531, section 5 ("StAl."): the network, sampler, batch size and optimiser of GLASU; no
messages.

Departures from the paper
1. Accuracy is the mean over all clients; the released code reports one client. Its clients lost more edges than
   GLASU's; here the clients are the same.
2. Those of GLASU about optimiser, adjacency and prediction (glasu.py, numbers 3, 4 and 6).
"""

from dataclasses import dataclass

from vflbench.algorithms.graph import shared
from vflbench.algorithms.graph.alone import client
from vflbench.data.tasks import GraphTask
from vflbench.federation.party import PartySpec, party_names
from vflbench.types import AlgorithmInfo, Count, RunConfig

ALGORITHM = AlgorithmInfo(
    name="standalone_gnn",
    summary="GLASU's lower reference: every client alone with its own features and edges, no messages",
    paper="Zhang, Hong, Chen 2023, arXiv 2303.09531, section 5",
    label="Standalone GNN",
    place=2,
    **shared.FAMILY,
    exact="it sends nothing",
    refuses=(
        ("dp_sgd", "a node's features are in the gradients of all nodes within L hops, and degrees have no bound"),
        ("any", "it sends nothing"),
    ),
    assumes=("labels",),
)
EXPOSES = ()
check = shared.check


@dataclass
class Config(shared.Keys):
    """Keys of the standalone baseline."""

    name: str = "standalone_gnn"
    default_rounds: Count = 500  # T, where rounds is null


def parties(task: GraphTask, config: RunConfig) -> dict[str, PartySpec]:
    """One client per part of the task."""
    return {name: PartySpec(client, task.part(m)) for m, name in enumerate(party_names("client", task.parties))}
