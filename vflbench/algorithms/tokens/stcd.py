"""STCD: single-token coordinate descent for vertical federated learning without a server.

Valdeira, Chi, Soares, Xavier: arXiv 2309.09977, Algorithm 1. One token, Z = A = sum_k X_k theta_k, walks from client to
client for ever. Its holder takes Q gradient steps on its own block, and keeps the token in accordance.

    paper                               here
    k^s                                 walk.steps
    Q updates of theta_k and of Z       block.visit
    k^{s+1} ~ Uniform(Nbar_k), send Z   walks.of, tag `token`

Departures from the paper
1. All parties draw the walk from a shared seed; the paper's holder draws its next client. The distribution is the same.
2. A round is `hops` hops. The last one is on its way when the round ends; its client works on the token in the next
   round.
3. Convex objectives only, from theta = 0: the first token is 0, and there is no prelude. No theta_0 is tied to a
   client.
4. lr=null gives each client its own step, 1 / L_k; the paper has one eta.
5. privacy=gaussian_embedding is ours (published.py): noise in the token is replaced by the next client's, not added up.
"""

from functools import partial

import numpy as np

from vflbench.algorithms.tokens import published, task_checks, walks
from vflbench.algorithms.tokens.block_descent import convex_client
from vflbench.algorithms.tokens.published import clean, plan, renewed
from vflbench.algorithms.tokens.step_sizes import client_lr
from vflbench.algorithms.tokens.walks import Walks
from vflbench.cards.algorithms.tokens.stcd import Config
from vflbench.data.tasks import AlignedPart, AlignedPublic, AlignedTask
from vflbench.federation import topology
from vflbench.federation.party import Party, PartySpec, party_names
from vflbench.types import RunConfig, refuse

devices = task_checks.devices


def parties(task: AlignedTask, config: RunConfig[Config]) -> dict[str, PartySpec]:
    """One client per block of features, and no server; all know the walk and the labels."""
    cfg = config.algorithm
    task_checks.check_convex(task, config)
    names = party_names("client", task.parties)
    graph = topology.build(config.topology, [], names, config.seed)
    refuse(walks.check(graph, 1, cfg.hops, start=cfg.start))
    task_checks.warn_of_pieces(graph)
    walk = Walks(graph, config.seed, 1, cfg.hops, start=cfg.start)
    counts = published.planned(config, task, lambda: releases(walk, task.parties, config.rounds or 1))
    return {
        name: PartySpec(partial(client, walks=walk, planned=counts[k]), task.part(k, share_labels=True))
        for k, name in enumerate(names)
    }


def max_releases(config: RunConfig[Config], rounds: int) -> int:
    """How often a client publishes a row at most: at every hop."""
    hops: int = config.algorithm.hops
    return rounds * hops


def releases(walks: Walks, clients: int, rounds: int) -> np.ndarray:
    """How often each client will publish its rows in each round, (rounds, K): hops to another client."""
    made, position = [], None
    for t in range(1, rounds + 1):
        walk = walks.in_round(t, position)
        made.append(walk.departures(clients))
        position = [walk.steps[0][-1]]
    return np.stack(made)


async def client(
    me: Party,
    data: AlignedPart,
    public: AlignedPublic,
    config: RunConfig[Config],
    walks: Walks,
    planned: np.ndarray | None = None,
) -> None:
    """Work on the token whenever it comes by."""
    cfg = config.algorithm
    k = me.clients.index(me.name)
    me.state.model = block = convex_client(data, public)
    me.state.token = None  # the token, if this client holds it between rounds
    me.state.position = None  # the number of the client that holds it
    me.state.sent = 0
    me.state.noise = None  # of this client's part of the token; None: it is without
    plan(me, planned)
    lr = client_lr(cfg, block, public.samples)
    q = cfg.local_steps

    async for t in me.rounds():
        walk = walks.in_round(t, None if t == 1 else [me.state.position])
        path = walk.steps[0]
        for s, _ in walk.visits.get(k, ()):
            if t == 1 and s == 0:
                token = block.represent()  # theta = 0 everywhere: so is the token
            elif s == 0:
                token = me.state.token
            elif path[s - 1] != k:
                token = await me.recv(me.clients[path[s - 1]], tag="token")
            if s == cfg.hops:
                break
            token, me.state.noise = clean(block, token, me.state.noise), None
            theta, token = await me.compute(block.visit, block.theta, token, None, q, lr, cost=q * public.samples)
            block.move(theta)
            if path[s + 1] != k:
                token, me.state.noise = await renewed(me, block, token, theta, None)
                await me.send(me.clients[path[s + 1]], token, tag="token")
        me.state.token = token if path[-1] == k else None
        me.state.position = path[-1]
        me.state.sent += walk.sent

        if k == 0:
            me.report(facts={"hops": {"walk": t * cfg.hops, "sent": me.state.sent}})
        if me.evaluates(t):
            me.report(iterations=t * cfg.hops, **block.score())
