"""Synthetic twins of graph data sets: same sizes, classes, sparsity and homophily as the real one, learnable, made from
a fixed seed.

A twin never depends on the run's seed: every run of a study sees the same data, as with a real data set.
"""

from dataclasses import dataclass

import numpy as np

from vflbench.data.partition import RawGraph, distinct, undirected
from vflbench.seeding import stream
from vflbench.types import DataSource


@dataclass(frozen=True)
class WordShape:
    """What the twin of a citation graph keeps of it."""

    class_counts: tuple[int, ...]
    unlabelled: int  # isolated nodes with neither words nor label (CiteSeer)
    edges: int  # undirected
    features: int
    words: float  # mean number of non-zero features of a node
    homophily: float  # fraction of edges within a class
    topic: float  # fraction of a node's words that come from its class; the rest is common language
    # fraction of nodes whose words and citations are those of another class: what keeps a good model from 100 %
    misread: float
    weighted: bool = False  # tf-idf-like values instead of ones (PubMed)


def twin_source(variant: str | None = None, note: str = "") -> DataSource:
    return DataSource(
        kind="synthetic",
        variant=variant,
        note=note or "synthetic twin: made-up data with the sizes of the real data set",
    )


def word_graph(name: str, shape: WordShape) -> RawGraph:
    """Twin of a citation graph: bags of words by class topic, heavy-tailed degrees, the given homophily."""
    rng = stream(0, f"twin/{name}")
    classes = len(shape.class_counts)
    labels = rng.permutation(np.repeat(np.arange(classes), shape.class_counts))
    looks = labels.copy()
    misread = rng.permutation(len(labels))[: round(shape.misread * len(labels))]
    looks[misread] = (looks[misread] + rng.integers(1, classes, len(misread))) % classes
    words = _bags_of_words(looks, classes, shape, rng)
    pairs = homophilous_pairs(looks, shape.edges, _among_looks(shape.homophily, labels, looks, classes), rng)
    # The isolated nodes stand at random places, like CiteSeer's.
    nodes = len(labels) + shape.unlabelled
    place = np.sort(rng.permutation(nodes)[: len(labels)])
    features = np.zeros((nodes, shape.features), np.float32)
    features[place] = words
    everyone = np.full(nodes, -1, np.int64)
    everyone[place] = labels
    return RawGraph(features, undirected(place[pairs], nodes), everyone, classes)


def _among_looks(homophily: float, labels: np.ndarray, looks: np.ndarray, classes: int) -> float:
    """The fraction of edges within a look that gives `homophily` within a label."""
    joint = np.zeros((classes, classes))
    np.add.at(joint, (looks, labels), 1 / len(labels))
    share = joint.sum(axis=1)
    same = (joint / share[:, None]) @ (joint / share[:, None]).T  # chance of one label, for a pair of looks
    other = share[:, None] * share[None, :] / (1 - share[:, None])
    np.fill_diagonal(other, 0)
    inside, outside = share @ np.diag(same), (other * same).sum()
    return float(np.clip((homophily - outside) / (inside - outside), 0, 1))


