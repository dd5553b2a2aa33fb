"""Graph once: every client sends its features and edges, or propagated features, once; a server trains on them.

Propagated features are SGC's: Wu et al., ICML 2019, arXiv 1902.07153.

    client m: round 1: raw         ids of its non-zero features (and values, unless all are 1), and its edges, each once
                       propagated  Z: the first r principal components of A_m^K X_m, centred         tag `features`
              client 0, also: the labels of the training nodes                                       tag `labels`
    server:   raw         every round an update of a graph network on all columns and the union of edges: the program of
                          centralized_gnn
              propagated  every round an update of a head on [Z_1 ... Z_M], over all training nodes

    form         bytes of a client with n nodes, d columns, E edges, all in round 1
    raw          2 or 4 a non-zero (4 more for its value) + 4 (n + 1) + 4 or 8 E; or 4 n d + 4 or 8 E, if that is less
    propagated   4 n r; codec=int8 (n + 4) r

A is the symmetric normalisation with self-loops, by the client's own degrees. Rows of all nodes cross, also of those to
be predicted: that is the data sets' setting, in which all nodes' features are known.

Departures from the paper, and what it leaves open
1. SGC has no principal components: they make the message smaller, and a head on few columns overfits less.
2. head=mlp has one hidden layer of model.hidden units with dropout.
3. privacy=gaussian_embedding clips and noises each row that is sent, once: of Z, or with form=raw of X, which then is
   dense. A row of X is all that a client knows of a node's features. A row of Z depends on its node's neighbourhood, so
   the unit is the row of Z, not the node. Principal directions are fitted without noise. Edges are not covered.
4. privacy=edge_rr: a client sends, or propagates along, the edges that it shows.
"""

import itertools
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vflbench.algorithms.graph import alone, graph_learner, graph_privacy
from vflbench.algorithms.graph.joint import joint_inference, predictions
from vflbench.algorithms.oneshot.forms import Projection, columns
from vflbench.cards.algorithms.oneshot.graph_once import Config
from vflbench.cards.models.gnn import Config as GnnConfig
from vflbench.data.graph.sampling import Graph, full_block
from vflbench.data.tasks import GraphPart, GraphPublic, GraphTask
from vflbench.federation.party import SERVER, Party, PartySpec
from vflbench.models import DTYPES, gnn
from vflbench.privacy.gaussian import GaussianEmbedding
from vflbench.types import RunConfig

NOT_COVERED = {  # by epsilon of a row
    "raw": ("labels", graph_privacy.EDGES),
    "propagated": ("labels", graph_privacy.EDGES, "principal directions", "a node's raw features"),
}


def max_releases(config: RunConfig[Config], rounds: int) -> int:
    """How often a row is released: once."""
    return 1


def parties(task: GraphTask, config: RunConfig[Config]) -> dict[str, PartySpec]:
    """The server, and one client per part of the task."""
    cfg = config.algorithm
    most = cfg.components if cfg.form == "propagated" else 2**62
    widths = [min(block.shape[1], most) for block in task.features]
    graph_privacy.inspect(task, config, 1, max(widths))
    server = on_graph if cfg.form == "raw" else on_rows
    return graph_learner.parties(partial(server, widths=widths), client, [task.part(m) for m in range(task.parties)])


# --- client -----------------------------------------------------------------------------------------------------------


async def client(me: Party, data: GraphPart, public: GraphPublic, config: RunConfig[Config]) -> None:
    """Send what is known of the nodes, once."""
    cfg = config.algorithm
    secret, edges = graph_privacy.guard(me, NOT_COVERED[cfg.form]), graph_privacy.edges_of(me, data, public)
    async for t in me.rounds():
        if t > 1:
            continue
        if me.name == me.clients[0]:
            labels = data.labels[public.splits["train"]]
            await me.send(SERVER, labels.astype(two_bytes(public.classes)), tag="labels")
        if cfg.form == "raw":
            x = _protected(me, secret, data.features)
            await me.send(SERVER, (*packed(x), upper(edges(), public.nodes)), tag="features")
        else:
            z = await me.compute(propagated, data.features, edges(), cfg.hops, cfg.components, cost=public.nodes)
            await me.send(SERVER, columns(_protected(me, secret, z)), tag="features")


def _protected(me: Party, secret: GaussianEmbedding | None, rows: np.ndarray) -> np.ndarray:
    """The rows as the party may send them."""
    if secret is None:
        return rows
    sent = secret.protect(torch.tensor(rows), np.arange(len(rows)), me.secret_torch_rng("noise"))
    return np.asarray(sent)


def two_bytes(count: int) -> Any:
    """Integers of two bytes, or of four where there are too many things to count."""
    return np.uint16 if count <= 2**16 else np.int32


def packed(x: np.ndarray) -> tuple[np.ndarray, ...]:
    """Rows (n, d): themselves, or (column ids, starts) of non-zeros, or (ids, starts, values), whatever is smallest."""
    rows, ids = np.nonzero(x)
    values = x[rows, ids]
    starts = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(x)))]).astype(np.int32)
    sparse: tuple[np.ndarray, ...] = (ids.astype(two_bytes(x.shape[1])), starts)
    if not (values == 1).all():
        sparse = (*sparse, values)
    return sparse if sum(part.nbytes for part in sparse) < x.nbytes else (x,)


