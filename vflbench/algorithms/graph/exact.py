"""Server back-propagation: the programs of `glasu_exact` and of `simulated_centralized`, which aggregates every layer.

Zhang, Hong, Chen: GLASU, arXiv 2303.09531, section 2.1. Back through each aggregation, every client sends the gradient
of its loss with respect to the aggregate. It gets back the gradient of the sum of losses with respect to its own part.
The symbols are those of glasu.py. `ends` is I: the layers after which the representations are aggregated.

Departures from the paper
1. The chain rule through the mean has a factor 1 / M (Aggregation.gradients). The released single-process code leaves
   it out, which scales every gradient below an aggregation by M.
2. Those of GLASU about sampling levels, optimiser, adjacency, widths and prediction (glasu.py, numbers 1 and 3 to 6).
3. privacy=gaussian_embedding is ours. A client clips the rows of its representations and of its gradients, and adds
   noise before it sends them: two releases of a row for each aggregation and round. It takes its own noise out of what
   comes back. The gradient is that of the clipped representations.
4. Ids are rehearsed (graph_privacy.py), and privacy=edge_rr is as in GLASU (glasu.py, number 10).
"""

from collections.abc import Sequence
from functools import cache, partial

import numpy as np
from torch import Tensor

from vflbench.algorithms.graph import graph_privacy
from vflbench.algorithms.graph.graph_learner import GraphLearner, answer_all, ask, asking, parties, rounds
from vflbench.algorithms.graph.joint import Aggregation, exact_gradients, joint_inference, predictions
from vflbench.cards.algorithms.graph import glasu_exact, simulated_centralized
from vflbench.data.graph.sampling import Block, draw_batch, full_block, sample_blocks, union
from vflbench.data.tasks import GraphPart, GraphPublic, GraphTask
from vflbench.federation.party import SERVER, Party, PartySpec
from vflbench.privacy import serving
from vflbench.types import RunConfig

Exact = glasu_exact.Config | simulated_centralized.Config


def specs(task: GraphTask, config: RunConfig[Exact], ends: Sequence[int], full_edges: bool) -> dict[str, PartySpec]:
    """The server, and one client per part of the task.

    Parameters
    ----------
    full_edges : clients get all edges.
    """
    width = Aggregation(config.algorithm.aggregate, task.parties).columns(config.model.hidden, 0)[1]
    graph_privacy.inspect(task, config, releases(rounds(config), ends), width)
    parts = [task.part(m, full_edges) for m in range(task.parties)]
    return parties(partial(server, ends=ends), partial(client, ends=ends), parts)


def releases(rounds: int, ends: Sequence[int]) -> int:
    """How often a client sends a row of a node at most: up and back through each aggregation, every round."""
    return 2 * rounds * len(ends)


async def server(me: Party, data: None, public: GraphPublic, config: RunConfig[Exact], ends: Sequence[int]) -> None:
    """Draw the batch, unite ids, aggregate representations and back-propagate through the aggregations."""
    cfg = config.algorithm
    aggregation = Aggregation(cfg.aggregate, public.parties)
    unite, train = partial(union, public.nodes), public.splits["train"]

    async def exchange_ids(rng: np.random.Generator) -> None:
        await me.send_many(me.clients, draw_batch(train, cfg.batch_size, rng), tag="batch")
        for _ in ends[:-1]:
            await answer_all(me, unite, "nodes", "union")

    await graph_privacy.rehearse(me, config, "batches", exchange_ids)
    async for t in me.rounds():
        await exchange_ids(me.rng("batches"))
        for _ in ends:
            await answer_all(me, aggregation.combine, "embedding", "aggregate")
        for _ in ends:
            await answer_all(me, aggregation.gradients, "gradient", "backward")
        for way in serving.ways(config.privacy) if me.evaluates(t) else ():
            async with me.evaluating(priced=way.chosen):
                for _ in ends:
                    await answer_all(me, aggregation.combine, "embedding", "aggregate")


async def client(
    me: Party, data: GraphPart, public: GraphPublic, config: RunConfig[Exact], ends: Sequence[int]
) -> None:
    """Sample, compute representations, and follow the exact gradient."""
    cfg = config.algorithm
    m, secret = me.clients.index(me.name), graph_privacy.guard(me, served=len(ends))
    aggregation = Aggregation(cfg.aggregate, public.parties)
    columns = aggregation.columns(config.model.hidden, m)
    learner = GraphLearner(me, config, data, public.classes, ends, columns)
    model, optimizer = me.state.model, me.state.optimizer = learner.model, learner.optimizer
    graph = graph_privacy.graph_of(me, data, public, model.self_weight)
    whole = cache(lambda: learner.whole(full_block(graph())))
    unite = asking(me, "nodes", "union", at={end + 1 for end in ends[:-1]})

    async def sample(rng: np.random.Generator) -> tuple[list[np.ndarray], list[Block]]:
        batch = await me.recv(SERVER, tag="batch")
        return await sample_blocks(graph(), batch, cfg.layers, cfg.fanout, rng, unite)

    await graph_privacy.plan(me, config, public.nodes, sample, [end + 1 for end in ends] * 2)

    def clipped(rows: Tensor) -> Tensor:
        return rows if secret is None else secret.clip(rows)

    levels: list[np.ndarray] = []  # of this round

    async def exchange(
        segment: int, rows: Tensor, tag: str, answer: str, norm: float | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """What comes back for rows of the level above a segment, and the noise with which they were sent."""
        if secret is None:
            return await ask(me, rows, tag, answer), None
        ids, noise = levels[ends[segment] + 1], me.secret_torch_rng("noise")
        sent = secret.protect(rows, ids, noise, place=f"{tag} {segment}", norm=norm)
        return await ask(me, sent, tag, answer), sent - secret.clip(rows, norm)

    async def forward(segment: int, h_own: Tensor) -> Tensor:
        total, noise = await exchange(segment, h_own, "embedding", "aggregate")
        return total if noise is None else aggregation.without(total, noise, m)

    async def backward(segment: int, gradient: Tensor) -> Tensor:
        norm = None if secret is None else cfg.gradient_clip or secret.norm / cfg.batch_size
        total, noise = await exchange(segment, gradient, "gradient", "backward", norm)
        return total if noise is None else total - aggregation.gradients([noise])[m]

    async for t in me.rounds():
        learner.set_lr(t)
        levels, sampled = await sample(me.rng("neighbours"))
        x, blocks, y = learner.inputs(levels, sampled)
        optimizer.zero_grad()
        loss = await exact_gradients(model, x, blocks, y, forward, backward, me.torch_rng("dropout"), clipped)
        await me.compute(optimizer.step, cost=3 * sum(map(len, levels)))
        me.report(train_loss=loss.item(), iterations=t)
        for way in serving.ways(config.privacy) if me.evaluates(t) else ():
            async with me.evaluating(priced=way.chosen):
                logits = await joint_inference(
                    model, *whole(), partial(graph_privacy.serve, me, aggregation, noisy=way.noisy)
                )
            way.report(me, predictions(logits, public.splits))
