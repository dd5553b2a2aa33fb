"""Graph methods against the bare tensor arithmetic of the same rounds: the same batches, no parties, no messages."""

import time

from benchmarks.common import federation, ratio, seconds_of_rounds
from vflbench.runner.run import Federation


def glasu(rounds: int = 60) -> None:
    """GLASU on Cora, K = 2, through the federation and bare.

    Both draw batches and neighbours alike, from streams of their own.
    """
    for local_steps in (1, 4):
        made = federation("algorithm=glasu", "dataset=cora", f"algorithm.local_steps={local_steps}")
        ratio(
            f"glasu: ms of {rounds} rounds, Q = {local_steps}, {made.task.source.kind} Cora, over bare",
            lambda made=made: seconds_of_rounds(made, rounds),
            lambda made=made: bare_glasu(made, rounds),
        )


def bare_glasu(made: Federation, rounds: int) -> float:  # noqa: C901  (one plain loop is its point)
    """CPU seconds of the rounds' tensor arithmetic as one plain loop, given the sampled node ids and edges."""
    import asyncio

    import numpy as np
    import torch
    import torch.nn.functional as F

    from vflbench.algorithms.graph.joint import Aggregation, aggregation_layers, forward
    from vflbench.algorithms.graph.shared import make_optimizer, update
    from vflbench.data.graph.sampling import Graph, sample_blocks, union
    from vflbench.models import DTYPES, gnn

    cfg, model_config, task = made.config.algorithm, made.config.model, made.task
    count, dtype = task.parties, DTYPES[model_config.dtype]
    ends = aggregation_layers(cfg.layers, cfg.aggregations, cfg.aggregation_layers)
    aggregation = Aggregation(cfg.aggregate, count)
    parts = [task.part(m) for m in range(count)]
    features = [gnn.Features(part.features, "cpu", dtype) for part in parts]
    labels = torch.tensor(parts[0].labels)
    generators = [torch.Generator().manual_seed(m) for m in range(count)]
    hidden_columns = [aggregation.columns(model_config.hidden, m) for m in range(count)]
    models = [
        gnn.build(
            model_config, features[m].width, task.classes, cfg.layers, ends, generators[m], "cpu", hidden_columns[m]
        )
        for m in range(count)
    ]
    optimizers = [make_optimizer(cfg, model) for model in models]
    graphs = [Graph.from_edges(part.edges, len(task.labels), models[0].self_weight) for part in parts]
    rng = np.random.default_rng(0)

    async def sample_all() -> list[tuple[np.ndarray, list]]:
        """One round's level sets of all clients: the common levels are united, as the server does."""
        batch = np.sort(rng.choice(task.splits["train"], cfg.batch_size, replace=False))
        waiting: dict[int, list[np.ndarray]] = {}
        done = asyncio.Event()

        async def unite(level: int, ids: np.ndarray) -> np.ndarray:
            nonlocal done
            if level != ends[0] + 1:
                return ids
            waiting.setdefault(level, []).append(ids)
            if len(waiting[level]) == count:
                done.set()
            await done.wait()
            return union(len(task.labels), waiting[level])

        sampled = await asyncio.gather(
            *(sample_blocks(graph, batch, cfg.layers, cfg.fanout, rng, unite, None) for graph in graphs)
        )
        return [(batch, sampled)]

    async def sample_rounds() -> list:
        return [(await sample_all())[0] for _ in range(rounds)]

    drawn = asyncio.run(sample_rounds())
    began = time.process_time()
    for batch, sampled in drawn:
        inputs = [
            (f.rows(levels[0]), [gnn.adjacency(b, "cpu", dtype) for b in blocks])
            for f, (levels, blocks) in zip(features, sampled, strict=True)
        ]
        y = labels[torch.from_numpy(batch)]
        hidden = [model.start(x, g) for model, (x, _), g in zip(models, inputs, generators, strict=True)]
        starts, others = list(hidden), [[] for _ in models]
        for segment in range(len(ends)):
            own = []
            for m, model in enumerate(models):
                h, starts[m] = model.segment(segment, inputs[m][1], hidden[m], starts[m], generators[m])
                own.append(h)
            total = aggregation.combine([h.detach() for h in own])
            for m, h in enumerate(own):
                others[m].append(aggregation.extract(total, h.detach(), m))
                hidden[m] = aggregation.insert(others[m][segment], h, m)
        for m, model in enumerate(models):
            update(optimizers[m], F.cross_entropy(model.classify(hidden[m], generators[m]), y))
            for _ in range(1, cfg.local_steps):

                def merge(segment: int, h: torch.Tensor, m: int = m, stale: list = others[m]) -> torch.Tensor:
                    return aggregation.insert(stale[segment], h, m)

                x, blocks = inputs[m]
                update(optimizers[m], F.cross_entropy(forward(model, x, blocks, generators[m], merge), y))
    return time.process_time() - began