def unpacked(parts: Sequence[np.ndarray], width: int) -> np.ndarray:
    """The inverse of `packed`, (n, width)."""
    if len(parts) == 1:
        return parts[0]
    ids, starts = parts[0].astype(np.int64), parts[1]
    x = np.zeros((len(starts) - 1, width), parts[2].dtype if len(parts) == 3 else np.float32)
    x[np.repeat(np.arange(len(x)), np.diff(starts)), ids] = parts[2] if len(parts) == 3 else 1
    return x


def upper(edges: np.ndarray, nodes: int) -> np.ndarray:
    """One direction of each edge, (E / 2, 2), in integers of two bytes where they suffice."""
    return np.ascontiguousarray(edges[:, edges[0] < edges[1]].T.astype(two_bytes(nodes)))


def both(halves: Sequence[np.ndarray]) -> np.ndarray:
    """The union of edges, of which each party gave one direction: (2, E), both directions, sorted."""
    pairs = np.concatenate([half.astype(np.int64) for half in halves])
    return np.unique(np.concatenate([pairs, pairs[:, ::-1]]), axis=0).T


def propagated(x: np.ndarray, edges: np.ndarray, hops: int, components: int) -> np.ndarray:
    """Z: principal components of A^K X, (n, r) float32; A has self-loops, and is normalised by the party's degrees."""
    from scipy.sparse import csr_array

    block = full_block(Graph.from_edges(edges, len(x)))
    a = csr_array((block.weights, block.columns, block.start), shape=(len(x), len(x)))
    z = x.astype(np.float64)
    for _ in range(hops):
        z = a @ z
    return np.stack(Projection.fit(z, components).encode(z), axis=1).astype(np.float32)


# --- server -----------------------------------------------------------------------------------------------------------


async def receive(me: Party, public: GraphPublic) -> None:
    """Keep in `me.state` what the clients send, and the labels of all nodes, -1 where unknown."""
    labels = np.full(public.nodes, -1)
    labels[public.splits["train"]] = await me.recv(me.clients[0], tag="labels")
    me.state.labels, me.state.received = labels, await me.recv_all(me.clients, tag="features")


async def on_graph(me: Party, data: None, public: GraphPublic, config: RunConfig[Config], widths: list[int]) -> None:
    """form=raw: train a graph network on all columns and the union of edges.

    Parameters
    ----------
    widths : columns of each client.
    """
    nothing = GraphPart(np.zeros((0, sum(widths)), np.float32), np.zeros((2, 0), np.int64), np.zeros(0, np.int64))
    learner = alone.made(me, nothing, public, config)
    me.state.labels, me.state.received = nothing.labels, []
    graph: Graph | None = None

    async for t in me.rounds():
        if t == 1:
            await receive(me, public)
        if graph is None:
            blocks = [unpacked(parts, width) for (*parts, _), width in zip(me.state.received, widths, strict=True)]
            edges = both([halves for *_, halves in me.state.received])
            part = GraphPart(np.concatenate(blocks, axis=1), edges, me.state.labels)
            learner.take(part)
            graph = alone.own_graph(learner, part, public)
            whole = learner.whole(full_block(graph))
        await alone.step(me, learner, graph, public, t)
        if me.evaluates(t):
            async with me.evaluating():
                logits = await joint_inference(learner.model, *whole, exchange=None)
            me.report(predictions=predictions(logits, public.splits))


async def on_rows(me: Party, data: None, public: GraphPublic, config: RunConfig[Config], widths: list[int]) -> None:
    """form=propagated: train a head on the rows of all training nodes.

    Parameters
    ----------
    widths : columns that each client sends.
    """
    cfg = config.algorithm
    assert config.rounds is not None  # decided by the runner
    head = Head(config.model, cfg.head, sum(widths), public.classes, me.torch_rng("init"))
    me.state.model = head = head.to(me.device)
    me.state.optimizer = optimizer = graph_learner.make_optimizer(cfg, head)
    me.state.labels, me.state.received = np.zeros(0, np.int64), []
    x: Tensor | None = None
    train = torch.tensor(public.splits["train"], device=me.device)

    async for t in me.rounds():
        if t == 1:
            await receive(me, public)
        if x is None:
            rows = np.stack([column for parts in me.state.received for column in parts], axis=1)
            x = torch.from_numpy(rows / rows[public.splits["train"]].std()).to(me.device, DTYPES[config.model.dtype])
            y = torch.from_numpy(me.state.labels).to(me.device)[train]
        graph_learner.set_lr(cfg, optimizer, t, config.rounds)
        loss = F.cross_entropy(head(x[train], me.torch_rng("dropout")), y)
        await me.compute(graph_learner.update, optimizer, loss, cost=3 * len(y))
        me.report(train_loss=loss.item(), iterations=t)
        if me.evaluates(t):
            with torch.no_grad():
                logits = head(x)
            me.report(predictions=predictions(logits, public.splits))


class Head(nn.Module):
    """Logits of rows (n, width): linear, or with one hidden layer of ReLUs and dropout."""

    def __init__(self, config: GnnConfig, kind: str, width: int, classes: int, generator: torch.Generator) -> None:
        super().__init__()
        sizes = [width, config.hidden, classes] if kind == "mlp" else [width, classes]
        self.drop, pairs = config.dropout, list(itertools.pairwise(sizes))
        self.weights = nn.ParameterList(gnn.glorot(inputs, outputs, generator) for inputs, outputs in pairs)
        self.biases = nn.ParameterList(nn.Parameter(torch.zeros(outputs)) for _, outputs in pairs)
        self.to(DTYPES[config.dtype])

    def forward(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """The logits, (n, classes); dropout only if a generator is given."""
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = torch.addmm(bias, gnn.dropout(torch.relu(x), self.drop, generator) if layer else x, weight)
        return x
