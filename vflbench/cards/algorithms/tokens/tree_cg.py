"""Conjugate gradients over a spanning tree."""

from typing import Literal

from vflbench.cards.algorithms.tokens import token_messages, token_methods
from vflbench.defaults import from_conf
from vflbench.types import AlgorithmInfo, Count, Implied, Sent

ALGORITHM = AlgorithmInfo(
    name="tree_cg",
    summary="conjugate gradients for ridge regression: products are added up over a spanning tree of the clients",
    paper="Hestenes, Stiefel 1952; over a tree: folklore",
    label="Tree-CG",
    place=5,
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
    refuses=(("any", "noise in a product breaks the conjugacy of directions, and the method with it"),),
    exact="a rounded product breaks the conjugacy of directions: algorithm.dtype=float32 halves the bytes",
    assumes=("aligned_rows", "labels"),
    eval_every=1,
)
EXPOSES = (
    Sent("product", "client", "client", "embeddings", "client", form=("summed",), note="of a leaf, its own"),
    Sent("direction", "client", "client", "embeddings", "client", form=("summed",)),
    Implied(
        "client", "client", "features", ("product", "direction"), "argued",
        "of a leaf: X X' p for every direction p, so X X' itself after as many iterations as it has columns",
    ),
    token_messages.OPTIMUM,
)  # fmt: skip
SEARCH = {"algorithm.dtype": ("float64", "float32")}


@from_conf()
class Config(token_methods.Keys):
    """Keys of conjugate gradients over a tree."""

    iterations: Count
    dtype: Literal["float64", "float32"]


check = "vflbench.algorithms.tokens.graph_checks:ridge"  # it needs NumPy
