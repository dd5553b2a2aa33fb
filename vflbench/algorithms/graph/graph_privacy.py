"""Privacy of methods on graphs: noise for as many releases as a rehearsal of ids finds, and randomised edges.

Where noise on rows is calibrated to a target, the parties exchange the ids of all rounds before the first: they depend
on seeds and edges alone. So each client knows how often each row will be sent. These are the very ids of the rounds,
which are charged there: who keeps them does not send them twice.

Under privacy=edge_rr a client has no edges but those that it shows.
"""

import copy
import math
from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
from torch import Tensor

from vflbench.algorithms.graph import graph_learner
from vflbench.algorithms.graph.joint import Aggregation
from vflbench.cards.algorithms.graph.graph_methods import Keys
from vflbench.cards.privacy.edge_rr import Config as EdgeConfig
from vflbench.cards.privacy.gaussian import Config as GaussianConfig
from vflbench.data.graph.sampling import Block, Graph
from vflbench.data.tasks import GraphPart, GraphPublic, GraphTask
from vflbench.federation.party import Party, party_names
from vflbench.privacy import edge_rr, gaussian, keys
from vflbench.privacy.gaussian import GaussianEmbedding
from vflbench.types import RunConfig

Sample = Callable[[np.random.Generator], Awaitable[tuple[list[np.ndarray], list[Block]]]]
# of what epsilon of a row says nothing
IDS, EDGES = "ids of batches and sampled neighbours, which imply edges", "edges"
NOT_COVERED = ("labels", IDS, "evaluation exchanges", "the final model's classifiers", "a node's raw features")


def of_rows(config: RunConfig[Keys]) -> GaussianConfig | None:
    """The keys of the noise on rows; None: there is none."""
    privacy = config.privacy
    if isinstance(privacy, EdgeConfig):
        return edge_rr.rows_of(privacy)
    return privacy if isinstance(privacy, GaussianConfig) else None


def inspect(task: GraphTask, config: RunConfig[Keys], releases: int, width: int) -> None:
    """Tell how loud noise and how false edges will be, and refuse edges that would swamp a graph.

    Parameters
    ----------
    releases : of a row at most.
    width : numbers of a row.

    Raises
    ------
    ConfigError : a client would show more than five false edges for each of its own.
    """
    rows = of_rows(config)
    if rows is not None:
        gaussian.warn_of_noise(rows, releases, width)
    if isinstance(config.privacy, EdgeConfig):
        edges = dict(zip(party_names("client", task.parties), task.edges, strict=True))
        edge_rr.refuse_swamped(config.privacy, edges, candidates(task.public), len(task.labels))


def candidates(public: GraphPublic) -> np.ndarray:
    """Ids of the nodes whose pairs are candidates of edge_rr: those of the splits."""
    return np.concatenate(list(public.splits.values()))


def guard(me: Party, not_covered: Sequence[str] = NOT_COVERED, served: int = 1) -> GaussianEmbedding | None:
    """What protects the rows that the party sends; None: they are sent as they are.

    Parameters
    ----------
    not_covered : of what epsilon of a row says nothing; under edge_rr what tells edges is covered after all.
    served : how often a prediction sends a node's row.
    """
    if isinstance(me.privacy, edge_rr.RandomisedEdges):
        if me.privacy.rows is not None:
            hidden = () if math.isinf(me.privacy.epsilon) else (IDS, EDGES)
            me.privacy.not_covered = [one for one in not_covered if one not in hidden]
    elif me.privacy is not None:
        me.privacy.not_covered, me.privacy.served = not_covered, served
    return _guard(me)


def _guard(me: Party) -> GaussianEmbedding | None:
    own: GaussianEmbedding | None = me.privacy
    return own.rows if isinstance(own, edge_rr.RandomisedEdges) else own


async def serve(me: Party, aggregation: Aggregation, _: int, rows: Tensor, noisy: bool) -> Tensor:
    """The aggregate for predictions, where the party sends its rows (n, d) clipped or noisy; without its own noise."""
    secret = _guard(me)
    clipped = rows if secret is None else secret.clip(rows)
    if secret is None or not noisy:
        total: Tensor = await graph_learner.ask(me, clipped, "embedding", "aggregate")
        return total
    sent = secret.noised(rows, me.secret_torch_rng("serving"))
    total = await graph_learner.ask(me, sent, "embedding", "aggregate")
    return aggregation.without(total, sent - clipped, me.clients.index(me.name))


def edges_of(me: Party, data: GraphPart, public: GraphPublic) -> Callable[[], np.ndarray]:
    """What gives the edges that the party learns from: its own, or under edge_rr those that it shows.

    In a resumed run it is to be called in a round, when the edges that were shown are back.
    """
    if not isinstance(me.privacy, edge_rr.RandomisedEdges):
        return lambda: data.edges
    rng = me.secret_rng("edges")  # taken here: within an evaluation it is another stream
    return lambda: me.privacy.respond(data.edges, candidates(public), public.nodes, rng)


def graph_of(me: Party, data: GraphPart, public: GraphPublic, self_weight: float) -> Callable[[], Graph]:
    """What gives the graph of `edges_of`, with self-loops of that weight; it is made once."""
    edges = edges_of(me, data, public)
    return cache(lambda: Graph.from_edges(edges(), public.nodes, self_weight))


def rehearses(me: Party, config: RunConfig[Keys]) -> bool:
    """Whether the ids of all rounds are exchanged before the first; a resumed run has done so."""
    rows = of_rows(config)
    return me.fresh and rows is not None and keys.target(rows) is not None


async def rehearse(
    me: Party, config: RunConfig[Keys], stream: str, exchange: Callable[[np.random.Generator], Awaitable[Any]]
) -> None:
    """Go through the exchange of ids of every round, with the numbers that each will have.

    Parameters
    ----------
    stream : of the random numbers that `exchange` takes.
    exchange : a party's part in the exchange of ids of one round.
    """
    if not rehearses(me, config):
        return
    rng = copy.deepcopy(me.rng(stream))
    async with me.evaluating():
        for _ in range(graph_learner.rounds(config)):
            await exchange(rng)


async def plan(me: Party, config: RunConfig[Keys], nodes: int, sample: Sample, sent: Sequence[int]) -> None:
    """Client: calibrate the noise to how often each node's row will be sent.

    Parameters
    ----------
    sample : draws a round's levels and blocks from a stream.
    sent : the levels whose rows it sends, each as often as it stands here.
    """
    counts = np.zeros(nodes, np.int64)

    async def count(rng: np.random.Generator) -> None:
        levels, _ = await sample(rng)
        for level in sent:
            counts[levels[level]] += 1

    await rehearse(me, config, "neighbours", count)
    secret = _guard(me)
    if secret is not None and rehearses(me, config):
        secret.plan(counts)
