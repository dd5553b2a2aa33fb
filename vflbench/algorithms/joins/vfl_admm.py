"""VFL-ADMM: vertical federated learning on joined, aligned rows by the sharing ADMM; what RFL-ADMM-V is compared with.

Xie et al., Improving Privacy-Preserving Vertical Federated Learning by Efficient Communication with ADMM, arXiv
2207.10226, with identity heads; Xu et al.: TablePuppet, arXiv 2403.15839, section 5. The iterates and the symbols are
those of consensus.py. Here the joined table exists: every party predicts all N rows (G = 1).

Departures from the paper: those of consensus.py, numbers 1 to 4.

With privacy=dp_sgd the client draws its local batches at random (privacy/tables.py); messages and bytes are the same.
The unit of protection is a row of the joined table, because that is what a party holds here. A table's row is in it G
times.
"""

from typing import Any

import numpy as np
import torch

from vflbench.algorithms.joins import stability, table_parties
from vflbench.algorithms.joins.admm import Objective, ThetaUpdate, dual_step, sum_of, theta_update
from vflbench.algorithms.joins.table_parties import Labels, LocalTable
from vflbench.cards.algorithms.joins.join_methods import AdmmKeys
from vflbench.cards.algorithms.joins.vfl_admm import Config
from vflbench.data.tasks import AlignedPart, AlignedPublic, AlignedTask
from vflbench.federation.party import SERVER, Party, PartySpec
from vflbench.models import DTYPES, losses
from vflbench.privacy import tables
from vflbench.types import RunConfig


def decide(task: AlignedTask, config: RunConfig[Config]) -> tuple[RunConfig[AdmmKeys], dict[str, Any]]:
    """As `shared.decide`, after a check that the method can take the task."""
    table_parties.check_learning(task, config)
    return stability.decide(task, config)


def parties(task: AlignedTask, config: RunConfig[Config]) -> dict[str, PartySpec]:
    """The server, and one client per block of features."""
    table_parties.check_learning(task, config)
    return table_parties.parties(server, client, [task.part(m) for m in range(task.parties)])


async def server(me: Party, data: None, public: AlignedPublic, config: RunConfig[Config]) -> None:
    """Sum predictions, and update z and lambda."""
    cfg = config.algorithm
    dtype, loss = DTYPES[config.model.dtype], losses.make(public.classes)
    if me.fresh:
        me.state.labels = await me.recv(me.clients[public.owner], tag="labels")
        me.state.z = torch.zeros(public.samples, public.outputs, dtype=dtype, device=me.device)
        me.state.dual = torch.zeros_like(me.state.z)
        me.state.h = [torch.zeros_like(me.state.z) for _ in me.clients]
    labels: Labels | None = None

    async for t in me.rounds():
        labels = labels or Labels(me, me.state.labels, public, config)
        me.state.z, me.state.dual, pulls = await me.compute(
            dual_step, me.state.h, me.state.z, me.state.dual, labels.y, loss, cfg.rho, cost=public.samples
        )
        for name, pull in zip(me.clients, pulls, strict=True):
            await me.send(name, pull, tag="residual")
        me.state.h = await me.recv_all(me.clients, tag="prediction")
        me.report(train_loss=loss.mean(sum_of(me.state.h), labels.y), epoch=t, offset=labels.offset)


async def client(me: Party, data: AlignedPart, public: AlignedPublic, config: RunConfig[Config]) -> None:
    """Fit the party's own block to the server's residual; the owner of the labels sends them first."""
    cfg = config.algorithm
    m = me.clients.index(me.name)
    table = LocalTable(me, data, m, public, config)
    me.state.model = table.model
    if me.fresh and data.labels is not None:
        await me.send(SERVER, tables.protect_labels(me, data.labels, public.classes), tag="labels")
    objective = Objective(cfg.rho, proximal=float(cfg.proximal) * (public.parties - 1), decay=cfg.weight_decay)
    x, counts = table.joining(np.arange(public.samples), np.ones(public.samples))
    update: ThetaUpdate | None = None

    async for t in me.rounds():
        update = update or theta_update(me, config, table.model, x, counts, objective)
        residual = await me.recv(SERVER, tag="residual")
        await me.compute(update, residual, cost=cfg.local_epochs * len(x))
        await me.send(SERVER, tables.protect_predictions(me, table.model(x)), tag="prediction")
        if me.evaluates(t):
            me.report(partial=table.predictions())
