"""Neighbour sampling on a CSR graph with numpy alone: GLASU's Algorithm 2 without its messages.

Level sets. A batch S[L] is at the top. Below it, S[l] is S[l+1] and up to `fanout` sampled neighbours of each of its
nodes. The layer from level l to level l+1 needs a :class:`Block`: the sampled edges, rows S[l+1], columns S[l]. All
level sets are sorted, so parties with the same set have it in the same order.

Normalisation. An entry (u, v) of a block is (deg(u) / drawn(u)) / sqrt((deg(u) + w) (deg(v) + w)). The self-loop is
w / (deg(u) + w). Degrees count the party's own edges, and w is the self-loop's weight. The expectation over the draw is
the symmetric normalisation with self-loops of the whole graph (Kipf and Welling 2017). With the full neighbourhood the
block is exactly that. So training on samples and inference on everything use the same operator. (GLASU's released code
normalises the sampled induced subgraph by its own degrees, which gives neither.)

References
----------
Zhang, Hong, Chen: GLASU, arXiv 2303.09531, Algorithm 2. Floyd's sampling without replacement: Bentley and Floyd, CACM
30(9), 1987.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

Union = Callable[[int, np.ndarray], Awaitable[np.ndarray]]


@dataclass(frozen=True)
class Graph:
    """A graph in compressed sparse rows: node u's neighbours are `neighbours[start[u]:start[u + 1]]`."""

    start: np.ndarray  # (nodes + 1,) int64
    neighbours: np.ndarray  # (edges,) int64, sorted within a node
    self_weight: float = 1.0  # of the self-loops that a block adds

    @classmethod
    def from_edges(cls, edges: np.ndarray, nodes: int, self_weight: float = 1.0) -> Graph:
        """The graph of `edges`, (2, E) int64, which has both directions of every edge, in any order."""
        order = np.lexsort((edges[1], edges[0]))
        start = np.zeros(nodes + 1, np.int64)
        np.cumsum(np.bincount(edges[0], minlength=nodes), out=start[1:])
        return cls(start, np.ascontiguousarray(edges[1][order], dtype=np.int64), self_weight)

    @property
    def nodes(self) -> int:
        """How many there are."""
        return len(self.start) - 1

    @cached_property
    def degree(self) -> np.ndarray:
        """Number of neighbours of each node, (nodes,) int64."""
        return np.diff(self.start)

    @cached_property
    def inverse(self) -> np.ndarray:
        """1 / sqrt(degree + self_weight), (nodes,) float64."""
        inverse: np.ndarray = 1.0 / np.sqrt(self.degree + self.self_weight)
        return inverse

    @cached_property
    def keys(self) -> np.ndarray:
        """Numbers u * nodes + v of all edges, (edges,) int64, sorted."""
        keys: np.ndarray = np.repeat(np.arange(self.nodes), self.degree) * self.nodes + self.neighbours
        return keys

    def has_edges(self, u: np.ndarray, v: np.ndarray) -> np.ndarray:
        """Whether each pair (u, v) is an edge, (pairs,) bool."""
        wanted = u * self.nodes + v
        at = np.searchsorted(self.keys, wanted)
        is_edge: np.ndarray = np.append(self.keys, -1)[at] == wanted
        return is_edge


@dataclass(frozen=True)
class Draw:
    """Sampled neighbours of a list of nodes, grouped by node."""

    counts: np.ndarray  # (nodes asked,) int64: how many each got
    neighbours: np.ndarray  # (sum of counts,) int64 node ids
    scale: np.ndarray  # (nodes asked,) float64: degree / count


@dataclass(frozen=True)
class Block:
    """The sampled adjacency between two level sets, self-loops included: rows S[l+1], columns S[l]."""

    start: np.ndarray  # (rows + 1,) int64: a row's entries are start[i]:start[i + 1]
    columns: np.ndarray  # (entries,) int64: position in S[l]
    weights: np.ndarray  # (entries,) float64
    own: np.ndarray  # (rows,) int64: position of the row's node in S[l]


def sample_neighbours(graph: Graph, nodes: np.ndarray, fanout: int | None, rng: np.random.Generator) -> Draw:
    """Up to `fanout` neighbours of each node, uniform without replacement; all of them if `fanout` is None.

    All nodes draw at once by Floyd's method: `fanout` vectorised steps, whatever the degrees.
    """
    degree, first = graph.degree[nodes], graph.start[nodes]
    if fanout is None:
        ends = np.cumsum(degree)
        # 0, 1, ... within each node
        places = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - degree, degree)
        return Draw(degree, graph.neighbours[np.repeat(first, degree) + places], np.ones(len(nodes)))
    # Floyd: the k-th draw is from 0..top. If it was drawn before, it becomes top, which cannot have been drawn yet.
    # A node with fewer than `fanout` neighbours draws all of `fanout` places and keeps those that exist.
    tops = np.maximum(degree, fanout) - np.arange(fanout, 0, -1)[:, None]  # (fanout, nodes asked)
    chosen = (rng.random(tops.shape) * (tops + 1)).astype(np.int64)
    for k in range(1, fanout):
        taken = chosen[0] == chosen[k]
        for j in range(1, k):  # not any(axis=0), which takes several times as long on so few rows
            taken |= chosen[j] == chosen[k]
        np.copyto(chosen[k], tops[k], where=taken)
    counts = np.minimum(degree, fanout)
    picked = (chosen + first).T[(chosen < degree).T]
    return Draw(counts, graph.neighbours[picked], degree / np.maximum(counts, 1))


