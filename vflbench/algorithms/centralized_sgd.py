"""Centralized SGD: one party with all rows. The upper reference of decentralized methods."""

from __future__ import annotations

from dataclasses import dataclass

from vflbench.data.tasks import Shard, ShardedPublic, ShardedTask
from vflbench.federation.party import Party, PartySpec
from vflbench.models import local_sgd
from vflbench.models.local_sgd import LocalSgd
from vflbench.privacy import examples
from vflbench.types import AlgorithmInfo, Problem, RunConfig

ALGORITHM = AlgorithmInfo(
    name="centralized_sgd",
    summary="one party with all rows, no messages",
    paper="baseline",
    layouts=("sharded",),
    privacy=("none", "dp_sgd"),
    models=("mlp3", "cnn3", "logistic"),
    epochs=True,
    exact="it sends nothing",
)


@dataclass
class Config:
    name: str = "centralized_sgd"
    batch_size: int = 32  # rows of a batch
    lr: float = 0.1  # learning rate
    weight_decay: float = 1e-4  # L2
    rounds_per_epoch: int = 1  # rounds (and evaluations) in a pass over the data
    default_rounds: int = 8  # epochs, where epochs and rounds are null


def check(config: RunConfig) -> list[Problem]:
    """Rules across keys, before any data is loaded."""
    return local_sgd.check(config)


def parties(task: ShardedTask, config: RunConfig) -> dict[str, PartySpec]:
    """The one party.

    Raises
    ------
    ConfigError : model or rounds do not fit the data, or no noise reaches a target epsilon.
    """
    rows = task.public.rows
    local_sgd.check_data(config, task.public)
    examples.plan(config.privacy, rows, config.algorithm.batch_size, [local_sgd.planned_steps(config, task.public)] * len(rows))
    return {"central": PartySpec(central, task.joined(), role="worker")}


async def central(me: Party, data: Shard, public: ShardedPublic, config: RunConfig) -> None:
    """Trains on everything."""
    sgd = LocalSgd(me, data, public, config)
    me.state.model = sgd.model

    async for t in me.rounds():
        for _ in sgd.begin(t):
            sgd.w = await sgd.step(me, old_needed=False)
        me.report(**sgd.end(t, me.evaluates(t)))
