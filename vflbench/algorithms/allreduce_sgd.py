"""All-reduce SGD: all workers take the same step, along the mean of their gradients. Centralized SGD with batches of m b rows.

The mean is computed without a server, as Thakur, Rabenseifner, Gropp (2005) do for long vectors: worker j sums the j-th piece of all
gradients (reduce-scatter) and sends the mean to all (all-gather). A worker sends 2 (m - 1) / m of a gradient, as in a ring, in two
latencies instead of 2 (m - 1), and pieces are summed in the order of the workers' names. The ledger's `vectors` counts pieces.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from vflbench.data.tasks import Shard, ShardedPublic, ShardedTask
from vflbench.federation.party import Party, PartySpec, party_names
from vflbench.models import local_sgd
from vflbench.models.local_sgd import LocalSgd
from vflbench.privacy import examples
from vflbench.types import AlgorithmInfo, Problem, RunConfig

ALGORITHM = AlgorithmInfo(
    name="allreduce_sgd",
    summary="all workers take the same step along the mean of their gradients, without a server",
    paper="Thakur, Rabenseifner, Gropp 2005 (reduce-scatter, all-gather)",
    layouts=("sharded",),
    privacy=("none", "dp_sgd"),
    models=("mlp3", "cnn3", "logistic"),
    topologies=("complete",),
    epochs=True,
    exact="its workers stay equal only where all of them add up the very same pieces, and a sender keeps its own unrounded",
)


@dataclass
class Config:
    name: str = "allreduce_sgd"
    workers: int = 5  # m
    batch_size: int = 32  # rows of a worker's batch
    lr: float = 0.1  # learning rate
    weight_decay: float = 1e-4  # L2
    rounds_per_epoch: int = 1  # rounds (and evaluations) in a pass over the data
    default_rounds: int = 8  # epochs, where epochs and rounds are null


def check(config: RunConfig) -> list[Problem]:
    """Rules across keys, before any data is loaded."""
    return local_sgd.check(config)


def parties(task: ShardedTask, config: RunConfig) -> dict[str, PartySpec]:
    """One worker per shard.

    Raises
    ------
    ConfigError : model or rounds do not fit the data, or no noise reaches a target epsilon.
    """
    rows = task.public.rows
    local_sgd.check_data(config, task.public)
    examples.plan(config.privacy, rows, config.algorithm.batch_size, [local_sgd.planned_steps(config, task.public)] * len(rows))
    names = party_names("worker", len(task.shards))
    return {name: PartySpec(worker, shard, role="worker") for name, shard in zip(names, task.shards, strict=True)}


async def worker(me: Party, data: Shard, public: ShardedPublic, config: RunConfig) -> None:
    """Computes its gradient, and the mean of one piece of all gradients."""
    cfg: Config = config.algorithm
    m, others = me.clients.index(me.name), [name for name in me.clients if name != me.name]
    sgd = LocalSgd(me, data, public, config)
    me.state.model = sgd.model

    async for t in me.rounds():
        for _ in sgd.begin(t):
            pieces = list((await sgd.gradient(me)).tensor_split(len(me.clients)))
            for name, piece in zip(me.clients, pieces, strict=True):
                if name != me.name:
                    await me.send(name, piece, tag="gradient")
            own = await me.recv_all(others, tag="gradient")
            own.insert(m, pieces[m])
            mean = sum(own[1:], own[0]) / len(own)
            await me.send_many(others, mean, tag="mean")
            means = await me.recv_all(others, tag="mean")
            means.insert(m, mean)
            sgd.w = sgd.w.sub(torch.cat(means), alpha=cfg.lr)
        me.report(**sgd.end(t, me.evaluates(t)))
