"""MTCD: multi-token coordinate descent for vertical federated learning, between client-server and fully decentralised.

Valdeira, Chi, Soares, Xavier: arXiv 2309.09977, Algorithm 2. In sync iteration t the server gathers representations and
hands out Gamma tokens Z = (A, theta_0), each to a first client. The tokens roam S hops along the graph. Every client
that a token visits takes Q gradient steps on its own block, and keeps the token in accordance. Then every client
averages its copies. All clients know the labels.

    paper                                   here
    K, Gamma, S, Q, B, eta                  parties, tokens, hops, local_steps, batch_size, lr
    P_gamma, w_{k,gamma}                    start, weights
    h_k = h_k(theta_k; X_k[B^t])            block.represent; tag `representation`, the uplink
    Z^t = (A, theta_0^t)                    centre.token; tag `token`, the downlink
    k^{t,s}(gamma)                          walk.steps
    theta_k(gamma)                          copies[gamma], made on the first visit
    Q updates, Z(gamma) in accordance       block.visit
    theta_k^{t+1} = sum_gamma w theta_k     shared.synchronised
    token 0                                 centre.update: theta_0 with A frozen, at the server

Departures from the paper
1. In the paper the holder of a token draws its next client. Here all parties draw all walks from the seed that they
   share for the batches (walks.py); the distribution is the same. So each party knows its visits of a round without a
   message.
2. A client serves its visits of a round in the order of hops, then of tokens, even where a later one would arrive
   first.
3. uplink=changed sends only representations that changed, where the batch is all samples; uplink=all sends them all.
   Convex objectives start from theta = 0, where all representations are 0. So with `changed` no client sends any in the
   first round.
4. walk=sweep (a cost model's walk: every client of a path once) and weights=visitors (the mean over the tokens that
   came) are our options. With weights=cluster a token stays within its cluster: a connected component, or a run of
   clients in their order.
5. theta_0 takes Q (S + 1) updates at the server while the tokens roam; the server knows the labels for that.
6. Steps on an l1 penalty are proximal, with one soft threshold per update.
7. lr=null gives each client its own step, 1 / L_k; the paper has one eta.
8. privacy=gaussian_embedding is ours (published.py): noise in a token is replaced by the next client's, not added up.

iterations (curve): S a round, 1 where S = 0. hops (summary): all steps of the walks, those that were messages, and the
server's first sends of the tokens.
"""

from typing import Any

import numpy as np

from vflbench.algorithms.tokens import block_descent, published, step_sizes, task_checks
from vflbench.algorithms.tokens.block_descent import batch, make_client, make_server, score, synchronised
from vflbench.algorithms.tokens.graph_checks import check_tokens
from vflbench.algorithms.tokens.published import clean, plan, publish, renewed
from vflbench.algorithms.tokens.step_sizes import client_lr, lr_of
from vflbench.algorithms.tokens.walks import Walks
from vflbench.cards.algorithms.tokens.mtcd import Config
from vflbench.data.tasks import AlignedPart, AlignedPublic, AlignedTask, JoinedPart
from vflbench.federation import topology
from vflbench.federation.party import SERVER, Party, PartySpec, party_names
from vflbench.models import split_network
from vflbench.types import RunConfig, refuse

devices = task_checks.devices


def parties(task: AlignedTask, config: RunConfig[Config]) -> dict[str, PartySpec]:
    """The server, and one client per block of features; all know the walks, the labels and the kind of model."""
    cfg = config.algorithm
    task_checks.check_task(task, config)
    graph = topology.build(config.topology, [SERVER], party_names("client", task.parties), config.seed)
    refuse(check_tokens(graph, cfg))
    step_sizes.warn_of_steps(task, cfg)
    drawn = Walks(graph, config.seed, cfg.tokens, cfg.hops, cfg.walk, cfg.weights == "cluster", cfg.start)
    counts = published.planned(config, task, lambda: releases(cfg, task.public, drawn, config.rounds or 1))
    return block_descent.parties(
        task, server, client, counts, walks=drawn, model=split_network.resolve(config.model, task)
    )


def senders(cfg: Config, public: AlignedPublic, walks: Walks, t: int) -> range | dict[int, Any]:
    """The clients, by number, whose representation the server does not have at round t."""
    everyone = range(public.parties)
    if cfg.uplink == "all" or (cfg.batch_size is not None and cfg.batch_size < public.samples):
        return everyone
    if t == 1:
        return everyone if public.objective is None else {}  # theta = 0: all representations are 0
    return walks.in_round(t - 1).visits


