"""GLASU: graph networks on vertically distributed graphs, trained with lazy aggregation and stale updates.

Zhang, Hong, Chen: GLASU: A Communication-Efficient Algorithm for Federated Learning with Vertically Distributed Graph
Data, arXiv 2303.09531, Algorithms 1 to 4.

M clients hold the same nodes and training labels, each with its own features and edges, and its own classifier. The
server aggregates representations after K of the L layers only (lazy), and each aggregation serves Q local updates
(stale). It has no parameters.

    paper                        here
    M, L, K, Q, S, T             parties, layers, aggregations, local_steps, batch_size, rounds
    F, eta                       fanout, lr
    I = {l_1 < ... < l_K}        model.ends: evenly spaced, or the key aggregation_layers
    S_m[l]                       levels[l]
    A(E_m(S[l+1], S[l]))         blocks[l]
    H_m^+[l]                     h_own
    H[l+1]                       total
    H_{-m}[l+1]                  others[segment]
    Agg, Extract                 Aggregation.combine and .insert, .extract
    W_m                          state.model

Departures from the paper
1. Algorithm 2 as printed leaves a level unsynchronised. Here every level above an aggregation is common to all clients.
   The batch is so anyway; a union of ids does it for the other K - 1 (index_exchange=paper). The released code also
   unites the lowest level (index_exchange=code).
2. The forward pass of JointInference is also that of the first local update (q = 0). The others' parts are fresh there,
   so both passes give the same numbers, dropout included (without privacy: see 8). Later local updates draw new dropout
   masks.
3. Adam, a cosine schedule, L2 on all parameters and dropout instead of plain SGD, which trains the released network
   poorly with local gradients.
4. A block has the edges that were drawn, not all own edges between its two level sets. Its weights estimate the whole
   graph's adjacency without bias (data/graph/sampling.py).
5. With aggregate=cat a client's layer in I computes its share of the hidden columns; its other layers keep the full
   width.
6. Prediction uses the full neighbourhood. Each client classifies with its own head, and accuracy is averaged over
   clients.
7. sampling=undropped draws neighbours from the graph before clients lost edges, as the released code does: an
   information leak.
8. privacy=gaussian_embedding is ours: a client clips each row and adds noise before it sends. It goes on with its own
   part clipped but without noise, so representations above an aggregation differ between clients. Rows for predictions
   are clipped, and with privacy.serving=noisy have noise, too.
9. Where noise is calibrated to a target, the parties exchange the ids of all rounds before the first
   (graph_privacy.py).
10. privacy=edge_rr is ours too: a client samples, learns and predicts with the edges that it shows.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from vflbench.algorithms.graph import graph_learner, graph_privacy
from vflbench.algorithms.graph.graph_learner import GraphLearner, answer_all, ask, asking
from vflbench.algorithms.graph.joint import Aggregation, aggregation_layers, joint_inference, local_loss, predictions
from vflbench.cards.algorithms.graph.glasu import Config
from vflbench.data.graph.sampling import Block, Graph, draw_batch, full_block, sample_blocks, union
from vflbench.data.tasks import GraphPart, GraphPublic, GraphTask
from vflbench.federation.party import SERVER, Party, PartySpec
from vflbench.privacy import serving
from vflbench.types import RunConfig


def max_releases(config: RunConfig[Config], rounds: int) -> int:
    """How often a client sends the representation of a node at most: once per aggregation and round."""
    cfg = config.algorithm
    return rounds * len(aggregation_layers(cfg.layers, cfg.aggregations, cfg.aggregation_layers))


@dataclass(frozen=True)
class LeakyPart(GraphPart):
    """sampling=undropped: a client that also sees the edges before any were lost."""

    all_edges: np.ndarray


def parties(task: GraphTask, config: RunConfig[Config]) -> dict[str, PartySpec]:
    """The server, and one client per part of the task."""
    width = Aggregation(config.algorithm.aggregate, task.parties).columns(config.model.hidden, 0)[1]
    graph_privacy.inspect(task, config, max_releases(config, graph_learner.rounds(config)), width)
    parts = [task.part(m) for m in range(task.parties)]
    if config.algorithm.sampling == "undropped":
        parts = [LeakyPart(**vars(part), all_edges=task.all_edges) for part in parts]
    return graph_learner.parties(server, client, parts)


def common_levels(cfg: Config, ends: tuple[int, ...]) -> set[int]:
    """The levels l < L whose node sets are united: those above an aggregation; index_exchange=code: the lowest too."""
    return {end + 1 for end in ends[:-1]} | ({0} if cfg.index_exchange == "code" else set())


async def server(me: Party, data: None, public: GraphPublic, config: RunConfig[Config]) -> None:
    """Draw the batch, unite ids, aggregate representations."""
    cfg = config.algorithm
    ends = aggregation_layers(cfg.layers, cfg.aggregations, cfg.aggregation_layers)
    aggregation = Aggregation(cfg.aggregate, public.parties)
    unite, train = partial(union, public.nodes), public.splits["train"]

    async def exchange_ids(rng: np.random.Generator) -> None:  # Alg. 2: S[L]
        await me.send_many(me.clients, draw_batch(train, cfg.batch_size, rng), tag="batch")
        for _ in common_levels(cfg, ends):
            await answer_all(me, unite, "nodes", "union")

    await graph_privacy.rehearse(me, config, "batches", exchange_ids)
    async for t in me.rounds():
        await exchange_ids(me.rng("batches"))
        for _ in ends:  # Alg. 3
            await answer_all(me, aggregation.combine, "embedding", "aggregate")
        for way in serving.ways(config.privacy) if me.evaluates(t) else ():
            async with me.evaluating(priced=way.chosen):
                for _ in ends:
                    await answer_all(me, aggregation.combine, "embedding", "aggregate")


Draw = Callable[[np.random.Generator], Awaitable[tuple[list[np.ndarray], list[Block]]]]


def sampler(
    me: Party, data: GraphPart, nodes: int, cfg: Config, ends: tuple[int, ...], graph: Callable[[], Graph]
) -> Draw:
    """Alg. 2: what draws the levels and blocks of a client's round, from `graph`."""
    drawn_from: Graph | None = None
    if cfg.sampling == "undropped":
        leaky: Any = data  # a LeakyPart; guarded, so its class does not show
        drawn_from = Graph.from_edges(leaky.all_edges, nodes)
    unite = asking(me, "nodes", "union", at=common_levels(cfg, ends))

    async def sample(rng: np.random.Generator) -> tuple[list[np.ndarray], list[Block]]:
        batch = await me.recv(SERVER, tag="batch")
        return await sample_blocks(graph(), batch, cfg.layers, cfg.fanout, rng, unite, drawn_from)

    return sample


