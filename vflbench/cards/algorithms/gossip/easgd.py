"""EASGD, elastic averaging."""

from vflbench.cards.algorithms import codecs
from vflbench.cards.algorithms.gossip import gossip_methods, model_messages
from vflbench.cards.algorithms.gossip.gossip_methods import WorkerKeys
from vflbench.defaults import from_conf
from vflbench.types import AlgorithmInfo, Problem, RunConfig, Sent

ALGORITHM = AlgorithmInfo(
    name="easgd",
    summary="SGD on rows of each worker's own, pulled towards the centre variable of a parameter server",
    paper="Zhang, Choromanska, LeCun 2015, arXiv 1412.6651",
    label="EASGD",
    place=2,
    **gossip_methods.FAMILY,
    divided_by="workers",
    # any codec: a pull towards a rounded model is one with noise
    remembered=("model", "centre"),
    assumes=("seed",),
)
EXPOSES = (
    Sent(
        "centre",
        "server",
        "worker",
        "parameters",
        "worker",
        noised=model_messages.NOISED,
        note="a mean over time of all",
    ),
    Sent("model", "worker", "server", "parameters", "worker", noised=model_messages.NOISED),
    *model_messages.of_models("server", "model"),
)
SEARCH = {
    **gossip_methods.SEARCH,
    "algorithm.local_steps": gossip_methods.LOCAL_STEPS,
    **codecs.ROUNDING,
}


@from_conf()
class Config(WorkerKeys):
    """Keys of EASGD."""

    local_steps: int
    beta: float


def check(config: RunConfig[Config]) -> list[Problem]:
    """Rules across keys, before any data is loaded."""
    beta, m = config.algorithm.beta, config.algorithm.workers
    # Without gradients, an exchange scales the distance of the workers' mean from the centre by 1 - beta - beta / m.
    limit = 2 * m / (m + 1)
    allowed = f"must be at least 0 and below 2 m / (m + 1) = {limit:.4g} for {m} workers, where the centre diverges"
    return [] if 0 <= beta < limit else [Problem("algorithm.beta", beta, allowed)]
