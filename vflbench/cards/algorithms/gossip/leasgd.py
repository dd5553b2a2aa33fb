"""LEASGD."""

from dataclasses import dataclass
from typing import Annotated, Literal

from vflbench.cards.algorithms import codecs
from vflbench.cards.algorithms.gossip import exposes, shared
from vflbench.cards.algorithms.gossip.shared import WorkerKeys
from vflbench.types import AlgorithmInfo, Count, Interval, Positive, Problem, Range, RunConfig, Sent

ALGORITHM = AlgorithmInfo(
    name="leasgd",
    summary="decentralized SGD on rows of each worker's own: lagging workers are paired with leading ones, and pull "
    "each other",
    paper="Cheng et al. 2018, arXiv 1811.11124",
    label="LEASGD",
    place=0,
    **shared.FAMILY,
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
    Sent("loss", "worker", "worker", "sums", "worker", when=NOISY, noised=exposes.NOISED, note="its loss"),
    Sent("roles", "worker", "worker", "sums", "all", when=BARE, note="who leads"),
    Sent("roles", "worker", "worker", "sums", "all", when=NOISY, noised=exposes.NOISED, note="who leads"),
    Sent("model", "worker", "worker", "parameters", "worker", noised=exposes.NOISED),
    *exposes.of_models("worker", "model"),
)
SEARCH = {
    **shared.SEARCH,
    "algorithm.local_steps": shared.LOCAL_STEPS,
    "algorithm.recategorise_every": Interval(2, 50, log=True, int=True),
    **codecs.ROUNDING,
    "algorithm.ranking": (None, "random"),
}


@dataclass
class Config(WorkerKeys):
    """Keys of LEASGD."""

    name: str = "leasgd"
    # matching (pairs of a leader and a follower) | star (all but one lead)
    mode: Literal["matching", "star"] = "matching"
    local_steps: int = 1  # tau: iterations per elastic exchange
    recategorise_every: Count = 10  # k: exchanges per recategorisation
    # which loss decides who leads; random: none, whether ranks matter; null: noisy with privacy=dp_sgd, else running
    ranking: Literal["running", "validation", "noisy", "random"] | None = None
    validation_fraction: float = 0.1  # ranking=validation: share of a worker's rows that it does not train on
    # ranking=noisy: what all losses that a worker sends may spend; null: an eighth of privacy.epsilon
    ranking_epsilon: Positive | None = None
    ranking_clip: Positive = 4.0  # ranking=noisy: largest loss of one example; larger ones count as this
    # elastic step eta rho; null: 0.5, with mode=star 0.9 / (m - 1)
    alpha: Annotated[float, Range(at_least=0)] | None = None
    rho: Annotated[float, Range(at_least=0)] | None = None  # elastic factor, instead of alpha


def check(config: RunConfig) -> list[Problem]:
    """Rules across keys, before any data is loaded."""
    cfg: Config = config.algorithm
    problems = shared.check_pools(config)
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
