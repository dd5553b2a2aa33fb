"""MTCD, multi-token coordinate descent."""

from typing import Annotated, Literal

from vflbench.cards.algorithms import codecs
from vflbench.cards.algorithms.tokens import token_messages, token_methods
from vflbench.cards.algorithms.tokens.token_methods import NetworkKeys
from vflbench.defaults import from_conf
from vflbench.types import AlgorithmInfo, Count, Interval, Range, Sent

ALGORITHM = AlgorithmInfo(
    name="mtcd",
    summary="tokens roam between clients and take block gradient steps; a server synchronises them",
    paper="Valdeira, Chi, Soares, Xavier 2023, arXiv 2309.09977",
    label="MTCD",
    place=0,
    layouts=("aligned",),
    divided_by="parties",
    reports=("predictions", "partial"),
    models=("auto", "split_mlp", "mvcnn", "resnet", "resnet_bn", "linear", "mlp", "mlp10", "residual_mlp", "vertical"),
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
    noisy_serving=True,
    # any codec: the server rebuilds the token every round, so errors do not pile up
    remembered=("representation", "token"),
    assumes=("aligned_rows", "labels", "seed"),
)
EXPOSES = (
    token_messages.UPLINK,
    *token_messages.DOWNLINK,
    token_messages.HOP,
    Sent("token", "client", "client", "parameters", "server", note="theta_0, of a network"),
    token_messages.STEPS,
    token_messages.VISITS,
    token_messages.OPTIMUM,
)
SEARCH = {
    **token_methods.STEPS,
    "algorithm.local_steps": token_methods.VISIT,
    "algorithm.tokens": (1, 2, 4),
    "algorithm.hops": Interval(1, 32, log=True, int=True),
    **token_methods.EMBEDDING,
    **codecs.ALL,
}


@from_conf()
class Config(NetworkKeys):
    """Keys of MTCD."""

    tokens: Count
    hops: Annotated[int, Range(at_least=0)]
    local_steps: int
    lr: float | None
    weights: Literal["average", "cluster", "visitors"]
    walk: Literal["random", "sweep"]
    start: list[str] | None
    uplink: Literal["changed", "all"]


check = "vflbench.algorithms.tokens.graph_checks:mtcd"  # it needs NumPy
