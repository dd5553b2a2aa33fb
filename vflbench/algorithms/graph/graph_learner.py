"""What GLASU and its baselines share: a party's data, network and optimiser, and both halves of an exchange."""

import math
from collections.abc import Awaitable, Callable, Container, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vflbench.cards.algorithms.graph.graph_methods import Keys
from vflbench.data.graph.sampling import Block
from vflbench.data.tasks import GraphPart
from vflbench.federation.party import SERVER, Party, PartySpec, Program, party_names
from vflbench.models import DTYPES, gnn
from vflbench.types import RunConfig, module_of


def rounds(config: RunConfig[Keys]) -> int:
    """T."""
    return int(config.rounds or config.algorithm.default_rounds)


class GraphLearner:
    """A party's network, its optimiser, and their inputs.

    Parameters
    ----------
    me : its stream `init` draws the network.
    config : the keys of `model`, and of `algorithm` layers, optimizer, lr, weight_decay, schedule and default_rounds.
    data : the party's own data; its edges are not used.
    classes, ends, columns : as `gnn.build`.
    """

    def __init__(
        self,
        me: Party,
        config: RunConfig[Keys],
        data: GraphPart,
        classes: int,
        ends: Sequence[int],
        columns: tuple[int, int] | None = None,
    ) -> None:
        self.algorithm = config.algorithm
        self.rounds = rounds(config)
        self.device, self.dtype = me.device, DTYPES[config.model.dtype]
        self.take(data)
        generator = torch.Generator().manual_seed(int(me.rng("init").integers(2**62)))
        self.model: gnn.Backbone = module_of(config.model).build(
            config.model, self.features.width, classes, self.algorithm.layers, ends, generator, me.device, columns
        )
        self.optimizer = make_optimizer(self.algorithm, self.model)

    def take(self, data: GraphPart) -> None:
        """Learn from `data` from now on; its features have as many columns as those before."""
        self.features = gnn.Features(data.features, self.device, self.dtype)
        self.labels = torch.tensor(data.labels, device=self.device)

    def set_lr(self, round: int) -> None:
        """Set the learning rate of `round`, as the function `set_lr`."""
        set_lr(self.algorithm, self.optimizer, round, self.rounds)

    def inputs(
        self, levels: Sequence[np.ndarray], sampled: Sequence[Block]
    ) -> tuple[gnn.Inputs, list[gnn.Adjacency], Tensor]:
        """Turn what `sample_blocks` gives into the network's inputs.

        Parameters
        ----------
        levels : node ids of each level, lowest first.
        sampled : the blocks between them.

        Returns
        -------
        x of the lowest level, the adjacencies, and y of the batch.
        """
        blocks = [gnn.adjacency(block, self.device, self.dtype) for block in sampled]
        return self.features.rows(levels[0]), blocks, self.labels[torch.from_numpy(levels[-1]).to(self.device)]

    def whole(self, block: Block) -> tuple[gnn.Inputs, list[gnn.Adjacency]]:
        """Inputs for inference: x of all nodes, and the whole graph's adjacency (`full_block`) at every layer."""
        x = self.features.rows(np.arange(len(self.labels)))
        return x, [gnn.adjacency(block, self.device, self.dtype)] * self.algorithm.layers


def make_optimizer(cfg: Keys, model: torch.nn.Module) -> torch.optim.Optimizer:
    """Adam (with L2 weight decay; fused: one kernel for all parameters) or plain SGD."""
    if cfg.optimizer == "adam":
        return torch.optim.Adam(model.parameters(), lr=cfg.lr, weight_decay=cfg.weight_decay, fused=True)
    return torch.optim.SGD(model.parameters(), lr=cfg.lr, weight_decay=cfg.weight_decay)


def set_lr(cfg: Keys, optimizer: torch.optim.Optimizer, round: int, rounds: int) -> None:
    """Set the learning rate of `round`, counted from 1.

    It starts at `lr`, and follows half a cosine towards 0, or is divided by 4 after 3/8 and 6/8 of the run: the
    released code does so after 12 and 24 of its 32 global iterations.
    """
    factor = 1.0
    if cfg.schedule == "cosine":
        factor = (1 + math.cos(math.pi * (round - 1) / rounds)) / 2
    elif cfg.schedule == "step":
        factor = 0.25 ** (8 * (round - 1) // (3 * rounds))
    for group in optimizer.param_groups:
        group["lr"] = cfg.lr * factor


def update(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    """Take one step down the gradient of `loss`."""
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def parties(server: Program, client: Program, parts: Sequence[GraphPart]) -> dict[str, PartySpec]:
    """The server, and one client per part of the graph, `client_0` ..."""
    names = party_names("client", len(parts))
    return {SERVER: PartySpec(server, role="server")} | {
        name: PartySpec(client, part) for name, part in zip(names, parts, strict=True)
    }


# --- the two halves of an exchange: clients ask, the server answers all of them at once


async def ask(me: Party, payload: Any, tag: str, answer: str) -> Any:
    """Client: send `payload` to the server under `tag`, and return what comes back under `answer`."""
    await me.send(SERVER, payload, tag=tag)
    return await me.recv(SERVER, tag=answer)


def asking(me: Party, tag: str, answer: str, at: Container[int] | None = None) -> Callable[[int, Any], Awaitable[Any]]:
    """`ask` in the form that samplers and split networks await: (place, payload) -> answer.

    At places that are not in `at` (None: all are), the answer is the payload itself.
    """

    async def exchange(place: int, payload: Any) -> Any:
        return await ask(me, payload, tag, answer) if at is None or place in at else payload

    return exchange


async def answer_all(me: Party, combine: Callable[[list[Any]], Any], tag: str, answer: str) -> None:
    """Server: collect one payload from each client, combine them, and answer.

    All clients get the same answer, or each its own where `combine` gives a list.
    """
    parts = await me.recv_all(me.clients, tag=tag)
    combined = await me.compute(combine, parts)
    if not isinstance(combined, list):
        await me.send_many(me.clients, combined, tag=answer)
        return
    for client, part in zip(me.clients, combined, strict=True):
        await me.send(client, part, tag=answer)
