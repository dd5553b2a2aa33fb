"""AVFL with parameter servers."""

from vflbench.cards.algorithms.split import embedding_messages, split_methods
from vflbench.cards.algorithms.split.split_methods import PairKeys
from vflbench.defaults import from_conf
from vflbench.types import AlgorithmInfo, Count, Tolerates

ALGORITHM = AlgorithmInfo(
    name="avfl_ps",
    summary="asynchronous split learning with a parameter server and paired workers",
    paper="the architecture of Falcon; a baseline of PubSub-VFL",
    label="AVFL-PS",
    place=4,
    **split_methods.FAMILY,
    time_dependent=True,
    tolerates=Tolerates(late="goes_on"),  # for `outstanding` batches, and not beyond an average
    # any codec: rounded embeddings and gradients are stale ones with noise; replicas stay inside an organisation
    assumes=("aligned_rows",),
)
EXPOSES = (*embedding_messages.PAIRED, *embedding_messages.REPLICAS)
SEARCH = {
    **split_methods.PAIRS,
    "algorithm.average_every": split_methods.AVERAGE_EVERY,
    "algorithm.outstanding": split_methods.OUTSTANDING,
}
check = split_methods.check_asynchronous


@from_conf()
class Config(PairKeys):
    """Keys of AVFL-PS."""

    outstanding: Count
    average_every: Count | None
