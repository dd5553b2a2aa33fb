"""All-reduce SGD: all workers take the same step, along the mean of their gradients.

It is centralized SGD with batches of m b rows. The mean is computed without a server, as Thakur, Rabenseifner, Gropp
(2005) do for long vectors: worker j sums the j-th piece of all gradients (reduce-scatter) and sends the mean to all
(all-gather). A worker sends 2 (m - 1) / m of a gradient, as in a ring, but in two latencies instead of 2 (m - 1).
Pieces are summed in the order of the workers' names. The ledger's `vectors` counts pieces.
"""

from vflbench.algorithms.gossip import worker_sgd
from vflbench.algorithms.gossip.worker_sgd import LocalSgd
from vflbench.cards.algorithms.gossip.allreduce_sgd import Config
from vflbench.data.tasks import Shard, ShardedPublic, ShardedTask
from vflbench.federation.party import Party, PartySpec
from vflbench.types import RunConfig


def parties(task: ShardedTask, config: RunConfig[Config]) -> dict[str, PartySpec]:
    """One worker per shard."""
    return worker_sgd.workers(worker, task, config)


async def worker(me: Party, data: Shard, public: ShardedPublic, config: RunConfig[Config]) -> None:
    """Compute the worker's gradient, and the mean of one piece of all gradients."""
    cfg = config.algorithm
    m, others = me.clients.index(me.name), [name for name in me.clients if name != me.name]
    sgd = LocalSgd(me, data, public, config)
    me.state.model = sgd.model

    async for t in me.rounds():
        for _ in sgd.begin(t):
            pieces = list((await sgd.gradient(me)).tensor_split(len(me.clients)))
            for name, piece in zip(me.clients, pieces, strict=True):
                if name != me.name:
                    await me.send(name, piece, tag="gradient")
            own = await me.recv_all(others, tag="gradient")
            own.insert(m, pieces[m])
            mean = own[0]
            for piece in own[1:]:
                mean.add_(piece)
            mean.div_(len(own))
            await me.send_many(others, mean, tag="mean")
            means = await me.recv_all(others, tag="mean")
            means.insert(m, mean)
            for part, mean in zip(sgd.w.tensor_split(len(means)), means, strict=True):
                part.sub_(mean, alpha=cfg.lr)
        me.report(**sgd.end(t, me.evaluates(t)))
