"""D-PSGD."""

from typing import Literal

from vflbench.cards.algorithms import codecs
from vflbench.cards.algorithms.gossip import exposes, shared
from vflbench.cards.algorithms.gossip.shared import AveragingKeys
from vflbench.defaults import from_conf
from vflbench.types import AlgorithmInfo, Sent

ALGORITHM = AlgorithmInfo(
    name="d_psgd",
    summary="decentralized SGD on rows of each worker's own: every iteration averages models with all neighbours",
    paper="Lian et al. 2017, arXiv 1705.09056",
    label="D-PSGD",
    place=1,
    **shared.FAMILY,
    divided_by="workers",
    topologies=("ring", "path", "grid", "complete", "erdos_renyi", "clusters", "edge_list"),
    # any codec: an average of rounded models is one with noise
    remembered=("model",),
    assumes=("seed",),
)
EXPOSES = (
    Sent("model", "worker", "worker", "parameters", "worker", noised=exposes.NOISED),
    *exposes.of_models("worker", "model"),
)
SEARCH = {**shared.SEARCH, "algorithm.mixing": ("parallel", "after"), **codecs.ROUNDING}


@from_conf()
class Config(AveragingKeys):
    """Keys of D-PSGD."""

    mixing: Literal["parallel", "after"]
