"""SVFL, which is FedBCD."""

from vflbench.cards.algorithms import codecs
from vflbench.cards.algorithms.tokens import token_messages, token_methods
from vflbench.cards.algorithms.tokens.token_methods import LANCZOS_STEPS, NetworkKeys
from vflbench.defaults import from_conf
from vflbench.types import AlgorithmInfo, Implied, Sent

ALGORITHM = AlgorithmInfo(
    name="svfl",
    summary="client-server block gradient descent with Q local updates per exchange (FedBCD)",
    paper="Liu et al. 2022, IEEE TSP 70 (FedBCD)",
    label="SVFL",
    place=2,
    layouts=("aligned",),
    divided_by="parties",
    reports=("predictions", "partial"),
    models=("auto", "split_mlp", "mvcnn", "resnet", "resnet_bn", "linear", "mlp", "mlp10", "residual_mlp", "vertical"),
    topologies=(
        "star",
        "path",
        "ring",
        "grid",
        "complete",
        "erdos_renyi",
        "clusters",
        "semi_decentralized",
        "edge_list",
    ),
    attacks=("none", "gram_recovery"),
    privacy=("none", "gaussian_embedding"),
    noisy_serving=True,
    # any codec: the token is rebuilt every round, so errors do not pile up
    remembered=("representation", "token"),
    assumes=("aligned_rows", "labels", "seed"),
)
EXPOSES = (
    Sent(
        "smoothness", "server", "client", "embeddings", "client",
        when=("lr", None), times=LANCZOS_STEPS + 1, convex=True, note="of a convex problem",
    ),
    Sent(
        "smoothness", "client", "server", "embeddings", "client",
        when=("lr", None), times=LANCZOS_STEPS, convex=True, note="of a convex problem",
    ),
    token_messages.UPLINK,
    *token_messages.DOWNLINK,
    Implied(
        "server", "client", "features", ("smoothness",), "gram_recovery",
        "X X' of a client with at most 8 columns: its rows but for a rotation",
        exact=True, times="once", when=("lr", None), convex=True,
    ),
    token_messages.STEPS,
    token_messages.OPTIMUM,
)  # fmt: skip
SEARCH = {**token_methods.BLOCKS, **codecs.ALL}


@from_conf()
class Config(NetworkKeys):
    """Keys of SVFL."""

    local_steps: int
    lr: float | None


check = "vflbench.algorithms.tokens.graph_checks:svfl"  # it needs NumPy
