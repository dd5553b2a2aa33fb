"""SGD of every worker alone."""

from vflbench.cards.algorithms.gossip import gossip_methods, model_messages
from vflbench.defaults import from_conf
from vflbench.types import AlgorithmInfo

ALGORITHM = AlgorithmInfo(
    name="local_sgd",
    summary="every worker alone with its own rows, no messages",
    paper="baseline of Cheng et al. 2018, arXiv 1811.11124",
    label="Local SGD",
    place=3,
    **gossip_methods.FAMILY,
    divided_by="workers",
    exact="it sends nothing",
)
EXPOSES = model_messages.SETUP
SEARCH = gossip_methods.SEARCH


@from_conf()
class Config(gossip_methods.WorkerKeys):
    """Keys of local SGD."""
