"""Tree-CG: conjugate gradients for ridge regression, where clients add up products over a spanning tree.

Hestenes, Stiefel: Methods of conjugate gradients, 1952. That sums over a tree make it decentralised is folklore; the
form is ours. With theta_k = X_k^T v / alpha, ridge regression is A v = y, A = I + sum_k X_k X_k^T / alpha.

    here, with r = p = y and v = 0 at the start, as all clients know y
    s_k  = X_k q_k, q_k = X_k^T p / alpha       every client
    Ap   = p + sum_k s_k                        sums go up the tree, tag `product`
    a    = r.p / p.Ap;  r <- r - a Ap           at the root
    p    <- r + (r.r / old r.r) p               p and a go down the tree, tag `direction`
    theta_k <- theta_k + a q_k                  every client

An iteration costs 2 (K - 1) messages of N numbers on any connected graph, and 2 x depth latencies. The root is the
centre of the graph. One client that fails stops all: a token, or an average over neighbours, would go on.

Ridge only. On sparse logistic regression the same tree with accelerated proximal steps needs more bytes than STCD.
Left out: a server as the root, and restarts from the true residual.
"""

from functools import partial

import numpy as np

from vflbench.algorithms.tokens import block_descent, task_checks
from vflbench.cards.algorithms.tokens.tree_cg import Config
from vflbench.data.tasks import AlignedPart, AlignedPublic, AlignedTask
from vflbench.federation.party import Party, PartySpec
from vflbench.federation.topology import Topology
from vflbench.types import RunConfig

devices = task_checks.devices


def parties(task: AlignedTask, config: RunConfig[Config]) -> dict[str, PartySpec]:
    """One client per block of features, and no server; each knows its place in the tree, and the labels.

    Raises
    ------
    ConfigError : the task is no ridge regression, or the graph is not connected.
    """
    names, graph = task_checks.ridge_graph(task, config)
    above = parents(graph)
    specs = {}
    for k, name in enumerate(names):
        parent = None if above[k] < 0 else names[above[k]]
        children = [names[c] for c in np.flatnonzero(above == k)]
        program = partial(client, parent=parent, children=children)
        specs[name] = PartySpec(program, task.part(k, share_labels=True))
    return specs


def parents(graph: Topology) -> np.ndarray:
    """The number of each client's parent in a spanning tree of least depth, (K,) int; below 0 for the root.

    The root is the first client with the least distance to the farthest one.
    """
    from scipy.sparse import csgraph, csr_array

    root, links = int(graph.distances.max(axis=1).argmin()), csr_array(graph.adjacency)
    above: np.ndarray = csgraph.breadth_first_order(links, root, directed=False, return_predecessors=True)[1]
    return above


async def client(
    me: Party,
    data: AlignedPart,
    public: AlignedPublic,
    config: RunConfig[Config],
    parent: str | None,
    children: list[str],
) -> None:
    """Multiply, add up what comes from below, and move along the direction that comes from above."""
    cfg = config.algorithm
    me.state.model = block = block_descent.convex_client(data, public)
    me.state.p = block.loss.y.copy()
    if parent is None:
        me.state.r = me.state.p

    async for t in me.rounds():
        for _ in range(cfg.iterations):
            q, product = await me.compute(multiply, block.x, me.state.p, block.loss.decay, cost=public.samples)
            for below in await me.recv_all(children, tag="product"):
                product += below
            if parent is None:
                step, me.state.p, me.state.r = await me.compute(
                    advance, me.state.p, me.state.r, product, cfg.dtype, cost=public.samples
                )
            else:
                await me.send(parent, product.astype(cfg.dtype, copy=False), tag="product")
                step, me.state.p = await me.recv(parent, tag="direction")
            await me.send_many(children, (step, me.state.p), tag="direction")
            block.move(block.theta + step * q)
        if me.evaluates(t):
            me.report(iterations=t * cfg.iterations, **block.score())


def multiply(x: np.ndarray, p: np.ndarray, alpha: float) -> tuple[np.ndarray, np.ndarray]:
    """X^T p / alpha, (d,), and X times that, (N,)."""
    q = x.T @ p.astype(np.float64, copy=False) / alpha
    return q, x @ q


def advance(p: np.ndarray, r: np.ndarray, product: np.ndarray, dtype: str) -> tuple[float, np.ndarray, np.ndarray]:
    """An iteration of conjugate gradients: the step along p, the next direction in `dtype`, and the next residual.

    p, r and the sum of the clients' products are (N,).
    """
    p = p.astype(np.float64, copy=False)
    image = p + product
    curvature, size = float(p @ image), float(r @ r)
    step = float(r @ p) / curvature if curvature > 0 else 0.0  # 0: r is 0, the minimum is reached
    r = r - step * image
    return step, (r + (float(r @ r) / size if size > 0 else 0.0) * p).astype(dtype, copy=False), r
