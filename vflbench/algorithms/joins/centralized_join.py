"""Centralized baseline of learning over joins: one party joins the tables and runs mini-batch SGD on the joined rows.

Xu et al.: TablePuppet, arXiv 2403.15839, section 7 ("Centralized"). It sends no messages. The model is the same sum of
one share per table: with the same batches its parameters are those of RFL-SGD-V and VFL-SGD.

Departures from the paper: those of vfl_sgd.py.
"""

from dataclasses import dataclass

import torch

from vflbench.algorithms.joins import shared
from vflbench.algorithms.joins.admm import sum_of
from vflbench.algorithms.joins.shared import Keys, Labels, LocalTable, PartyKeys
from vflbench.data.tasks import AlignedPublic, AlignedTask, JoinedPart
from vflbench.federation.party import Party, PartySpec, party_names
from vflbench.models import losses
from vflbench.types import AlgorithmInfo, RunConfig

ALGORITHM = AlgorithmInfo(
    name="centralized_join",
    summary="reference of learning over joins: one party joins all tables and runs SGD, no messages",
    paper="Xu et al. 2024, arXiv 2403.15839 (TablePuppet), section 7",
    label="Centralized join",
    place=7,
    **shared.FAMILY,
    layouts=("aligned",),
    divided_by="parties",
    reports=("predictions",),
    search=(
        ("algorithm.lr", ("0.02", "0.05", "0.1", "0.2", "0.5", "1.0")),
        ("algorithm.batch_size", ("1024", "10240")),
    ),
    exact="it sends nothing",
    assumes=("pooled",),
    accounting=("strict", "tablepuppet"),
)
EXPOSES = ()
check = shared.check


@dataclass
class Config(Keys, PartyKeys):
    """Keys of the centralized join."""

    name: str = "centralized_join"
    batch_size: int = 10240  # B: rows of a batch


def parties(task: AlignedTask, config: RunConfig) -> dict[str, PartySpec]:
    """One party with everything."""
    shared.check_learning(task, config)
    return {party_names("client", 1)[0]: PartySpec(client, task.joined())}


async def client(me: Party, data: JoinedPart, public: AlignedPublic, config: RunConfig) -> None:
    """Train on the joined rows, and send nothing."""
    cfg: Config = config.algorithm
    loss, labels = losses.make(public.classes), Labels(me, data.labels, public, config)
    tables = [LocalTable(me, part, m, public, config) for m, part in enumerate(data.parts)]
    me.state.model = torch.nn.ModuleList(table.model for table in tables)
    blocks = [table.features.split(cfg.batch_size) for table in tables]

    def step(xs: tuple[torch.Tensor, ...], y: torch.Tensor) -> float:
        passed = [table.model.inside(x) for table, x in zip(tables, xs, strict=True)]
        z = sum_of([out for out, _ in passed])
        gradient = loss.gradient(z, y)
        for table, x, (out, inside) in zip(tables, xs, passed, strict=True):
            table.model.descend(table.model.gradient(x, gradient, out, inside) / len(y), cfg.lr, cfg.weight_decay)
        return loss.mean(z, y) * len(y)

    async for t in me.rounds():
        total, batches = 0.0, list(zip(*blocks, strict=True))
        for xs, y in zip(batches, labels.y.split(cfg.batch_size), strict=True):
            total += await me.compute(step, xs, y, cost=len(y))
        me.report(train_loss=total / len(labels.y), iterations=t * len(batches), epoch=t)
        if me.evaluates(t):
            shares = [table.predictions() for table in tables]
            mean = labels.offset[0, 0]
            splits = data.parts[0].held_out
            me.report(predictions={split: sum_of([share[split] for share in shares]) + mean for split in splits})
