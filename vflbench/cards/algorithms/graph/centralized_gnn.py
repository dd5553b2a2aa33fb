"""A graph network on all data in one place."""

from vflbench.cards.algorithms.graph import graph_methods
from vflbench.defaults import from_conf
from vflbench.types import AlgorithmInfo

ALGORITHM = AlgorithmInfo(
    name="centralized_gnn",
    summary="GLASU's upper reference: one party with all features and edges, no messages",
    paper="Zhang, Hong, Chen 2023, arXiv 2303.09531, section 5",
    label="Centralized GNN",
    place=1,
    **graph_methods.FAMILY,
    exact="it sends nothing",
    refuses=(
        ("dp_sgd", "a node's features are in the gradients of all nodes within L hops, and degrees have no bound"),
        ("any", "it sends nothing"),
    ),
    assumes=("pooled",),
    accounting=("strict", "framed"),
)
EXPOSES = ()
SEARCH = graph_methods.ALONE
check = graph_methods.check


@from_conf()
class Config(graph_methods.Keys):
    """Keys of the centralized baseline."""
