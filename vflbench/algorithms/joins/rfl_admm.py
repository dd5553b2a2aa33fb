"""RFL-ADMM: learning over joins of unions by ADMM; a table's horizontal parts agree on its parameters by consensus.

Xu et al.: TablePuppet, arXiv 2403.15839, section 5 (LoJ, equations 7, 8, 14) and section 6 ("LoU with ADMM", equations 20 to 22). Between
tables this is rfl_admm_v.py, whose symbols are used; a table with Q_i > 1 clients replaces the update of theta by T' rounds of
consensus ADMM. Both operators, LoJ and the organisations' LoU, run at the server, so between them nothing is sent.

    paper                here
    Q_i, T'              parts (or the data set's own), inner_rounds
    theta_i^q, w_i, u    state.model of a client; consensus, duals of the server, which start at 0 in every round (as in the released code)

Departures from the paper
1. Equation 20 has M rho / 2 where Q_i rho / 2 is meant (matters only with weight decay). Weights and decay are those of equations 20 and
   22; the released code weights every part by 1 and decays theta_i^q, not w_i.
2. After the inner rounds each client predicts its rows with its own theta^q, as the released code (predict=own); predict=consensus: with w.
3. Those of rfl_admm_v.py.

With privacy=dp_sgd the local batches are drawn at random by the client (privacy/tables.py); messages and bytes are the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from vflbench.algorithms.joins import mapping, shared
from vflbench.algorithms.joins.admm import Objective, ThetaUpdate, dual_step, sum_of, theta_update
from vflbench.algorithms.joins.mapping import Join, union
from vflbench.algorithms.joins.shared import AdmmKeys, Labels, LocalTable, PartKeys
from vflbench.data.tasks import RelationalPart, RelationalPublic, RelationalTask
from vflbench.federation.party import SERVER, Party, PartySpec
from vflbench.models import DTYPES, losses
from vflbench.privacy import tables
from vflbench.types import AlgorithmInfo, Count, RunConfig, Sent

ALGORITHM = AlgorithmInfo(
    name="rfl_admm",
    summary="learning over joins of unions by ADMM: horizontal parts of a table agree on its parameters by consensus",
    paper="Xu et al. 2024, arXiv 2403.15839 (TablePuppet)",
    label="RFL-ADMM",
    place=4,
    **shared.FAMILY,
    layouts=("relational",),
    divided_by="parts",
    reports=("partial",),
    privacy=("none", "label_dp", "dp_sgd", "tablepuppet"),
    attacks=("none", "prediction_recovery"),
    search=(("algorithm.lr", ("0.01", "0.02", "0.05", "0.1")), ("algorithm.rho", ("0.5", "1.0", "2.0"))),
    # any codec: multipliers are the server's and, inside a round, start anew; the rest is inexact updates
    remembered=("prediction", "residual", "parameters", "consensus"),
)
EXPOSES = (
    *mapping.EXPOSES,
    Sent("parameters", "client", "server", "parameters", "client"),
    Sent("consensus", "server", "client", "parameters", "client"),
)


@dataclass
class Config(AdmmKeys, PartKeys):
    name: str = "rfl_admm"
    inner_rounds: Count = 10  # T': rounds of consensus per round
    predict: Literal["own", "consensus"] = "own"  # with what a client predicts: its own theta | the consensus w


check, decide = shared.check, shared.decide


def parties(task: RelationalTask, config: RunConfig) -> dict[str, PartySpec]:
    """The server, and one client per horizontal part of each table."""
    return shared.parties(server, client, task.clients)


async def server(me: Party, data: None, public: RelationalPublic, config: RunConfig) -> None:
    """LoJ as in rfl_admm_v.py; LoU of every table with more than one client."""
    cfg: Config = config.algorithm
    dtype, every, loss = DTYPES[config.model.dtype], range(len(public.tables)), losses.make(public.classes)
    groups = [[me.clients[c] for c in clients] for clients in public.parts if len(clients) > 1]
    if me.fresh:
        me.state.mapping = found = await mapping.map_tables(me, public)
        me.state.z = torch.zeros(len(found["labels"]), public.outputs, dtype=dtype, device=me.device)
        me.state.dual = torch.zeros_like(me.state.z)
        me.state.h = [me.state.z.new_zeros(sum(held), public.outputs) for held in found["held"]]
    join: Join | None = None
    labels: Labels | None = None

    async for t in me.rounds():
        join = join or Join.of(me.state.mapping, me.device)
        labels = labels or Labels(me, me.state.mapping["labels"], public, config)
        h_own = [join.expand(i, me.state.h[i]) for i in every]
        me.state.z, me.state.dual, pulls = await me.compute(
            dual_step, h_own, me.state.z, me.state.dual, labels.y, loss, cfg.rho, cfg.z_solver, cost=len(labels.y)
        )
        for i, clients in enumerate(public.parts):  # LoJ scatters to LoU, and LoU to its clients
            for c, part in zip(clients, join.divide(i, join.collapse(i, pulls[i])), strict=True):
                await me.send(me.clients[c], part, tag="residual")

        duals: dict[str, torch.Tensor] = {}  # u^q
        for _ in range(cfg.inner_rounds if groups else 0):
            everyone = [name for names in groups for name in names]
            received = dict(zip(everyone, await me.recv_all(everyone, tag="parameters"), strict=True))
            for names in groups:
                theta = [received[name] for name in names]
                u = [duals.get(name, torch.zeros_like(theta[0])) for name in names]
                pull = cfg.rho * len(names)
                w = (sum_of(theta) + sum_of(u)) * (cfg.rho / (pull + cfg.weight_decay))  # (20)
                for name, own, dual in zip(names, theta, u, strict=True):
                    duals[name] = dual + own - w  # (21)
                    await me.send(name, (w, duals[name]), tag="consensus")

        predictions = await me.recv_all(me.clients, tag="prediction")
        me.state.h = union(public, predictions)
        me.report(train_loss=loss.mean(join.total(me.state.h), labels.y), epoch=t, offset=labels.offset)


async def client(me: Party, data: RelationalPart, public: RelationalPublic, config: RunConfig) -> None:
    """Hands over keys, then fits its part of a table, alone or in consensus with the table's other clients."""
    cfg: Config = config.algorithm
    number = public.table_of(me.clients.index(me.name))
    alone = len(public.parts[number]) == 1
    table = LocalTable(me, data, number, public, config)
    me.state.model = model = table.model
    if me.fresh:
        await mapping.send_keys(me, data, public, cfg.key_hash, tables.protect_labels(me, data.labels, public.classes))
    update: ThetaUpdate | None = None

    async for t in me.rounds():
        if update is None:
            x, counts = table.joining(me.state.rows, me.state.counts)
            proximal = float(cfg.proximal) * (len(public.tables) - 1)
            share = float(counts.sum()) / me.state.joined  # of the N joined rows, these come from here
            parted = {"decay": cfg.weight_decay} if alone else {"share": share, "pull": cfg.rho}
            objective = Objective(cfg.rho, proximal, **parted)
            update = theta_update(me, config, model, x, counts, objective, 1 if alone else cfg.inner_rounds)
        residual = await me.recv(SERVER, tag="residual")
        if alone:
            await me.compute(update, residual, cost=cfg.local_epochs * len(x))  # (16)
        else:
            old, w, u = update.old(), torch.zeros_like(model.theta), torch.zeros_like(model.theta)
            for _ in range(cfg.inner_rounds):
                await me.compute(update, residual, w - u, old, cost=cfg.local_epochs * len(x))  # (22)
                await me.send(SERVER, model.theta, tag="parameters")
                w, u = await me.recv(SERVER, tag="consensus")
            if cfg.predict == "consensus":
                model.theta.copy_(w)
        await me.send(SERVER, tables.protect_predictions(me, model(x)), tag="prediction")
        if me.evaluates(t):
            me.report(partial=table.predictions())
