"""VFL with parameter servers."""

from dataclasses import dataclass

from vflbench.cards.algorithms.split import exposes, shared
from vflbench.cards.algorithms.split.shared import PairKeys
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


@dataclass
class Config(PairKeys):
    """Keys of VFL-PS."""

    name: str = "vfl_ps"
    average_every: Count = 1  # batches between two averages of the replicas; an epoch ends with one
