"""PowerGossip."""

from vflbench.cards.algorithms.gossip import gossip_methods, model_messages
from vflbench.cards.algorithms.gossip.gossip_methods import AveragingKeys
from vflbench.defaults import from_conf
from vflbench.types import AlgorithmInfo, Count, Interval, Sent

ALGORITHM = AlgorithmInfo(
    name="powergossip",
    summary="decentralized SGD on rows of each worker's own, with low-rank differences of neighbours' models",
    paper="Vogels et al. 2020, arXiv 2008.01425",
    label="PowerGossip",
    place=9,
    **gossip_methods.FAMILY,
    divided_by="workers",
    topologies=("ring", "path", "grid", "complete", "erdos_renyi", "clusters", "edge_list"),
    exact="both ends of an edge must know the same product",
    assumes=("seed",),
)
EXPOSES = (
    Sent(
        "product", "worker", "worker", "projection", "worker", noised=model_messages.NOISED,
        note="of its model's matrices", unit="example",
    ),
    Sent("product", "worker", "worker", "parameters", "worker", noised=model_messages.NOISED, note="its biases"),
    *model_messages.of_models("worker", "product"),
)  # fmt: skip
SEARCH = {
    **gossip_methods.SEARCH,
    "algorithm.local_steps": Interval(1, 20, log=True, int=True),
    "algorithm.rank": (1, 2, 4),
}


@from_conf()
class Config(AveragingKeys):
    """Keys of PowerGossip."""

    rank: Count
    local_steps: Count
