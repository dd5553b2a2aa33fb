"""ADMM over joins: the two programs of `rfl_admm`, and of `rfl_admm_v`, where every table has one client.

Xu et al.: TablePuppet, arXiv 2403.15839, section 5 ("LoJ with ADMM", equations 7, 8, 14 and 16) and section 6 ("LoU
with ADMM", equations 20 to 22). The server knows which rows join (mapping.py) and works on the N joined rows. A table
predicts, and sees, only its own n_i rows. Where a table has Q_i > 1 clients, T' rounds of consensus ADMM replace the
update of theta. Both operators, LoJ and the organisations' LoU, run at the server, so nothing is sent between them.

    paper                       here
    M, N, n_i, d_c              tables, joined rows, rows of table i that join, outputs
    p_i, G_i(r)                 Join.rows; Join.expand copies row r to all of G_i(r), Join.collapse sums over it
    h_i, h = sum_i h_i          state.h (per table row), expanded
    z, lambda                   state.z, state.dual
    Y_i = sum (lambda + rho s)  residual
    theta_i, theta_i^q          state.model of a client
    Q_i, T'                     parts (or the data set's own), inner_rounds
    w_i, u                      consensus, duals of the server, which start at 0 in every round (as in the released
                                code)

Departures from the paper
1. The server centres the labels of a regression, and adds the mean back to what is scored (center_labels). Then one
   intercept, at the label table, is enough. Intercepts in every table make the iteration diverge for rho <= 2.5 with
   three tables (exact updates, squared loss, proximal=false; stability.py).
2. The update of theta is `solver=sgd` by default, as in the released code: epochs over fixed contiguous batches.
   `exact` solves equation 16. A batch's sum is divided by the mean sum of G of a full batch. The released code divides
   by the batch's own, which weights rare rows more and biases theta.
3. z is updated by Newton's method where there is no closed form. The released code takes 100 Adam steps.
4. proximal=true adds (M - 1) rho G / 2 ||f - f_old||^2 to equation 16. It makes the tables' simultaneous exact updates
   stable for any rho (solver=sgd still needs a small lr x rho). It needs no message.
5. Rows of a table that do not join take no part; the released code keeps them with weight 0.
6. z, lambda and h start at 0: in the first round no table is asked for predictions, as in the released code.
7. Equation 20 has M rho / 2 where Q_i rho / 2 is meant (it matters only with weight decay). Weights and decay are those
   of equations 20 and 22; the released code weights every part by 1 and decays theta_i^q, not w_i.
8. After the inner rounds each client predicts its rows with its own theta^q, as in the released code (predict=own), or
   with w (predict=consensus).

With privacy=dp_sgd the client draws its local batches at random (privacy/tables.py); messages and bytes are the same.
"""

import torch

from vflbench.algorithms.joins import mapping, table_parties
from vflbench.algorithms.joins.admm import Objective, ThetaUpdate, dual_step, sum_of, theta_update
from vflbench.algorithms.joins.mapping import Join, union
from vflbench.algorithms.joins.table_parties import Labels, LocalTable
from vflbench.cards.algorithms.joins.rfl_admm import Config  # rfl_admm_v lacks the keys of tables in parts
from vflbench.data.tasks import RelationalPart, RelationalPublic, RelationalTask
from vflbench.federation.party import SERVER, Party, PartySpec
from vflbench.models import DTYPES, losses
from vflbench.privacy import tables
from vflbench.types import RunConfig


def parties(task: RelationalTask, config: RunConfig[Config]) -> dict[str, PartySpec]:
    """The server, and one client per horizontal part of each table."""
    table_parties.check_holders(task, config)
    return table_parties.parties(server, client, task.clients)


async def server(me: Party, data: None, public: RelationalPublic, config: RunConfig[Config]) -> None:
    """Update z and lambda, and send the residuals (LoJ); for tables with several clients, update w and u (LoU)."""
    cfg = config.algorithm
    dtype, every, loss = DTYPES[config.model.dtype], range(len(public.tables)), losses.make(public.classes)
    groups = [[me.clients[c] for c in clients] for clients in public.parts if len(clients) > 1]
    if me.fresh:
        me.state.mapping = joined = await mapping.map_tables(me, public)
        me.state.z = torch.zeros(len(joined["labels"]), public.outputs, dtype=dtype, device=me.device)
        me.state.dual = torch.zeros_like(me.state.z)
        me.state.h = [me.state.z.new_zeros(sum(held), public.outputs) for held in joined["held"]]
    join: Join | None = None
    labels: Labels | None = None
    h_own: list[torch.Tensor] = []  # me.state.h, for every joined row

    async for t in me.rounds():
        join = join or Join.from_mapping(me.state.mapping, me.device)
        labels = labels or Labels(me, me.state.mapping["labels"], public, config)
        h_own = h_own or [join.expand(i, me.state.h[i]) for i in every]
        me.state.z, me.state.dual, pulls = await me.compute(
            dual_step, h_own, me.state.z, me.state.dual, labels.y, loss, cfg.rho, cost=len(labels.y)
        )  # (7), (8)
        for i, clients in enumerate(public.parts):  # LoJ scatters to LoU, and LoU to its clients
            for c, part in zip(clients, join.divide(i, join.collapse(i, pulls[i])), strict=True):
                await me.send(me.clients[c], part, tag="residual")  # (14)

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
        h_own = [join.expand(i, me.state.h[i]) for i in every]
        me.report(train_loss=loss.mean(sum_of(h_own), labels.y), epoch=t, offset=labels.offset)


async def client(me: Party, data: RelationalPart, public: RelationalPublic, config: RunConfig[Config]) -> None:
    """Hand over keys, then fit a part of a table, alone or in consensus with the table's other clients."""
    cfg = config.algorithm
    number = public.table_of(me.clients.index(me.name))
    sole_holder = len(public.parts[number]) == 1
    table = LocalTable(me, data, number, public, config)
    me.state.model = model = table.model
    if me.fresh:
        await mapping.send_keys(me, data, public, tables.protect_labels(me, data.labels, public.classes))
    update: ThetaUpdate | None = None

    async for t in me.rounds():
        if update is None:
            x, counts = table.joining(me.state.rows, me.state.counts)
            proximal = float(cfg.proximal) * (len(public.tables) - 1)
            if sole_holder:
                objective = Objective(cfg.rho, proximal, decay=cfg.weight_decay)
            else:  # `share`: of the N joined rows, the part that comes from here
                objective = Objective(cfg.rho, proximal, share=float(counts.sum()) / me.state.joined, pull=cfg.rho)
            update = theta_update(me, config, model, x, counts, objective, 1 if sole_holder else cfg.inner_rounds)
        residual = await me.recv(SERVER, tag="residual")
        if sole_holder:
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
