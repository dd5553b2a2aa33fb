"""Simulated-centralized baseline of GLASU: clients share all edges, hold partial features, and aggregate after every layer.

Zhang, Hong, Chen: GLASU, arXiv 2303.09531, section 5 ("Sim."), after Ni et al., A Vertical Federated Learning Framework for Graph
Convolutional Network, arXiv 2106.11593: K = L with the exact gradient of the sum of losses. Each level is aggregated, so each is common.

Departures from the paper: those of algorithms/glasu_exact.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal

from vflbench.data.graph.sampling import Graph, draw_batch, full_block, sample_blocks, union
from vflbench.data.tasks import GraphPart, GraphPublic, GraphTask
from vflbench.federation.exchange import answer_all, asking
from vflbench.federation.party import SERVER, Party, PartySpec, party_names
from vflbench.models import gnn, training
from vflbench.models.graph_learner import GraphLearner
from vflbench.models.split_gnn import Aggregation, exact_gradients, joint_inference, predictions
from vflbench.types import AlgorithmInfo, Problem, RunConfig

ALGORITHM = AlgorithmInfo(
    name="simulated_centralized",
    summary="GLASU's reference with split features: every client has all edges, aggregates every layer, exact gradients",
    paper="Zhang, Hong, Chen 2023, arXiv 2303.09531, section 5",
    layouts=("graph",),
    models=("gcnii", "gcn", "gat", "residual_gcn"),
    exact="it stands for exact gradients, which are those of the very numbers that were sent",
)


@dataclass
class Config:
    name: str = "simulated_centralized"
    parties: int = 3  # M: clients; the features are split between them
    layers: int = 4  # L; the representations are aggregated after each
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
    return gnn.check(config.model, cfg.parties, cfg.aggregate) + training.check(cfg)


def parties(task: GraphTask, config: RunConfig) -> dict[str, PartySpec]:
    """The server, and one client per part of the task, with all edges."""
    specs = {SERVER: PartySpec(server, role="server")}
    for m, name in enumerate(party_names("client", task.parties)):
        specs[name] = PartySpec(client, task.part(m, full_edges=True))
    return specs


async def server(me: Party, data: None, public: GraphPublic, config: RunConfig) -> None:
    """Draws the batch, unites ids, aggregates representations and back-propagates through the aggregations."""
    cfg: Config = config.algorithm
    ends = range(cfg.layers)
    aggregation = Aggregation(cfg.aggregate, public.parties)
    unite, train = partial(union, public.nodes), public.splits["train"]

    async for t in me.rounds():
        await me.send_many(me.clients, draw_batch(train, cfg.batch_size, me.rng("batches")), tag="batch")
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
    aggregation = Aggregation(cfg.aggregate, public.parties)
    ends = range(cfg.layers)
    columns = aggregation.columns(config.model.hidden, me.clients.index(me.name))
    learner = GraphLearner(config, data, public.classes, ends, me.rng("init"), me.device, columns)
    model, optimizer = me.state.model, me.state.optimizer = learner.model, learner.optimizer
    graph = Graph.from_edges(data.edges, public.nodes, model.self_weight)
    whole = learner.whole(full_block(graph))
    unite = asking(me, "nodes", "union", at={end + 1 for end in ends[:-1]})
    aggregate, backward = asking(me, "embedding", "aggregate"), asking(me, "gradient", "backward")

    async for t in me.rounds():
        learner.set_lr(t)
        batch = await me.recv(SERVER, tag="batch")
        levels, sampled = await sample_blocks(graph, batch, cfg.layers, cfg.fanout, me.rng("neighbours"), unite)
        x, blocks, y = learner.inputs(levels, sampled)
        optimizer.zero_grad()
        loss = await exact_gradients(model, x, blocks, y, aggregate, backward, me.torch_rng("dropout"))
        await me.compute(optimizer.step, cost=3 * sum(map(len, levels)))
        me.report(train_loss=loss.item(), iterations=t)
        if me.evaluates(t):
            async with me.evaluating():
                logits = await joint_inference(model, *whole, aggregate)
            me.report(predictions=predictions(logits, public.splits))
