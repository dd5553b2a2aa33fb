"""FedAvg."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from vflbench.cards.algorithms import codecs
from vflbench.cards.algorithms.gossip import exposes, shared
from vflbench.types import AlgorithmInfo, Count, Interval, Positive, Range, Sent

ALGORITHM = AlgorithmInfo(
    name="fedavg",
    summary="FedAvg: a server averages the models that some of the workers have trained on their own rows",
    paper="McMahan et al. 2017, arXiv 1602.05629",
    label="FedAvg",
    place=7,
    layouts=("sharded",),
    divided_by="workers",
    reports=("parameters",),
    privacy=("none", "dp_sgd"),
    models=("mlp3", "cnn3", "logistic"),
    remembered=("model", "update"),
    assumes=("seed",),  # who is sampled
    eval_every=1,  # a round has epochs of those that are sampled
)
EXPOSES = (
    Sent("model", "server", "worker", "parameters", "worker", noised=exposes.NOISED, note="of all workers so far"),
    Sent("update", "worker", "server", "parameters", "worker", noised=exposes.NOISED, note="the change of a model"),
    *exposes.of_models("server", "update"),
)
SEARCH = {
    **shared.SEARCH,
    "algorithm.fraction": shared.SHARE,
    "algorithm.local_epochs": Interval(1, 10, log=True, int=True),
    **codecs.ALL,
}


@dataclass
class Config:
    """Keys of FedAvg."""

    name: str = "fedavg"
    workers: Count = 5  # K
    # C: share of the workers that is sampled in each round; at least one worker
    fraction: Annotated[float, Range(above=0, at_most=1)] = 0.4
    local_epochs: Count = 1  # E: passes of a sampled worker over its own rows
    local_steps: Count | None = None  # H: steps of a sampled worker, in place of local_epochs
    batch_size: Count = 32  # B
    lr: Positive = 0.1  # eta
    weight_decay: Annotated[float, Range(at_least=0)] = 0.0001  # L2
    server_lr: Annotated[float, Range(at_least=0)] = 1.0  # of the mean difference; 0 changes nothing
    server_momentum: Annotated[float, Range(at_least=0, below=1)] = 0.0  # beta; 0: FedAvg
    prox: Annotated[float, Range(at_least=0)] = 0.0  # mu, which holds a worker's model near the server's; 0: FedAvg
    default_rounds: Count = 20
    rounds_per_epoch: ClassVar[int] = 1  # no key: LocalSgd's `begin` is one local epoch
