"""GD over joins: full-batch gradient descent on normalised tables, one update an epoch.

Kumar, Naughton, Patel, Learning Generalized Linear Models Over Normalized Data, SIGMOD 2015, and Schleich, Olteanu,
Ciucanu, SIGMOD 2016, between organisations, as the "GD-based" baseline of Xu et al.: TablePuppet, arXiv 2403.15839
(section 7 of its newer version). One prediction per table row gives the gradient over all N joined rows: it is sgd.py,
with its symbols, for B = N.

Departures from the papers: those of consensus.py about labels and rows that do not join (numbers 1 and 5).

With privacy=dp_sgd every row is in every batch by the protocol. So an epoch is one Gaussian release of each row, and
epsilon is exact by mu-GDP. Messages and bytes are the same.
"""

from vflbench.algorithms.joins import mapping, table_parties
from vflbench.algorithms.joins.mapping import Join
from vflbench.algorithms.joins.table_parties import Labels, LocalTable
from vflbench.cards.algorithms.joins.gd_join import Config
from vflbench.data.tasks import RelationalPart, RelationalPublic, RelationalTask
from vflbench.federation.party import SERVER, Party, PartySpec
from vflbench.models import losses
from vflbench.privacy import tables
from vflbench.types import RunConfig


def parties(task: RelationalTask, config: RunConfig[Config]) -> dict[str, PartySpec]:
    """The server, and one client per table."""
    table_parties.check_holders(task, config)
    return table_parties.parties(server, client, task.clients)


async def server(me: Party, data: None, public: RelationalPublic, config: RunConfig[Config]) -> None:
    """Join the tables' predictions, and scatter the gradient."""
    loss = losses.make(public.classes)
    if me.fresh:
        me.state.mapping = await mapping.map_tables(me, public)
    join: Join | None = None
    labels: Labels | None = None

    async for t in me.rounds():
        join = join or Join.from_mapping(me.state.mapping, me.device)
        labels = labels or Labels(me, me.state.mapping["labels"], public, config)
        z = join.total(await me.recv_all(me.clients, tag="prediction"))
        gradient = await me.compute(loss.gradient, z, labels.y, cost=len(z))
        for i, name in enumerate(me.clients):
            await me.send(name, join.collapse(i, gradient), tag="residual")
        me.report(train_loss=loss.mean(z, labels.y, gradient), epoch=t, offset=labels.offset)


async def client(me: Party, data: RelationalPart, public: RelationalPublic, config: RunConfig[Config]) -> None:
    """Predict the table's rows, and follow the gradient."""
    cfg = config.algorithm
    table = LocalTable(me, data, me.clients.index(me.name), public, config)
    me.state.model = model = table.model
    if me.fresh:
        await mapping.send_keys(me, data, public, tables.protect_labels(me, data.labels, public.classes))
    x = None

    async for t in me.rounds():
        if x is None:
            x, _ = table.joining(me.state.rows, me.state.counts)
            noisy = tables.noisy_steps(me, config, 1.0, 1, drawn_by_server=False, every_row=True)
        out, inside = model.inside(x)
        await me.send(SERVER, tables.protect_predictions(me, out), tag="prediction")
        residual = await me.recv(SERVER, tag="residual")
        gradient = await me.compute(model.private_gradient, x, residual, out, inside, noisy, cost=len(x))
        model.descend(gradient / me.state.joined, cfg.lr, cfg.weight_decay)
        if me.evaluates(t):
            me.report(partial=table.predictions())