def draw_batch(train: np.ndarray, size: int, rng: np.random.Generator) -> np.ndarray:
    """A batch S[L], sorted: `size` of the nodes `train` without replacement, or all if there are fewer."""
    return np.sort(rng.choice(train, min(size, len(train)), replace=False))


def union(nodes: int, sets: Iterable[np.ndarray]) -> np.ndarray:
    """The union of sets of node ids below `nodes`, sorted, int64."""
    member = np.zeros(nodes, bool)
    for ids in sets:
        member[ids] = True
    return np.flatnonzero(member)


def make_block(graph: Graph, upper: np.ndarray, lower: np.ndarray, draw: Draw) -> Block:
    """The normalised adjacency (see the module) of a draw; each row's self-loop is its last entry.

    Parameters
    ----------
    draw : neighbours of `upper`.
    lower : contains `upper` and these neighbours.
    """
    position = np.empty(graph.nodes, np.int64)
    position[lower] = np.arange(len(lower))
    own, inverse = position[upper], graph.inverse[upper]
    rows = np.repeat(np.arange(len(upper)), draw.counts)
    start = np.zeros(len(upper) + 1, np.int64)
    np.cumsum(draw.counts + 1, out=start[1:])
    loops = start[1:] - 1
    entries = rows + np.arange(len(rows))  # with a free place at the end of every row, for the loop
    columns = np.empty(start[-1], np.int64)
    weights = np.empty(start[-1], np.float64)
    columns[entries], columns[loops] = position[draw.neighbours], own
    weights[entries] = (draw.scale * inverse)[rows] * graph.inverse[draw.neighbours]
    weights[loops] = graph.self_weight * inverse**2
    return Block(start, columns, weights, own)


def full_block(graph: Graph) -> Block:
    """The adjacency of the whole graph, all nodes to all nodes, which inference uses at every layer."""
    nodes = np.arange(graph.nodes)
    return make_block(graph, nodes, nodes, Draw(graph.degree, graph.neighbours, np.ones(graph.nodes)))


async def sample_blocks(
    graph: Graph,
    batch: np.ndarray,
    layers: int,
    fanout: int | None,
    rng: np.random.Generator,
    union_of: Union | None = None,
    drawn_from: Graph | None = None,
) -> tuple[list[np.ndarray], list[Block]]:
    """GLASU's Algorithm 2 at one party: the level sets from the batch down, and their blocks.

    Parameters
    ----------
    graph : the party's own graph.
    batch : (S,) int64, sorted: the level S[L].
    layers, fanout : L, and neighbours drawn per node (None: all).
    union_of : awaited as `union_of(l, ids)` for every level l < L; returns the set to continue with. There a party
        exchanges ids if all parties share the level. None: nothing is exchanged.
    drawn_from : sample from this graph instead of `graph`. Only `graph`'s own edges enter the blocks.

    Returns
    -------
    levels : levels[l] is S[l], (|S[l]|,) int64, sorted; l = 0..L.
    blocks : blocks[l] has rows S[l+1] and columns S[l].
    """
    levels, blocks = [batch], []
    for level in reversed(range(layers)):
        upper = levels[-1]
        draw = sample_neighbours(drawn_from or graph, upper, fanout, rng)
        lower = union(graph.nodes, (upper, draw.neighbours))
        if union_of is not None:
            lower = await union_of(level, lower)
        blocks.append(make_block(graph, upper, lower, draw if drawn_from is None else _own_edges(graph, upper, draw)))
        levels.append(lower)
    return levels[::-1], blocks[::-1]


def _own_edges(graph: Graph, upper: np.ndarray, draw: Draw) -> Draw:
    """The pairs of a draw from a larger graph that are edges of `graph`.

    Every edge was drawn with the same chance, so scales stay.
    """
    rows = np.repeat(np.arange(len(upper)), draw.counts)
    keep = graph.has_edges(upper[rows], draw.neighbours)
    return Draw(np.bincount(rows[keep], minlength=len(upper)), draw.neighbours[keep], draw.scale)
