"""RFL-SGD-V: learning over joins by mini-batch SGD, one number per distinct *table* row of a batch and output, each way.

Xu et al.: TablePuppet, arXiv 2403.15839, section 4 ("LoJ with SGD", equations 12 and 13). A batch is B joined rows. Every table's owner
predicts the alpha_i distinct rows of its own behind them; the server expands, and sends back the sum of the loss's gradients per row.
The parameters follow SGD on the join, which nobody has.

    paper               here
    B, alpha_{i,b}      batch_size (N in equations 12 and 13); rows that the server names for batch b
    h_i, z = sum h_i    predictions, z
    Y_{i,r}             residual: the sum of dl/dz over the joined rows of the batch behind which row r stands
    R, beta             ||theta||^2 / 2, weight_decay: sum_r c_r = B, so counts need not be sent

Departures from the paper
1. An epoch is one pass in the order of the join, not shuffled, as in the released code. So the rows of every batch are named once, before
   training (tag `batches`).
2. Those of rfl_admm_v.py that concern labels and rows that do not join (numbers 1 and 5).
3. The loss of a regression is (z - y)^2 / 2. The released SGD has no half: lr=0.1 here is 0.05 there.

With privacy=dp_sgd the server draws every batch at random, each joined row with probability B / N, and names its rows batch by batch (tag
`rows` in place of `batches`). So privacy costs bytes: neighbours in the join have rows of the tables in common, joined rows drawn at random
have fewer, and more predictions are asked for (1.6 times as many on MovieLens' sample, B = 10,240). A row of T_i is part of a batch with
probability 1 - (1 - B/N)^G at most, G the largest count among the client's rows, and sums are divided by the B that is expected.
"""

from __future__ import annotations

from dataclasses import dataclass

from vflbench.algorithms.joins import mapping, shared
from vflbench.algorithms.joins.mapping import ClientBatches, Join, ServerBatches
from vflbench.algorithms.joins.shared import JoinKeys, Labels, LocalTable
from vflbench.data.tasks import RelationalPart, RelationalPublic, RelationalTask
from vflbench.federation.party import SERVER, Party, PartySpec
from vflbench.models import losses
from vflbench.privacy import tables
from vflbench.types import AlgorithmInfo, RunConfig

ALGORITHM = AlgorithmInfo(
    name="rfl_sgd_v",
    summary="learning over joins by SGD: one prediction per distinct table row of a batch",
    paper="Xu et al. 2024, arXiv 2403.15839 (TablePuppet)",
    label="RFL-SGD-V",
    place=1,
    **shared.FAMILY,
    layouts=("relational",),
    divided_by=None,
    reports=("partial",),
    privacy=("none", "label_dp", "dp_sgd", "tablepuppet"),
    attacks=("none", "prediction_recovery"),
    search=(("algorithm.lr", ("0.02", "0.05", "0.1", "0.2", "0.5", "1.0")), ("algorithm.batch_size", ("1024", "10240"))),
    # any codec: rounded predictions make noisy gradients; batches are of other rows, so nothing is remembered
)
EXPOSES = (*mapping.EXPOSES, *mapping.BATCHES)


@dataclass
class Config(JoinKeys):
    name: str = "rfl_sgd_v"
    batch_size: int = 10240  # B: joined rows of a batch


check = shared.check


def parties(task: RelationalTask, config: RunConfig) -> dict[str, PartySpec]:
    """The server, and one client per table."""
    shared.check_one_holder(task, config)
    return shared.parties(server, client, task.clients)


async def server(me: Party, data: None, public: RelationalPublic, config: RunConfig) -> None:
    """LoJ: joins what tables predict of a batch, and scatters the gradients."""
    loss, batches = losses.make(public.classes), ServerBatches(me, config)
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
            z = join.total(await me.recv_all(me.clients, tag="prediction"))
            total, seen, count = total + (loss.mean(z, y) * len(y) if len(y) else 0.0), seen + len(y), count + 1
            gradient = await me.compute(loss.gradient, z, y, cost=len(y))
            for i, name in enumerate(me.clients):
                await me.send(name, join.collapse(i, gradient), tag="residual")
        me.report(train_loss=total / max(seen, 1), iterations=t * count, epoch=t, offset=labels.offset)


async def client(me: Party, data: RelationalPart, public: RelationalPublic, config: RunConfig) -> None:
    """Predicts the rows it is asked for, and follows the gradient."""
    cfg: Config = config.algorithm
    table = LocalTable(me, data, me.clients.index(me.name), public, config)
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
            model.descend(gradient / size, cfg.lr, cfg.weight_decay)  # (12)
        if me.evaluates(t):
            me.report(partial=table.predictions())
