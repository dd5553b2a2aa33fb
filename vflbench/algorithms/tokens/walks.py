"""Where tokens go (MTCD, STCD): random walks over the edges between clients, from a stream that all parties share.

Valdeira, Chi, Soares, Xavier: arXiv 2309.09977, sections on STCD and MTCD. With rule=random the next client is uniform
over the holder's neighbours and the holder itself; with clusters, over those in the token's own. All parties derive the
same walks from (seed, round, topology), as they do the batches. So each party knows who sends it the tokens of a round.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from vflbench.federation.topology import Topology
from vflbench.seeding import stream
from vflbench.types import Problem, closest

KEPT = 4  # rounds that are remembered: parties ask for their own round, a server also for the one before


@dataclass(frozen=True, eq=False)
class Walk:
    """One round's walks.

    Attributes
    ----------
    path : (tokens, hops + 1) int64, the number of the client where each token is, from its start to its last hop.
    """

    path: np.ndarray

    @cached_property
    def visits(self) -> dict[int, list[tuple[int, int]]]:
        """Client -> its visits (s, token), in the order in which it serves them: by s, then by token."""
        visits: dict[int, list[tuple[int, int]]] = {}
        for s, clients in enumerate(self.path.T.tolist()):
            for token, client in enumerate(clients):
                visits.setdefault(client, []).append((s, token))
        return visits

    @cached_property
    def steps(self) -> list[list[int]]:
        """`path` as lists, which are quicker to read by the entry."""
        steps: list[list[int]] = self.path.tolist()
        return steps

    def departures(self, clients: int) -> np.ndarray:
        """How often each of `clients` hands a token to another one, (clients,)."""
        leaves = self.path[:, :-1][self.path[:, 1:] != self.path[:, :-1]]
        return np.bincount(leaves, minlength=clients)

    @cached_property
    def sent(self) -> int:
        """How many hops go to another client; the others need no message."""
        return int(np.count_nonzero(self.path[:, 1:] != self.path[:, :-1]))


class Walks:
    """The walks of every round.

    Parameters
    ----------
    topology : tokens walk along its edges between clients.
    tokens, hops : Gamma and S.
    rule : `random`; or `sweep`: from the first client of the token's ground to the last, in their order, and back.
    apart : whether every token stays on a ground of its own (`grounds`); else all of them walk on all clients.
    start : the client per token where it starts every round; None: drawn uniformly from its ground (sweep: the first).
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
        self.ground = np.zeros(len(self.clients), np.int64)  # every client's ground, by number
        for number, members in enumerate(self.grounds):
            self.ground[members] = number
        self.start = None if start is None else [self.clients.index(name) for name in start]
        self._closed: dict[int, list[int]] = {}
        self._rounds: dict[tuple[int, tuple[int, ...] | None], Walk] = {}

    def in_round(self, round: int, start: Sequence[int] | None = None) -> Walk:
        """The walks of a round.

        Parameters
        ----------
        start : where the tokens are, instead of the configured start (for STCD, whose token never rests).
        """
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
        """The clients that a token at `client` may go to, with `client` itself, in their order."""
        near = self.links[client].copy()
        near[client] = True
        near &= self.ground == self.ground[client]
        self._closed[client] = options = np.flatnonzero(near).tolist()
        return options

    def _sweep(self, members: np.ndarray) -> np.ndarray:
        turn = max(len(members) - 1, 1)
        at = np.arange(self.hops + 1) % (2 * turn)
        path: np.ndarray = members[np.minimum(at, 2 * turn - at) % len(members)]
        return path


def grounds(topology: Topology, tokens: int) -> list[np.ndarray]:
    """The clients' numbers in `tokens` clusters, one per token.

    They are the connected components of the graph between clients, if there are as many. Else they are runs of clients
    in their order, of nearly equal length; edges between runs are not used.
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
    """Everything that is wrong with such walks.

    Parameters
    ----------
    topology : the graph; None: check only what does not depend on it.
    """
    problems = []
    if start is not None and len(start) != tokens:
        allowed = f"must name a client for each of the {tokens} tokens"
        problems.append(Problem("algorithm.start", ",".join(start), allowed))
    if rule == "sweep" and start is not None:
        allowed = "a sweep starts at the first client of its cluster: leave it null"
        problems.append(Problem("algorithm.start", ",".join(start), allowed))
    if rule == "sweep" and tokens > 1 and not apart:
        allowed = "all tokens would make the same steps: use algorithm.weights=cluster, or one token"
        problems.append(Problem("algorithm.walk", rule, allowed))
    if topology is None:
        return problems
    return problems + _check_on_graph(topology, tokens, hops, rule, apart, start)


def _check_on_graph(
    topology: Topology, tokens: int, hops: int, rule: str, apart: bool, start: Sequence[str] | None
) -> list[Problem]:
    """What is wrong with walks over a graph: unknown clients, clusters that do not hold together, missing edges."""
    clients = topology.parties[topology.servers :]
    unknown = [name for name in start or () if name not in clients]
    shown = ", ".join(clients[:8]) + (", ..." if len(clients) > 8 else "")
    problems = [
        Problem("algorithm.start", name, f"no such client; there are {shown}", closest(name, clients))
        for name in unknown
    ]
    if apart and tokens > len(clients):
        allowed = f"must be at most the number of clients, {len(clients)}, for clusters"
        return [*problems, Problem("algorithm.tokens", tokens, allowed)]
    links = topology.adjacency[topology.servers :, topology.servers :]
    for number, members in enumerate(grounds(topology, tokens) if apart else [np.arange(len(clients))]):
        first = clients[members[0]]
        ground = f"cluster {number} ({first} to {clients[members[-1]]})"
        if apart and hops > 0 and (cut_off := _unreachable(links, members)) is not None:
            allowed = f"{ground} is not connected: there is no way from {first} to {clients[cut_off]} within it"
            problems.append(Problem("algorithm.tokens", tokens, allowed))
        inside = {clients[m] for m in members} | set(unknown)
        if apart and start is not None and number < len(start) and start[number] not in inside:
            problems.append(Problem("algorithm.start", start[number], f"lies outside of its token's {ground}"))
        gaps = members[:-1][~links[members[:-1], members[1:]]]
        if rule == "sweep" and hops > 0 and len(gaps):
            allowed = f"there is no edge from {clients[gaps[0]]} to the next client of {ground}"
            problems.append(Problem("algorithm.walk", rule, allowed))
    return problems


def _unreachable(links: np.ndarray, members: np.ndarray) -> int | None:
    """The first of `members` that no walk within them reaches from the first; None where all are reached."""
    from scipy.sparse.csgraph import connected_components

    _, label = connected_components(links[np.ix_(members, members)], directed=False)
    return int(members[np.argmax(label > 0)]) if label.any() else None
