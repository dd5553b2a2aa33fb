"""Local SGD without communication: every worker alone with its own rows. The lower reference of decentralized methods.

Cheng et al., arXiv 1811.11124, compare with methods that communicate; this is their rho = 0, or W = I.
"""

from __future__ import annotations

from dataclasses import dataclass

from vflbench.algorithms.gossip import shared
from vflbench.algorithms.gossip.shared import WorkerKeys
from vflbench.data.tasks import ShardedTask
from vflbench.federation.party import PartySpec
from vflbench.types import AlgorithmInfo, RunConfig

ALGORITHM = AlgorithmInfo(
    name="local_sgd",
    summary="every worker alone with its own rows, no messages",
    paper="baseline of Cheng et al. 2018, arXiv 1811.11124",
    label="Local SGD",
    place=3,
    layouts=("sharded",),
    divided_by="workers",
    reports=("parameters",),
    privacy=("none", "dp_sgd"),
    models=("mlp3", "cnn3", "logistic"),
    epochs=True,
    search=(("algorithm.lr", ("0.05", "0.1", "0.2", "0.3", "0.5")),),
    exact="it sends nothing",
)
EXPOSES = ()


@dataclass
class Config(WorkerKeys):
    name: str = "local_sgd"


check = shared.check


def parties(task: ShardedTask, config: RunConfig) -> dict[str, PartySpec]:
    """One worker per shard."""
    return shared.workers(shared.alone, task, config)
