"""Local SGD without communication: every worker trains alone on its own rows.

It is the lower reference of decentralized methods. Cheng et al., arXiv 1811.11124, compare with methods that
communicate; this is their rho = 0, or W = I.
"""

from dataclasses import dataclass

from vflbench.algorithms.gossip import exposes, shared
from vflbench.data.tasks import ShardedTask
from vflbench.federation.party import PartySpec
from vflbench.types import AlgorithmInfo, RunConfig

ALGORITHM = AlgorithmInfo(
    name="local_sgd",
    summary="every worker alone with its own rows, no messages",
    paper="baseline of Cheng et al. 2018, arXiv 1811.11124",
    label="Local SGD",
    place=3,
    **shared.FAMILY,
    divided_by="workers",
    exact="it sends nothing",
)
EXPOSES = exposes.SETUP


@dataclass
class Config(shared.WorkerKeys):
    """Keys of local SGD."""

    name: str = "local_sgd"


def parties(task: ShardedTask, config: RunConfig) -> dict[str, PartySpec]:
    """One worker per shard."""
    return shared.workers(shared.train_alone, task, config)
