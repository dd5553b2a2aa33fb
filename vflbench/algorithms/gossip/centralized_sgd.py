"""Centralized SGD: one party with all rows, the upper reference of decentralized methods.

Its program is shared.train_alone.
"""

from vflbench.algorithms.gossip import worker_sgd
from vflbench.cards.algorithms.gossip.centralized_sgd import Config
from vflbench.data.tasks import ShardedTask
from vflbench.federation.party import PartySpec
from vflbench.types import RunConfig


def parties(task: ShardedTask, config: RunConfig[Config]) -> dict[str, PartySpec]:
    """One party with all rows."""
    worker_sgd.check_data(config, task.public)
    return {"central": PartySpec(worker_sgd.train_alone, task.joined(), role="worker")}
