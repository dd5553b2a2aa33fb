"""Centralized baseline of GLASU: one party has all features and all edges.

Zhang, Hong, Chen, arXiv 2303.09531, section 5 ("Cent."): the network, sampler, batch size and optimiser of GLASU with M = 1, so that
nothing is aggregated and no message is sent.

Departures from the paper: those of GLASU that concern optimiser, adjacency and prediction (algorithms/glasu.py, numbers 3, 4 and 6).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from vflbench.data.graph.sampling import Graph, draw_batch, full_block, sample_blocks
from vflbench.data.tasks import GraphPart, GraphPublic, GraphTask
from vflbench.federation.party import Party, PartySpec, party_names
from vflbench.models import gnn, training
from vflbench.models.graph_learner import GraphLearner
from vflbench.models.split_gnn import joint_inference, local_loss, predictions
from vflbench.types import AlgorithmInfo, Problem, RunConfig

ALGORITHM = AlgorithmInfo(
    name="centralized_gnn",
    summary="GLASU's upper reference: one party with all features and edges, no messages",
    paper="Zhang, Hong, Chen 2023, arXiv 2303.09531, section 5",
    layouts=("graph",),
    models=("gcnii", "gcn", "gat", "residual_gcn"),
    exact="it sends nothing",
)


@dataclass
class Config:
    name: str = "centralized_gnn"
    parties: int = 3  # between which the data set is split before it is joined again: the same data as the other methods'
    layers: int = 4  # L
    fanout: int | None = 3  # F: neighbours sampled per node and layer; null: all
    batch_size: int = 16  # S: training nodes per round
    optimizer: Literal["adam", "sgd"] = "adam"  # adam | sgd
    lr: float = 0.01  # learning rate
    weight_decay: float = 5e-4  # L2, on all parameters
    schedule: Literal["cosine", "none"] = "cosine"  # cosine (to 0 over the run) | none
    default_rounds: int = 250  # T, where rounds is null


def check(config: RunConfig) -> list[Problem]:
    """Rules across keys, before any data is loaded."""
    return gnn.check(config.model) + training.check(config.algorithm)


def parties(task: GraphTask, config: RunConfig) -> dict[str, PartySpec]:
    """One party with everything."""
    return {party_names("client", 1)[0]: PartySpec(client, task.joined())}


async def client(me: Party, data: GraphPart, public: GraphPublic, config: RunConfig) -> None:
    """Trains on its own data and sends nothing."""
    cfg: Config = config.algorithm
    learner = GraphLearner(config, data, public.classes, (cfg.layers - 1,), me.rng("init"), me.device)
    model, optimizer = me.state.model, me.state.optimizer = learner.model, learner.optimizer
    graph = Graph.from_edges(data.edges, public.nodes, model.self_weight)
    whole = learner.whole(full_block(graph))

    async for t in me.rounds():
        learner.set_lr(t)
        batch = draw_batch(public.splits["train"], cfg.batch_size, me.rng("batches"))
        levels, sampled = await sample_blocks(graph, batch, cfg.layers, cfg.fanout, me.rng("neighbours"))
        x, blocks, y = learner.inputs(levels, sampled)
        loss = local_loss(model, x, blocks, y, me.torch_rng("dropout"))
        await me.compute(training.update, optimizer, loss, cost=3 * sum(map(len, levels)))
        me.report(train_loss=loss.item(), iterations=t)
        if me.evaluates(t):
            async with me.evaluating():
                logits = await joint_inference(model, *whole, exchange=None)
            me.report(predictions=predictions(logits, public.splits))
