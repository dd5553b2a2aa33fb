"""PowerGossip: two neighbours average what the directions of a power iteration see of their models' difference.

Vogels, Karimireddy, Jaggi, NeurIPS 2020, arXiv 2008.01425.

    edge a, b (a before b), weight matrix X (o, i): both know V, whose `rank` columns are orthonormal
    odd exchanges    a sends X_a V, b sends X_b V, (o, rank)                 tag `product`
                     P = X_a V - X_b V;  X_a <- X_a - W_ab P V^T,  X_b <- X_b + W_ab P V^T;  U = orth(P)
    even exchanges   the same with the transposed matrices and U: (i, rank);  V = orth(P)
    biases           whole, in every exchange

Both compute P, so that the sum of all models stays what it is. V is drawn at first, from the seed that all share. There
is no step size towards the neighbours to tune, and no memory of models. A worker takes local_steps steps between two
exchanges, and all edges of an exchange start from the same models.

    bytes of a message: 4 (rank times the sum of o, or i, of all matrices, and all biases)
"""

import torch
from torch import Tensor

from vflbench import seeding
from vflbench.algorithms.gossip.averaging import averaging
from vflbench.algorithms.gossip.worker_sgd import LocalSgd
from vflbench.cards.algorithms.gossip.powergossip import Config
from vflbench.data.tasks import Shard, ShardedPublic, ShardedTask
from vflbench.federation.party import Party, PartySpec
from vflbench.types import RunConfig


def parties(task: ShardedTask, config: RunConfig[Config]) -> dict[str, PartySpec]:
    """One worker per shard, each with its row of W; raises as `averaging`."""
    return averaging(worker, task, config)


def orthonormal(columns: Tensor) -> Tensor:
    """An orthonormal basis of (n, rank) columns, with as many columns."""
    basis: Tensor = torch.linalg.qr(columns)[0]
    return basis


class Edge:
    """What both ends of an edge know: for each weight matrix, the directions of the next exchange."""

    def __init__(
        self, shapes: list[tuple[int, int]], ends: tuple[str, str], cfg: Config, seed: int, like: Tensor
    ) -> None:
        self.first, rng = ends[0], seeding.torch_stream(seed, f"power/{ends[0]}/{ends[1]}")
        drawn = [torch.randn(i, min(cfg.rank, o, i), generator=rng, dtype=torch.float64) for o, i in shapes]
        self.directions = [orthonormal(one).to(like) for one in drawn]

    def products(self, matrices: list[Tensor]) -> list[Tensor]:
        """What an end sends of its matrices, which are transposed in even exchanges."""
        return [x @ v for x, v in zip(matrices, self.directions, strict=True)]

    def moves(self, own: list[Tensor], other: list[Tensor], weight: float, me: str) -> list[Tensor]:
        """What is added to each matrix of this end; the directions of the next exchange are made."""
        sign = 1.0 if me == self.first else -1.0
        found, following = [], []
        for mine, theirs, v in zip(own, other, self.directions, strict=True):
            p = sign * (mine - theirs)  # a's less b's at both ends
            found.append(-sign * weight * (p @ v.T))
            following.append(orthonormal(p))
        self.directions = following
        return found


async def worker(
    me: Party, data: Shard, public: ShardedPublic, config: RunConfig[Config], weights: dict[str, float]
) -> None:
    """Train on the worker's own rows, and average along directions; `weights` by name: its own and its neighbours'."""
    cfg = config.algorithm
    sgd = LocalSgd(me, data, public, config)
    me.state.model = sgd.model
    shapes = [parameter.shape for parameter in sgd.model.parameters()]
    sizes = [shape.numel() for shape in shapes]
    matrices = [(shape[0], shape.numel() // shape[0]) for shape in shapes if len(shape) > 1]
    like = next(sgd.model.parameters()).detach()
    edges = {
        name: Edge(matrices, (min(me.name, name), max(me.name, name)), cfg, config.seed, like) for name in me.neighbours
    }
    me.state.directions = {name: edge.directions for name, edge in edges.items()}

    async for t in me.rounds():
        for name, edge in edges.items():
            edge.directions = me.state.directions[name]
        for i in sgd.begin(t):
            sgd.w = await sgd.step(me, old_needed=False)
            if (i + 1) % cfg.local_steps:
                continue
            turned = (i + 1) // cfg.local_steps % 2 == 0
            parts = list(sgd.w.split(sizes))
            whole = [
                part.view(part_shape[0], -1)
                for part, part_shape in zip(parts, shapes, strict=True)
                if len(part_shape) > 1
            ]
            facing = [x.T if turned else x for x in whole]
            biases = torch.cat(
                [part for part, shape in zip(parts, shapes, strict=True) if len(shape) == 1] or [like.new_empty(0)]
            )
            sent = {name: edge.products(facing) for name, edge in edges.items()}
            for name, products in sent.items():
                await me.send(name, (*products, biases), tag="product")
            received = await me.recv_all(me.neighbours, tag="product")
            total, shift = [torch.zeros_like(x) for x in facing], torch.zeros_like(biases)
            for name, (*theirs, other) in zip(me.neighbours, received, strict=True):
                moves = edges[name].moves(sent[name], theirs, weights[name], me.name)
                total = [one + move for one, move in zip(total, moves, strict=True)]
                shift = shift + weights[name] * (other - biases)
            sgd.w = _moved(parts, shapes, [one.T if turned else one for one in total], shift)
            me.state.directions = {name: edge.directions for name, edge in edges.items()}
        me.report(**sgd.end(t, me.evaluates(t)))


def _moved(parts: list[Tensor], shapes: list[torch.Size], matrices: list[Tensor], biases: Tensor) -> Tensor:
    """The parameters (D,) with what is added to their matrices and biases."""
    moves, at, found = iter(matrices), 0, []
    for part, shape in zip(parts, shapes, strict=True):
        if len(shape) > 1:
            found.append(part + next(moves).reshape(-1))
        else:
            found.append(part + biases[at : at + len(part)])
            at += len(part)
    return torch.cat(found)
