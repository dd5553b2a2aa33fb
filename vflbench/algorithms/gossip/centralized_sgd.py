"""Centralized SGD: one party with all rows, the upper reference of decentralized methods. Its program is shared.alone."""

from __future__ import annotations

from dataclasses import dataclass

from vflbench.algorithms.gossip import shared
from vflbench.algorithms.gossip.shared import Keys
from vflbench.data.tasks import ShardedTask
from vflbench.federation.party import PartySpec
from vflbench.types import AlgorithmInfo, RunConfig

ALGORITHM = AlgorithmInfo(
    name="centralized_sgd",
    summary="one party with all rows, no messages",
    paper="baseline",
    label="Centralized SGD",
    place=5,
    layouts=("sharded",),
    divided_by=None,
    reports=("parameters",),
    privacy=("none", "dp_sgd"),
    models=("mlp3", "cnn3", "logistic"),
    epochs=True,
    search=(("algorithm.lr", ("0.05", "0.1", "0.2", "0.3", "0.5")),),
    exact="it sends nothing",
)
EXPOSES = ()


@dataclass
class Config(Keys):
    name: str = "centralized_sgd"


check = shared.check


def parties(task: ShardedTask, config: RunConfig) -> dict[str, PartySpec]:
    """The one party."""
    shared.check_data(config, task.public)
    return {"central": PartySpec(shared.alone, task.joined(), role="worker")}