async def client(me: Party, data: GraphPart, public: GraphPublic, config: RunConfig[Config]) -> None:
    """Sample, compute representations, and update the client's own parameters."""
    cfg = config.algorithm
    ends = aggregation_layers(cfg.layers, cfg.aggregations, cfg.aggregation_layers)
    m, secret = me.clients.index(me.name), graph_privacy.guard(me, served=len(ends))
    aggregation = Aggregation(cfg.aggregate, public.parties)
    columns = aggregation.columns(config.model.hidden, m)
    learner = GraphLearner(me, config, data, public.classes, ends, columns)
    model, optimizer = me.state.model, me.state.optimizer = learner.model, learner.optimizer
    graph = graph_privacy.graph_of(me, data, public, model.self_weight)
    whole = cache(lambda: learner.whole(full_block(graph())))
    sample = sampler(me, data, public.nodes, cfg, ends, graph)
    await graph_privacy.plan(me, config, public.nodes, sample, [end + 1 for end in ends])
    others: list[torch.Tensor] = []  # H_{-m}[l+1], l in I, of this round

    def clipped(h_own: torch.Tensor) -> torch.Tensor:
        if secret is not None:
            h_own = secret.clip(h_own)
        return h_own

    def with_own(segment: int, h_own: torch.Tensor) -> torch.Tensor:  # Agg(H_{-m}, H_m^+)
        return aggregation.insert(others[segment], clipped(h_own), m)

    async for t in me.rounds():
        learner.set_lr(t)
        levels, sampled = await sample(me.rng("neighbours"))
        x, blocks, y = learner.inputs(levels, sampled)
        masks, work = me.torch_rng("dropout"), sum(map(len, levels))
        others.clear()

        # Alg. 3, JointInference; its graph is kept, as this is also the forward pass of q = 0
        h = h0 = model.start(x, masks)
        for segment, end in enumerate(ends):
            h_own, h0 = await me.compute(model.segment, segment, blocks, h, h0, masks, cost=work / len(ends))
            sent = (
                h_own.detach()
                if secret is None
                else secret.protect(h_own, levels[end + 1], me.secret_torch_rng("noise"), place=f"layer {end}")
            )
            total = await ask(me, sent, "embedding", "aggregate")
            others.append(aggregation.extract(total, sent, m))
            h = with_own(segment, h_own)  # without privacy the total, differentiable in the own part

        # Alg. 4, LocalUpdate
        loss = F.cross_entropy(model.classify(h, masks), y)
        await me.compute(graph_learner.update, optimizer, loss, cost=2 * work)
        for _ in range(1, cfg.local_steps):
            loss_q = await me.compute(local_loss, model, x, blocks, y, masks, with_own, cost=work)
            await me.compute(graph_learner.update, optimizer, loss_q, cost=2 * work)
        me.report(train_loss=loss.item(), iterations=t * cfg.local_steps)  # the loss before this round's updates

        for way in serving.ways(config.privacy) if me.evaluates(t) else ():
            async with me.evaluating(priced=way.chosen):
                logits = await joint_inference(
                    model, *whole(), partial(graph_privacy.serve, me, aggregation, noisy=way.noisy)
                )
            way.report(me, predictions(logits, public.splits))
