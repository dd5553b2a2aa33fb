"""RFL-SGD: learning over joins of unions by mini-batch SGD; a table's horizontal parts share one gradient.

Xu et al.: TablePuppet, arXiv 2403.15839, section 4 (LoJ, equations 12 and 13) and section 6 ("LoU with SGD", equations 17 and 18). Between
tables this is rfl_sgd_v.py, whose symbols are used. Of a table with Q_i > 1 clients, every client sends the sum of the
gradients of its own rows; the organisation's LoU, which runs at the server, adds them, divides by B, and sends all the same step: their
replicas of theta_i stay equal, and the parameters are those of RFL-SGD-V whatever the split.

Departures from the paper: those of rfl_sgd_v.py.

With privacy=dp_sgd batches are drawn as there, and every client noises its own sum of gradients before it sends it.
"""

from __future__ import annotations

from dataclasses import dataclass

from vflbench.algorithms.joins import mapping, shared
from vflbench.algorithms.joins.admm import sum_of
from vflbench.algorithms.joins.mapping import ClientBatches, Join, ServerBatches, union
from vflbench.algorithms.joins.shared import Labels, LocalTable, PartKeys
from vflbench.data.tasks import RelationalPart, RelationalPublic, RelationalTask
from vflbench.federation.party import SERVER, Party, PartySpec
from vflbench.models import losses
from vflbench.privacy import tables
from vflbench.types import AlgorithmInfo, RunConfig, Sent

ALGORITHM = AlgorithmInfo(
    name="rfl_sgd",
    summary="learning over joins of unions by SGD: the clients of a table share one gradient a batch",
    paper="Xu et al. 2024, arXiv 2403.15839 (TablePuppet)",
    label="RFL-SGD",
    place=5,
    **shared.FAMILY,
    layouts=("relational",),
    divided_by="parts",
    reports=("partial",),
    privacy=("none", "label_dp", "dp_sgd", "tablepuppet"),
    attacks=("none", "prediction_recovery"),
    search=(("algorithm.lr", ("0.02", "0.05", "0.1", "0.2", "0.5", "1.0")), ("algorithm.batch_size", ("1024", "10240"))),
    # any codec: rounded predictions make noisy gradients; of batches' rows nothing is remembered
    remembered=("gradient", "step"),
)
EXPOSES = (
    *mapping.EXPOSES,
    *mapping.BATCHES,
    Sent("gradient", "client", "server", "gradients", "client"),
    Sent("step", "server", "client", "gradients", "client"),
)


@dataclass
class Config(PartKeys):
    name: str = "rfl_sgd"
    batch_size: int = 10240  # B: joined rows of a batch


check = shared.check


def parties(task: RelationalTask, config: RunConfig) -> dict[str, PartySpec]:
    """The server, and one client per horizontal part of each table."""
    return shared.parties(server, client, task.clients)


async def server(me: Party, data: None, public: RelationalPublic, config: RunConfig) -> None:
    """LoJ as in rfl_sgd_v.py; LoU of every table with more than one client."""
    loss, batches = losses.make(public.classes), ServerBatches(me, config)
    groups = [[me.clients[c] for c in clients] for clients in public.parts if len(clients) > 1]
    everyone = [name for names in groups for name in names]
    if me.fresh:
        me.state.mapping = await mapping.map_tables(me, public)
        await batches.name(Join.of(me.state.mapping, me.device))
    whole: Join | None = None
    labels: Labels | None = None

    async for t in me.rounds():
        whole = whole or Join.of(me.state.mapping, me.device)
        labels = labels or Labels(me, me.state.mapping["labels"], public, config)
        total, seen, count = 0.0, 0, 0
        async for join, y in batches.epoch(whole, labels.y):
            z = join.total(union(public, await me.recv_all(me.clients, tag="prediction")))
            total, seen, count = total + (loss.mean(z, y) * len(y) if len(y) else 0.0), seen + len(y), count + 1
            gradient = await me.compute(loss.gradient, z, y, cost=len(y))
            for i, clients in enumerate(public.parts):  # LoJ scatters to LoU, and LoU to its clients
                for c, part in zip(clients, join.divide(i, join.collapse(i, gradient)), strict=True):
                    await me.send(me.clients[c], part, tag="residual")
            received = dict(zip(everyone, await me.recv_all(everyone, tag="gradient"), strict=True))
            for names in groups:
                step = sum_of([received[name] for name in names]) / (min(batches.size, len(labels.y)) if batches.drawn else len(y))  # (17)
                await me.send_many(names, step, tag="step")
        me.report(train_loss=total / max(seen, 1), iterations=t * count, epoch=t, offset=labels.offset)


async def client(me: Party, data: RelationalPart, public: RelationalPublic, config: RunConfig) -> None:
    """Predicts the rows it is asked for, and follows the gradient over all rows of its table."""
    cfg: Config = config.algorithm
    number = public.table_of(me.clients.index(me.name))
    table = LocalTable(me, data, number, public, config)
    me.state.model = model = table.model
    batches = ClientBatches(me, config)
    if me.fresh:
        await mapping.send_keys(me, data, public, cfg.key_hash, tables.protect_labels(me, data.labels, public.classes))
        await batches.receive()

    async for t in me.rounds():
        async for rows, size in batches.epoch():
            x = table.features[rows]
            await me.send(SERVER, tables.protect_predictions(me, model(x), rows), tag="prediction")
            residual = await me.recv(SERVER, tag="residual")
            gradient = await me.compute(model.pull_back, x, residual, batches.noisy, cost=len(x))
            if len(public.parts[number]) == 1:
                step = gradient / size
            else:
                await me.send(SERVER, gradient, tag="gradient")  # (18)
                step = await me.recv(SERVER, tag="step")
            model.descend(step, cfg.lr, cfg.weight_decay)
        if me.evaluates(t):
            me.report(partial=table.predictions())
