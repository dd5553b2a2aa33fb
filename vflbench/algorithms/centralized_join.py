"""Centralized baseline of learning over joins: one party joins the tables and runs mini-batch SGD on the joined rows.

Xu et al.: TablePuppet, arXiv 2403.15839, section 7 ("Centralized"). No messages. The model is the same sum of one share per table, so that
with the same batches its parameters are those of RFL-SGD-V and VFL-SGD.

Departures from the paper: those of algorithms/vfl_sgd.py.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from vflbench.data.tasks import AlignedPublic, AlignedTask, JoinedPart
from vflbench.federation.party import Party, PartySpec, party_names
from vflbench.models import losses, partial, relational
from vflbench.models.admm import sum_of
from vflbench.models.relational import Labels, LocalTable
from vflbench.types import AlgorithmInfo, Problem, RunConfig

ALGORITHM = AlgorithmInfo(
    name="centralized_join",
    summary="reference of learning over joins: one party joins all tables and runs SGD, no messages",
    paper="Xu et al. 2024, arXiv 2403.15839 (TablePuppet), section 7",
    layouts=("aligned",),
    models=("linear", "mlp"),
    accounting=("strict", "tablepuppet"),
    epochs=True,
    exact="it sends nothing",
)


@dataclass
class Config:
    name: str = "centralized_join"
    batch_size: int = 10240  # B: rows of a batch
    lr: float = 0.1  # learning rate
    weight_decay: float = 1e-5  # beta of R = ||theta||^2 / 2
    center_labels: bool = True  # regression: subtract the labels' mean
    default_rounds: int = 10  # epochs, where epochs and rounds are null


def check(config: RunConfig) -> list[Problem]:
    """Rules across keys, before any data is loaded."""
    return relational.check(config)


def parties(task: AlignedTask, config: RunConfig) -> dict[str, PartySpec]:
    """One party with everything."""
    relational.check_learning(task)
    return {party_names("client", 1)[0]: PartySpec(client, task.joined())}


async def client(me: Party, data: JoinedPart, public: AlignedPublic, config: RunConfig) -> None:
    """Trains on its own data and sends nothing."""
    cfg: Config = config.algorithm
    dtype, loss = partial.DTYPES[config.model.dtype], losses.make(public.classes)
    tables = [LocalTable(part, m, public.outputs, m == public.owner, config, me.device) for m, part in enumerate(data.parts)]
    labels = Labels(data.labels, public.classes, cfg.center_labels, dtype, me.device)
    me.state.model = torch.nn.ModuleList(table.model for table in tables)
    blocks = [table.features.split(cfg.batch_size) for table in tables]

    def step(xs: tuple[torch.Tensor, ...], y: torch.Tensor) -> float:
        z = sum_of([table.model(x) for table, x in zip(tables, xs, strict=True)])
        gradient = loss.gradient(z, y)
        for table, x in zip(tables, xs, strict=True):
            table.model.descend(table.model.pull_back(x, gradient) / len(y), cfg.lr, cfg.weight_decay)
        return loss.mean(z, y) * len(y)

    async for t in me.rounds():
        total, batches = 0.0, list(zip(*blocks, strict=True))
        for xs, y in zip(batches, labels.y.split(cfg.batch_size), strict=True):
            total += await me.compute(step, xs, y, cost=len(y))
        me.report(train_loss=total / len(labels.y), iterations=t * len(batches), epoch=t)
        if me.evaluates(t):
            partial_predictions = [table.predictions() for table in tables]
            splits = data.parts[0].held_out
            me.report(predictions={split: sum_of([p[split] for p in partial_predictions]) + labels.offset[0, 0] for split in splits})
