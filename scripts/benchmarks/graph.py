"""Graph methods against the bare arithmetic of the same rounds: sampling and networks, no parties, no messages."""

import time
from collections.abc import Sequence
from typing import Any

from benchmarks.common import federation, ratio, seconds_of_rounds
from vflbench.runner.run import Federation


def glasu() -> None:
    """GLASU on Cora, K = 2, through the federation and bare.

    Both draw batches and neighbours alike, from streams of their own.
    """
    for local_steps, rounds in (1, 40), (4, 15):
        against("glasu", rounds, f"algorithm.local_steps={local_steps}")


def graph() -> None:
    """Every graph method on Cora."""
    glasu()
    for algorithm in ("glasu_exact", "simulated_centralized", "standalone_gnn", "centralized_gnn"):
        against(algorithm, 40)


def against(algorithm: str, rounds: int, *words: str) -> None:
    """Print the ratio of rounds of `algorithm` on Cora to its bare arithmetic."""
    made = federation(f"algorithm={algorithm}", "dataset=cora", *words)
    bare = {"glasu": bare_stale, "glasu_exact": bare_exact, "simulated_centralized": bare_exact}
    more = "".join(f", {word.removeprefix('algorithm.')}" for word in words)
    ratio(
        f"{algorithm}: ms of {rounds} rounds{more}, {made.task.source.kind} Cora, over bare",
        lambda: seconds_of_rounds(made, rounds),
        lambda: bare.get(algorithm, bare_alone)(made, rounds),
        pairs=5,
    )


class Clients:
    """Every client's features, graph, network and optimiser, in one place.

    Parameters
    ----------
    ends : the layers after which clients aggregate.
    common : the levels whose node sets are united.
    """

    def __init__(self, made: Federation, parts: Sequence[Any], ends: Sequence[int], common: set[int]) -> None:
        import numpy as np
        import torch

        from vflbench.algorithms.graph.graph_learner import make_optimizer
        from vflbench.algorithms.graph.joint import Aggregation
        from vflbench.data.graph.sampling import Graph
        from vflbench.models import DTYPES, gnn

        cfg, model_config, task = made.config.algorithm, made.config.model, made.task
        self.cfg, self.ends, self.common, self.dtype = cfg, ends, common, DTYPES[model_config.dtype]
        self.aggregation = Aggregation(getattr(cfg, "aggregate", "avg"), len(parts))
        self.features = [gnn.Features(part.features, "cpu", self.dtype) for part in parts]
        self.labels = torch.tensor(parts[0].labels)
        self.generators = [torch.Generator().manual_seed(m) for m in range(len(parts))]
        self.models = [
            gnn.build(
                model_config, self.features[m].width, task.classes, cfg.layers, ends, generator, "cpu",
                self.aggregation.columns(model_config.hidden, m),
            )
            for m, generator in enumerate(self.generators)
        ]  # fmt: skip
        self.optimizers = [make_optimizer(cfg, model) for model in self.models]
        self.train, self.nodes, self.rng = task.splits["train"], len(task.labels), np.random.default_rng(0)
        self.graphs = [Graph.from_edges(part.edges, self.nodes, self.models[0].self_weight) for part in parts]

    def draw(self) -> tuple[Any, list[Any], list[Any]]:
        """A batch, and per client its level sets and the blocks between them."""
        from vflbench.data.graph.sampling import draw_batch, make_block, sample_neighbours, union

        batch = draw_batch(self.train, self.cfg.batch_size, self.rng)
        levels, blocks = [[batch] for _ in self.graphs], [[] for _ in self.graphs]
        for level in reversed(range(self.cfg.layers)):
            draws = [
                sample_neighbours(graph, own[-1], self.cfg.fanout, self.rng)
                for graph, own in zip(self.graphs, levels, strict=True)
            ]
            lower = [union(self.nodes, (own[-1], draw.neighbours)) for own, draw in zip(levels, draws, strict=True)]
            if level in self.common:
                lower = [union(self.nodes, lower)] * len(lower)
            for m, graph in enumerate(self.graphs):
                blocks[m].insert(0, make_block(graph, levels[m][-1], lower[m], draws[m]))
                levels[m].append(lower[m])
        return batch, levels, blocks

    def inputs(self) -> tuple[list[Any], Any]:
        """Of a new batch: per client the features of its lowest level and its adjacencies; the labels."""
        import torch

        from vflbench.models import gnn

        batch, levels, blocks = self.draw()
        inputs = [
            (features.rows(own[-1]), [gnn.adjacency(block, "cpu", self.dtype) for block in between])
            for features, own, between in zip(self.features, levels, blocks, strict=True)
        ]
        return inputs, self.labels[torch.from_numpy(batch)]


