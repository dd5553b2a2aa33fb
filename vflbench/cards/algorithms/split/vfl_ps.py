"""VFL with parameter servers."""

from vflbench.cards.algorithms.split import embedding_messages, split_methods
from vflbench.cards.algorithms.split.split_methods import PairKeys
from vflbench.defaults import from_conf
from vflbench.types import AlgorithmInfo, Count

ALGORITHM = AlgorithmInfo(
    name="vfl_ps",
    summary="synchronous split learning with a parameter server and paired workers, averaged every batch",
    paper="the architecture of FATE and PaddleFL; a baseline of PubSub-VFL",
    label="VFL-PS",
    place=2,
    **split_methods.FAMILY,
    # any codec: a rounded embedding or gradient is one with noise; replicas stay inside an organisation
    assumes=("aligned_rows",),
)
EXPOSES = (*embedding_messages.PAIRED, *embedding_messages.REPLICAS)
SEARCH = split_methods.PAIRS
check = split_methods.check_learning


@from_conf()
class Config(PairKeys):
    """Keys of VFL-PS."""

    average_every: Count