def max_releases(config: RunConfig[Config], rounds: int) -> int:
    """How often a client publishes a row at most: to the server once a round, and with each token at every hop."""
    cfg = config.algorithm
    return rounds * (1 + cfg.tokens * cfg.hops)


def releases(cfg: Config, public: AlignedPublic, walks: Walks, rounds: int) -> np.ndarray:
    """How often each client will publish its rows in each round, (rounds, K): uplinks, and hops to another client."""
    made = np.stack([walks.in_round(t).departures(public.parties) for t in range(1, rounds + 1)])
    for t in range(1, rounds + 1):
        made[t - 1, list(senders(cfg, public, walks, t))] += 1
    return made


async def server(
    me: Party, data: JoinedPart | None, public: AlignedPublic, config: RunConfig[Config], walks: Walks, model: Any
) -> None:
    """Rebuild the token from representations, hand it out, and update the fusion model."""
    cfg = config.algorithm
    me.state.model = centre = make_server(data, public, config, model, me.device)
    me.state.sent = 0
    me.state.h = None
    lr = cfg.lr if cfg.lr is not None else step_sizes.NETWORK_LR

    async for t in me.rounds():
        rows = batch(config.seed, t, public.samples, cfg.batch_size)
        me.about(rows)
        n = public.samples if rows is None else len(rows)
        walk = walks.in_round(t)

        new = sorted(senders(cfg, public, walks, t))
        received = await me.recv_all([me.clients[k] for k in new], tag="representation")
        if me.state.h is None:  # no client needs to send the representations of theta = 0
            me.state.h = received if new else centre.start(public.samples, public.parties)
        for k, h in zip(new, received, strict=True):
            me.state.h[k] = h
        token = centre.token(me.state.h)
        for path in walk.steps:
            await me.send(me.clients[path[0]], token, tag="token")

        updates = cfg.local_steps * (cfg.hops + 1)
        loss = await me.compute(
            centre.update, token, rows, updates, lr_of(config, lr, t, public.samples), cost=updates * n
        )
        me.state.sent += walk.sent
        hops = {"walk": t * cfg.tokens * cfg.hops, "sent": me.state.sent, "from_server": t * cfg.tokens}
        me.report(
            iterations=t * max(cfg.hops, 1),
            facts={"hops": hops},
            epoch=block_descent.epoch(t, public.samples, cfg.batch_size),
        )
        if public.objective is None:
            me.report(train_loss=loss)
        await score(me, centre, t, config.privacy)


async def client(
    me: Party,
    data: AlignedPart,
    public: AlignedPublic,
    config: RunConfig[Config],
    walks: Walks,
    model: Any,
    planned: np.ndarray | None = None,
) -> None:
    """Send the representation where it is new, and work on the tokens that come by."""
    cfg = config.algorithm
    k = me.clients.index(me.name)
    me.state.model = block = make_client(me, data, public, config, model)
    me.state.noise = None  # of what the server has of this client
    plan(me, planned)
    lr = client_lr(cfg, block, public.samples)

    async for t in me.rounds():
        rows = batch(config.seed, t, public.samples, cfg.batch_size)
        me.about(rows)
        n = public.samples if rows is None else len(rows)
        walk = walks.in_round(t)

        h = None
        if k in senders(cfg, public, walks, t):
            h = await me.compute(block.represent, rows, cost=n)
            sent, me.state.noise = publish(me, h, rows)
            await me.send(SERVER, sent, tag="representation")

        step = lr_of(config, lr, t, public.samples)
        copies: dict[int, Any] = {}
        stays: dict[int, Any] = {}  # tokens whose last hop was to stay
        noise: dict[int, Any] = {}  # of this client's part of each token that it has sent
        for s, gamma in walk.visits.get(k, ()):
            path = walk.steps[gamma]
            if gamma in stays:
                token = stays.pop(gamma)
            else:
                token = await me.recv(SERVER if s == 0 else me.clients[path[s - 1]], tag="token")
                token = clean(block, token, noise.get(gamma, me.state.noise))
            theta, graph = (copies[gamma], None) if gamma in copies else (block.theta, h)
            q, onward = cfg.local_steps, s < cfg.hops
            copies[gamma], token = await me.compute(block.visit, theta, token, rows, q, step, graph, onward, cost=q * n)
            if onward and path[s + 1] == k:
                stays[gamma] = token
            elif onward:
                token, noise[gamma] = await renewed(me, block, token, copies[gamma], rows)
                await me.send(me.clients[path[s + 1]], token, tag="token")
        if copies:
            block.move(synchronised(block.theta, copies, cfg.tokens, cfg.weights))
        h = graph = None  # graphs end with the round
        await score(me, block, t, config.privacy)
