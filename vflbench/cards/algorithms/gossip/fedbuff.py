"""FedBuff."""

from dataclasses import dataclass
from typing import Annotated

from vflbench.cards.algorithms import codecs
from vflbench.cards.algorithms.gossip import exposes, shared
from vflbench.cards.algorithms.gossip.shared import WorkerKeys
from vflbench.types import AlgorithmInfo, Count, Interval, Positive, Range, Sent, Tolerates

ALGORITHM = AlgorithmInfo(
    name="fedbuff",
    summary="FedBuff: FedAvg without rounds: a server adds updates as they come, and moves after every few of them",
    paper="Nguyen et al. 2022, arXiv 2106.06639",
    label="FedBuff",
    place=10,
    **shared.FAMILY,
    divided_by="workers",
    time_dependent=True,
    tolerates=Tolerates(late="goes_on"),  # it keeps its place among those that train
)
EXPOSES = (
    Sent("model", "server", "worker", "parameters", "worker", noised=exposes.NOISED, note="a mean over time of all"),
    Sent("update", "worker", "server", "parameters", "worker", noised=exposes.NOISED, note="the change of a model"),
    Sent("round", "server", "worker", "timing", "worker"),
    *exposes.of_models("server", "update"),
)
SEARCH = {
    **shared.SEARCH,
    "algorithm.concurrency": shared.SHARE,
    "algorithm.buffer": Interval(1, 5, int=True),
    "algorithm.local_epochs": Interval(0.1, 4.0, log=True),
    **codecs.ROUNDING,
}


@dataclass
class Config(WorkerKeys):
    """Keys of FedBuff."""

    name: str = "fedbuff"
    buffer: Count = 2  # K: updates for one step of the server
    # share of the workers that train at a time; at least one worker
    concurrency: Annotated[float, Range(above=0, at_most=1)] = 0.4
    local_epochs: Positive = 1.0  # a worker's passes from a model to its update, over the rows of the mean worker
    server_lr: Positive = 1.0  # eta_g
    # privacy=dp_sgd: a worker's updates at most, over the mean worker's
    uneven: Annotated[float, Range(at_least=1)] = 1.0


check = shared.check_causal
