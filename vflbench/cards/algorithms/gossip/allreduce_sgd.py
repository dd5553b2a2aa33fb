"""All-reduce SGD."""

from vflbench.cards.algorithms.gossip import gossip_methods, model_messages
from vflbench.cards.algorithms.gossip.gossip_methods import WorkerKeys
from vflbench.defaults import from_conf
from vflbench.types import AlgorithmInfo, Implied, Sent

ALGORITHM = AlgorithmInfo(
    name="allreduce_sgd",
    summary="all workers take the same step along the mean of their gradients, without a server",
    paper="Thakur, Rabenseifner, Gropp 2005 (reduce-scatter, all-gather)",
    label="AllReduce SGD",
    place=4,
    **gossip_methods.FAMILY,
    divided_by="workers",
    topologies=("complete",),
    exact="its workers stay equal only where all of them add up the very same pieces, and a sender keeps its own "
    "unrounded",
    attacks=("none", "label_histogram"),
    assumes=("seed",),
)
EXPOSES = (
    Sent(
        "gradient", "worker", "worker", "gradients", "worker", noised=model_messages.NOISED, note="a piece of it",
        unit="example",
    ),
    Sent(
        "mean", "worker", "worker", "gradients", "worker", form=("summed",), noised=model_messages.NOISED,
        unit="example",
    ),
    Implied(
        "worker", "worker", "labels", ("gradient",), "label_histogram",
        "shares of classes, from the last bias; who gets the last piece has it", noised=model_messages.NOISED,
    ),
    Implied(
        "worker", "worker", "features", ("gradient",), "argued",
        "a piece of a small batch's gradient can be inverted (Zhu et al. 2019, arXiv 1906.08935)",
        noised=model_messages.NOISED,
    ),
    *model_messages.SETUP,
)  # fmt: skip
SEARCH = gossip_methods.SEARCH


@from_conf()
class Config(WorkerKeys):
    """Keys of all-reduce SGD."""
