"""RFL-ADMM: learning over joins of unions by ADMM; a table's horizontal parts agree on its parameters by consensus.

Xu et al.: TablePuppet, arXiv 2403.15839, section 5 (LoJ, equations 7, 8, 14) and section 6 ("LoU with ADMM", equations 20 to 22). Between
tables this is algorithms/rfl_admm_v.py, whose symbols are used; a table with Q_i > 1 clients replaces the update of theta by T' rounds of
consensus ADMM. Both operators, LoJ and the organisations' LoU, run at the server, so between them nothing is sent.

    paper                here
    Q_i, T'              parts (or the data set's own), inner_rounds
    theta_i^q, w_i, u    state.model of a client; consensus, duals of the server, which start at 0 in every round

Departures from the paper
1. Equation 20 has M rho / 2 where Q_i rho / 2 is meant (matters only with weight decay).
2. After the inner rounds each client predicts its rows with its own theta^q, as the released code (predict=own); predict=consensus: with w.
3. Those of algorithms/rfl_admm_v.py.

With privacy=dp_sgd the local batches are drawn at random by the client (privacy/tables.py); messages and bytes are the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch

from vflbench.data.relational.sample import joined_rows
from vflbench.data.tasks import RelationalPart, RelationalPublic, RelationalTask
from vflbench.federation import mapping
from vflbench.federation.mapping import Join, union
from vflbench.federation.party import SERVER, Party, PartySpec, party_names
from vflbench.models import losses, partial, relational, stability
from vflbench.models.admm import Objective, ThetaUpdate, dual_step, local_steps, sum_of
from vflbench.models.relational import Labels, LocalTable
from vflbench.privacy import tables
from vflbench.types import AlgorithmInfo, Problem, RunConfig

ALGORITHM = AlgorithmInfo(
    name="rfl_admm",
    summary="learning over joins of unions by ADMM: horizontal parts of a table agree on its parameters by consensus",
    paper="Xu et al. 2024, arXiv 2403.15839 (TablePuppet)",
    layouts=("relational",),
    privacy=("none", "label_dp", "dp_sgd", "tablepuppet"),
    attacks=("none", "prediction_recovery"),
    models=("linear", "mlp"),
    accounting=("strict", "tablepuppet"),
    epochs=True,
    # any codec: multipliers are the server's and, inside a round, start anew; the rest is inexact updates
    remembered=("prediction", "residual", "parameters", "consensus"),
)


@dataclass
class Config:
    name: str = "rfl_admm"
    parts: int = 2  # Q_i: horizontal parts of each table, one client each, where the data set does not say
    rho: float = 1.0  # penalty of both ADMMs
    solver: Literal["sgd", "exact"] = "sgd"  # update of theta: sgd | exact (linear models)
    local_epochs: int = 10  # solver=sgd: passes over the own rows per update
    batch_size: int = 1024  # solver=sgd: rows of a local batch
    lr: float = 0.1  # solver=sgd: learning rate
    inner_rounds: int = 10  # T': rounds of consensus per round
    predict: Literal["own", "consensus"] = "own"  # with what a client predicts: its own theta | the consensus w
    weight_decay: float = 1e-5  # beta of R = ||theta||^2 / 2
    proximal: bool = False  # damp the tables' simultaneous updates: with exact ones stable for any rho
    z_solver: Literal["newton", "adam"] = "newton"  # classification: newton | adam (100 steps, as the released code)
    center_labels: bool = True  # regression: the server subtracts the labels' mean
    key_hash: Literal["sha256", "none"] = "sha256"  # how join keys are handed over: sha256 | none (integers in clear)
    default_rounds: int = 10  # epochs, where epochs and rounds are null


def check(config: RunConfig) -> list[Problem]:
    """Rules across keys, before any data is loaded."""
    return relational.check(config) + tables.check_algorithm(config)


def decide(task: RelationalTask, config: RunConfig) -> tuple[RunConfig, dict[str, Any]]:
    """Nothing; warns where rho is too small for these data (models/stability.py)."""
    if relational.may_diverge(task.public, config):
        blocks = joined_rows(task, relational.DIAGNOSED, config.seed)
        stability.warn(config.algorithm.rho, blocks, relational.intercepts(task.public, config))
    return config, {}


def parties(task: RelationalTask, config: RunConfig) -> dict[str, PartySpec]:
    """The server, and one client per horizontal part of each table."""
    specs = {SERVER: PartySpec(server, role="server")}
    for name, part in zip(party_names("client", len(task.clients)), task.clients, strict=True):
        specs[name] = PartySpec(client, part)
    return specs


async def server(me: Party, data: None, public: RelationalPublic, config: RunConfig) -> None:
    """LoJ as in algorithms/rfl_admm_v.py; LoU of every table with more than one client."""
    cfg: Config = config.algorithm
    dtype, every, loss = partial.DTYPES[config.model.dtype], range(len(public.tables)), losses.make(public.classes)
    shared = [[me.clients[c] for c in clients] for clients in public.parts if len(clients) > 1]
    if me.fresh:
        me.state.mapping = found = await mapping.map_tables(me, public)
        me.state.z = torch.zeros(len(found["labels"]), public.outputs, dtype=dtype, device=me.device)
        me.state.dual = torch.zeros_like(me.state.z)
        me.state.h = [me.state.z.new_zeros(sum(held), public.outputs) for held in found["held"]]
    join: Join | None = None

    async for t in me.rounds():
        if join is None:
            join = Join.of(me.state.mapping, me.device)
            labels = Labels(me.state.mapping["labels"], public.classes, cfg.center_labels, dtype, me.device)
        h_own = [join.expand(i, me.state.h[i]) for i in every]
        me.state.z, me.state.dual, pulls = await me.compute(
            dual_step, h_own, me.state.z, me.state.dual, labels.y, loss, cfg.rho, cfg.z_solver, cost=len(labels.y)
        )
        for i, clients in enumerate(public.parts):  # LoJ scatters to LoU, and LoU to its clients
            for c, part in zip(clients, join.divide(i, join.collapse(i, pulls[i])), strict=True):
                await me.send(me.clients[c], part, tag="residual")

        duals: dict[str, torch.Tensor] = {}  # u^q
        for _ in range(cfg.inner_rounds if shared else 0):
            everyone = [name for names in shared for name in names]
            received = dict(zip(everyone, await me.recv_all(everyone, tag="parameters"), strict=True))
            for names in shared:
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
    table = LocalTable(data, number, public.outputs, data.table == public.label_table, config, me.device)
    me.state.model = model = table.model
    if me.fresh:
        await mapping.send_keys(me, data, cfg.key_hash, tables.protect_labels(me, data.labels, public.classes))
    update: ThetaUpdate | None = None

    async for t in me.rounds():
        if update is None:
            x, counts = table.joining(me.state.rows, me.state.counts)
            proximal = float(cfg.proximal) * (len(public.tables) - 1)
            share = float(counts.sum()) / me.state.joined  # of the N joined rows, these come from here
            objective = (
                Objective(cfg.rho, proximal, decay=cfg.weight_decay) if alone else Objective(cfg.rho, proximal, share=share, pull=cfg.rho)
            )
            rate, steps = local_steps(len(x), cfg.batch_size, cfg.local_epochs * (1 if alone else cfg.inner_rounds))
            noisy = tables.noisy_steps(me, config, rate, steps, drawn_by_server=False)
            update = ThetaUpdate(model, x, counts, objective, cfg.solver, cfg.local_epochs, cfg.batch_size, cfg.lr, noisy)
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
