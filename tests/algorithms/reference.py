"""GLASU the slow way: dense matrices, all nodes in every level, GCN layers written out, one process. Shares no code
with vflbench."""

from __future__ import annotations

import numpy as np
import torch

from vflbench.data.tasks import GraphTask

Parameters = dict[str, torch.Tensor]


def dense_adjacency(edges: np.ndarray, nodes: int) -> torch.Tensor:
    a = torch.eye(nodes, dtype=torch.float64)
    a[edges[0], edges[1]] = 1
    scale = a.sum(1).rsqrt()
    return scale[:, None] * a * scale[None, :]


def layer(p: Parameters, number: int, a: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
    weight = p["projection.weight"] if number == 0 else p[f"weights.{number - 1}"]
    return torch.relu(a @ h @ weight + p[f"biases.{number}"])


class Reference:
    """M clients' parameters, trained on all training nodes with all neighbours by plain gradient descent."""

    def __init__(
        self,
        graph: GraphTask,
        start: list[Parameters],
        layers: int,
        ends: tuple[int, ...],
        how: str,
        lr: float,
        full_edges: bool = False,
    ) -> None:
        nodes = len(graph.labels)
        self.adjacency = [dense_adjacency(graph.all_edges if full_edges else edges, nodes) for edges in graph.edges]
        self.features = [torch.from_numpy(x).double() for x in graph.features]
        self.train = torch.from_numpy(graph.splits["train"])
        self.labels = torch.from_numpy(graph.labels)[self.train]
        self.parameters = [{name: value.clone().requires_grad_() for name, value in p.items()} for p in start]
        self.layers, self.ends, self.how, self.lr = layers, ends, how, lr

    def combine(self, parts: list[torch.Tensor]) -> torch.Tensor:
        return torch.stack(parts).mean(0) if self.how == "avg" else torch.cat(parts, dim=1)

    def joint(self) -> tuple[list[torch.Tensor], dict[int, list[torch.Tensor]]]:
        """All clients' logits in one autograd graph, and every H_m^+ at the aggregations."""
        hidden, kept = list(self.features), {}
        for number in range(self.layers):
            hidden = [layer(p, number, a, h) for p, a, h in zip(self.parameters, self.adjacency, hidden, strict=True)]
            if number in self.ends:
                kept[number] = hidden
                hidden = [self.combine(hidden)] * len(hidden)
        return [h @ p["head"] + p["head_bias"] for h, p in zip(hidden, self.parameters, strict=True)], kept

    def loss(self, logits: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(logits[self.train], self.labels)

    def descend(self, loss: torch.Tensor, clients: list[int]) -> None:
        learning = [value for m in clients for value in self.parameters[m].values() if value.requires_grad]
        for value, gradient in zip(learning, torch.autograd.grad(loss, learning, allow_unused=True), strict=True):
            if gradient is not None:
                value.data -= self.lr * gradient

    def exact_round(self) -> None:
        logits, _ = self.joint()
        self.descend(torch.stack([self.loss(each) for each in logits]).sum(), list(range(len(self.parameters))))

    def glasu_round(self, local_steps: int) -> None:
        with torch.no_grad():
            _, kept = self.joint()
        for m in range(len(self.parameters)):
            for _ in range(local_steps):
                h = self.features[m]
                for number in range(self.layers):
                    h = layer(self.parameters[m], number, self.adjacency[m], h)
                    if number in self.ends:
                        h = self.combine([h if k == m else stale for k, stale in enumerate(kept[number])])
                self.descend(self.loss(h @ self.parameters[m]["head"] + self.parameters[m]["head_bias"]), [m])
