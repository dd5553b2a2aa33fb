"""How a graph is divided between parties and its nodes into splits, and how rows are dealt to workers."""

from dataclasses import dataclass
from typing import Annotated, Literal

from vflbench.types import Positive, Range


@dataclass
class Division:
    """The keys of a data set that say which part of a graph each party has."""

    keep_edges: Annotated[float, Range(at_least=0, at_most=1)] = 0.8  # each client has an edge with this probability
    normalize_features: bool = False  # rows of each client's block scaled to sum 1


@dataclass
class Sharding:
    """The keys of a data set that say how its rows are dealt to workers (layout sharded)."""

    sharding: Literal["iid", "dirichlet"] = "iid"  # iid (equal random parts) | dirichlet (label skew)
    dirichlet_alpha: Positive = 0.5  # sharding=dirichlet: the smaller, the fewer classes a worker has
