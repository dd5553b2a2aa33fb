"""AVFL with parameter servers."""

from dataclasses import dataclass

from vflbench.cards.algorithms.split import exposes, shared
from vflbench.cards.algorithms.split.shared import PairKeys
from vflbench.types import AlgorithmInfo, Count, Tolerates

ALGORITHM = AlgorithmInfo(
    name="avfl_ps",
    summary="asynchronous split learning with a parameter server and paired workers",
    paper="the architecture of Falcon; a baseline of PubSub-VFL",
    label="AVFL-PS",
    place=4,
    **shared.FAMILY,
    time_dependent=True,
    tolerates=Tolerates(late="goes_on"),  # for `outstanding` batches, and not beyond an average
    # any codec: rounded embeddings and gradients are stale ones with noise; replicas stay inside an organisation
    assumes=("aligned_rows",),
)
EXPOSES = (*exposes.PAIRED, *exposes.REPLICAS)
SEARCH = {
    **shared.PAIRS,
    "algorithm.average_every": shared.AVERAGE_EVERY,
    "algorithm.outstanding": shared.OUTSTANDING,
}
check = shared.check_asynchronous


@dataclass
class Config(PairKeys):
    """Keys of AVFL-PS."""

    name: str = "avfl_ps"
    outstanding: Count = 5  # batches of a passive worker that wait for their gradient, at most
    average_every: Count | None = None  # batches of an epoch between two averages; null: at the end of an epoch
