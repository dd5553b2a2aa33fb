"""VFL-SGD: vertical federated learning on joined, aligned rows by mini-batch SGD; what RFL-SGD-V is compared with.

Xu et al.: TablePuppet, arXiv 2403.15839, section 7 (baselines). The parameters are those of sgd.py. Here the joined
table exists: per batch every party predicts B rows and gets B gradients back.

Departures from the paper: an epoch is one pass in the order of the rows, not shuffled; a regression's labels are
centred (center_labels).

With privacy=dp_sgd the server draws every batch at random, each row with probability B / N, and names its rows to all
(tag `rows`). The unit of protection is a row of the joined table, because that is what a party holds here. A table's
row is in it G times.
"""

from functools import reduce

import numpy as np
import torch

from vflbench.algorithms.joins import table_parties
from vflbench.algorithms.joins.table_parties import Labels, LocalTable
from vflbench.cards.algorithms.joins.vfl_sgd import Config
from vflbench.cards.privacy.keys import trains_privately
from vflbench.data.tasks import AlignedPart, AlignedPublic, AlignedTask
from vflbench.federation.party import SERVER, Party, PartySpec
from vflbench.models import losses, scalar
from vflbench.privacy import tables
from vflbench.privacy.gradients import poisson, rehearsed
from vflbench.types import RunConfig


def parties(task: AlignedTask, config: RunConfig[Config]) -> dict[str, PartySpec]:
    """The server, and one client per block of features."""
    table_parties.check_learning(task, config)
    return table_parties.parties(server, client, [task.part(m) for m in range(task.parties)])


async def server(me: Party, data: None, public: AlignedPublic, config: RunConfig[Config]) -> None:
    """Sum predictions, and send every party the same gradient."""
    cfg = config.algorithm
    loss = losses.make(public.classes)
    drawn, rate = trains_privately(config.privacy), min(1.0, cfg.batch_size / public.samples)
    if me.fresh:
        me.state.labels = await me.recv(me.clients[public.owner], tag="labels")
        if tables.shares_budget(config.privacy):  # how often the most asked row will be asked for
            assert config.rounds is not None  # decided by the runner
            count, asked = config.rounds * -(-public.samples // cfg.batch_size), np.zeros(public.samples, np.int64)
            for chosen in rehearsed(count, public.samples, rate, me.secret_rng("batches")):
                asked[chosen] += 1
            await me.send_many(me.clients, int(asked.max()), tag="releases")
    labels: Labels | None = None

    async for t in me.rounds():
        labels = labels or Labels(me, me.state.labels, public, config)
        answers = labels.y.split(cfg.batch_size)
        total, seen = 0.0, 0
        for y in answers:
            if drawn:
                chosen = poisson(public.samples, rate, me.secret_rng("batches"))
                await me.send_many(me.clients, chosen, tag="rows")
                y = labels.y[chosen]
            z, size = reduce(torch.Tensor.add_, await me.recv_all(me.clients, tag="prediction")), y.shape[0]
            gradient = await me.compute(loss.gradient, z, y, cost=size)
            total, seen = total + (loss.mean(z, y, gradient) * size if size else 0.0), seen + size
            await me.send_many(me.clients, gradient, tag="residual")
        me.report(train_loss=total / max(seen, 1), iterations=t * len(answers), epoch=t, offset=labels.offset)


async def client(me: Party, data: AlignedPart, public: AlignedPublic, config: RunConfig[Config]) -> None:
    """Predict the rows of each batch, and follow the gradient; the owner of the labels sends them first."""
    cfg = config.algorithm
    m = me.clients.index(me.name)
    table = LocalTable(me, data, m, public, config)
    me.state.model = model = table.model
    if me.fresh and data.labels is not None:
        await me.send(SERVER, tables.protect_labels(me, data.labels, public.classes), tag="labels")
    if me.fresh and tables.shares_budget(config.privacy):
        me.state.releases = await me.recv(SERVER, tag="releases")

    drawn, expected = trains_privately(config.privacy), min(cfg.batch_size, public.samples)
    batches = table.features.split(cfg.batch_size)
    rows: torch.Tensor | None = None
    prepared = False

    async for t in me.rounds():
        if not prepared:
            releases = me.state.releases if tables.shares_budget(config.privacy) else None
            rate = expected / public.samples
            noisy = tables.noisy_steps(me, config, rate, len(batches), drawn_by_server=True, releases=releases)
            prepared = True
        for x in batches:
            if drawn:
                rows = torch.from_numpy(await me.recv(SERVER, tag="rows"))
                x = table.features.index_select(0, rows.to(table.features.device))
            out, inside = model.inside(x)
            await me.send(SERVER, tables.protect_predictions(me, out, rows), tag="prediction")
            residual = await me.recv(SERVER, tag="residual")
            size = x.shape[0]
            gradient = await me.compute(model.private_gradient, x, residual, out, inside, noisy, cost=size)
            divisor = scalar(expected if drawn else size, gradient.dtype)
            model.descend(gradient / divisor, cfg.lr, cfg.weight_decay)
        if me.evaluates(t):
            me.report(partial=table.predictions())
