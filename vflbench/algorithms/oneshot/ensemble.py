"""Ensemble: every client of a graph trains alone, and a server adds up what they predict. Nothing else is sent.

    client m:  every round an update of its own network on its own features and edges: the program of standalone_gnn
               log-softmax of the asked nodes                                                tag `prediction`
    server:    the sum over clients is the prediction

A vote costs 4 M C bytes a node with M clients and C classes. Training sends nothing. Votes are exchanged within the
evaluation, so they are in no ledger, as every method's held-out predictions.

Departures: noise on votes, as in PATE (Papernot et al., arXiv 1610.05755), is left out. Nothing that is sent in
training needs protection, and votes of the evaluation are outside of every mechanism's epsilon. So it takes none.
"""

import torch

from vflbench.algorithms.graph import alone, graph_learner
from vflbench.algorithms.graph.joint import joint_inference, predictions
from vflbench.cards.algorithms.oneshot.ensemble import Config
from vflbench.data.graph.sampling import full_block
from vflbench.data.tasks import GraphPart, GraphPublic, GraphTask
from vflbench.federation.party import SERVER, Party, PartySpec
from vflbench.types import RunConfig


def parties(task: GraphTask, config: RunConfig[Config]) -> dict[str, PartySpec]:
    """The server, and one client per part of the task."""
    return graph_learner.parties(server, client, [task.part(m) for m in range(task.parties)])


async def server(me: Party, data: None, public: GraphPublic, config: RunConfig[Config]) -> None:
    """Add up the votes."""
    async for t in me.rounds():
        if me.evaluates(t):
            async with me.evaluating():
                first, *others = await me.recv_all(me.clients, tag="prediction")
            me.report(predictions={split: sum((vote[split] for vote in others), own) for split, own in first.items()})


async def client(me: Party, data: GraphPart, public: GraphPublic, config: RunConfig[Config]) -> None:
    """Train on the client's own data, and vote."""
    learner = alone.made(me, data, public, config)
    graph = alone.own_graph(learner, data, public)
    whole = learner.whole(full_block(graph))

    async for t in me.rounds():
        await alone.step(me, learner, graph, public, t)
        if me.evaluates(t):
            async with me.evaluating():
                logits = await joint_inference(learner.model, *whole, exchange=None)
                votes = torch.log_softmax(logits, dim=1)
                await me.send(SERVER, predictions(votes, public.splits), tag="prediction")
