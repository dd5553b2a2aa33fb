"""VFL-PS: synchronous split learning with a parameter server and workers in pairs.

A baseline of PubSub-VFL (Liu et al., arXiv 2510.12494, section 5.1; the architecture of FATE and PaddleFL). Every batch
is cut into as many parts as there are pairs. Each pair takes its part synchronously, and both parameter servers average
their workers after every batch (average_every=1), or after every few and at the end of an epoch.

Departures
1. Replicas are weighted by their rows since the last average; one without rows does not step and is left out. With
   plain SGD, equal parts and averages after every batch this is the step on the whole batch. Each worker has its own
   Adam moments.
2. A pair has a link of its own.
3. The reported training loss is the mean of the workers' means over their parts, whatever the parts' sizes.
"""

import numpy as np

from vflbench.algorithms.split import organisations, split_privacy
from vflbench.algorithms.split.organisations import ACTIVE, passive_parties, workers_of
from vflbench.algorithms.split.worker_replica import Embedding, Gradient, Side, average, score
from vflbench.cards.algorithms.split.vfl_ps import Config
from vflbench.data.tasks import AlignedPart, AlignedPublic, AlignedTask
from vflbench.federation.party import Party, PartySpec
from vflbench.seeding import batches
from vflbench.types import RunConfig

most, max_releases = organisations.most, split_privacy.max_releases


def parties(task: AlignedTask, config: RunConfig[Config]) -> dict[str, PartySpec]:
    """A parameter server and workers per organisation."""
    count = config.algorithm.workers
    return organisations.teams(
        task, config, (parameter_server, parameter_server), (active_worker, passive_worker), (count, count)
    )


def part(rows: np.ndarray, workers: int, place: int) -> np.ndarray:
    """A pair's rows of a batch; the first pairs have one more where they cannot have equally many."""
    size, more = divmod(len(rows), workers)
    first = place * size + min(place, more)
    return rows[first : first + size + (place < more)]


def averages(config: RunConfig[Config], samples: int, j: int) -> bool:
    """Whether the replicas are averaged after batch j = 0, 1 ... of an epoch."""
    cfg = config.algorithm
    return (j + 1) % cfg.average_every == 0 or j + 1 == -(-samples // cfg.batch_size)


async def parameter_server(me: Party, data: AlignedPart, public: AlignedPublic, config: RunConfig[Config]) -> None:
    """Average the workers' replicas after every batch, or after every few."""
    cfg = config.algorithm
    workers = workers_of(me.name, config.algorithm.workers)
    side = Side(me, data, public, config)
    me.state.model = side.model
    seconds = side.serving(len(workers))
    await split_privacy.settle_labels(me, data.labels, workers)

    async for t in me.rounds():
        dealt = batches(config.seed, t, public.samples, cfg.batch_size)
        for first in range(0, len(dealt), cfg.average_every):
            stretch = dealt[first : first + cfg.average_every]
            sizes = [sum(len(part(rows, len(workers), place)) for rows in stretch) for place in range(len(workers))]
            replicas = await me.recv_all(workers, tag="replica")
            side.theta.copy_(await me.compute(average, replicas, sizes, seconds=seconds))
            await me.send_many(workers, side.theta, tag="model")
        await score(me, side, t)


async def passive_worker(me: Party, data: AlignedPart, public: AlignedPublic, config: RunConfig[Config]) -> None:
    """Do a worker's part of every batch, with its partner."""
    cfg = config.algorithm
    side = Side(me, data, public, config, cfg.workers)
    partner = workers_of(ACTIVE, cfg.workers)[side.place]
    me.state.model, me.state.optimiser = side.model, side.optimiser

    async for t in me.rounds():
        for j, rows in enumerate(batches(config.seed, t, public.samples, cfg.batch_size)):
            own = part(rows, cfg.workers, side.place)
            if len(own):
                made = await side.embed(own)
                z = split_privacy.embeddings(me, made.z, own)
                await me.send(partner, tuple(Embedding(j, 0, 0.0, z)), tag="embedding")
                gradient = Gradient(*await me.recv(partner, tag="gradient"))
                await side.backward(made, own, gradient.dz)
            if averages(config, public.samples, j):
                await me.send(side.organisation, side.theta, tag="replica")
                side.theta.copy_(await me.recv(side.organisation, tag="model"))


async def active_worker(me: Party, data: AlignedPart, public: AlignedPublic, config: RunConfig[Config]) -> None:
    """Do a worker's part of every batch, with its partners, one per passive party."""
    cfg = config.algorithm
    side = Side(me, data, public, config, cfg.workers)
    partners = [workers_of(name, cfg.workers)[side.place] for name in passive_parties(me)]
    me.state.model, me.state.optimiser = side.model, side.optimiser
    await split_privacy.settle_labels(me, data.labels, hub=ACTIVE)

    async for t in me.rounds():
        losses = []
        for j, rows in enumerate(batches(config.seed, t, public.samples, cfg.batch_size)):
            own = part(rows, cfg.workers, side.place)
            if len(own):
                zs = [Embedding(*message).z for message in await me.recv_all(partners, tag="embedding")]
                loss, dzs = await side.learn(own, zs)
                losses.append(loss)
                for name, dz in zip(partners, split_privacy.gradients(me, dzs, own, public.samples), strict=True):
                    await me.send(name, tuple(Gradient(j, 0, 0.0, dz)), tag="gradient")
            if averages(config, public.samples, j):
                await me.send(ACTIVE, side.theta, tag="replica")
                side.theta.copy_(await me.recv(ACTIVE, tag="model"))
        if losses:
            me.report(
                train_loss=sum(losses) / len(losses), epoch=t, iterations=t * -(-public.samples // cfg.batch_size)
            )
