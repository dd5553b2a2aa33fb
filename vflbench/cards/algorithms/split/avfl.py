"""AVFL, asynchronous split learning."""

from vflbench.cards.algorithms import codecs
from vflbench.cards.algorithms.split import embedding_messages, split_methods
from vflbench.cards.algorithms.split.split_methods import Keys
from vflbench.defaults import from_conf
from vflbench.types import AlgorithmInfo, Count, Tolerates

ALGORITHM = AlgorithmInfo(
    name="avfl",
    summary="asynchronous split learning: one worker per party, stale gradients",
    paper="Chen et al. 2020, arXiv 2007.06081; a baseline of PubSub-VFL",
    label="AVFL",
    place=3,
    **split_methods.FAMILY,
    attacks=("none", "embedding_inversion", "label_inference"),
    time_dependent=True,
    tolerates=Tolerates(late="goes_on"),  # for `outstanding` batches, and not beyond the epoch
    # any codec: rounded embeddings and gradients are stale ones with noise
    assumes=("aligned_rows",),
)
EXPOSES = embedding_messages.EXPOSES
SEARCH = {**split_methods.SEARCH, **codecs.ROUNDING, "algorithm.outstanding": split_methods.OUTSTANDING}
check = split_methods.check_asynchronous


@from_conf()
class Config(Keys):
    """Keys of AVFL."""

    outstanding: Count
