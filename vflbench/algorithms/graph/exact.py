"""Server back-propagation: the programs of `glasu_exact` and of `simulated_centralized`, which aggregates every layer.

Zhang, Hong, Chen: GLASU, arXiv 2303.09531, section 2.1. Back through each aggregation, every client sends the gradient
of its loss with respect to the aggregate. It gets back the gradient of the sum of losses with respect to its own part.
The symbols are those of glasu.py. `ends` is I: the layers after which the representations are aggregated.

Departures from the paper
1. The chain rule through the mean has a factor 1 / M (Aggregation.gradients). The released single-process code leaves
   it out, which scales every gradient below an aggregation by M.
2. Those of GLASU about sampling levels, optimiser, adjacency, widths and prediction (glasu.py, numbers 1 and 3 to 6).
"""

from collections.abc import Sequence
from functools import partial

from vflbench.algorithms.graph.joint import Aggregation, exact_gradients, joint_inference, predictions
from vflbench.algorithms.graph.shared import GraphLearner, answer_all, asking
from vflbench.data.graph.sampling import Graph, draw_batch, full_block, sample_blocks, union
from vflbench.data.tasks import GraphPart, GraphPublic
from vflbench.federation.party import SERVER, Party
from vflbench.types import RunConfig


async def server(me: Party, data: None, public: GraphPublic, config: RunConfig, ends: Sequence[int]) -> None:
    """Draw the batch, unite ids, aggregate representations and back-propagate through the aggregations."""
    cfg = config.algorithm
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


async def client(me: Party, data: GraphPart, public: GraphPublic, config: RunConfig, ends: Sequence[int]) -> None:
    """Sample, compute representations, and follow the exact gradient."""
    cfg = config.algorithm
    aggregation = Aggregation(cfg.aggregate, public.parties)
    columns = aggregation.columns(config.model.hidden, me.clients.index(me.name))
    learner = GraphLearner(me, config, data, public.classes, ends, columns)
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
