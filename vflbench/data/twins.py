"""Synthetic twins of graph data sets: learnable, with the sizes, classes, sparsity and homophily of the real ones.

A twin is made from a fixed seed, not the run's. So every run of a study sees the same data, as with a real data set.
"""

from dataclasses import dataclass

import numpy as np

from vflbench.data.divide.partition import RawGraph, distinct, undirected
from vflbench.seeding import stream
from vflbench.types import DataSource


@dataclass(frozen=True)
class WordShape:
    """The properties of a citation graph that its twin has, too."""

    class_counts: tuple[int, ...]
    unlabelled: int  # isolated nodes with neither words nor label (CiteSeer)
    edges: int  # undirected
    features: int
    words: float  # mean number of non-zero features of a node
    homophily: float  # fraction of edges within a class
    topic: float  # fraction of a node's words that come from its class; the rest is common language
    # fraction of nodes with words and citations of another class, so that no model reaches 100 %
    misread: float
    weighted: bool = False  # tf-idf-like values instead of ones (PubMed)


def twin_source(variant: str | None = None, note: str = "") -> DataSource:
    """The record of a twin as a source of data."""
    default = "synthetic twin: made-up data with the sizes of the real data set"
    return DataSource(kind="synthetic", variant=variant, note=note or default)


def word_graph(name: str, shape: WordShape) -> RawGraph:
    """The twin of a citation graph: bags of words by class topic, heavy-tailed degrees, the given homophily."""
    rng = stream(0, f"twin/{name}")
    classes = len(shape.class_counts)
    labels = rng.permutation(np.repeat(np.arange(classes), shape.class_counts))
    looks = labels.copy()
    misread = rng.permutation(len(labels))[: round(shape.misread * len(labels))]
    looks[misread] = (looks[misread] + rng.integers(1, classes, len(misread))) % classes
    words = _bags_of_words(looks, classes, shape, rng)
    pairs = homophilous_pairs(looks, shape.edges, _among_looks(shape.homophily, labels, looks, classes), rng)
    # The isolated nodes are at random places, as in CiteSeer.
    nodes = len(labels) + shape.unlabelled
    place = np.sort(rng.permutation(nodes)[: len(labels)])
    features = np.zeros((nodes, shape.features), np.float32)
    features[place] = words
    all_labels = np.full(nodes, -1, np.int64)
    all_labels[place] = labels
    return RawGraph(features, undirected(place[pairs], nodes), all_labels, classes)


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
    """Bags of words, (nodes, features) float32.

    Word w occurs in a node of class c with a probability proportional to (1 - topic) common(w) + topic class_c(w).
    """
    d = shape.features
    common = 1 / (np.arange(d) + 10.0)  # Zipf-like, flattened at the head
    rng.shuffle(common)
    # A class prefers some words. Neighbouring classes share half of theirs, so that words alone do not give the class.
    size = max(1, d // classes)
    order = rng.permutation(d)
    prefers = np.zeros((classes, d))
    for c in range(classes):
        prefers[c, np.take(order, np.arange(c * size, c * size + 2 * size), mode="wrap")] = 1
    topics = common * prefers
    chance = (1 - shape.topic) * common / common.sum() + shape.topic * topics / topics.sum(axis=1, keepdims=True)
    chance = np.minimum(_scaled(chance, shape.words), 0.9).astype(np.float32)
    present: np.ndarray = rng.random((len(labels), d), dtype=np.float32) < chance[labels]
    empty = np.flatnonzero(~present.any(axis=1))
    present[empty, rng.integers(0, d, len(empty))] = True
    if not shape.weighted:
        return present.astype(np.float32)
    # one idf per word
    value = np.exp(rng.normal(np.log(0.03), 0.8, size=(1, d))).astype(np.float32)
    return np.where(present, value * (0.5 + rng.random(present.shape, dtype=np.float32)), np.float32(0))


def _scaled(chance: np.ndarray, words: float) -> np.ndarray:
    """`chance` times a factor per row, so that a row that is capped at 0.9 still sums to `words`."""
    factor = np.full((len(chance), 1), words)
    for _ in range(20):
        factor *= words / np.minimum(factor * chance, 0.9).sum(axis=1, keepdims=True)
    scaled: np.ndarray = factor * chance
    return scaled


def homophilous_pairs(labels: np.ndarray, edges: int, homophily: float, rng: np.random.Generator) -> np.ndarray:
    """Exactly `edges` distinct node pairs, (2, edges), with a fraction `homophily` of them within a class.

    Degrees are heavy-tailed. If `edges` is at least the number of nodes, nearly every node has an edge, as in the real
    graphs. There must be enough pairs: a nearly complete graph takes a long time.
    """
    nodes = len(labels)
    weight = rng.pareto(2.5, nodes) + 0.3
    order = np.argsort(labels, kind="stable")
    counts = np.bincount(labels)
    starts = np.concatenate([[0], np.cumsum(counts)])
    # of the nodes in class order, so that a class is an interval
    mass = np.concatenate([[0.0], np.cumsum(weight[order])])

    def nodes_at(place: np.ndarray) -> np.ndarray:
        """The nodes at places in the cumulated weights."""
        return order[np.minimum(np.searchsorted(mass, place, side="right") - 1, nodes - 1)]

    def partners(first: np.ndarray, within: bool) -> np.ndarray:
        """For each node a weighted random node of the same class, or of another class."""
        low, high, total = mass[starts[labels[first]]], mass[starts[labels[first] + 1]], mass[-1]
        chance = rng.random(len(first))
        return nodes_at(low + chance * (high - low) if within else (high + chance * (total - (high - low))) % total)

    def draw(first: np.ndarray, within: bool) -> np.ndarray:
        """Distinct keys low * nodes + high of edges that begin at `first`; those that do not fit are left out."""
        second = partners(first, within)
        fits = (first != second) & ((labels[first] == labels[second]) == within)
        return distinct(np.minimum(first, second)[fits] * nodes + np.maximum(first, second)[fits])

    inside = round(homophily * edges)
    chosen = []
    for within, target in ((True, inside), (False, edges - inside)):
        some = rng.permutation(nodes)[: round(target / edges * nodes) if edges else 0]
        firsts = rng.permutation(draw(some, within))[:target]  # so that every node has an edge
        more = np.empty(0, np.int64)
        while len(more) < target - len(firsts):
            count = int(1.3 * (target - len(firsts) - len(more))) + 16
            new = draw(nodes_at(rng.random(count) * mass[-1]), within)
            more = distinct(np.concatenate([more, new[~np.isin(new, firsts)]]))
        chosen += [firsts, rng.permutation(more)[: target - len(firsts)]]
    keys = np.concatenate(chosen)
    return np.stack([keys // nodes, keys % nodes])


def dense_block(labels: np.ndarray, width: int, signal: float, rng: np.random.Generator) -> np.ndarray:
    """Class centres plus noise of deviation 1, (nodes, width) float32; `signal` scales the distances of centres."""
    centres = rng.normal(size=(int(labels.max()) + 1, width)) * signal / np.sqrt(width)
    block: np.ndarray = centres[labels] + rng.normal(size=(len(labels), width))
    return block.astype(np.float32)
