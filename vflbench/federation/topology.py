"""Who may talk to whom: undirected graphs over party names, and the mixing matrices of gossip methods.

The options (topologies/) give the edges. A server reaches every client whatever their graph, and in a known shape
(shapes.py) other servers. Only an `edge_list` says itself whom a server reaches.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from vflbench.federation.party import party_names
from vflbench.types import ConfigError, Problem, RunConfig, VflbenchError, module_of, refuse, rules_of


@dataclass(frozen=True, eq=False)
class Topology:
    """An undirected graph without self-loops over the parties of a federation."""

    parties: tuple[str, ...]  # all names in the parties' order, servers first
    servers: int  # how many of them are servers
    adjacency: np.ndarray  # (parties, parties) bool, symmetric, False on the diagonal

    @cached_property
    def _index(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.parties)}

    @cached_property
    def _rows(self) -> dict[str, bytes]:  # bytes: read for every message, three times as fast as the matrix
        return {name: row.tobytes() for name, row in zip(self.parties, self.adjacency, strict=True)}

    @cached_property
    def _neighbours(self) -> dict[str, tuple[str, ...]]:
        return {
            name: tuple(self.parties[j] for j in np.flatnonzero(row))
            for name, row in zip(self.parties, self.adjacency, strict=True)
        }

    @cached_property
    def edges(self) -> tuple[tuple[str, str], ...]:
        """Each edge once, its ends and the edges in the parties' order."""
        return tuple((self.parties[i], self.parties[j]) for i, j in np.argwhere(np.triu(self.adjacency)))

    @cached_property
    def components(self) -> tuple[tuple[str, ...], ...]:
        """The connected components, each and all in the parties' order; a party without edges is one of its own."""
        found, left = [], np.ones(len(self.parties), dtype=bool)
        while left.any():
            reached, new = np.zeros_like(left), np.arange(len(left)) == left.argmax()
            while new.any():
                reached |= new
                new = self.adjacency[new].any(axis=0) & ~reached
            found.append(tuple(self.parties[i] for i in np.flatnonzero(reached)))
            left &= ~reached
        return tuple(found)

    @cached_property
    def distances(self) -> np.ndarray:
        """How many edges any two parties are apart, (parties, parties) float64; inf: no path joins them."""
        from scipy.sparse import csgraph, csr_array

        found: np.ndarray = csgraph.shortest_path(csr_array(self.adjacency), directed=False, unweighted=True)
        return found

    def neighbours(self, name: str) -> tuple[str, ...]:
        """The parties that `name` has an edge to, in the parties' order."""
        return self._neighbours[name]

    def connected(self, a: str, b: str) -> bool:
        """Whether there is an edge between `a` and `b`; constant time.

        Raises
        ------
        KeyError
            A name is no party's.
        """
        return bool(self._rows[a][self._index[b]])

    def mixing(self, rule: str = "metropolis") -> np.ndarray:
        """Symmetric, doubly stochastic weights W (clients, clients) float64 over the edges between clients.

        `metropolis` (Xiao, Boyd, Kim 2007): W_ij = 1 / (1 + max(deg_i, deg_j)) on an edge. `uniform`: W_ij = 1 / (1 +
        max deg). W_ii is the rest to 1, above 0. By both rules a ring's weights are 1/3 and a complete graph's
        1/clients. Degrees count edges between clients only.

        Raises
        ------
        ValueError
            There is no such rule.
        """
        links = self.adjacency[self.servers :, self.servers :]
        degree = links.sum(axis=1)
        if rule == "metropolis":
            larger = np.maximum(degree[:, None], degree[None, :])
        elif rule == "uniform":
            larger = np.full(links.shape, degree.max(initial=0))
        else:
            raise ValueError(f"no mixing rule {rule!r}: metropolis or uniform")
        weights = np.where(links, 1 / (1 + larger), 0.0)
        np.fill_diagonal(weights, 1 - weights.sum(axis=1))
        return weights


def check(config: Any) -> list[Problem]:
    """Problems with the topology's keys, whatever the parties are, before any work."""
    rules = rules_of(config)
    return rules(config) if rules else []


def build(config: Any, servers: list[str], clients: list[str], seed: int) -> Topology:
    """The topology `config` over the given parties, of which there is at least one.

    `clients` are all that are not servers (LEASGD's workers too).

    Raises
    ------
    ConfigError
        A key is wrong, or the option refuses these parties; with every problem.
    VflbenchError
        The option gives an edge to an unknown party, or from a party to itself.
    """
    refuse(check(config))
    parties = (*servers, *clients)
    index = {name: i for i, name in enumerate(parties)}
    adjacency = np.zeros((len(parties), len(parties)), dtype=bool)
    for a, b in module_of(config).edges(config, servers, clients, seed):
        if a == b or a not in index or b not in index:
            raise VflbenchError(
                f"topology={config.name} has an edge from {a} to {b}: an edge joins two of {', '.join(parties[:8])}"
            )
        adjacency[index[a], index[b]] = adjacency[index[b], index[a]] = True
    return Topology(parties, len(servers), adjacency)


def unreached(topology: Topology) -> list[Problem]:
    """Problems, one per server, where an `edge_list` leaves out clients that the server has no edge to.

    For algorithms whose server needs an edge to each client.
    """
    problems = []
    for server in topology.parties[: topology.servers]:
        cut_off = [client for client in topology.parties[topology.servers :] if not topology.connected(server, client)]
        if cut_off:
            shown = ", ".join(cut_off[:8]) + (", ..." if len(cut_off) > 8 else "")
            problems.append(
                Problem(
                    "topology.edges", server, f"needs an edge to every client in the edge list, and has none to {shown}"
                )
            )
    return problems


def build_early(config: RunConfig, servers: list[str]) -> tuple[Topology | None, list[Problem]]:
    """The topology over `servers` and algorithm.parties clients, before any data is there; or None and problems.

    What `check` finds is left out: it is reported for every algorithm.
    """
    if check(config.topology):
        return None, []
    try:
        return build(config.topology, servers, party_names("client", config.algorithm.parties), config.seed), []
    except ConfigError as error:
        return None, error.problems
