"""Who may talk to whom: undirected graphs over party names, built with networkx, and the mixing matrices of gossip methods.

The options say which clients (or workers) meet: none in a star; in the others as their name says. Where the algorithm has a server, it
reaches every client whatever the graph; `semi_decentralized` is `clusters` by the name that this has in the literature, for algorithms
with and without a server. An `edge_list` says itself: a server has the edges that its file lists, and no others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import networkx as nx
import numpy as np

from vflbench.federation.party import party_names
from vflbench.seeding import stream
from vflbench.types import ConfigError, Problem, RunConfig, TopologyConfig, closest

TOPOLOGIES = ("star", "path", "ring", "grid", "complete", "erdos_renyi", "clusters", "semi_decentralized", "edge_list")
INSIDE = ("complete", "ring", "path")
DRAWS = 100  # of an Erdos-Renyi graph, until a connected one comes


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
        return {name: tuple(self.parties[j] for j in np.flatnonzero(row)) for name, row in zip(self.parties, self.adjacency, strict=True)}

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

        `metropolis`: W_ij = 1 / (1 + max(deg_i, deg_j)) on an edge (Xiao, Boyd, Kim 2007); `uniform`: W_ij = 1 / (1 + max deg)
        on every edge; W_ii is what is left to 1, above 0. A ring's weights are 1/3 and a complete graph's 1/clients by both.
        Degrees count edges between clients only. Errors: ValueError for another rule.
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


def spectral_gap(weights: np.ndarray) -> float:
    """1 - (largest eigenvalue, in absolute value, of W beside the one of consensus) for symmetric doubly stochastic `weights` (n, n).

    1: one step averages exactly; 0: not connected, consensus is never reached.
    """
    deviation = weights - 1 / len(weights)
    return float(1 - np.abs(np.linalg.eigvalsh(deviation)).max())


def check(config: TopologyConfig) -> list[Problem]:
    """What is wrong with the topology group whatever the parties are, before any work."""
    name = config.name
    if name not in TOPOLOGIES:
        return [Problem("topology", name, f"must be one of {', '.join(TOPOLOGIES)}", closest(name, TOPOLOGIES))]
    problems = []
    if name == "erdos_renyi" and not 0 < config.probability <= 1:
        problems.append(Problem("topology.probability", config.probability, "must be above 0 and at most 1"))
    if name in ("clusters", "semi_decentralized"):
        if config.clusters < 1:
            problems.append(Problem("topology.clusters", config.clusters, "must be at least 1"))
        if config.inside not in INSIDE:
            allowed = f"must be one of {', '.join(INSIDE)}"
            problems.append(Problem("topology.inside", config.inside, allowed, closest(config.inside, INSIDE)))
    if name == "edge_list":
        if config.edges is None:
            problems.append(Problem("topology.edges", "null", 'must name a text file with one "a b" pair of party names a line'))
        elif not Path(config.edges).is_file():
            problems.append(Problem("topology.edges", config.edges, "no such file"))
    return problems


def build(config: TopologyConfig, servers: list[str], clients: list[str], seed: int) -> Topology:
    """The topology `config` over the given parties, at least one; `clients` are all that are not servers (LEASGD's workers too).

    `erdos_renyi` draws from the stream `topology` of `config.seed`, or of `seed` where that is null. Errors: ConfigError, every
    problem at once.
    """
    problems = check(config)
    if config.name in ("clusters", "semi_decentralized") and clients and config.clusters > len(clients):
        problems.append(Problem("topology.clusters", config.clusters, f"must be at most the number of clients, {len(clients)}"))
    if problems:
        raise ConfigError(problems)

    parties = (*servers, *clients)
    adjacency = np.zeros((len(parties), len(parties)), dtype=bool)
    where = np.arange(len(servers), len(parties))  # the clients' indices

    def place(members: np.ndarray, graph: nx.Graph) -> None:
        if len(members) > 0:  # networkx has no matrix of a graph without nodes
            adjacency[np.ix_(members, members)] = nx.to_numpy_array(graph, nodelist=range(len(members)), dtype=bool)

    if config.name == "edge_list":
        index = {name: i for i, name in enumerate(parties)}
        for a, b in _read_edges(Path(config.edges or ""), parties):
            adjacency[index[a], index[b]] = adjacency[index[b], index[a]] = True
    elif config.name in ("clusters", "semi_decentralized"):
        for members in np.array_split(where, config.clusters):
            place(members, _shape(config.inside, len(members)))
    elif config.name == "erdos_renyi":
        place(where, _connected_random(len(where), config.probability, config.seed if config.seed is not None else seed))
    elif config.name != "star":
        place(where, _shape(config.name, len(where)))
    if config.name != "edge_list":
        adjacency[: len(servers), len(servers) :] = adjacency[len(servers) :, : len(servers)] = True
    return Topology(parties, len(servers), adjacency)


def unreached(topology: Topology) -> list[Problem]:
    """Clients that a server of an `edge_list` has no edge to, for algorithms whose server needs one to each: a problem per server."""
    problems = []
    for server in topology.parties[: topology.servers]:
        cut_off = [client for client in topology.parties[topology.servers :] if not topology.connected(server, client)]
        if cut_off:
            shown = ", ".join(cut_off[:8]) + (", ..." if len(cut_off) > 8 else "")
            problems.append(Problem("topology.edges", server, f"needs an edge to every client in the edge list, and has none to {shown}"))
    return problems


def build_early(config: RunConfig, servers: list[str]) -> tuple[Topology | None, list[Problem]]:
    """The topology over `servers` and algorithm.parties clients, before any data is there; None and why where there can be none.

    What `check` finds is left out: it is reported for every algorithm.
    """
    if check(config.topology):
        return None, []
    try:
        return build(config.topology, servers, party_names("client", config.algorithm.parties), config.seed), []
    except ConfigError as error:
        return None, error.problems


def _shape(name: str, n: int) -> nx.Graph:
    """The graph `name` over 0..n-1, for any n from 0."""
    if name == "complete":
        return nx.complete_graph(n)
    if name == "ring" and n > 2:  # networkx closes a ring of one with a self-loop; two make a path
        return nx.cycle_graph(n)
    if name == "grid" and n > 0:
        rows = math.isqrt(n)
        columns = math.ceil(n / rows)
        full = nx.grid_2d_graph(rows + 1, columns)  # numbered row by row; what lies beyond n is cut off
        return nx.relabel_nodes(full, {(r, c): r * columns + c for r, c in full}).subgraph(range(n))
    return nx.path_graph(n)


def _connected_random(n: int, probability: float, seed: int) -> nx.Graph:
    rng = stream(seed, "topology")
    for _ in range(DRAWS):
        graph = nx.fast_gnp_random_graph(n, probability, seed=rng)
        if n == 0 or nx.is_connected(graph):
            return graph
    allowed = f"{DRAWS} draws gave no connected graph of {n} clients; take clearly more than log(n)/n = {math.log(n) / n:.2g}"
    raise ConfigError([Problem("topology.probability", probability, allowed)])


def _read_edges(path: Path, parties: tuple[str, ...]) -> list[tuple[str, str]]:
    """The pairs of an edge file. Errors: ConfigError with every bad line, by number."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError([Problem("topology.edges", path, f"cannot be read as text: {error}")]) from error
    edges, problems, known = [], [], set(parties)
    for number, line in enumerate(lines, start=1):
        words = line.split("#", 1)[0].split()
        where = f"topology.edges ({path}, line {number})"
        if not words:
            continue
        if len(words) != 2:
            problems.append(Problem(where, " ".join(words), "must be two party names"))
        elif words[0] == words[1]:
            problems.append(Problem(where, " ".join(words), "connects a party with itself"))
        elif unknown := [word for word in words if word not in known]:
            shown = ", ".join(parties[:8]) + (", ..." if len(parties) > 8 else "")
            problems += [Problem(where, word, f"no such party; there are {shown}", closest(word, parties)) for word in unknown]
        else:
            edges.append((words[0], words[1]))
    if problems:
        raise ConfigError(problems)
    return edges
