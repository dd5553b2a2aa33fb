"""STCD, single-token coordinate descent."""

from vflbench.cards.algorithms.tokens import token_messages, token_methods
from vflbench.cards.algorithms.tokens.token_methods import Keys
from vflbench.defaults import from_conf
from vflbench.types import AlgorithmInfo, Count, Interval, Sent

ALGORITHM = AlgorithmInfo(
    name="stcd",
    summary="one token walks between clients and takes block gradient steps; there is no server",
    paper="Valdeira, Chi, Soares, Xavier 2023, arXiv 2309.09977",
    label="STCD",
    place=1,
    layouts=("aligned",),
    divided_by="parties",
    reports=("partial",),
    # no models: no party has theta_0, and the first token is 0, which the sum of the shares of an mlp is not
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
    exact="the token is the only copy of the sum of predictions: what every hop rounds off stays in it",
    assumes=("aligned_rows", "labels", "seed"),
)
EXPOSES = (
    Sent("token", "client", "client", "embeddings", "client", form=("summed",), noised=token_messages.NOISED),
    token_messages.VISITS,
    token_messages.OPTIMUM,
)
SEARCH = {
    "algorithm.hops": Interval(10, 400, log=True, int=True),
    "algorithm.local_steps": token_methods.VISIT,
}


@from_conf()
class Config(Keys):
    """Keys of STCD."""

    hops: Count
    local_steps: int
    lr: float | None
    start: list[str] | None


check = "vflbench.algorithms.tokens.graph_checks:stcd"  # it needs NumPy
