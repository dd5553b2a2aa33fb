"""GLASU's simulated-centralized baseline."""

from typing import Literal

from vflbench.cards.algorithms.graph import graph_methods, layer_messages
from vflbench.defaults import from_conf
from vflbench.types import AlgorithmInfo

ALGORITHM = AlgorithmInfo(
    name="simulated_centralized",
    summary="GLASU's reference with split features: every client has all edges, aggregates every layer, exact "
    "gradients",
    paper="Zhang, Hong, Chen 2023, arXiv 2303.09531, section 5",
    label="Simulated centralized",
    place=3,
    **graph_methods.FAMILY,
    privacy=("none", "gaussian_embedding"),
    refuses=(("edge_rr", "edges are given to all clients"),),
    noisy_serving=True,
    exact="its gradients are exact only for the very numbers that were sent",
    assumes=("aligned_rows", "labels", "edges"),
    accounting=("strict", "framed"),
)
EXPOSES = (*layer_messages.MESSAGES, *layer_messages.GRADIENTS)
SEARCH = {**graph_methods.STEPS, **graph_methods.NETWORK}
check = graph_methods.check


@from_conf()
class Config(graph_methods.GradientKeys, graph_methods.Keys):
    """Keys of the simulated-centralized baseline."""

    aggregate: Literal["avg", "cat"]
