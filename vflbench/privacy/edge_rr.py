"""`privacy=edge_rr`: randomised response on the edges of each client's graph, once, before anything else.

Every candidate pair of nodes is an edge or none. It is shown as the other with probability 1 / (1 + e^eps) (Warner
1965; on graphs EdgeRand of Wu, Long, Zhang, Li, "LinkTeller", IEEE S&P 2022). That is eps-DP for one edge of one
client's graph. All that the client does afterwards (sampling, training, answers) follows from the shown edges, and
costs nothing more.

Candidates are the pairs with a node of a split, whose ids all know. Other pairs show no edge. n nodes have about
n^2 / 2 pairs, so that many false edges come in: `expected` says how many, and `refuse_swamped` refuses too many.

With `row_epsilon` the rows that are sent get noise too, as by gaussian_embedding.

An algorithm that declares `edge_rr` learns from `me.privacy.respond(...)` instead of its edges, and protects rows with
`me.privacy.rows`, where that is not None.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from vflbench.cards.privacy.edge_rr import Config
from vflbench.cards.privacy.gaussian import Config as GaussianConfig
from vflbench.defaults import filled
from vflbench.privacy import gaussian, keys
from vflbench.privacy.mechanisms import Facts
from vflbench.seeding import SecretStream
from vflbench.types import ConfigError, Problem

MOST = 5  # false edges for each true one, above which a run is refused
AT_ONCE = 2**20  # random numbers of a draw

log = logging.getLogger(__name__)


def rows_of(config: Config) -> GaussianConfig | None:
    """The keys of the noise on rows; None: there is none."""
    if config.row_epsilon is None:
        return None
    return filled(
        GaussianConfig,
        secure_rng=config.secure_rng,
        epsilon=config.row_epsilon,
        delta=config.delta,
        clip=config.clip,
    )


def make(config: Config, facts: Facts) -> RandomisedEdges:
    """The mechanism of one party."""
    rows = rows_of(config)
    assert config.epsilon is not None  # settled
    return RandomisedEdges(config.epsilon, None if rows is None else gaussian.make(rows, facts))


class RandomisedEdges:
    """Randomised response on the edges of one client, and what protects its rows.

    Parameters
    ----------
    epsilon : of an edge; inf: edges as they are, but for pairs that are no candidates.
    rows : noise on rows that are sent; None: they are sent as they are.
    """

    name = "edge_rr"

    def __init__(self, epsilon: float, rows: gaussian.GaussianEmbedding | None = None) -> None:
        self.epsilon, self.rows = epsilon, rows
        self.shown: np.ndarray | None = None  # (2, E), once it has responded
        self.false_edges: float | None = None  # that are shown, for each true one; it is not private
        self.not_covered = ["nodes' features", "labels"] if rows is None else [*rows.not_covered]

    def respond(
        self, edges: np.ndarray, public: np.ndarray, nodes: int, rng: np.random.Generator | SecretStream
    ) -> np.ndarray:
        """The edges that are shown, (2, E) int64, both directions, sorted; always those of the first call.

        Parameters
        ----------
        edges : (2, E), both directions of each.
        public : ids of the nodes whose pairs are candidates.
        nodes : how many there are.
        """
        if self.shown is None:
            candidates = Pairs(public, nodes)
            own = candidates.numbers(edges[:, edges[0] < edges[1]])
            flipped = bernoulli(candidates.count, flip_rate(self.epsilon), rng)
            self.shown = candidates.edges(np.setxor1d(own, flipped, assume_unique=True))
            self.false_edges = len(np.setdiff1d(flipped, own)) / max(edges.shape[1] // 2, 1)
        return self.shown

    @property
    def noise_to_signal(self) -> float | None:
        """That of the rows, as GaussianEmbedding says it; None without noise on rows."""
        return None if self.rows is None else self.rows.noise_to_signal

    def spent(self) -> dict[str, Any]:
        """What an edge has spent, and under `row_...` what a row has."""
        rows = {} if self.rows is None else self.rows.spent()
        of_rows = ("epsilon", "delta", "mu", "unit", "neighbouring", "releases")
        return keys.reported(
            {"epsilon": self.epsilon},
            mechanism=self.name,
            epsilon=0.0 if self.shown is None else self.epsilon,
            delta=0.0,
            unit="one edge of one client's graph",
            neighbouring="add_remove",
            covers="transcript",
            not_covered=self.not_covered,
            accountant="pure",
            releases={"planned": 1, "done": int(self.shown is not None)},
            noise_multiplier=rows.get("noise_multiplier"),
            clip=rows.get("clip"),
            clipped_share=rows.get("clipped_share"),
            flip_rate=flip_rate(self.epsilon),
            **{f"row_{key}": rows[key] for key in of_rows if rows},
        )

    def state_dict(self) -> dict[str, Any]:
        """The state that a checkpoint keeps: the shown edges too, so that a resumed run shows no others."""
        return {"shown": self.shown, "rows": None if self.rows is None else self.rows.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take the state back from a checkpoint."""
        self.shown = state["shown"]
        if self.rows is not None:
            self.rows.load_state_dict(state["rows"])


