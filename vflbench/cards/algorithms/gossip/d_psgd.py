"""D-PSGD."""

from typing import Literal

from vflbench.cards.algorithms import codecs
from vflbench.cards.algorithms.gossip import gossip_methods, model_messages
from vflbench.cards.algorithms.gossip.gossip_methods import AveragingKeys
from vflbench.defaults import from_conf
from vflbench.types import AlgorithmInfo, Sent

ALGORITHM = AlgorithmInfo(
    name="d_psgd",
    summary="decentralized SGD on rows of each worker's own: every iteration averages models with all neighbours",
    paper="Lian et al. 2017, arXiv 1705.09056",
    label="D-PSGD",
    place=1,
    **gossip_methods.FAMILY,
    divided_by="workers",
    topologies=("ring", "path", "grid", "complete", "erdos_renyi", "clusters", "edge_list"),
    # any codec: an average of rounded models is one with noise
    remembered=("model",),
    assumes=("seed",),
)
EXPOSES = (
    Sent("model", "worker", "worker", "parameters", "worker", noised=model_messages.NOISED),
    *model_messages.of_models("worker", "model"),
)
SEARCH = {**gossip_methods.SEARCH, "algorithm.mixing": ("parallel", "after"), **codecs.ROUNDING}


@from_conf()
class Config(AveragingKeys):
    """Keys of D-PSGD."""

    mixing: Literal["parallel", "after"]
