"""Centralized SGD: one party with all rows, the upper reference of decentralized methods.

Its program is shared.train_alone.
"""

from dataclasses import dataclass

from vflbench.algorithms.gossip import shared
from vflbench.data.tasks import ShardedTask
from vflbench.federation.party import PartySpec
from vflbench.types import AlgorithmInfo, RunConfig

ALGORITHM = AlgorithmInfo(
    name="centralized_sgd",
    summary="one party with all rows, no messages",
    paper="baseline",
    label="Centralized SGD",
    place=5,
    **shared.FAMILY,
    divided_by=None,
    exact="it sends nothing",
    assumes=("pooled",),
    accounting=("strict",),
)
EXPOSES = ()


@dataclass
class Config(shared.Keys):
    """Keys of centralized SGD."""

    name: str = "centralized_sgd"


def parties(task: ShardedTask, config: RunConfig) -> dict[str, PartySpec]:
    """One party with all rows."""
    shared.check_data(config, task.public)
    return {"central": PartySpec(shared.train_alone, task.joined(), role="worker")}
