"""What the cards of split learning share: facts, keys and the rules between them."""

from typing import Annotated, Any, Literal

from vflbench.cards.algorithms import codecs
from vflbench.defaults import from_conf
from vflbench.types import Count, Interval, Problem, Range, RunConfig, convex_problem

FAMILY: dict[str, Any] = {  # facts about every method here (AlgorithmInfo)
    "layouts": ("aligned",),
    "divided_by": "parties",
    "reports": ("predictions",),
    "privacy": ("none", "gdp_embedding", "label_rr", "gaussian_gradient", "embedding_and_label"),
    "models": ("mlp10", "residual_mlp", "linear", "mlp", "split_mlp", "mvcnn", "resnet", "vertical"),
    "noisy_serving": True,
    "epochs": True,
    "modelled": True,
}
# what is searched
SEARCH: dict[str, Any] = {
    "algorithm.batch_size": Interval(32, 1024, log=True, int=True),
    "algorithm.lr": Interval(0.0003, 0.01, log=True),
    "model.depth": (2, 4, 10),
    "model.embedding": Interval(1, 64, log=True, int=True),
}
PAIRS: dict[str, Any] = {  # of methods with workers
    **SEARCH,
    **codecs.ROUNDING,
    "algorithm.workers": Interval(1, 16, log=True, int=True),
}
OUTSTANDING = Interval(1, 20, log=True, int=True)
AVERAGE_EVERY = (None, 4, 8, 16, 32)
HELD_OUT = "split networks are scored on rows held out: dataset.problem=learning"


@from_conf("algorithm/avfl")
class Keys:
    """Keys that all split learning methods share."""

    name: str
    parties: Annotated[int, Range(at_least=2)]
    batch_size: int
    lr: float
    optimizer: Literal["adam", "sgd"]
    default_rounds: Count


@from_conf("algorithm/avfl_ps")
class PairKeys(Keys):
    """Keys of methods whose workers work in pairs."""

    workers: int


def check_learning(config: RunConfig[object]) -> list[Problem]:
    """A problem where the data set, before it is loaded, says that nothing is held out; see `check_task`."""
    problem = convex_problem(config.dataset)
    return [Problem("dataset.problem", problem, HELD_OUT)] if problem else []


def check_asynchronous(config: RunConfig[Keys]) -> list[Problem]:
    """Return a problem where the network does not say when each message comes.

    Methods whose passive workers run ahead depend on it.
    """
    timing = config.network.timing
    allowed = f"{config.algorithm.name} depends on when each message comes: causal"
    return check_learning(config) + ([Problem("network.timing", timing, allowed)] if timing != "causal" else [])
