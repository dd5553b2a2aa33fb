"""EASGD, elastic averaging."""

from vflbench.cards.algorithms import codecs
from vflbench.cards.algorithms.gossip import exposes, shared
from vflbench.cards.algorithms.gossip.shared import WorkerKeys
from vflbench.defaults import from_conf
from vflbench.types import AlgorithmInfo, Problem, RunConfig, Sent

ALGORITHM = AlgorithmInfo(
    name="easgd",
    summary="SGD on rows of each worker's own, pulled towards the centre variable of a parameter server",
    paper="Zhang, Choromanska, LeCun 2015, arXiv 1412.6651",
    label="EASGD",
    place=2,
    **shared.FAMILY,
    divided_by="workers",
    # any codec: a pull towards a rounded model is one with noise
    remembered=("model", "centre"),
    assumes=("seed",),
)
EXPOSES = (
    Sent("centre", "server", "worker", "parameters", "worker", noised=exposes.NOISED, note="a mean over time of all"),
    Sent("model", "worker", "server", "parameters", "worker", noised=exposes.NOISED),
    *exposes.of_models("server", "model"),
)
SEARCH = {
    **shared.SEARCH,
    "algorithm.local_steps": shared.LOCAL_STEPS,
    **codecs.ROUNDING,
}


@from_conf()
class Config(WorkerKeys):
    """Keys of EASGD."""

    local_steps: int
    beta: float


def check(config: RunConfig) -> list[Problem]:
    """Rules across keys, before any data is loaded."""
    beta, m = config.algorithm.beta, config.algorithm.workers
    # Without gradients, an exchange scales the distance of the workers' mean from the centre by 1 - beta - beta / m.
    limit = 2 * m / (m + 1)
    allowed = f"must be at least 0 and below 2 m / (m + 1) = {limit:.4g} for {m} workers, where the centre diverges"
    return [] if 0 <= beta < limit else [Problem("algorithm.beta", beta, allowed)]
