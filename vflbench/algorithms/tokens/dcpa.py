"""DCPA: a decentralised primal-dual method for vertical learning, where neighbours average their dual copies.

Alghunaim, Lyu, Yan, Sayed: IEEE TSP 69, 2021; the baseline of Valdeira et al., arXiv 2309.09977.

**Not verbatim.** The problem, min_w sum_k J_k(w_k) + r_k(w_k) + g(sum_k B_k w_k), is theirs; the listing of their
iteration could not be reached. The one below has the ingredients that they document (primal gradient step, local dual
ascent, exact-diffusion correction, averaging, prox of the conjugate). Its fixed point is the exact optimum, and it was
seen to converge linearly to 1e-10.

    w_k   <- prox_{mu_w r_k}(w_k - mu_w (grad J_k(w_k) + B_k^T y_k))
    psi_k <- y_k + mu_y B_k w_k                   with r_k: of 2 w_k - w_k^{old}
    phi_k  = psi_k + z_k - psi_k^{old}
    z_k   <- sum_l Abar_kl phi_l                  exchange with neighbours: tag `dual`;
                                                  Abar = (I + A) / 2, A Metropolis weights
    y_k   <- prox_{(mu_y / K) g*}(z_k)

Here B_k = X_k.
- Ridge: J_k = (alpha / 2) ||w_k||^2, g(u) = (1/2) ||u - y||^2.
- Sparse logistic: r_k = beta ||w_k||_1, J_k = 0; the prox of g* takes N scalar Newton searches at every client and
  iteration.

All clients have the same mu_y, in units of K times g's curvature. Where mu_w is null, each client has its own,
0.9 / (alpha + mu_y ||X_k||^2), which no other client needs to know.

privacy=gaussian_embedding is ours: psi_k has B_k w_k clipped and with noise, which every iteration releases once more.
All else that a client sends follows from that and from what it received.
"""

from functools import partial

import numpy as np

from vflbench.algorithms.tokens import block_descent, published, task_checks
from vflbench.algorithms.tokens.published import plan, publish
from vflbench.cards.algorithms.tokens.dcpa import Config
from vflbench.data.tasks import AlignedPart, AlignedPublic, AlignedTask
from vflbench.federation import topology
from vflbench.federation.party import Party, PartySpec, party_names
from vflbench.models import glm
from vflbench.types import RunConfig

devices = task_checks.devices


def parties(task: AlignedTask, config: RunConfig[Config]) -> dict[str, PartySpec]:
    """One client per block of features, and no server; each knows its row of the mixing weights, and the labels."""
    task_checks.check_convex(task, config)
    names = party_names("client", task.parties)
    graph = topology.build(config.topology, [], names, config.seed)
    task_checks.warn_of_pieces(graph)
    mixing = (np.eye(len(names)) + graph.mixing("metropolis")) / 2
    counts = published.planned(
        config, task, lambda: np.full((config.rounds or 1, task.parties), config.algorithm.iterations)
    )
    specs = {}
    for k, name in enumerate(names):
        weights = dict(zip(names, mixing[k], strict=True))
        specs[name] = PartySpec(partial(client, weights=weights, planned=counts[k]), task.part(k, share_labels=True))
    return specs


def max_releases(config: RunConfig[Config], rounds: int) -> int:
    """How often a client publishes a row: in every iteration."""
    iterations: int = config.algorithm.iterations
    return rounds * iterations


async def client(
    me: Party,
    data: AlignedPart,
    public: AlignedPublic,
    config: RunConfig[Config],
    weights: dict[str, float],
    planned: np.ndarray | None = None,
) -> None:
    """Iterate, and average the dual copy with the neighbours'."""
    cfg = config.algorithm
    me.state.model = block = block_descent.convex_client(data, public)
    plan(me, planned)
    loss, x = block.loss, block.x
    dual = cfg.dual_lr * public.parties * loss.curvature  # mu_y
    scaled = dual / public.parties
    norm = (block.smoothness - loss.decay) / loss.curvature  # ||X_k||^2
    primal = cfg.lr if cfg.lr is not None else 0.9 / max(loss.decay + dual * norm, 1e-300)  # mu_w
    me.state.y, me.state.psi, me.state.z = (np.zeros(public.samples) for _ in range(3))

    def ascend(
        w: np.ndarray, y: np.ndarray, z: np.ndarray, psi_old: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        new = w - primal * (loss.decay * w + x.T @ y)
        if loss.l1:
            new = glm.soft_threshold(new, primal * loss.l1)
        h, _ = publish(me, x @ (2 * new - w if loss.l1 else new), None)
        psi = y + dual * h
        return new, psi, psi + z - psi_old

    own = sum(name < me.name for name in me.neighbours)  # the place among the neighbours
    shares = [weights[name] for name in sorted((*me.neighbours, me.name))]

    async for t in me.rounds():
        for _ in range(cfg.iterations):
            w, psi, phi = await me.compute(
                ascend, block.theta, me.state.y, me.state.z, me.state.psi, cost=public.samples
            )
            block.move(w)
            me.state.psi = psi
            await me.send_many(me.neighbours, phi, tag="dual")
            duals = await me.recv_all(me.neighbours, tag="dual")
            duals.insert(own, phi)
            z = shares[0] * duals[0]
            for share, other in zip(shares[1:], duals[1:], strict=True):
                z += share * other
            last, me.state.z = (me.state.z, me.state.y), z
            me.state.y = await me.compute(loss.prox_conjugate, z, scaled, last, cost=public.samples)
        if me.evaluates(t):
            me.report(iterations=t * cfg.iterations, **block.score())
