"""AVFL: asynchronous split learning, one worker per party, peer to peer.

Chen et al., "VAFL", arXiv 2007.06081, as the baseline of PubSub-VFL (Liu et al., arXiv 2510.12494, section 5.1): the
passive worker goes on publishing with the parameters it has; the active one takes the embedding that came last.

Departures
1. The passive worker waits for at most `outstanding` gradients. Without a bound it would embed a whole epoch with one
   set of parameters.
2. Every batch of an epoch is trained once. The epoch ends when all its gradients have come. Several passive parties: a
   batch is taken when all its embeddings are there.
"""

from vflbench.algorithms.split import organisations, split_privacy
from vflbench.algorithms.split.organisations import ACTIVE
from vflbench.algorithms.split.worker_replica import Side, latest_first, run_ahead, score
from vflbench.cards.algorithms.split.avfl import Config
from vflbench.data.tasks import AlignedPart, AlignedPublic, AlignedTask
from vflbench.federation.party import Party, PartySpec
from vflbench.seeding import batches
from vflbench.types import RunConfig

most, max_releases = organisations.most, split_privacy.max_releases


def parties(task: AlignedTask, config: RunConfig[Config]) -> dict[str, PartySpec]:
    """One party per organisation: `active`, `passive_1` ..."""
    return organisations.parties(task, config, (active, passive))


async def passive(me: Party, data: AlignedPart, public: AlignedPublic, config: RunConfig[Config]) -> None:
    """Embed batch after batch."""
    cfg = config.algorithm
    side = Side(me, data, public, config)
    me.state.model, me.state.optimiser = side.model, side.optimiser

    async for t in me.rounds():
        rows = batches(config.seed, t, public.samples, cfg.batch_size)
        await run_ahead(me, side, ACTIVE, rows, range(len(rows)), cfg.outstanding)
        await score(me, side, t)


async def active(me: Party, data: AlignedPart, public: AlignedPublic, config: RunConfig[Config]) -> None:
    """Step on what came last."""
    side = Side(me, data, public, config)
    me.state.model, me.state.optimiser = side.model, side.optimiser
    await split_privacy.settle_labels(me, data.labels)

    async for t in me.rounds():
        rows = batches(config.seed, t, public.samples, config.algorithm.batch_size)
        losses = await latest_first(me, side, me.clients, rows, len(rows))
        me.report(train_loss=sum(losses) / len(losses), epoch=t, iterations=t * len(losses))
        await score(me, side, t)
