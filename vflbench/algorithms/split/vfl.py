"""VFL: synchronous split learning, one worker per party.

It goes batch by batch: embed, wait, step, wait. Vepakomma et al., "Split learning for health", arXiv 1812.00564; a
baseline of PubSub-VFL (Liu et al., arXiv 2510.12494, section 5.1). It equals gradient descent on the joint network
(tests/algorithms/test_pubsub.py).

With local_steps=Q it is FedBCD-p (Liu et al., IEEE TSP 70, 2022, arXiv 1912.11187) with private labels. After an
exchange every party takes Q steps on the batch: the active one with the embeddings that it has received, passive ones
with the gradient that they have received.
"""

from vflbench.algorithms.split import organisations, split_privacy
from vflbench.algorithms.split.organisations import ACTIVE
from vflbench.algorithms.split.worker_replica import Embedding, Gradient, Side, score
from vflbench.cards.algorithms.split.vfl import Config
from vflbench.data.tasks import AlignedPart, AlignedPublic, AlignedTask
from vflbench.federation.party import Party, PartySpec
from vflbench.seeding import batches
from vflbench.types import RunConfig

most, max_releases = organisations.most, split_privacy.max_releases


def parties(task: AlignedTask, config: RunConfig[Config]) -> dict[str, PartySpec]:
    """One party per organisation: `active`, `passive_1` ..."""
    return organisations.parties(task, config, (active, passive))


async def passive(me: Party, data: AlignedPart, public: AlignedPublic, config: RunConfig[Config]) -> None:
    """Send the embedding of each batch, and step on its gradient, Q times."""
    side = Side(me, data, public, config)
    me.state.model, me.state.optimiser = side.model, side.optimiser

    async for t in me.rounds():
        for j, rows in enumerate(batches(config.seed, t, public.samples, config.algorithm.batch_size)):
            me.about(rows)
            made = await side.embed(rows)
            z = split_privacy.embeddings(me, made.z, rows)
            await me.send(ACTIVE, tuple(Embedding(j, 0, 0.0, z)), tag="embedding")
            gradient = Gradient(*await me.recv(ACTIVE, tag="gradient"))
            await side.backward(made, rows, gradient.dz)
            for _ in range(1, config.algorithm.local_steps):
                await side.backward(await side.embed(rows), rows, gradient.dz)
        await score(me, side, t)


async def active(me: Party, data: AlignedPart, public: AlignedPublic, config: RunConfig[Config]) -> None:
    """Wait for all embeddings of a batch, step, answer, and step on them Q - 1 times more."""
    side = Side(me, data, public, config)
    me.state.model, me.state.optimiser = side.model, side.optimiser
    await split_privacy.settle_labels(me, data.labels)

    async for t in me.rounds():
        losses = []
        for j, rows in enumerate(batches(config.seed, t, public.samples, config.algorithm.batch_size)):
            me.about(rows)
            zs = [Embedding(*message).z for message in await me.recv_all(me.clients, tag="embedding")]
            loss, dzs = await side.learn(rows, zs)
            losses.append(loss)
            for name, dz in zip(me.clients, split_privacy.gradients(me, dzs, rows, public.samples), strict=True):
                await me.send(name, tuple(Gradient(j, 0, 0.0, dz)), tag="gradient")
            for _ in range(1, config.algorithm.local_steps):
                await side.learn(rows, zs)
        done = t * len(losses) * config.algorithm.local_steps
        me.report(train_loss=sum(losses) / len(losses), epoch=t, iterations=done)
        await score(me, side, t)
