"""LEASGD."""

from typing import Annotated, Literal

from vflbench.cards.algorithms import codecs
from vflbench.cards.algorithms.gossip import gossip_methods, model_messages
from vflbench.cards.algorithms.gossip.gossip_methods import WorkerKeys
from vflbench.defaults import from_conf
from vflbench.types import AlgorithmInfo, Count, Interval, Positive, Problem, Range, RunConfig, Sent

ALGORITHM = AlgorithmInfo(
    name="leasgd",
    summary="decentralized SGD on rows of each worker's own: lagging workers are paired with leading ones, and pull "
    "each other",
    paper="Cheng et al. 2018, arXiv 1811.11124",
    label="LEASGD",
    place=0,
    **gossip_methods.FAMILY,
    divided_by="workers",
    topologies=("complete",),
    # any codec: a pull towards a rounded model is one with noise
    remembered=("model",),
    assumes=("seed",),
)
BARE = ("ranking", "running", "validation")
NOISY = ("ranking", None, "noisy")  # with dp_sgd; null is noisy with it, and running without
EXPOSES = (
    Sent("loss", "worker", "worker", "sums", "worker", when=BARE, note="its loss"),
    Sent("loss", "worker", "worker", "sums", "worker", when=NOISY, noised=model_messages.NOISED, note="its loss"),
    Sent("roles", "worker", "worker", "sums", "all", when=BARE, note="who leads"),
    Sent("roles", "worker", "worker", "sums", "all", when=NOISY, noised=model_messages.NOISED, note="who leads"),
    Sent("model", "worker", "worker", "parameters", "worker", noised=model_messages.NOISED),
    *model_messages.of_models("worker", "model"),
)
SEARCH = {
    **gossip_methods.SEARCH,
    "algorithm.local_steps": gossip_methods.LOCAL_STEPS,
    "algorithm.recategorise_every": Interval(2, 50, log=True, int=True),
    **codecs.ROUNDING,
    "algorithm.ranking": (None, "random"),
}


@from_conf()
class Config(WorkerKeys):
    """Keys of LEASGD."""

    mode: Literal["matching", "star"]
    local_steps: int
    recategorise_every: Count
    ranking: Literal["running", "validation", "noisy", "random"] | None
    validation_fraction: float
    ranking_epsilon: Positive | None
    ranking_clip: Positive
    alpha: Annotated[float, Range(at_least=0)] | None
    rho: Annotated[float, Range(at_least=0)] | None


def check(config: RunConfig[Config]) -> list[Problem]:
    """Rules across keys, before any data is loaded."""
    cfg = config.algorithm
    problems = gossip_methods.check_pools(config)
    if cfg.alpha is not None and cfg.rho is not None:
        problems.append(Problem("algorithm.rho", cfg.rho, "alpha is lr times rho: give one of the two"))
    elif cfg.mode == "star" and cfg.workers >= 3 and (cfg.workers - 1) * elastic(cfg) >= 1:
        beta = (cfg.workers - 1) * elastic(cfg)
        allowed = f"mode=star needs beta = (workers - 1) alpha below 1, and it is {beta:.4g}"
        problems.append(Problem("algorithm.alpha", elastic(cfg), allowed))
    if cfg.ranking == "validation" and not 0 < cfg.validation_fraction < 1:
        allowed = "must be a fraction above 0 and below 1"
        problems.append(Problem("algorithm.validation_fraction", cfg.validation_fraction, allowed))
    if cfg.ranking == "noisy" and config.privacy.name != "dp_sgd":
        allowed = "protects losses while gradients are bare: add privacy=dp_sgd"
        problems.append(Problem("algorithm.ranking", cfg.ranking, allowed))
    return problems


def elastic(cfg: Config) -> float:
    """The elastic step alpha."""
    if cfg.rho is not None:
        return cfg.lr * cfg.rho
    if cfg.alpha is not None:
        return cfg.alpha
    return 0.5 if cfg.mode == "matching" else 0.9 / max(cfg.workers - 1, 1)
