"""GLASU with exact gradients."""

from vflbench.cards.algorithms.graph import graph_methods, layer_messages
from vflbench.defaults import from_conf
from vflbench.types import AlgorithmInfo

ALGORITHM = AlgorithmInfo(
    name="glasu_exact",
    summary="GLASU with exact gradients: the server back-propagates through each aggregation, one update per round",
    paper="Zhang, Hong, Chen 2023, arXiv 2303.09531, section 2.1",
    label="GLASU (exact)",
    place=4,
    **graph_methods.FAMILY,
    privacy=("none", "gaussian_embedding", "edge_rr"),
    attacks=("none", "edge_inference"),
    noisy_serving=True,
    exact="its gradients are exact only for the very numbers that were sent",
    assumes=("aligned_rows", "labels"),
)
EXPOSES = (*layer_messages.MESSAGES, *layer_messages.GRADIENTS, *layer_messages.EDGES)
SEARCH = {**graph_methods.STEPS, **graph_methods.AGGREGATIONS, **graph_methods.NETWORK}
check = graph_methods.check


@from_conf()
class Config(graph_methods.GradientKeys, graph_methods.AggregationKeys):
    """Keys of GLASU with exact gradients."""
