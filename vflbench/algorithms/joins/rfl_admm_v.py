"""RFL-ADMM-V: learning over joins by ADMM, one exchange of a prediction per *table* row a round.

Xu et al.: TablePuppet, arXiv 2403.15839, section 5 ("LoJ with ADMM", equations 7, 8, 14 and 16). Every organisation holds one table. The
server knows which rows join (mapping.py) and works on the N joined rows; a table is asked for, and sees, its own n_i rows.

    paper                       here
    M, N, n_i, d_c              tables, joined rows, rows of table i that join, outputs
    p_i, G_i(r)                 Join.rows; Join.expand copies row r to all of G_i(r), Join.collapse sums over it
    h_i, h = sum_i h_i          state.h (per table row), expanded
    z, lambda                   state.z, state.dual
    Y_i = sum (lambda + rho s)  residual
    theta_i                     state.model

Departures from the paper
1. Labels of a regression are centred by the server, which adds the mean back to what is scored (center_labels): with it one intercept, at
   the label table, is enough. Intercepts in every table make the iteration diverge for rho <= 2.5 with three tables (exact updates,
   squared loss, proximal=false; stability.py).
2. The update of theta is `solver=sgd` by default, as the released code: epochs over fixed contiguous batches; `exact` solves equation 16. A
   batch is divided by the mean sum of G of a full batch; the released code divides by its own, which weights rare rows more and biases
   theta.
3. z is updated by Newton's method where there is no closed form (z_solver=newton); the released code takes 100 Adam steps (adam: here its
   moments start anew in every round, there they are kept).
4. proximal=true adds (M - 1) rho G / 2 ||f - f_old||^2 to equation 16. With it the tables' simultaneous exact updates are stable for any
   rho (solver=sgd needs lr x rho small enough all the same). It needs no message.
5. Rows of a table that do not join take no part; the released code keeps them with weight 0.
6. z, lambda and h start at 0: for the first round no table is asked what its model predicts, as in the released code.

With privacy=dp_sgd the local batches are drawn at random by the client (privacy/tables.py); messages and bytes are the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from vflbench.algorithms.joins import mapping, shared
from vflbench.algorithms.joins.admm import Objective, ThetaUpdate, dual_step, theta_update
from vflbench.algorithms.joins.mapping import Join
from vflbench.algorithms.joins.shared import AdmmKeys, JoinKeys, Labels, LocalTable
from vflbench.data.tasks import RelationalPart, RelationalPublic, RelationalTask
from vflbench.federation.party import SERVER, Party, PartySpec
from vflbench.models import DTYPES, losses
from vflbench.privacy import tables
from vflbench.types import AlgorithmInfo, RunConfig

ALGORITHM = AlgorithmInfo(
    name="rfl_admm_v",
    summary="learning over joins by ADMM: tables stay apart, one prediction per table row and round",
    paper="Xu et al. 2024, arXiv 2403.15839 (TablePuppet)",
    label="RFL-ADMM-V",
    place=0,
    **shared.FAMILY,
    layouts=("relational",),
    divided_by=None,
    reports=("partial",),
    privacy=("none", "label_dp", "dp_sgd", "tablepuppet"),
    attacks=("none", "prediction_recovery"),
    search=(("algorithm.lr", ("0.01", "0.02", "0.05", "0.1")), ("algorithm.rho", ("0.5", "1.0", "2.0"))),
    # any codec: the multipliers stay at the server; rounded residuals make inexact updates
    remembered=("prediction", "residual"),
)
EXPOSES = mapping.EXPOSES


@dataclass
class Config(AdmmKeys, JoinKeys):
    name: str = "rfl_admm_v"


check, decide = shared.check, shared.decide


def parties(task: RelationalTask, config: RunConfig) -> dict[str, PartySpec]:
    """The server, and one client per table."""
    shared.check_one_holder(task, config)
    return shared.parties(server, client, task.clients)


async def server(me: Party, data: None, public: RelationalPublic, config: RunConfig) -> None:
    """LoJ: joins what tables predict, updates z and lambda, and tells every table what its rows should predict."""
    cfg: Config = config.algorithm
    dtype, every, loss = DTYPES[config.model.dtype], range(len(public.tables)), losses.make(public.classes)
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
        )  # (7), (8)
        for i in every:
            await me.send(me.clients[i], join.collapse(i, pulls[i]), tag="residual")  # (14)
        me.state.h = await me.recv_all(me.clients, tag="prediction")
        me.report(train_loss=loss.mean(join.total(me.state.h), labels.y), epoch=t, offset=labels.offset)


async def client(me: Party, data: RelationalPart, public: RelationalPublic, config: RunConfig) -> None:
    """Hands over keys, then fits its own table to what the server says of its rows."""
    cfg: Config = config.algorithm
    table = LocalTable(me, data, me.clients.index(me.name), public, config)
    me.state.model = table.model
    if me.fresh:
        await mapping.send_keys(me, data, public, cfg.key_hash, tables.protect_labels(me, data.labels, public.classes))
    update: ThetaUpdate | None = None

    async for t in me.rounds():
        if update is None:
            x, counts = table.joining(me.state.rows, me.state.counts)
            objective = Objective(cfg.rho, proximal=float(cfg.proximal) * (len(public.tables) - 1), decay=cfg.weight_decay)
            update = theta_update(me, config, table.model, x, counts, objective)
        residual = await me.recv(SERVER, tag="residual")
        await me.compute(update, residual, cost=cfg.local_epochs * len(x))  # (16)
        await me.send(SERVER, tables.protect_predictions(me, table.model(x)), tag="prediction")
        if me.evaluates(t):
            me.report(partial=table.predictions())
