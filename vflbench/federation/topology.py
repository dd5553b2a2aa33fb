"""Who may talk to whom: undirected graphs over party names, and the mixing matrices of gossip methods.

The options (topologies/) give the edges. A server reaches every client whatever their graph, but in an `edge_list`,
which says itself.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from vflbench.federation.party import party_names
from vflbench.types import ConfigError, Problem, RunConfig, VflbenchError, hook, module_of, refuse


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
    def _rows(self) -> dict[str, bytes]:  # bytes: asked once a message, and three times as fast as indexing the matrix
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
        from scipy.sparse.csgraph import connected_components

        count, label = connected_components(self.adjacency, directed=False)  # labels are numbered as first met
        return tuple(tuple(self.parties[i] for i in np.flatnonzero(label == component)) for component in range(count))

    def neighbours(self, name: str) -> tuple[str, ...]:
        """The parties that `name` has an edge to, in the parties' order."""
        return self._neighbours[name]

    def connected(self, a: str, b: str) -> bool:
        """Whether there is an edge between `a` and `b`; constant time. Errors: KeyError for a name that is no party."""
        return bool(self._rows[a][self._index[b]])

    def mixing(self, rule: str = "metropolis") -> np.ndarray:
        """Symmetric, doubly stochastic weights W (clients, clients) float64 over the edges between clients.

        `metropolis`: W_ij = 1 / (1 + max(deg_i, deg_j)) on an edge (Xiao, Boyd, Kim 2007); `uniform`: W_ij = 1 / (1 +
            max deg)
        on every edge; W_ii is what is left to 1, above 0. A ring's weights are 1/3 and a complete graph's 1/clients by
        both. Degrees count edges between clients only. Errors: ValueError for another rule.
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
    """What is wrong with the topology's keys whatever the parties are, before any work."""
    rules = hook(module_of(config), "check")
    return rules(config) if rules else []


def build(config: Any, servers: list[str], clients: list[str], seed: int) -> Topology:
    """The topology `config` over the given parties, at least one; `clients` are all that are not servers (LEASGD's
    workers too).

    Raises ConfigError: every problem of its keys, or the option's own with these parties.
    Raises VflbenchError: the option gives an edge to nobody, or from a party to itself.
    """
    refuse(check(config))
    parties = (*servers, *clients)
    index = {name: i for i, name in enumerate(parties)}
    adjacency = np.zeros((len(parties), len(parties)), dtype=bool)
    for a, b in module_of(config).edges(config, servers, clients, seed):
        if a == b or a not in index or b not in index:
            raise VflbenchError(
                f"topology={config.name} has an edge from {a} to {b}: it takes two of {', '.join(parties[:8])}"
            )
        adjacency[index[a], index[b]] = adjacency[index[b], index[a]] = True
    return Topology(parties, len(servers), adjacency)


def unreached(topology: Topology) -> list[Problem]:
    """Clients that a server of an `edge_list` has no edge to, for algorithms whose server needs one to each: a problem
    per server."""
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
    """The topology over `servers` and algorithm.parties clients, before any data is there; None and why where there can
    be none.

    What `check` finds is left out: it is reported for every algorithm.
    """
    if check(config.topology):
        return None, []
    try:
        return build(config.topology, servers, party_names("client", config.algorithm.parties), config.seed), []
    except ConfigError as error:
        return None, error.problems
