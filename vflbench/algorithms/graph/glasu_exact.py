"""GLASU with server back-propagation: the exact gradient of the sum of all clients' losses, one update per round.

Zhang, Hong, Chen: GLASU, arXiv 2303.09531, section 2.1. Communication is about twice that of GLASU with one local step;
nothing is stale. The programs and the departures from the paper are in exact.py.
"""

from dataclasses import dataclass
from functools import partial

from vflbench.algorithms.graph import shared
from vflbench.algorithms.graph.exact import client, server
from vflbench.algorithms.graph.joint import aggregation_layers
from vflbench.data.tasks import GraphTask
from vflbench.federation.party import PartySpec
from vflbench.types import AlgorithmInfo, RunConfig

ALGORITHM = AlgorithmInfo(
    name="glasu_exact",
    summary="GLASU with exact gradients: the server back-propagates through each aggregation, one update per round",
    paper="Zhang, Hong, Chen 2023, arXiv 2303.09531, section 2.1",
    label="GLASU (exact)",
    place=4,
    **shared.FAMILY,
    exact="its gradients are exact only for the very numbers that were sent",
    assumes=("aligned_rows", "labels"),
)
EXPOSES = shared.EXACT
check = shared.check


@dataclass
class Config(shared.AggregationKeys):
    """Keys of GLASU with exact gradients."""

    name: str = "glasu_exact"


def parties(task: GraphTask, config: RunConfig) -> dict[str, PartySpec]:
    """The server, and one client per part of the task."""
    cfg: Config = config.algorithm
    ends = aggregation_layers(cfg.layers, cfg.aggregations, cfg.aggregation_layers)
    parts = [task.part(m) for m in range(task.parties)]
    return shared.parties(partial(server, ends=ends), partial(client, ends=ends), parts)
