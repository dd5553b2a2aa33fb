"""Clients in a known shape: none meet in a star, all in a complete graph, neighbours in a path, a ring or a grid."""

import itertools
import math
from collections.abc import Callable, Iterable, Sequence

from vflbench.cards.federation.topologies.shapes import Config

Edges = Iterable[tuple[str, str]]


def edges(config: Config, servers: list[str], clients: list[str], seed: int) -> Edges:
    """The edges of the shape, and a server's to all others."""
    meet = itertools.combinations(servers, 2)
    return (*itertools.product(servers, clients), *meet, *SHAPES[config.name](clients))


def ring(clients: Sequence[str]) -> Edges:
    """A path whose ends meet; two clients make a path."""
    closing = [(clients[-1], clients[0])] if len(clients) > 2 else []
    return (*itertools.pairwise(clients), *closing)


def grid(clients: Sequence[str]) -> Edges:
    """Row by row; the last row may be short."""
    columns = math.ceil(len(clients) / max(math.isqrt(len(clients)), 1))
    for i, client in enumerate(clients):
        if (i + 1) % columns and i + 1 < len(clients):
            yield client, clients[i + 1]
        if i + columns < len(clients):
            yield client, clients[i + columns]


SHAPES: dict[str, Callable[[Sequence[str]], Edges]] = {
    "star": lambda clients: (),
    "path": itertools.pairwise,
    "ring": ring,
    "grid": grid,
    "complete": lambda clients: itertools.combinations(clients, 2),
}