class Pairs:
    """The pairs of different nodes with a node of `public`, numbered from 0.

    Parameters
    ----------
    public : node ids.
    nodes : how many there are.
    """

    def __init__(self, public: np.ndarray, nodes: int) -> None:
        listed = np.zeros(nodes, bool)
        listed[public] = True
        self.order = np.concatenate([np.flatnonzero(listed), np.flatnonzero(~listed)])  # node at each place
        self.place = np.argsort(self.order)
        first = np.arange(listed.sum())  # place of a pair's first node, which is public
        self.start = np.concatenate([[0], np.cumsum(nodes - 1 - first)]).astype(np.int64)  # its pairs' first number
        self.count = int(self.start[-1])

    def numbers(self, pairs: np.ndarray) -> np.ndarray:
        """The numbers of `pairs` (2, n) of ids, (m,) int64, sorted; without those that are no candidates."""
        low, high = np.sort(self.place[pairs], axis=0)
        among = low < len(self.start) - 1
        return np.sort(self.start[low[among]] + high[among] - low[among] - 1)

    def edges(self, numbers: np.ndarray) -> np.ndarray:
        """Both directions of the pairs with these numbers, (2, 2 n) int64, sorted by row and column."""
        low = np.searchsorted(self.start, numbers, side="right") - 1
        pairs = self.order[np.stack([low, numbers - self.start[low] + low + 1])].astype(np.int64)
        both = np.concatenate([pairs, pairs[::-1]], axis=1)
        return both[:, np.lexsort((both[1], both[0]))]


def flip_rate(epsilon: float) -> float:
    """With which probability a pair is shown as what it is not: 1 / (1 + e^eps)."""
    return math.exp(-epsilon) / (1 + math.exp(-epsilon))


def bernoulli(count: int, rate: float, rng: np.random.Generator | SecretStream) -> np.ndarray:
    """Those of the numbers 0 .. count - 1 that come up, (n,) int64, sorted; each does so with probability `rate`.

    The gaps between them are geometric, so the cost is that of what comes up.
    """
    if rate == 0:
        return np.zeros(0, np.int64)
    found, last = [np.zeros(0, np.int64)], -1
    while last < count - 1:
        size = min(AT_ONCE, 16 + int(1.1 * rate * (count - last)))
        with np.errstate(divide="ignore"):  # a number of 1 leaps past the end, as it should
            gaps = np.floor(np.log1p(-rng.random(size)) / math.log1p(-rate))
        at = last + np.cumsum(np.minimum(gaps, count).astype(np.int64) + 1)
        found.append(at[at < count])
        last = int(at[-1])
    return np.concatenate(found)


def expected(edges: np.ndarray, public: np.ndarray, nodes: int, epsilon: float) -> tuple[int, float, float]:
    """How many edges there are, how many false ones will be shown on average, and how many true ones will be missing.

    Parameters
    ----------
    edges, public, nodes : as `RandomisedEdges.respond`.
    """
    candidates, rate, edge_count = Pairs(public, nodes), flip_rate(epsilon), edges.shape[1] // 2
    own = len(candidates.numbers(edges[:, edges[0] < edges[1]]))
    return edge_count, rate * (candidates.count - own), edge_count - (1 - rate) * own


def refuse_swamped(config: Config, edges: Mapping[str, np.ndarray], public: np.ndarray, nodes: int) -> None:
    """Log how many edges will be false or missing, and refuse a run whose graphs they would swamp.

    Parameters
    ----------
    edges : (2, E) by client; those of a client that are not on this machine are empty, and left out.

    Raises
    ------
    ConfigError : a client would show more than five false edges for each of its own.
    """
    settled = keys.settled(config)
    for name, own in edges.items():
        if not own.size:
            continue
        count, added, missing = expected(own, public, nodes, settled.epsilon)
        log.info(
            "privacy=edge_rr: %s has %d edges; about %.0f false ones will be added, and %.0f of its own left out "
            "(not private; no file has it)",
            *(name, count, added, missing),
        )
        if added > MOST * count:
            allowed = (
                f"would add about {added:,.0f} false edges to the {count:,} of {name}: more than {MOST} for each. "
                f"Epsilon {least_epsilon(own, public, nodes):.3g} or more does not"
            )
            raise ConfigError([Problem("privacy.epsilon", settled.epsilon, allowed)])


def least_epsilon(edges: np.ndarray, public: np.ndarray, nodes: int) -> float:
    """The epsilon, rounded up to a hundredth, that adds five false edges for each true one."""
    candidates = Pairs(public, nodes)
    own = len(candidates.numbers(edges[:, edges[0] < edges[1]]))
    rate = min(MOST * (edges.shape[1] // 2) / (candidates.count - own), 0.5)
    return math.ceil(100 * math.log((1 - rate) / rate)) / 100
