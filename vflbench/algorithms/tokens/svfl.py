"""SVFL, or FedBCD: client-server vertical federated learning with Q local updates per exchange.

Liu et al.: FedBCD, IEEE TSP 70, 2022 (there FedBCD-p); as the baseline of Valdeira et al., arXiv 2309.09977. In every
round all clients send h_k, and the server answers all with the token Z = (A, theta_0). Every client takes Q gradient
steps on its own block, with all other blocks' representations frozen and its own refreshed.

Departures
1. The released FedBCD code freezes the gradient signal during the local steps. Here a client's own part of the token
   stays fresh. MTCD without edges, with a token per client and one-hot weights, is the same method.
2. Step size null: for Q = 1 the smaller of 1.9 / L and 2 / (L + alpha), which is gradient descent's best where ridge's
   alpha is the least curvature. Else 1 / (L Q), and for batches of B times B / N. L is the whole objective's. No party
   knows the whole X, so the server finds L by 8 steps of Lanczos on sum_k X_k X_k^T. Each step sends every client a
   vector of N numbers and gets one back (tag `smoothness`, before the first round). With algorithm.lr given, they are
   not sent.
3. The server knows the labels, for the fusion model.
4. privacy=gaussian_embedding is ours (published.py). It needs algorithm.lr for a convex objective: no clip of a row
   bounds the products that departure 2 asks for.
"""

from typing import Any

import numpy as np

from vflbench.algorithms.tokens import block_descent, published, step_sizes, task_checks
from vflbench.algorithms.tokens.block_descent import batch, make_client, make_server, score
from vflbench.algorithms.tokens.graph_checks import check_step
from vflbench.algorithms.tokens.published import clean, plan, publish
from vflbench.algorithms.tokens.step_sizes import Lanczos, lr_of
from vflbench.cards.algorithms.tokens.svfl import Config
from vflbench.cards.algorithms.tokens.token_methods import LANCZOS_STEPS
from vflbench.data.tasks import AlignedPart, AlignedPublic, AlignedTask, JoinedPart
from vflbench.federation import topology
from vflbench.federation.party import SERVER, Party, PartySpec, party_names
from vflbench.models import split_network
from vflbench.types import RunConfig, refuse

devices = task_checks.devices


def parties(task: AlignedTask, config: RunConfig[Config]) -> dict[str, PartySpec]:
    """The server, and one client per block of features; all know the labels, and clients do not meet."""
    task_checks.check_task(task, config)
    model = split_network.resolve(config.model, task)
    graph = topology.build(config.topology, [SERVER], party_names("client", task.parties), config.seed)
    refuse(topology.unreached(graph) + check_step(config, task.objective is not None))
    counts = published.planned(config, task, lambda: np.ones((config.rounds or 1, task.parties), np.int64))
    return block_descent.parties(task, server, client, counts, model=model)


def max_releases(config: RunConfig[Config], rounds: int) -> int:
    """How often a client publishes a row at most: once a round."""
    return rounds


async def server(
    me: Party, data: JoinedPart | None, public: AlignedPublic, config: RunConfig[Config], model: Any
) -> None:
    """Send the token to all clients, and update the fusion model."""
    cfg = config.algorithm
    me.state.model = centre = make_server(data, public, config, model, me.device)
    if me.fresh and cfg.lr is None and public.objective is not None:
        gram = Lanczos(public.samples, me.rng("init"))
        for _ in range(min(LANCZOS_STEPS, public.samples)):
            await me.send_many(me.clients, gram.vector, tag="smoothness")
            gram.take(sum(await me.recv_all(me.clients, tag="smoothness")))
        await me.send_many(me.clients, gram.bound(), tag="smoothness")
    lr = cfg.lr if cfg.lr is not None else step_sizes.NETWORK_LR

    async for t in me.rounds():
        rows = batch(config.seed, t, public.samples, cfg.batch_size)
        me.about(rows)
        n = public.samples if rows is None else len(rows)
        token = centre.token(await me.recv_all(me.clients, tag="representation"))
        await me.send_many(me.clients, token, tag="token")
        step = lr_of(config, lr, t, public.samples)
        loss = await me.compute(centre.update, token, rows, cfg.local_steps, step, cost=cfg.local_steps * n)
        me.report(iterations=t, epoch=block_descent.epoch(t, public.samples, cfg.batch_size))
        if public.objective is None:
            me.report(train_loss=loss)
        await score(me, centre, t, config.privacy)


async def client(
    me: Party,
    data: AlignedPart,
    public: AlignedPublic,
    config: RunConfig[Config],
    model: Any,
    planned: np.ndarray | None = None,
) -> None:
    """Send the representation, get the token, and take Q steps."""
    cfg = config.algorithm
    q = cfg.local_steps
    me.state.model = block = make_client(me, data, public, config, model)
    plan(me, planned)
    me.state.lr = cfg.lr if cfg.lr is not None else step_sizes.NETWORK_LR
    if me.fresh and cfg.lr is None and public.objective is not None:
        for _ in range(min(LANCZOS_STEPS, public.samples)):
            await me.send(SERVER, block.x @ (block.x.T @ await me.recv(SERVER, tag="smoothness")), tag="smoothness")
        whole = block.loss.curvature * await me.recv(SERVER, tag="smoothness") + block.loss.decay
        share = min(cfg.batch_size or public.samples, public.samples) / public.samples
        fastest = min(2 / (whole + block.loss.decay), 1.9 / whole)
        me.state.lr = fastest if q == 1 and share == 1 else share / (q * whole)

    async for t in me.rounds():
        rows = batch(config.seed, t, public.samples, cfg.batch_size)
        me.about(rows)
        n = public.samples if rows is None else len(rows)
        h = await me.compute(block.represent, rows, cost=n)
        sent, noise = publish(me, h, rows)
        await me.send(SERVER, sent, tag="representation")
        token = clean(block, await me.recv(SERVER, tag="token"), noise)
        step = lr_of(config, me.state.lr, t, public.samples)
        theta, _ = await me.compute(block.visit, block.theta, token, rows, q, step, h, False, cost=q * n)
        block.move(theta)
        del h  # the graph ends with the round
        await score(me, block, t, config.privacy)
