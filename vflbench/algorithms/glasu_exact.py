"""GLASU with server back-propagation: the exact gradient of the sum of all clients' losses, one update per round.

Zhang, Hong, Chen: GLASU, arXiv 2303.09531, section 2.1. Behind each aggregation every client sends the gradient of its loss with
respect to the aggregate, and gets back that of the sum of losses with respect to its own part. Communication is about twice that of
GLASU with one local step; nothing is stale. The symbols are those of algorithms/glasu.py.

Departures from the paper
1. The chain rule through the mean has a factor 1 / M (Aggregation.gradients); the released single-process code leaves it out, which scales
   every gradient below an aggregation by M.
2. Those of GLASU that concern sampling levels, optimiser, adjacency, widths and prediction (algorithms/glasu.py, numbers 1 and 3 to 6).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from vflbench.data.graph.sampling import Graph, full_block, sample_blocks, union
from vflbench.data.tasks import GraphPart, GraphPublic, GraphTask
from vflbench.federation.exchange import answer_all, ask
from vflbench.federation.party import SERVER, Party, PartySpec, party_names
from vflbench.models import gnn, split_gnn, training
from vflbench.models.split_gnn import Aggregation, aggregation_layers, exact_gradients, joint_inference, predictions
from vflbench.types import AlgorithmInfo, Problem, RunConfig

ALGORITHM = AlgorithmInfo(
    name="glasu_exact",
    summary="GLASU with exact gradients: the server back-propagates through each aggregation, one update per round",
    paper="Zhang, Hong, Chen 2023, arXiv 2303.09531, section 2.1",
    layouts=("graph",),
    models=("gcnii", "gcn", "gat", "residual_gcn"),
)


@dataclass
class Config:
    name: str = "glasu_exact"
    parties: int = 3  # M: clients; the features are split between them
    layers: int = 4  # L
    aggregations: int = 2  # K: the representations are aggregated after the last layer of each of K equal blocks
    aggregation_layers: list[int] | None = None  # the set I itself, counted from 0, instead of aggregations
    aggregate: Literal["avg", "cat"] = "avg"  # avg | cat
    fanout: int | None = 3  # F: neighbours sampled per node and layer; null: all
    batch_size: int = 16  # S: training nodes per round
    optimizer: Literal["adam", "sgd"] = "adam"  # adam | sgd
    lr: float = 0.01  # learning rate
    weight_decay: float = 5e-4  # L2, on all parameters
    schedule: Literal["cosine", "none"] = "cosine"  # cosine (to 0 over the run) | none
    default_rounds: int = 250  # T, where rounds is null


def check(config: RunConfig) -> list[Problem]:
    """Rules across keys, before any data is loaded."""
    cfg: Config = config.algorithm
    problems = split_gnn.check(cfg.layers, cfg.aggregations, cfg.aggregation_layers)
    return problems + gnn.check(config.model, cfg.parties, cfg.aggregate) + training.check(cfg)


def parties(task: GraphTask, config: RunConfig) -> dict[str, PartySpec]:
    """The server, and one client per part of the task."""
    names = party_names("client", task.parties)
    return {SERVER: PartySpec(server, role="server")} | {name: PartySpec(client, task.part(m)) for m, name in enumerate(names)}


async def server(me: Party, data: None, public: GraphPublic, config: RunConfig) -> None:
    """Draws the batch, unites ids, aggregates representations and back-propagates through the aggregations."""
    cfg: Config = config.algorithm
    ends = aggregation_layers(cfg.layers, cfg.aggregations, cfg.aggregation_layers)
    aggregation = Aggregation(cfg.aggregate, public.parties)
    train = public.splits["train"]

    def unite(sets: list[np.ndarray]) -> np.ndarray:
        return union(public.nodes, *sets)

    async for t in me.rounds():
        batch = me.rng("batches").choice(train, min(cfg.batch_size, len(train)), replace=False)
        await me.send_many(me.clients, np.sort(batch), tag="batch")
        for _ in ends[:-1]:
            await answer_all(me, unite, "nodes", "union")
        for _ in ends:
            await answer_all(me, aggregation.combine, "embedding", "aggregate")
        for _ in ends:
            await answer_all(me, aggregation.gradients, "gradient", "backward")
        if me.evaluates(t):
            async with me.evaluating():
                for _ in ends:
                    await answer_all(me, aggregation.combine, "embedding", "aggregate")


async def client(me: Party, data: GraphPart, public: GraphPublic, config: RunConfig) -> None:
    """Samples, computes representations, and follows the exact gradient."""
    cfg: Config = config.algorithm
    m, rounds, dtype = me.clients.index(me.name), config.rounds or cfg.default_rounds, gnn.DTYPES[config.model.dtype]
    aggregation = Aggregation(cfg.aggregate, public.parties)
    ends = aggregation_layers(cfg.layers, cfg.aggregations, cfg.aggregation_layers)
    common = {end + 1 for end in ends[:-1]}
    features = gnn.Features(data.features, me.device, dtype)
    labels = torch.tensor(data.labels, device=me.device)
    init = torch.Generator().manual_seed(int(me.rng("init").integers(2**62)))
    columns = aggregation.columns(config.model.hidden, m)
    model = gnn.build(config.model, features.width, public.classes, cfg.layers, ends, init, me.device, columns)
    optimizer = training.make_optimizer(cfg.optimizer, model.parameters(), cfg.lr, cfg.weight_decay)
    me.state.model, me.state.optimizer = model, optimizer
    graph = Graph.from_edges(data.edges, public.nodes, model.self_weight)
    everything = features.rows(np.arange(public.nodes))
    whole = [gnn.adjacency(full_block(graph), me.device, dtype)] * cfg.layers

    async def unite(level: int, ids: np.ndarray) -> np.ndarray:
        return await ask(me, ids, "nodes", "union") if level in common else ids

    async def aggregate(_: int, h_own: torch.Tensor) -> torch.Tensor:
        return await ask(me, h_own, "embedding", "aggregate")

    async def backward(_: int, gradient: torch.Tensor) -> torch.Tensor:
        return await ask(me, gradient, "gradient", "backward")

    async for t in me.rounds():
        training.set_lr(optimizer, cfg.schedule, cfg.lr, t, rounds)
        batch = await me.recv(SERVER, tag="batch")
        levels, sampled = await sample_blocks(graph, batch, cfg.layers, cfg.fanout, me.rng("neighbours"), unite)
        x, y = features.rows(levels[0]), labels[torch.from_numpy(batch).to(me.device)]
        blocks = [gnn.adjacency(block, me.device, dtype) for block in sampled]
        optimizer.zero_grad()
        loss = await exact_gradients(model, x, blocks, y, aggregate, backward, me.torch_rng("dropout"))
        await me.compute(optimizer.step, cost=3 * sum(map(len, levels)))
        me.report(train_loss=loss.item(), iterations=t)
        if me.evaluates(t):
            async with me.evaluating():
                logits = await joint_inference(model, everything, whole, aggregate)
            me.report(predictions=predictions(logits, public.splits))
