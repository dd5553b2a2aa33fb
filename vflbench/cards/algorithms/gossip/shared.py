"""What the cards of methods on rows of each worker's own share: facts, keys and rules."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

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


@dataclass
class Keys:
    """Keys of all methods with local SGD."""

    name: str = ""
    batch_size: int = 32  # rows of a worker's batch
    lr: float = 0.1  # eta: learning rate
    weight_decay: Annotated[float, Range(at_least=0)] = 1e-4  # L2
    rounds_per_epoch: Count = 1  # rounds (and evaluations) in a pass over the data
    default_rounds: Count = 8  # epochs, where epochs and rounds are null


@dataclass
class WorkerKeys(Keys):
    """Keys of methods with several workers."""

    workers: int = 5  # m


@dataclass
class AveragingKeys(WorkerKeys):
    """Keys of methods whose workers average with all neighbours, by the weights of a mixing matrix W."""

    # W: 1 / (1 + the larger degree of the two) | 1 / (1 + the largest degree of all)
    weights: Literal["metropolis", "uniform"] = "metropolis"


def check_pools(config: RunConfig) -> list[Problem]:
    """Return a problem where there are too few workers to lead and to follow."""
    few = config.algorithm.workers < 3
    allowed = "must be at least 3: leaders must outnumber followers"
    return [Problem("algorithm.workers", config.algorithm.workers, allowed)] if few else []


def check_causal(config: RunConfig) -> list[Problem]:
    """Return a problem where messages have no times of their own, which a time-dependent method needs."""
    allowed = f"{config.algorithm.name} depends on when each message comes: causal"
    return [] if config.network.timing == "causal" else [Problem("network.timing", config.network.timing, allowed)]
