"""Where tokens go (MTCD, STCD): random walks over the edges between clients, from a stream that all parties share.

Valdeira, Chi, Soares, Xavier: arXiv 2309.09977, sections on STCD and MTCD. With rule=random the next client is uniform
over the holder's neighbours and the holder itself; with clusters, over those in the token's own. All parties derive the
same walks from (seed, round, topology), as they do the batches, so that each knows from whom its visits of a round
come, and nobody waits for anybody unknown.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from vflbench.federation.topology import Topology
from vflbench.seeding import stream
from vflbench.types import Problem, closest

KEPT = 4  # rounds that are remembered: parties ask for the one they are in, a server also for the one before


@dataclass(frozen=True, eq=False)
class Walk:
    """One round's walks.

    Attributes
    ----------
    path : (tokens, hops + 1) int64, the number of the client at which each token is, from its start to its last hop.
    """

    path: np.ndarray

    @cached_property
    def visits(self) -> dict[int, list[tuple[int, int]]]:
        """Client -> its visits (s, token), in the order in which it serves them: by s, then by token."""
        found: dict[int, list[tuple[int, int]]] = {}
        for s, clients in enumerate(self.path.T.tolist()):
            for token, client in enumerate(clients):
                found.setdefault(client, []).append((s, token))
        return found

    @cached_property
    def steps(self) -> list[list[int]]:
        """`path` as lists: quicker to read one entry of."""
        return self.path.tolist()

    @cached_property
    def sent(self) -> int:
        """How many hops go to another client: the others need no message."""
        return int(np.count_nonzero(self.path[:, 1:] != self.path[:, :-1]))


class Walks:
    """The walks of every round.

    Parameters
    ----------
    topology : of which the edges between clients are walked along.
    tokens, hops : Gamma and S.
    rule : `random`; or `sweep`: from the first client of the token's ground along its clients' order, and back again at
        the end.
    apart : every token stays on a ground of its own (`grounds`), else all of them walk on all clients.
    start : a client per token from which it starts every round; None: drawn uniformly from its ground (sweep: the
    first).
    """

    def __init__(
        self,
        topology: Topology,
        seed: int,
        tokens: int,
        hops: int,
        rule: Literal["random", "sweep"] = "random",
        apart: bool = False,
        start: Sequence[str] | None = None,
    ) -> None:
        self.seed = seed
        self.tokens = tokens
        self.hops = hops
        self.rule = rule
        self.clients = topology.parties[topology.servers :]
        self.links = topology.adjacency[topology.servers :, topology.servers :]
        everywhere = np.arange(len(self.clients))
        self.grounds = grounds(topology, tokens) if apart else [everywhere]
        self.ground = np.zeros(len(self.clients), np.int64)  # of every client
        for number, members in enumerate(self.grounds):
            self.ground[members] = number
        self.start = None if start is None else [self.clients.index(name) for name in start]
        self._closed: dict[int, list[int]] = {}
        self._rounds: dict[tuple[int, tuple[int, ...] | None], Walk] = {}

    def of(self, round: int, start: Sequence[int] | None = None) -> Walk:
        """The walks of `round`. `start`: where the tokens are, instead of a start as configured (STCD, whose token
        never rests)."""
        key = round, None if start is None else tuple(start)
        walk = self._rounds.get(key)
        if walk is None:
            while len(self._rounds) >= KEPT:
                del self._rounds[next(iter(self._rounds))]
            walk = self._rounds[key] = Walk(self._draw(round, start))
        return walk

    def _draw(self, round: int, start: Sequence[int] | None) -> np.ndarray:
        if self.rule == "sweep":
            return np.stack([self._sweep(members) for members in self.grounds])
        rng = stream(self.seed, f"walk/{round}")
        drawn, steps = rng.random(self.tokens), rng.random((self.tokens, self.hops)).tolist()
        if start is None:
            start = self.start
        if start is None:
            own = [self.grounds[token % len(self.grounds)] for token in range(self.tokens)]
            start = [int(members[int(u * len(members))]) for members, u in zip(own, drawn.tolist(), strict=True)]
        path = []
        for client, chances in zip(start, steps, strict=True):
            walked = [client]
            for u in chances:
                options = self._closed.get(client) or self._neighbourhood(client)
                client = options[int(u * len(options))]
                walked.append(client)
            path.append(walked)
        return np.array(path, np.int64)

    def _neighbourhood(self, client: int) -> list[int]:
        """The clients that a token at `client` may go to, itself among them, in their order."""
        near = self.links[client].copy()
        near[client] = True
        near &= self.ground == self.ground[client]
        self._closed[client] = found = np.flatnonzero(near).tolist()
        return found

    def _sweep(self, members: np.ndarray) -> np.ndarray:
        turn = max(len(members) - 1, 1)
        at = np.arange(self.hops + 1) % (2 * turn)
        return members[np.minimum(at, 2 * turn - at) % len(members)]


def grounds(topology: Topology, tokens: int) -> list[np.ndarray]:
    """The clients' numbers in `tokens` clusters, one per token.

    The connected components of the graph between clients, where there are as many; else runs of clients in their order,
    as equal as can be, and edges between them are not used.
    """
    from scipy.sparse.csgraph import connected_components

    links = topology.adjacency[topology.servers :, topology.servers :]
    count, label = connected_components(links, directed=False)
    if count == tokens:
        return [np.flatnonzero(label == component) for component in range(count)]
    return np.array_split(np.arange(len(links)), tokens)


def check(
    topology: Topology | None,
    tokens: int,
    hops: int,
    rule: str = "random",
    apart: bool = False,
    start: Sequence[str] | None = None,
) -> list[Problem]:
    """What is wrong with such walks over `topology`: every problem, by key. None: what does not depend on the graph."""
    problems = []
    if start is not None and len(start) != tokens:
        problems.append(
            Problem("algorithm.start", ",".join(start), f"must name a client for each of the {tokens} tokens")
        )
    if rule == "sweep" and start is not None:
        problems.append(
            Problem(
                "algorithm.start", ",".join(start), "a sweep starts at the first client of its cluster: leave it null"
            )
        )
    if rule == "sweep" and tokens > 1 and not apart:
        allowed = "all tokens would make the same steps: use algorithm.weights=cluster, or one token"
        problems.append(Problem("algorithm.walk", rule, allowed))
    if topology is None:
        return problems
    clients = topology.parties[topology.servers :]
    unknown = [name for name in start or () if name not in clients]
    shown = ", ".join(clients[:8]) + (", ..." if len(clients) > 8 else "")
    problems += [
        Problem("algorithm.start", name, f"no such client; there are {shown}", closest(name, clients))
        for name in unknown
    ]
    if apart and tokens > len(clients):
        return [
            *problems,
            Problem("algorithm.tokens", tokens, f"must be at most the number of clients, {len(clients)}, for clusters"),
        ]
    links = topology.adjacency[topology.servers :, topology.servers :]
    for number, members in enumerate(grounds(topology, tokens) if apart else [np.arange(len(clients))]):
        ground = f"cluster {number} ({clients[members[0]]} to {clients[members[-1]]})"
        if apart and hops > 0 and (lost := _unreachable(links, members)) is not None:
            allowed = (
                f"{ground} is not connected: there is no way from {clients[members[0]]} to {clients[lost]} within it"
            )
            problems.append(Problem("algorithm.tokens", tokens, allowed))
        if (
            apart
            and start is not None
            and number < len(start)
            and start[number] not in {clients[m] for m in members} | set(unknown)
        ):
            problems.append(Problem("algorithm.start", start[number], f"lies outside of its token's {ground}"))
        gaps = members[:-1][~links[members[:-1], members[1:]]]
        if rule == "sweep" and hops > 0 and len(gaps):
            problems.append(
                Problem(
                    "algorithm.walk", rule, f"there is no edge from {clients[gaps[0]]} to the next client of {ground}"
                )
            )
    return problems


def _unreachable(links: np.ndarray, members: np.ndarray) -> int | None:
    """The first of `members` that cannot be reached from the first of them within them."""
    from scipy.sparse.csgraph import connected_components

    _, label = connected_components(links[np.ix_(members, members)], directed=False)
    return int(members[np.argmax(label > 0)]) if label.any() else None
