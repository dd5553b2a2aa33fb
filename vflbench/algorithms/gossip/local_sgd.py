"""Local SGD without communication: every worker trains alone on its own rows.

It is the lower reference of decentralized methods. Cheng et al., arXiv 1811.11124, compare with methods that
communicate; this is their rho = 0, or W = I.
"""

from vflbench.algorithms.gossip import worker_sgd
from vflbench.cards.algorithms.gossip.local_sgd import Config
from vflbench.data.tasks import ShardedTask
from vflbench.federation.party import PartySpec
from vflbench.types import RunConfig


def parties(task: ShardedTask, config: RunConfig[Config]) -> dict[str, PartySpec]:
    """One worker per shard."""
    return worker_sgd.workers(worker_sgd.train_alone, task, config)
