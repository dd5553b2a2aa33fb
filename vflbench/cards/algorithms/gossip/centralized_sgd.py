"""SGD on all rows in one place."""

from vflbench.cards.algorithms.gossip import gossip_methods
from vflbench.defaults import from_conf
from vflbench.types import AlgorithmInfo

ALGORITHM = AlgorithmInfo(
    name="centralized_sgd",
    summary="one party with all rows, no messages",
    paper="baseline",
    label="Centralized SGD",
    place=5,
    **gossip_methods.FAMILY,
    divided_by=None,
    exact="it sends nothing",
    assumes=("pooled",),
    accounting=("strict", "framed"),
)
EXPOSES = ()
SEARCH = gossip_methods.SEARCH


@from_conf()
class Config(gossip_methods.Keys):
    """Keys of centralized SGD."""
