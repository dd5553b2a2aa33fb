"""The server of a split graph network infers a client's edges.

source=ids: every round the server names a batch, and each client sends the nodes that it has sampled around it (tag
`nodes`). A neighbour of b is sampled where b is in the batch, and rarely where it is not:

    score(b, x) = P(x among the client's nodes | b in the batch) - P(x among the client's nodes)

Noise on embeddings does not touch this.

source=embeddings: neighbours are smoothed into each other, so their rows are alike. The score of a pair is the mean
cosine of their rows in a client's messages (tag `embedding`), which are centred by the message's mean. After He et al.,
"Stealing Links from Graph Neural Networks", USENIX Security 2021, who compare the outputs of a trained network.

Threat model: an honest but curious server, with what it sent and received. It knows no edge. `success` is the area
under the curve over pairs of a node b and every other node that was seen; b is in some batch (ids), or any node that
was seen (embeddings), at most `rows` of a client. `floor` is 0.5. The truth is the client's own graph, without edges
that it lost.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np

from vflbench.attacks import score
from vflbench.attacks.transcript import Message, Watch, by_round
from vflbench.data.tasks import GraphTask
from vflbench.federation.party import SERVER
from vflbench.seeding import stream
from vflbench.types import Problem, RunConfig

MOST_NODES = 20_000  # pairs are kept as a dense matrix
BEST = 500  # pairs of the highest scores, whose precision is told


def watch(task: GraphTask, config: RunConfig, hubs: list[str]) -> Watch:
    """The server's view."""
    if config.attack.source == "ids":
        return Watch(SERVER, frozenset(("nodes",)), frozenset(("batch",)))
    return Watch(SERVER, frozenset(("embedding",)), frozenset(("batch", "union")))


def check_task(task: GraphTask, config: RunConfig) -> list[Problem]:
    """Return a problem where a matrix of all pairs would be too large."""
    if len(task.labels) <= MOST_NODES:
        return []
    allowed = f"keeps a score for every pair: at most {MOST_NODES} nodes, and {task.name} has {len(task.labels)}"
    return [Problem("attack", config.attack.name, allowed)]


def attack(view: Iterable[Message], task: GraphTask, config: RunConfig, hubs: list[str]) -> dict[str, Any]:
    """Attack every client, and return the summary's `attack`."""
    source, nodes = config.attack.source, len(task.labels)
    found = (by_ids if source == "ids" else by_embeddings)(view, nodes)
    clients: dict[str, Any] = {}
    scores, truth, victims = [np.zeros(0)], [np.zeros(0, bool)], [np.zeros(0, np.int64)]
    count = 0
    for number, name in enumerate(hubs):
        if name not in found or not len(found[name][0]):
            continue
        chosen = stream(config.seed, f"attack/{name}").permutation(len(found[name][0]))[: config.attack.rows]
        heads, own = found[name][0][chosen], found[name][1][chosen]
        edges = np.zeros((nodes, nodes), bool)
        edges[task.edges[number][0], task.edges[number][1]] = True
        pairs = np.isfinite(own)
        pairs[np.arange(len(heads)), heads] = False
        victim = np.nonzero(pairs)[0]
        scores.append(own[pairs])
        truth.append(edges[heads][pairs])
        victims.append(victim + count)
        every = np.ones(len(heads))
        clients[name] = {"nodes": len(heads), "auroc": score.area(scores[-1], truth[-1], victim)(every)}
        count += len(heads)
    values, edge = np.concatenate(scores), np.concatenate(truth)
    count = count if edge.any() else 0
    area = score.area(values, edge, np.concatenate(victims))
    common = score.result(area, score.constant(0.5), count, config.seed)
    return {"name": "edge_inference", "source": source, **common, **_precision(values, edge), "clients": clients}


def by_ids(view: Iterable[Message], nodes: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """By client the nodes b that were in a batch, (n,), and scores of their pairs with every node, (n, nodes)."""
    together: dict[str, np.ndarray] = {}
    batches, seen, rounds = np.zeros(nodes), dict[str, np.ndarray](), 0
    for _, messages in by_round(view):
        batch = next((message.arrays[0] for message in messages if message.tag == "batch"), None)
        if batch is None:
            continue
        first = {message.src: message.arrays[0] for message in reversed(messages) if message.tag == "nodes"}
        batches[batch] += 1
        rounds += 1
        for name, level in first.items():
            together.setdefault(name, np.zeros((nodes, nodes), np.float32))[np.ix_(batch, level)] += 1
            seen.setdefault(name, np.zeros(nodes))[level] += 1
    heads = np.flatnonzero(batches)
    return {
        name: (heads, counts[heads] / batches[heads, None] - seen[name] / rounds) for name, counts in together.items()
    }


def by_embeddings(view: Iterable[Message], nodes: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """By client the nodes that were seen, (n,), and the mean cosines of their rows, (n, nodes); NaN where never."""
    total: dict[str, np.ndarray] = {}
    times: dict[str, np.ndarray] = {}
    for _, messages in by_round(view):
        united: dict[str, list[np.ndarray]] = {}  # by client, from the highest level down; the batch is above all
        rows: dict[str, list[np.ndarray]] = {}  # from the lowest aggregation up
        for message in messages:
            if message.tag == "embedding":
                rows.setdefault(message.src, []).append(message.arrays[0])
            else:
                united.setdefault(message.dst, []).append(message.arrays[0])
        for name, own in rows.items():
            for ids, h in zip(united[name][: len(own)][::-1], own, strict=True):
                centred = h.astype(np.float32) - h.mean(axis=0)
                unit = centred / np.linalg.norm(centred, axis=1, keepdims=True).clip(min=1e-12)
                where = np.ix_(ids, ids)
                total.setdefault(name, np.zeros((nodes, nodes), np.float32))[where] += unit @ unit.T
                times.setdefault(name, np.zeros((nodes, nodes), np.float32))[where] += 1
    found = {}
    for name, sums in total.items():
        heads = np.flatnonzero(times[name].diagonal())
        with np.errstate(invalid="ignore"):
            found[name] = heads, sums[heads] / times[name][heads]
    return found


def _precision(scores: np.ndarray, edge: np.ndarray) -> dict[str, Any]:
    """How many of the pairs with the highest scores are edges: as many as there are edges, and the best few."""
    edges = int(edge.sum())
    if not edges:
        return {"pairs": len(edge), "edges": 0, "precision": None, "precision_of_best": None}
    order = np.argsort(-scores, kind="stable")
    precision, best = (float(edge[order[:most]].mean()) for most in (edges, BEST))
    return {"pairs": len(edge), "edges": edges, "precision": precision, "precision_of_best": best}
