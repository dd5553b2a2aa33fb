"""VFL, synchronous split learning."""

from vflbench.cards.algorithms import codecs
from vflbench.cards.algorithms.split import embedding_messages, split_methods
from vflbench.cards.algorithms.split.split_methods import Keys
from vflbench.defaults import from_conf
from vflbench.types import AlgorithmInfo, Count, Interval

ALGORITHM = AlgorithmInfo(
    name="vfl",
    summary="synchronous split learning: one worker per party, batch by batch",
    paper="Vepakomma et al. 2018, arXiv 1812.00564; a baseline of PubSub-VFL",
    label="VFL",
    place=1,
    **split_methods.FAMILY,
    attacks=("none", "embedding_inversion", "label_inference"),
    # any codec: a rounded embedding or gradient is one with noise
    remembered=("embedding", "gradient"),
    assumes=("aligned_rows",),
)
EXPOSES = embedding_messages.EXPOSES
SEARCH = {
    **split_methods.SEARCH,
    "algorithm.local_steps": Interval(1, 10, log=True, int=True),
    **codecs.ALL,
}
check = split_methods.check_learning


@from_conf()
class Config(Keys):
    """Keys of VFL."""

    local_steps: Count
