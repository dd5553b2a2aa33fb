"""EXTRA and NIDS: decentralised gradient descent with an exact fixed point, on the dual of ridge regression.

EXTRA: Shi, Ling, Wu, Yin, SIAM J. Optim. 25(2), 2015, arXiv 1404.6264, equation (2.13) with W~ = (I + W) / 2.
NIDS: Li, Shi, Yan, IEEE TSP 67(17), 2019, arXiv 1704.07807, for a smooth sum.

Ridge regression's dual is min_v sum_k f_k(v), f_k(v) = ||X_k^T v||^2 / (2 alpha) + (||v||^2 / 2 - y.v) / K, and
theta_k = X_k^T v_k / alpha. Client k has a copy v_k; W are Metropolis weights over the graph, g_k = grad f_k(v_k).

    EXTRA   v^1 = W v^0 - eta g^0;  v^{t+2} = (I + W) v^{t+1} - (I + W) / 2 v^t - eta (g^{t+1} - g^t)
    NIDS    v^1 = v^0 - eta g^0;    v^{t+2} = (I + W) / 2 (2 v^{t+1} - v^t - eta (g^{t+1} - g^t))

Each iteration sends one vector of N numbers to every neighbour (tag `dual`): EXTRA its v, NIDS its bracket.

Step size null: 1 / L, L the largest of L_k = ||X_k||^2 / alpha + 1 / K; for EXTRA nine tenths of its bound, which is
(1 + the least eigenvalue of W) / L, where that is less. Neighbours exchange the largest L_k that they know, as many
times as the graph is wide, before the first round (tag `curvature`, a number).

All clients know the labels. The paper's variant for rows of one's own is left out: LEASGD's family has its methods.
"""

from functools import partial

import numpy as np

from vflbench.algorithms.tokens import block_descent, task_checks
from vflbench.cards.algorithms.tokens.extra import Config
from vflbench.data.tasks import AlignedPart, AlignedPublic, AlignedTask
from vflbench.federation.party import Party, PartySpec
from vflbench.types import RunConfig

devices = task_checks.devices


def parties(task: AlignedTask, config: RunConfig[Config]) -> dict[str, PartySpec]:
    """One client per block of features, and no server; each knows its row of W, and the labels.

    Raises
    ------
    ConfigError : the task is no ridge regression, or the graph is not connected.
    """
    names, graph = task_checks.ridge_graph(task, config)
    mixing, width = graph.mixing("metropolis"), int(graph.distances.max())
    bound = min(1.0, 0.9 * (1.0 + float(np.linalg.eigvalsh(mixing)[0]))) if config.algorithm.variant == "extra" else 1.0
    specs = {}
    for k, name in enumerate(names):
        weights = dict(zip(names, mixing[k], strict=True))
        program = partial(client, weights=weights, width=width, bound=bound)
        specs[name] = PartySpec(program, task.part(k, share_labels=True))
    return specs


async def client(
    me: Party,
    data: AlignedPart,
    public: AlignedPublic,
    config: RunConfig[Config],
    weights: dict[str, float],
    width: int,
    bound: float,
) -> None:
    """Step on the own gradient, and average with the neighbours."""
    cfg = config.algorithm
    me.state.model = block = block_descent.convex_client(data, public)
    x, y, alpha, count = block.x, block.loss.y, block.loss.decay, public.parties

    def gradient(v: np.ndarray) -> np.ndarray:
        found: np.ndarray = x @ (x.T @ v) / alpha + (v - y) / count
        return found

    largest = (block.smoothness - alpha) / block.loss.curvature / alpha + 1 / count
    if cfg.lr is None and me.fresh:
        for _ in range(width):
            await me.send_many(me.neighbours, largest, tag="curvature")
            largest = max([largest, *await me.recv_all(me.neighbours, tag="curvature")])
    me.state.lr = cfg.lr if cfg.lr is not None else bound / largest  # a resumed run restores it
    me.state.v, me.state.g, me.state.mixed = np.zeros(public.samples), None, None  # of the last iteration

    async def averaged(own: np.ndarray) -> np.ndarray:
        await me.send_many(me.neighbours, own, tag="dual")
        total = weights[me.name] * own
        for name, other in zip(me.neighbours, await me.recv_all(me.neighbours, tag="dual"), strict=True):
            total = total + weights[name] * other
        return total

    async for t in me.rounds():
        for _ in range(cfg.iterations):
            v, old, eta = me.state.v, me.state.g, me.state.lr
            g = await me.compute(gradient, v, cost=public.samples)
            if cfg.variant == "extra":
                mixed = await averaged(v)
                new = mixed - eta * g if old is None else v + mixed - me.state.mixed - eta * (g - old)
                me.state.mixed = (v + mixed) / 2  # (I + W) / 2 v
            else:
                bracket = 2 * v - eta * g if old is None else 2 * v - me.state.mixed - eta * (g - old)
                new = bracket - v if old is None else (bracket + await averaged(bracket)) / 2
                me.state.mixed = v
            me.state.v, me.state.g = new, g
        block.move(x.T @ me.state.v / alpha)
        if me.evaluates(t):
            me.report(iterations=t * cfg.iterations, **block.score())
