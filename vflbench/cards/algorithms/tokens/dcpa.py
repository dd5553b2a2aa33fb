"""DCPA."""

from vflbench.cards.algorithms.tokens import token_messages, token_methods
from vflbench.defaults import from_conf
from vflbench.types import AlgorithmInfo, Count, Implied, Interval, Positive, Sent

ALGORITHM = AlgorithmInfo(
    name="dcpa",
    summary="decentralised primal-dual baseline: every client exchanges a dual vector with its neighbours in every "
    "iteration",
    paper="after Alghunaim, Lyu, Yan, Sayed 2021, IEEE TSP 69",
    label="DCPA",
    place=3,
    layouts=("aligned",),
    divided_by="parties",
    reports=("partial",),
    # no models: its dual steps are those of a convex objective of the sum of X_k theta_k
    topologies=(
        "path",
        "star",
        "ring",
        "grid",
        "complete",
        "erdos_renyi",
        "clusters",
        "semi_decentralized",
        "edge_list",
    ),
    privacy=("none", "gaussian_embedding"),
    exact="it adds up what its neighbours send for ever: errors of rounding are never forgotten, and grow without "
    "bound",
    assumes=("aligned_rows", "labels"),
)
EXPOSES = (
    Sent("dual", "client", "client", "embeddings", "client", noised=token_messages.NOISED),
    Implied(
        "client", "client", "embeddings", ("dual",), "argued",
        "phi is affine in the sender's X w, with what the receiver sent itself as the rest", exact=True,
        noised=token_messages.NOISED,
    ),
    token_messages.OPTIMUM,
)  # fmt: skip
SEARCH = {
    **token_methods.ITERATIONS,
    "algorithm.dual_lr": Interval(0.0003, 0.3, log=True),
}


@from_conf()
class Config(token_methods.Keys):
    """Keys of DCPA."""

    iterations: Count
    dual_lr: Positive
    lr: float | None


check = "vflbench.algorithms.tokens.graph_checks:dcpa"  # it needs NumPy
