"""One party's share in learning on a graph: its features and labels as tensors, its network and its optimiser.

What GLASU and its baselines set up alike; it knows of no other party and of no message.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from vflbench.models import gnn, training
from vflbench.types import RunConfig

if TYPE_CHECKING:
    from vflbench.data.graph.sampling import Block
    from vflbench.data.tasks import GraphPart

Inputs = Tensor | gnn.Bags


class GraphLearner:
    """The network and its optimiser, with what they are fed.

    Parameters
    ----------
    config : `model` and, of `algorithm`, layers, optimizer, lr, weight_decay, schedule and default_rounds.
    data : the party's own; its edges are not looked at.
    classes, ends, columns : as `gnn.build`.
    init : where the network is drawn from.
    """

    def __init__(
        self,
        config: RunConfig,
        data: GraphPart,
        classes: int,
        ends: Sequence[int],
        init: np.random.Generator,
        device: str,
        columns: tuple[int, int] | None = None,
    ) -> None:
        self.algorithm = config.algorithm
        self.rounds: int = config.rounds or config.algorithm.default_rounds
        self.device, self.dtype = device, gnn.DTYPES[config.model.dtype]
        self.features = gnn.Features(data.features, device, self.dtype)
        self.labels = torch.tensor(data.labels, device=device)
        generator = torch.Generator().manual_seed(int(init.integers(2**62)))
        self.model = gnn.build(config.model, self.features.width, classes, self.algorithm.layers, ends, generator, device, columns)
        self.optimizer = training.make_optimizer(
            self.algorithm.optimizer, self.model.parameters(), self.algorithm.lr, self.algorithm.weight_decay
        )

    def set_lr(self, round: int) -> None:
        """The schedule's learning rate in `round`, counted from 1."""
        training.set_lr(self.optimizer, self.algorithm.schedule, self.algorithm.lr, round, self.rounds)

    def inputs(self, levels: Sequence[np.ndarray], sampled: Sequence[Block]) -> tuple[Inputs, list[gnn.Adjacency], Tensor]:
        """Of level sets and the blocks between them (`sample_blocks`): x of the lowest, the adjacencies, y of the batch."""
        blocks = [gnn.adjacency(block, self.device, self.dtype) for block in sampled]
        return self.features.rows(levels[0]), blocks, self.labels[torch.from_numpy(levels[-1]).to(self.device)]

    def whole(self, block: Block) -> tuple[Inputs, list[gnn.Adjacency]]:
        """For inference: x of all nodes, and the whole graph's adjacency (`full_block`) at every layer."""
        x = self.features.rows(np.arange(len(self.labels)))
        return x, [gnn.adjacency(block, self.device, self.dtype)] * self.algorithm.layers