def _bags_of_words(labels: np.ndarray, classes: int, shape: WordShape, rng: np.random.Generator) -> np.ndarray:
    """(nodes, features) float32: word w occurs in a node of class c with probability ~ (1 - topic) common(w) + topic
    class_c(w)."""
    d = shape.features
    common = 1 / (np.arange(d) + 10.0)  # Zipf-like, flattened at the head
    rng.shuffle(common)
    # A class prefers some words twenty to one; neighbouring classes share half of theirs, so that words alone do not
    # settle the class.
    size = max(1, d // classes)
    order = rng.permutation(d)
    prefers = np.zeros((classes, d))
    for c in range(classes):
        prefers[c, np.take(order, np.arange(c * size, c * size + 2 * size), mode="wrap")] = 1
    topics = common * prefers
    chance = (1 - shape.topic) * common / common.sum() + shape.topic * topics / topics.sum(axis=1, keepdims=True)
    chance = np.minimum(_scaled(chance, shape.words), 0.9).astype(np.float32)
    present = rng.random((len(labels), d), dtype=np.float32) < chance[labels]
    empty = np.flatnonzero(~present.any(axis=1))
    present[empty, rng.integers(0, d, len(empty))] = True
    if not shape.weighted:
        return present.astype(np.float32)
    # rare words weigh more than common ones: one idf a word
    value = np.exp(rng.normal(np.log(0.03), 0.8, size=(1, d))).astype(np.float32)
    return np.where(present, value * (0.5 + rng.random(present.shape, dtype=np.float32)), np.float32(0))


def _scaled(chance: np.ndarray, words: float) -> np.ndarray:
    """`chance` times a factor per row, so that a row capped at 0.9 still sums to `words`."""
    factor = np.full((len(chance), 1), words)
    for _ in range(20):
        factor *= words / np.minimum(factor * chance, 0.9).sum(axis=1, keepdims=True)
    return factor * chance


def homophilous_pairs(labels: np.ndarray, edges: int, homophily: float, rng: np.random.Generator) -> np.ndarray:
    """Exactly `edges` distinct node pairs (2, edges), a fraction `homophily` of them within a class, degrees
    heavy-tailed.

    Nearly every node has an edge, as in the real graphs, where `edges` is not smaller than the number of nodes. The
    pairs must exist: a graph that is asked to be nearly complete is drawn for a long time.
    """
    nodes = len(labels)
    weight = rng.pareto(2.5, nodes) + 0.3
    order = np.argsort(labels, kind="stable")
    counts = np.bincount(labels)
    starts = np.concatenate([[0], np.cumsum(counts)])
    # of the nodes in class order: drawing a class is drawing from an interval
    mass = np.concatenate([[0.0], np.cumsum(weight[order])])

    def partner(first: np.ndarray, within: bool) -> np.ndarray:
        """A weighted node of the same class, or of any other one."""
        low, high, total = mass[starts[labels[first]]], mass[starts[labels[first] + 1]], mass[-1]
        chance = rng.random(len(first))
        at = low + chance * (high - low) if within else (high + chance * (total - (high - low))) % total
        return order[np.minimum(np.searchsorted(mass, at, side="right") - 1, nodes - 1)]

    def anyone(count: int) -> np.ndarray:
        return order[np.minimum(np.searchsorted(mass, rng.random(count) * mass[-1], side="right") - 1, nodes - 1)]

    def draw(first: np.ndarray, within: bool) -> np.ndarray:
        """Distinct keys low * nodes + high of edges that begin at `first`; those that do not fit are left out."""
        second = partner(first, within)
        fits = (first != second) & ((labels[first] == labels[second]) == within)
        return distinct(np.minimum(first, second)[fits] * nodes + np.maximum(first, second)[fits])

    inside = round(homophily * edges)
    chosen = []
    for within, target in ((True, inside), (False, edges - inside)):
        everyone = rng.permutation(nodes)[: round(target / edges * nodes) if edges else 0]
        firsts = rng.permutation(draw(everyone, within))[:target]  # so that every node has an edge
        more = np.empty(0, np.int64)
        while len(more) < target - len(firsts):
            new = draw(anyone(int(1.3 * (target - len(firsts) - len(more))) + 16), within)
            more = distinct(np.concatenate([more, new[~np.isin(new, firsts)]]))
        chosen += [firsts, rng.permutation(more)[: target - len(firsts)]]
    keys = np.concatenate(chosen)
    return np.stack([keys // nodes, keys % nodes])


def dense_block(labels: np.ndarray, width: int, signal: float, rng: np.random.Generator) -> np.ndarray:
    """(nodes, width) float32 of class centres plus unit noise; `signal` is the distance scale between centres in units
    of the noise."""
    centres = rng.normal(size=(int(labels.max()) + 1, width)) * signal / np.sqrt(width)
    return (centres[labels] + rng.normal(size=(len(labels), width))).astype(np.float32)
