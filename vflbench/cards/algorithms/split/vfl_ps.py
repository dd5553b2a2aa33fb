"""VFL with parameter servers."""

from vflbench.cards.algorithms.split import exposes, shared
from vflbench.cards.algorithms.split.shared import PairKeys
from vflbench.defaults import from_conf
from vflbench.types import AlgorithmInfo, Count

ALGORITHM = AlgorithmInfo(
    name="vfl_ps",
    summary="synchronous split learning with a parameter server and paired workers, averaged every batch",
    paper="the architecture of FATE and PaddleFL; a baseline of PubSub-VFL",
    label="VFL-PS",
    place=2,
    **shared.FAMILY,
    # any codec: a rounded embedding or gradient is one with noise; replicas stay inside an organisation
    assumes=("aligned_rows",),
)
EXPOSES = (*exposes.PAIRED, *exposes.REPLICAS)
SEARCH = shared.PAIRS
check = shared.check_learning


@from_conf()
class Config(PairKeys):
    """Keys of VFL-PS."""

    average_every: Count
