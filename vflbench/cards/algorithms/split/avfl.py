"""AVFL, asynchronous split learning."""

from vflbench.cards.algorithms import codecs
from vflbench.cards.algorithms.split import exposes, shared
from vflbench.cards.algorithms.split.shared import Keys
from vflbench.defaults import from_conf
from vflbench.types import AlgorithmInfo, Count, Tolerates

ALGORITHM = AlgorithmInfo(
    name="avfl",
    summary="asynchronous split learning: one worker per party, stale gradients",
    paper="Chen et al. 2020, arXiv 2007.06081; a baseline of PubSub-VFL",
    label="AVFL",
    place=3,
    **shared.FAMILY,
    attacks=("none", "embedding_inversion", "label_inference"),
    time_dependent=True,
    tolerates=Tolerates(late="goes_on"),  # for `outstanding` batches, and not beyond the epoch
    # any codec: rounded embeddings and gradients are stale ones with noise
    assumes=("aligned_rows",),
)
EXPOSES = exposes.EXPOSES
SEARCH = {**shared.SEARCH, **codecs.ROUNDING, "algorithm.outstanding": shared.OUTSTANDING}
check = shared.check_asynchronous


@from_conf()
class Config(Keys):
    """Keys of AVFL."""

    outstanding: Count
