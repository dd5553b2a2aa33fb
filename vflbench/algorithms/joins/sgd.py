"""SGD over joins: the two programs of `rfl_sgd`, and of `rfl_sgd_v`, where every table has one client.

Xu et al.: TablePuppet, arXiv 2403.15839, section 4 ("LoJ with SGD", equations 12 and 13) and section 6 ("LoU with SGD",
equations 17 and 18). A batch is B joined rows. Every table's owner predicts its alpha_i distinct rows behind them. The
server expands these predictions, and sends back the sum of the loss's gradients per row. The parameters follow SGD on
the join, which no party has.

Where a table has Q_i > 1 clients, every client sends the sum of the gradients of its own rows. The organisation's LoU,
which runs at the server, adds them, divides by B, and sends all the same step. So their replicas of theta_i stay equal,
and the parameters are those of RFL-SGD-V, however the table is split.

    paper               here
    B, alpha_{i,b}      batch_size (N in equations 12 and 13); rows that the server names for batch b
    h_i, z = sum h_i    predictions, z
    Y_{i,r}             residual: the sum of dl/dz over the joined rows of the batch that row r is behind
    R, beta             ||theta||^2 / 2, weight_decay: sum_r c_r = B, so counts need not be sent

Departures from the paper
1. An epoch is one pass in the order of the join, not shuffled, as in the released code. So the rows of every batch are
   named once, before training (tag `batches`).
2. Those of consensus.py about labels and rows that do not join (numbers 1 and 5).
3. The loss of a regression is (z - y)^2 / 2. The released SGD has no half: lr=0.1 here is 0.05 there.

With privacy=dp_sgd the server draws every batch at random, each joined row with probability B / N. It names the rows
batch by batch (tag `rows` in place of `batches`). Every client adds noise to its sum of gradients before it sends it.
Privacy costs bytes: neighbours in the join have table rows in common, and joined rows drawn at random have fewer. So
more predictions are asked for (1.6 times as many on MovieLens' sample, B = 10,240). A row of T_i is part of a batch
with probability 1 - (1 - B/N)^G at most. G is the largest count among the client's rows. Sums are divided by the
expected B.
"""

from vflbench.algorithms.joins import mapping, table_parties
from vflbench.algorithms.joins.admm import sum_of
from vflbench.algorithms.joins.mapping import Batched, ClientBatches, Join, ServerBatches, union
from vflbench.algorithms.joins.table_parties import Labels, LocalTable
from vflbench.data.tasks import RelationalPart, RelationalPublic, RelationalTask
from vflbench.federation.party import SERVER, Party, PartySpec
from vflbench.models import losses, scalar
from vflbench.privacy import tables
from vflbench.types import RunConfig


def parties(task: RelationalTask, config: RunConfig[Batched]) -> dict[str, PartySpec]:
    """The server, and one client per horizontal part of each table."""
    table_parties.check_holders(task, config)
    return table_parties.parties(server, client, task.clients)


async def server(me: Party, data: None, public: RelationalPublic, config: RunConfig[Batched]) -> None:
    """Join the tables' predictions of a batch, and scatter the gradients (LoJ).

    For every table with more than one client, add up the clients' gradients (LoU).
    """
    loss, batches = losses.make(public.classes), ServerBatches(me, config)
    groups = [[me.clients[c] for c in clients] for clients in public.parts if len(clients) > 1]
    everyone = [name for names in groups for name in names]
    if me.fresh:
        me.state.mapping = await mapping.map_tables(me, public)
        await batches.name(Join.from_mapping(me.state.mapping, me.device))
    whole: Join | None = None
    labels: Labels | None = None

    async for t in me.rounds():
        whole = whole or Join.from_mapping(me.state.mapping, me.device)
        labels = labels or Labels(me, me.state.mapping["labels"], public, config)
        total, seen, count = 0.0, 0, 0
        async for join, y in batches.epoch(whole, labels.y):
            z = join.total(union(public, await me.recv_all(me.clients, tag="prediction")))
            size = y.shape[0]
            gradient = await me.compute(loss.gradient, z, y, cost=size)
            total, seen, count = total + (loss.mean(z, y, gradient) * size if size else 0.0), seen + size, count + 1
            for i, clients in enumerate(public.parts):  # LoJ scatters to LoU, and LoU to its clients
                for c, part in zip(clients, join.divide(i, join.collapse(i, gradient)), strict=True):
                    await me.send(me.clients[c], part, tag="residual")
            if not groups:
                continue
            received = dict(zip(everyone, await me.recv_all(everyone, tag="gradient"), strict=True))
            for names in groups:
                divisor = min(batches.size, len(labels.y)) if batches.drawn else size
                step = sum_of([received[name] for name in names]) / scalar(divisor, gradient.dtype)  # (17)
                await me.send_many(names, step, tag="step")
        me.report(train_loss=total / max(seen, 1), iterations=t * count, epoch=t, offset=labels.offset)


async def client(me: Party, data: RelationalPart, public: RelationalPublic, config: RunConfig[Batched]) -> None:
    """Predict the rows that the server names, and follow the gradient over all rows of the table."""
    cfg = config.algorithm
    number = public.table_of(me.clients.index(me.name))
    table = LocalTable(me, data, number, public, config)
    me.state.model = model = table.model
    batches = ClientBatches(me, config)
    if me.fresh:
        await mapping.send_keys(me, data, public, tables.protect_labels(me, data.labels, public.classes))
        await batches.receive()

    async for t in me.rounds():
        async for rows, x, size in batches.epoch(table.features):
            out, inside = model.inside(x)
            await me.send(SERVER, tables.protect_predictions(me, out, rows), tag="prediction")
            residual = await me.recv(SERVER, tag="residual")
            gradient = await me.compute(
                model.private_gradient, x, residual, out, inside, batches.noisy, cost=x.shape[0]
            )
            if len(public.parts[number]) == 1:
                step = gradient / scalar(size, gradient.dtype)
            else:
                await me.send(SERVER, gradient, tag="gradient")  # (18)
                step = await me.recv(SERVER, tag="step")
            model.descend(step, cfg.lr, cfg.weight_decay)  # (12)
        if me.evaluates(t):
            me.report(partial=table.predictions())