def bare_stale(made: Federation, rounds: int) -> float:
    """CPU seconds of GLASU as one plain loop."""
    import torch
    import torch.nn.functional as F

    from vflbench.algorithms.graph.graph_learner import update
    from vflbench.algorithms.graph.joint import aggregation_layers, forward

    cfg, task = made.config.algorithm, made.task
    ends = aggregation_layers(cfg.layers, cfg.aggregations, cfg.aggregation_layers)
    own = Clients(made, [task.part(m) for m in range(task.parties)], ends, {end + 1 for end in ends[:-1]})
    models, generators, aggregation = own.models, own.generators, own.aggregation
    began = time.process_time()
    for _ in range(rounds):
        inputs, y = own.inputs()
        hidden = [model.start(x, g) for model, (x, _), g in zip(models, inputs, generators, strict=True)]
        starts, others = list(hidden), [[] for _ in models]
        for segment in range(len(ends)):
            parts = []
            for m, model in enumerate(models):
                h, starts[m] = model.segment(segment, inputs[m][1], hidden[m], starts[m], generators[m])
                parts.append(h)
            total = aggregation.combine([h.detach() for h in parts])
            for m, h in enumerate(parts):
                others[m].append(aggregation.extract(total, h.detach(), m))
                hidden[m] = aggregation.insert(others[m][segment], h, m)
        for m, model in enumerate(models):
            update(own.optimizers[m], F.cross_entropy(model.classify(hidden[m], generators[m]), y))
            for _ in range(1, cfg.local_steps):

                def merge(segment: int, h: torch.Tensor, m: int = m, stale: list[Any] = others[m]) -> torch.Tensor:
                    return aggregation.insert(stale[segment], h, m)

                x, blocks = inputs[m]
                update(own.optimizers[m], F.cross_entropy(forward(model, x, blocks, generators[m], merge), y))
    return time.process_time() - began


def bare_exact(made: Federation, rounds: int) -> float:
    """CPU seconds of the same with exact gradients: one autograd graph through all clients' networks."""
    import torch.nn.functional as F

    from vflbench.algorithms.graph.joint import aggregation_layers

    cfg, task = made.config.algorithm, made.task
    every = cfg.name == "simulated_centralized"  # every layer is aggregated, and every client has all edges
    ends = range(cfg.layers) if every else aggregation_layers(cfg.layers, cfg.aggregations, cfg.aggregation_layers)
    parts = [task.part(m, full_edges=every) for m in range(task.parties)]
    own = Clients(made, parts, ends, {end + 1 for end in ends[:-1]})
    models, generators = own.models, own.generators
    began = time.process_time()
    for _ in range(rounds):
        inputs, y = own.inputs()
        hidden = [model.start(x, g) for model, (x, _), g in zip(models, inputs, generators, strict=True)]
        starts = list(hidden)
        for segment in range(len(ends)):
            for m, model in enumerate(models):
                hidden[m], starts[m] = model.segment(segment, inputs[m][1], hidden[m], starts[m], generators[m])
            hidden = [own.aggregation.combine(hidden)] * len(models)
        for optimizer in own.optimizers:
            optimizer.zero_grad()
        losses = [
            F.cross_entropy(model.classify(h, g), y) for model, h, g in zip(models, hidden, generators, strict=True)
        ]
        sum(losses).backward()  # type: ignore[union-attr]
        for optimizer in own.optimizers:
            optimizer.step()
    return time.process_time() - began


def bare_alone(made: Federation, rounds: int) -> float:
    """CPU seconds of clients that train alone, one after the other."""
    from vflbench.algorithms.graph.graph_learner import update
    from vflbench.algorithms.graph.joint import local_loss

    cfg, task = made.config.algorithm, made.task
    parts = [task.joined()] if cfg.name == "centralized_gnn" else [task.part(m) for m in range(task.parties)]
    own = Clients(made, parts, (cfg.layers - 1,), set())
    began = time.process_time()
    for _ in range(rounds):
        inputs, y = own.inputs()
        for m, (x, blocks) in enumerate(inputs):
            update(own.optimizers[m], local_loss(own.models[m], x, blocks, y, own.generators[m]))
    return time.process_time() - began
