"""D-PSGD: every worker averages its model with its neighbours' in every iteration, while it computes its gradient.

Lian, Zhang, Zhang, Hsieh, Zhang, Liu, arXiv 1705.09056, Algorithm 1. Cheng et al., arXiv 1811.11124, compare LEASGD
with it.

    w^i_{t+1} = sum_j W_ij w^j_t - eta g^i_t(w^i_t)

W is symmetric and doubly stochastic over the topology's edges. With a ring it is 1/3 for oneself and for each
neighbour.

mixing=after averages the models after the gradient step, w^i_{t+1} = sum_j W_ij (w^j_t - eta g^j_t(w^j_t)), which the
paper's remark allows too. With it, and with W = 1 1^T / m (a complete topology), D-PSGD is all-reduce SGD. As printed,
this holds only for the mean model and to first order in eta, because gradients are taken at models that differ by one
step. W = I is local SGD (local_sgd.py).

Departures from the paper
1. L2 (weight_decay) is part of g.
2. privacy=dp_sgd (of Cheng et al., who run it with D-PSGD too) clips every example's gradient and adds noise to their
   sum. L2 is added after that, neither clipped nor noised (leasgd.py, 6).
"""

from vflbench.algorithms.gossip.averaging import averaging
from vflbench.algorithms.gossip.worker_sgd import LocalSgd
from vflbench.cards.algorithms.gossip.d_psgd import Config
from vflbench.data.tasks import Shard, ShardedPublic, ShardedTask
from vflbench.federation.party import Party, PartySpec
from vflbench.types import RunConfig


def parties(task: ShardedTask, config: RunConfig[Config]) -> dict[str, PartySpec]:
    """One worker per shard, each with its row of W; raises as `averaging`."""
    return averaging(worker, task, config)


async def worker(
    me: Party, data: Shard, public: ShardedPublic, config: RunConfig[Config], weights: dict[str, float]
) -> None:
    """Train on the worker's own rows, and average with its neighbours; `weights` by name: its own and theirs."""
    cfg = config.algorithm
    sgd = LocalSgd(me, data, public, config)
    me.state.model = sgd.model

    async for t in me.rounds():
        for _ in sgd.begin(t):
            if cfg.mixing == "parallel":
                await me.send_many(me.neighbours, sgd.w, tag="model")
                sgd.w = await sgd.step(me, old_needed=False, own=weights[me.name])  # W_ii w - eta g
            else:
                sgd.w = await sgd.step(me, old_needed=False)
                await me.send_many(me.neighbours, sgd.w, tag="model")
                sgd.w.mul_(weights[me.name])
            received = await me.recv_all(me.neighbours, tag="model")
            for name, other in zip(me.neighbours, received, strict=True):
                sgd.w.add_(other, alpha=weights[name])
        me.report(**sgd.end(t, me.evaluates(t)))
