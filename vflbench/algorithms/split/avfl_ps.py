"""AVFL-PS: asynchronous split learning with parameter servers and workers in pairs.

A baseline of PubSub-VFL (Liu et al., arXiv 2510.12494, section 5.1; the architecture of Falcon). Every pair of workers
runs AVFL on batches that are dealt to the pairs beforehand. No pair takes over another's work.

Departures
1. Both parameter servers average their workers at the end of every epoch, as PubSub-VFL's do; the paper does not say
   when. With average_every=K they do so after every K batches of the epoch, too: all pairs wait for one another then.
2. A pair has a link of its own, and its passive worker waits for at most `outstanding` gradients.
3. The reported training loss is the mean of the pairs' means, whatever their numbers of batches.
"""

from vflbench.algorithms.split import organisations, split_privacy
from vflbench.algorithms.split.organisations import ACTIVE, passive_parties, workers_of
from vflbench.algorithms.split.worker_replica import Side, average, latest_first, run_ahead, score
from vflbench.cards.algorithms.split.avfl_ps import Config
from vflbench.data.tasks import AlignedPart, AlignedPublic, AlignedTask
from vflbench.federation.party import Party, PartySpec
from vflbench.seeding import batches
from vflbench.types import RunConfig

most, max_releases = organisations.most, split_privacy.max_releases


def parties(task: AlignedTask, config: RunConfig[Config]) -> dict[str, PartySpec]:
    """A parameter server and workers per organisation.

    Raises
    ------
    ConfigError : there are more pairs than batches.
    """
    count = config.algorithm.workers
    specs = organisations.teams(
        task, config, (parameter_server, parameter_server), (active_worker, passive_worker), (count, count)
    )
    organisations.check_batches(config, task.public.samples, workers=count)
    return specs


def stretches(config: RunConfig[Config], count: int, place: int) -> list[range]:
    """The batches of a pair between two averages, of an epoch's `count` batches; some may be empty."""
    cfg = config.algorithm
    size = cfg.average_every or count
    return [
        range(first + (place - first) % cfg.workers, min(first + size, count), cfg.workers)
        for first in range(0, count, size)
    ]


async def parameter_server(me: Party, data: AlignedPart, public: AlignedPublic, config: RunConfig[Config]) -> None:
    """Average the workers' replicas after each stretch of an epoch."""
    workers = workers_of(me.name, config.algorithm.workers)
    side = Side(me, data, public, config)
    me.state.model = side.model
    seconds = side.serving(len(workers))
    averages = len(stretches(config, -(-public.samples // config.algorithm.batch_size), 0))
    await split_privacy.settle_labels(me, data.labels, workers)

    async for t in me.rounds():
        for _ in range(averages):
            side.theta.copy_(await me.compute(average, await me.recv_all(workers, tag="replica"), seconds=seconds))
            await me.send_many(workers, side.theta, tag="model")
        await score(me, side, t)


async def passive_worker(me: Party, data: AlignedPart, public: AlignedPublic, config: RunConfig[Config]) -> None:
    """Embed the worker's batches."""
    cfg = config.algorithm
    side = Side(me, data, public, config, cfg.workers)
    partner = workers_of(ACTIVE, cfg.workers)[side.place]
    me.state.model, me.state.optimiser = side.model, side.optimiser

    async for t in me.rounds():
        rows = batches(config.seed, t, public.samples, cfg.batch_size)
        for ids in stretches(config, len(rows), side.place):
            await run_ahead(me, side, partner, rows, ids, cfg.outstanding)
            await me.send(side.organisation, side.theta, tag="replica")
            side.theta.copy_(await me.recv(side.organisation, tag="model"))


async def active_worker(me: Party, data: AlignedPart, public: AlignedPublic, config: RunConfig[Config]) -> None:
    """Step on what came last from the partners, one per passive party."""
    cfg = config.algorithm
    side = Side(me, data, public, config, cfg.workers)
    partners = [workers_of(name, cfg.workers)[side.place] for name in passive_parties(me)]
    me.state.model, me.state.optimiser = side.model, side.optimiser
    await split_privacy.settle_labels(me, data.labels, hub=ACTIVE)

    async for t in me.rounds():
        rows = batches(config.seed, t, public.samples, cfg.batch_size)
        losses = []
        for ids in stretches(config, len(rows), side.place):
            losses += await latest_first(me, side, partners, rows, len(ids))
            await me.send(ACTIVE, side.theta, tag="replica")
            side.theta.copy_(await me.recv(ACTIVE, tag="model"))
        me.report(train_loss=sum(losses) / len(losses), epoch=t, iterations=t * len(rows))
