"""LEASGD without rounds."""

from typing import Annotated, Literal

from vflbench.cards.algorithms import codecs
from vflbench.cards.algorithms.gossip import gossip_methods, model_messages
from vflbench.cards.algorithms.gossip.gossip_methods import WorkerKeys
from vflbench.defaults import from_conf
from vflbench.types import AlgorithmInfo, Interval, Positive, Problem, Range, RunConfig, Sent, Tolerates

ALGORITHM = AlgorithmInfo(
    name="leasgd_async",
    summary="LEASGD without rounds: workers wake by Poisson clocks, step, and exchange models with one of the other "
    "pool",
    paper="Cheng et al. 2018, arXiv 1811.11124 (announced there; the protocol is ours)",
    label="LEASGD (async)",
    place=6,
    **gossip_methods.FAMILY,
    divided_by="workers",
    topologies=("complete",),
    time_dependent=True,
    tolerates=Tolerates(late="goes_on"),  # who waits for an answer steps, and asks nobody else
    # any codec: a pull towards a rounded model is one with noise
    remembered=("model",),
    assumes=("seed",),
)
EXPOSES = (
    Sent("model", "worker", "worker", "parameters", "worker", noised=model_messages.NOISED),
    Sent("model", "worker", "worker", "sums", "worker", when=("partners", "ranked"), note="its loss"),
    *model_messages.of_models("worker", "model"),
)
SEARCH = {
    **gossip_methods.SEARCH,
    "algorithm.alpha": Interval(0.1, 0.9, least=0.01, most=0.99),
    **codecs.ROUNDING,
    "algorithm.partners": ("ranked", "random"),
}


@from_conf()
class Config(WorkerKeys):
    """Keys of asynchronous LEASGD."""

    interval: Positive
    spread: float
    alpha: Annotated[float, Range(at_least=0)]
    partners: Literal["ranked", "random"]


def check(config: RunConfig[Config]) -> list[Problem]:
    """Rules across keys, before any data is loaded."""
    cfg = config.algorithm
    problems = gossip_methods.check_pools(config)
    if not 0 <= cfg.spread < 1:
        problems.append(Problem("algorithm.spread", cfg.spread, "must be at least 0 and below 1"))
    return problems + gossip_methods.check_causal(config)
