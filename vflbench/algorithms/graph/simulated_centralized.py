"""Simulated-centralized baseline of GLASU: clients have all edges and some features, and aggregate after every layer.

Zhang, Hong, Chen: GLASU, arXiv 2303.09531, section 5 ("Sim."), after Ni et al., A Vertical Federated Learning Framework
for Graph Convolutional Network, arXiv 2106.11593: K = L with the exact gradient of the sum of losses. Every level is
aggregated, so every level is common to all clients.

The programs and the departures from the paper are in exact.py.
"""

from dataclasses import dataclass
from typing import Literal

from vflbench.algorithms.graph import exact, exposes, shared
from vflbench.data.tasks import GraphTask
from vflbench.federation.party import PartySpec
from vflbench.types import AlgorithmInfo, RunConfig

ALGORITHM = AlgorithmInfo(
    name="simulated_centralized",
    summary="GLASU's reference with split features: every client has all edges, aggregates every layer, exact "
    "gradients",
    paper="Zhang, Hong, Chen 2023, arXiv 2303.09531, section 5",
    label="Simulated centralized",
    place=3,
    **shared.FAMILY,
    privacy=("none", "gaussian_embedding"),
    refuses=(("edge_rr", "edges are given to all clients"),),
    noisy_serving=True,
    exact="its gradients are exact only for the very numbers that were sent",
    assumes=("aligned_rows", "labels", "edges"),
    accounting=("strict",),
)
EXPOSES = (*exposes.MESSAGES, *exposes.GRADIENTS)
check = shared.check


@dataclass
class Config(exact.GradientKeys, shared.Keys):
    """Keys of the simulated-centralized baseline."""

    name: str = "simulated_centralized"
    aggregate: Literal["avg", "cat"] = "avg"  # avg | cat


def max_releases(config: RunConfig, rounds: int) -> int:
    """How often a client sends a row of a node at most: as exact.py."""
    return exact.releases(rounds, range(config.algorithm.layers))


def parties(task: GraphTask, config: RunConfig) -> dict[str, PartySpec]:
    """The server, and one client per part of the task, with all edges."""
    return exact.specs(task, config, range(config.algorithm.layers), full_edges=True)
