"""What the cards of methods with tokens, and of their rivals, share: keys and the rules between them."""

from typing import Annotated, Any, Literal

from vflbench.cards.models.model_facts import COMPOSED, SHARES
from vflbench.cards.privacy.keys import serving_of
from vflbench.defaults import from_conf
from vflbench.types import Count, Interval, Positive, Problem, Range, RunConfig, convex_problem

LANCZOS_STEPS = 8
# what is searched
STEPS: dict[str, Any] = {
    "algorithm.lr": (None, 0.003, 0.01, 0.03, 0.1, 0.3),  # None: what the method computes from the data
    "algorithm.batch_size": (None, 64, 256),
}
EMBEDDING: dict[str, Any] = {"model.embedding": Interval(1, 32, log=True, int=True)}
BLOCKS: dict[str, Any] = {**STEPS, "algorithm.local_steps": Interval(1, 20, log=True, int=True), **EMBEDDING}
VISIT = Interval(1, 40, log=True, int=True)  # steps for one visit of a token
ITERATIONS: dict[str, Any] = {"algorithm.iterations": Interval(1, 30, log=True, int=True)}
OWN_PENALTY = "a convex objective has its own penalty: 0"


@from_conf("algorithm/dcpa")
class Keys:
    """Keys of all methods of block coordinate descent."""

    name: str
    parties: int
    default_rounds: Count


@from_conf("algorithm/mtcd")
class NetworkKeys(Keys):
    """Keys of methods that also train networks."""

    halve_every: Positive | None
    anneal: bool
    weight_decay: Annotated[float, Range(at_least=0)]
    batch_size: int | None
    aggregation: Literal["sum", "concat"]


def check_keys(config: RunConfig[Keys]) -> list[Problem]:
    """What is wrong across the keys that these methods share."""
    cfg, problems = config.algorithm, []
    summed = config.model is not None and config.model.name in (*SHARES, COMPOSED)
    if summed and isinstance(cfg, NetworkKeys) and cfg.aggregation != "sum":
        shares = config.model.name in SHARES
        allowed = f"the scores of {config.model.name} are a sum: use sum" if shares else "model.aggregate says it"
        problems.append(Problem("algorithm.aggregation", cfg.aggregation, allowed))
    problem = convex_problem(config.dataset)
    if problem and serving_of(config.privacy) == "noisy":
        allowed = f"dataset.problem={problem} holds out no rows to be served: clean"
        problems.append(Problem("privacy.serving", "noisy", allowed))
    return problems


def check_networks(config: RunConfig[NetworkKeys]) -> list[Problem]:
    """As `check_keys`, for methods that also train networks."""
    cfg, problems = config.algorithm, check_keys(config)
    if cfg.anneal and cfg.halve_every is not None:
        problems.append(
            Problem("algorithm.halve_every", cfg.halve_every, "algorithm.anneal=true says how it falls: null")
        )
    if config.model is not None and config.model.name == "resnet_bn" and config.privacy.name != "none":
        allowed = f"batch normalisation mixes rows, and privacy={config.privacy.name} bounds each by itself: resnet"
        problems.append(Problem("model", "resnet_bn", allowed))
    if cfg.weight_decay and convex_problem(config.dataset):
        problems.append(Problem("algorithm.weight_decay", cfg.weight_decay, OWN_PENALTY))
    return problems
