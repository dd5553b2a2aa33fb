"""Centralized baseline of learning over joins: one party joins the tables and runs mini-batch SGD on the joined rows.

Xu et al.: TablePuppet, arXiv 2403.15839, section 7 ("Centralized"). It sends no messages. The model is the same sum of
one share per table: with the same batches its parameters are those of RFL-SGD-V and VFL-SGD.

Departures from the paper: those of vfl_sgd.py.

With privacy=dp_sgd it is what a trusted curator could release: the gradient of a joined row, over all tables together,
is clipped, and a random batch's sum gets noise (privacy/examples.py). A table's row is in the join G times.
"""

import math

import torch

from vflbench.algorithms.joins import table_parties
from vflbench.algorithms.joins.admm import sum_of
from vflbench.algorithms.joins.table_parties import Labels, LocalTable
from vflbench.cards.algorithms.joins.centralized_join import Config
from vflbench.data.tasks import AlignedPublic, AlignedTask, JoinedPart
from vflbench.federation.party import Party, PartySpec, party_names
from vflbench.models import losses
from vflbench.privacy import examples
from vflbench.types import RunConfig


def parties(task: AlignedTask, config: RunConfig[Config]) -> dict[str, PartySpec]:
    """One party with everything."""
    table_parties.check_learning(task, config)
    if config.privacy.name != "none":
        samples = task.public.samples
        examples.plan(
            config.privacy, [samples], config.algorithm.batch_size, lambda: [planned(config, samples)], pooled=True
        )
    return {party_names("client", 1)[0]: PartySpec(client, task.joined())}


def planned(config: RunConfig[Config], samples: int) -> int:
    """Batches of the whole run."""
    assert config.rounds is not None  # decided by the runner
    return int(config.rounds * math.ceil(samples / config.algorithm.batch_size))


async def client(me: Party, data: JoinedPart, public: AlignedPublic, config: RunConfig[Config]) -> None:
    """Train on the joined rows, and send nothing."""
    cfg = config.algorithm
    loss, labels = losses.make(public.classes), Labels(me, data.labels, public, config)
    tables = [LocalTable(me, part, m, public, config) for m, part in enumerate(data.parts)]
    me.state.model = torch.nn.ModuleList(table.model for table in tables)
    blocks, secret = [table.features.split(cfg.batch_size) for table in tables], me.privacy
    if secret is not None:
        steps = planned(config, public.samples)
        secret.prepare(public.samples, cfg.batch_size, steps, me.secret_torch_rng("noise"))

    def step(xs: tuple[torch.Tensor, ...], y: torch.Tensor) -> float:
        passed = [table.model.inside(x) for table, x in zip(tables, xs, strict=True)]
        z, size = sum_of([out for out, _ in passed]), len(y)
        gradient, every = loss.gradient(z, y), list(zip(tables, xs, passed, strict=True))
        if secret is not None:
            norms = torch.stack([table.model.row_norms(x, gradient, *parts) for table, x, parts in every])
            gradient, size = gradient * secret.factors(norms.norm(dim=0))[:, None], secret.expected
        means = [table.model.gradient(x, gradient, *parts) / size for table, x, parts in every]
        if secret is not None:
            noise = secret.mean_noise(torch.cat(means)).split([len(mean) for mean in means])
            means = [mean + drawn for mean, drawn in zip(means, noise, strict=True)]
        for table, mean in zip(tables, means, strict=True):
            table.model.descend(mean, cfg.lr, cfg.weight_decay)
        return loss.mean(z, y) * len(y) if len(y) else 0.0

    def random_batch() -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
        rows = torch.from_numpy(secret.sample(me.secret_rng("batches"))).to(me.device)
        return tuple(table.features.index_select(0, rows) for table in tables), labels.y.index_select(0, rows)

    async for t in me.rounds():
        total, seen, batches = 0.0, 0, list(zip(*blocks, strict=True))
        for batch in zip(batches, labels.y.split(cfg.batch_size), strict=True):
            xs, y = batch if secret is None else random_batch()
            total += await me.compute(step, xs, y, cost=len(y))
            seen += len(y)
        me.report(train_loss=total / max(seen, 1), iterations=t * len(batches), epoch=t)
        if me.evaluates(t):
            shares = [table.predictions() for table in tables]
            mean = labels.offset[0, 0]
            splits = data.parts[0].held_out
            me.report(predictions={split: sum_of([share[split] for share in shares]) + mean for split in splits})
