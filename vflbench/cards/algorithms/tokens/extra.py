"""EXTRA and NIDS, on the dual of ridge regression."""

from typing import Literal

from vflbench.cards.algorithms.tokens import token_messages, token_methods
from vflbench.defaults import from_conf
from vflbench.types import AlgorithmInfo, Count, Implied, Positive, Sent

ALGORITHM = AlgorithmInfo(
    name="extra",
    summary="decentralised gradient descent that ends at the optimum, on the dual of ridge regression (EXTRA, NIDS)",
    paper="Shi et al. 2015, arXiv 1404.6264; Li, Shi, Yan 2019, arXiv 1704.07807",
    label="EXTRA",
    place=6,
    layouts=("aligned",),
    divided_by="parties",
    reports=("partial",),
    topologies=(
        "path",
        "ring",
        "grid",
        "complete",
        "erdos_renyi",
        "clusters",
        "semi_decentralized",
        "edge_list",
    ),
    refuses=(("any", "its differences of gradients add up what was sent, and noise with it, for ever"),),
    exact="it adds up what its neighbours send for ever: errors of rounding are never forgotten",
    assumes=("aligned_rows", "labels"),
)
EXPOSES = (
    Sent("dual", "client", "client", "embeddings", "client"),
    Sent("curvature", "client", "client", "sizes", "client", when=("lr", None), times="per hop"),
    Implied(
        "client", "client", "features", ("dual",), "argued",
        "of a client whose only neighbour sees it: X X' v for every v, from which X X' itself follows in time",
    ),
    token_messages.OPTIMUM,
)  # fmt: skip
SEARCH = {**token_methods.ITERATIONS, "algorithm.variant": ("nids", "extra")}


@from_conf()
class Config(token_methods.Keys):
    """Keys of EXTRA."""

    variant: Literal["extra", "nids"]
    iterations: Count
    lr: Positive | None


check = "vflbench.algorithms.tokens.graph_checks:ridge"  # it needs NumPy
