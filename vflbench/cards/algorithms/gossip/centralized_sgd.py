"""SGD on all rows in one place."""

from vflbench.cards.algorithms.gossip import shared
from vflbench.defaults import from_conf
from vflbench.types import AlgorithmInfo

ALGORITHM = AlgorithmInfo(
    name="centralized_sgd",
    summary="one party with all rows, no messages",
    paper="baseline",
    label="Centralized SGD",
    place=5,
    **shared.FAMILY,
    divided_by=None,
    exact="it sends nothing",
    assumes=("pooled",),
    accounting=("strict",),
)
EXPOSES = ()
SEARCH = shared.SEARCH


@from_conf()
class Config(shared.Keys):
    """Keys of centralized SGD."""
