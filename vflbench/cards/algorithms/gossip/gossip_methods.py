"""What the cards of methods on rows of each worker's own share: facts, keys and rules."""

from typing import Annotated, Any, Literal

from vflbench.defaults import from_conf
from vflbench.types import Count, Interval, Problem, Range, RunConfig

FAMILY: dict[str, Any] = {  # facts about every method here (AlgorithmInfo)
    "layouts": ("sharded",),
    "reports": ("parameters",),
    "privacy": ("none", "dp_sgd"),
    "models": ("mlp3", "cnn3", "logistic"),
    "epochs": True,
}
SEARCH: dict[str, Any] = {
    "algorithm.batch_size": Interval(8, 128, log=True, int=True),
    "algorithm.lr": Interval(0.01, 1.0, log=True),
    "model.widths": ([128, 64], [64], [32], [16]),
}
LOCAL_STEPS = Interval(1, 50, log=True, int=True)  # searched between two pulls
SHARE = Interval(0.2, 1.0, least=0.05, most=1.0)  # searched: of the workers


@from_conf("algorithm/allreduce_sgd")
class Keys:
    """Keys of all methods with local SGD."""

    name: str
    batch_size: int
    lr: float
    weight_decay: Annotated[float, Range(at_least=0)]
    rounds_per_epoch: Count
    default_rounds: Count


@from_conf("algorithm/allreduce_sgd")
class WorkerKeys(Keys):
    """Keys of methods with several workers."""

    workers: int


@from_conf("algorithm/choco_sgd")
class AveragingKeys(WorkerKeys):
    """Keys of methods whose workers average with all neighbours, by the weights of a mixing matrix W."""

    weights: Literal["metropolis", "uniform"]


def check_pools(config: RunConfig[WorkerKeys]) -> list[Problem]:
    """Return a problem where there are too few workers to lead and to follow."""
    few = config.algorithm.workers < 3
    allowed = "must be at least 3: leaders must outnumber followers"
    return [Problem("algorithm.workers", config.algorithm.workers, allowed)] if few else []


def check_causal(config: RunConfig[WorkerKeys]) -> list[Problem]:
    """Return a problem where messages have no times of their own, which a time-dependent method needs."""
    allowed = f"{config.algorithm.name} depends on when each message comes: causal"
    return [] if config.network.timing == "causal" else [Problem("network.timing", config.network.timing, allowed)]
