"""A party that trains alone: the program of `centralized_gnn`, where it has all data, and of `standalone_gnn`.

Zhang, Hong, Chen, arXiv 2303.09531, section 5. It has the network, sampler, batch size and optimiser of GLASU, and
sends no messages.
"""

from vflbench.algorithms.graph.graph_learner import GraphLearner, update
from vflbench.algorithms.graph.joint import joint_inference, local_loss, predictions
from vflbench.cards.algorithms.graph.graph_methods import Keys
from vflbench.data.graph.sampling import Graph, draw_batch, full_block, sample_blocks
from vflbench.data.tasks import GraphPart, GraphPublic
from vflbench.federation.party import Party
from vflbench.types import RunConfig


async def client(me: Party, data: GraphPart, public: GraphPublic, config: RunConfig[Keys]) -> None:
    """Train on the party's own data, and send nothing."""
    learner = made(me, data, public, config)
    graph = own_graph(learner, data, public)
    whole = learner.whole(full_block(graph))

    async for t in me.rounds():
        await step(me, learner, graph, public, t)
        if me.evaluates(t):
            async with me.evaluating():
                logits = await joint_inference(learner.model, *whole, exchange=None)
            me.report(predictions=predictions(logits, public.splits))


def made(me: Party, data: GraphPart, public: GraphPublic, config: RunConfig[Keys]) -> GraphLearner:
    """The party's learner, whose network and optimiser are in its state."""
    learner = GraphLearner(me, config, data, public.classes, (config.algorithm.layers - 1,))
    me.state.model, me.state.optimizer = learner.model, learner.optimizer
    return learner


def own_graph(learner: GraphLearner, data: GraphPart, public: GraphPublic) -> Graph:
    """The graph of the party's edges, with the self-loops of its network."""
    return Graph.from_edges(data.edges, public.nodes, learner.model.self_weight)


async def step(me: Party, learner: GraphLearner, graph: Graph, public: GraphPublic, t: int) -> None:
    """One update on a batch of training nodes; reports the loss."""
    cfg = learner.algorithm
    learner.set_lr(t)
    batch = draw_batch(public.splits["train"], cfg.batch_size, me.rng("batches"))
    levels, sampled = await sample_blocks(graph, batch, cfg.layers, cfg.fanout, me.rng("neighbours"))
    x, blocks, y = learner.inputs(levels, sampled)
    loss = local_loss(learner.model, x, blocks, y, me.torch_rng("dropout"))
    await me.compute(update, learner.optimizer, loss, cost=3 * sum(map(len, levels)))
    me.report(train_loss=loss.item(), iterations=t)
