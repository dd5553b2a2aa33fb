"""FedAvg."""

from typing import Annotated, ClassVar

from vflbench.cards.algorithms import codecs
from vflbench.cards.algorithms.gossip import gossip_methods, model_messages
from vflbench.defaults import from_conf
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
    Sent(
        "model", "server", "worker", "parameters", "worker", noised=model_messages.NOISED, note="of all workers so far"
    ),
    Sent(
        "update", "worker", "server", "parameters", "worker", noised=model_messages.NOISED, note="the change of a model"
    ),
    *model_messages.of_models("server", "update"),
)
SEARCH = {
    **gossip_methods.SEARCH,
    "algorithm.fraction": gossip_methods.SHARE,
    "algorithm.local_epochs": Interval(1, 10, log=True, int=True),
    **codecs.ALL,
}


@from_conf()
class Config:
    """Keys of FedAvg."""

    name: str
    workers: Count
    fraction: Annotated[float, Range(above=0, at_most=1)]
    local_epochs: Count
    local_steps: Count | None
    batch_size: Count
    lr: Positive
    weight_decay: Annotated[float, Range(at_least=0)]
    server_lr: Annotated[float, Range(at_least=0)]
    server_momentum: Annotated[float, Range(at_least=0, below=1)]
    prox: Annotated[float, Range(at_least=0)]
    default_rounds: Count
    rounds_per_epoch: ClassVar[int] = 1  # no key: LocalSgd's `begin` is one local epoch
