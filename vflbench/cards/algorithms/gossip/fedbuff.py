"""FedBuff."""

from typing import Annotated

from vflbench.cards.algorithms import codecs
from vflbench.cards.algorithms.gossip import gossip_methods, model_messages
from vflbench.cards.algorithms.gossip.gossip_methods import WorkerKeys
from vflbench.defaults import from_conf
from vflbench.types import AlgorithmInfo, Count, Interval, Positive, Range, Sent, Tolerates

ALGORITHM = AlgorithmInfo(
    name="fedbuff",
    summary="FedBuff: FedAvg without rounds: a server adds updates as they come, and moves after every few of them",
    paper="Nguyen et al. 2022, arXiv 2106.06639",
    label="FedBuff",
    place=10,
    **gossip_methods.FAMILY,
    divided_by="workers",
    time_dependent=True,
    tolerates=Tolerates(late="goes_on"),  # it keeps its place among those that train
)
EXPOSES = (
    Sent(
        "model",
        "server",
        "worker",
        "parameters",
        "worker",
        noised=model_messages.NOISED,
        note="a mean over time of all",
    ),
    Sent(
        "update", "worker", "server", "parameters", "worker", noised=model_messages.NOISED, note="the change of a model"
    ),
    Sent("round", "server", "worker", "timing", "worker"),
    *model_messages.of_models("server", "update"),
)
SEARCH = {
    **gossip_methods.SEARCH,
    "algorithm.concurrency": gossip_methods.SHARE,
    "algorithm.buffer": Interval(1, 5, int=True),
    "algorithm.local_epochs": Interval(0.1, 4.0, log=True),
    **codecs.ROUNDING,
}


@from_conf()
class Config(WorkerKeys):
    """Keys of FedBuff."""

    buffer: Count
    concurrency: Annotated[float, Range(above=0, at_most=1)]
    local_epochs: Positive
    server_lr: Positive
    uneven: Annotated[float, Range(at_least=1)]


check = gossip_methods.check_causal
