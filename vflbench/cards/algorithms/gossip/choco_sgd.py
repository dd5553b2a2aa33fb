"""CHOCO-SGD."""

from typing import Annotated, Literal

from vflbench.cards.algorithms.gossip import gossip_methods, model_messages
from vflbench.cards.algorithms.gossip.gossip_methods import AveragingKeys
from vflbench.defaults import from_conf
from vflbench.types import AlgorithmInfo, Count, Interval, Range, Sent

ALGORITHM = AlgorithmInfo(
    name="choco_sgd",
    summary="decentralized SGD on rows of each worker's own, with compressed changes and a memory of them",
    paper="Koloskova et al. 2019, arXiv 1902.00340; with local steps 2020, arXiv 1907.09356",
    label="CHOCO-SGD",
    place=8,
    **gossip_methods.FAMILY,
    divided_by="workers",
    topologies=("ring", "path", "grid", "complete", "erdos_renyi", "clusters", "edge_list"),
    exact="it compresses by itself: algorithm.compression",
    assumes=("seed",),
)
EXPOSES = (
    Sent("change", "worker", "worker", "parameters", "worker", noised=model_messages.NOISED),
    *model_messages.of_models("worker", "change"),
)
SEARCH = {
    **gossip_methods.SEARCH,
    "algorithm.local_steps": Interval(1, 20, log=True, int=True),
    "algorithm.compression": ("sign", "topk", "int8"),
    "algorithm.gamma": Interval(0.02, 1.0, log=True, most=1.0),
}


@from_conf()
class Config(AveragingKeys):
    """Keys of CHOCO-SGD."""

    compression: Literal["none", "topk", "int8", "sign"]
    fraction: Annotated[float, Range(above=0, at_most=1)]
    gamma: Annotated[float, Range(above=0, at_most=1)]
    local_steps: Count
