import logging

import numpy as np
import pytest
from scipy import sparse

from vflbench.cards.data.graph import herigraph as herigraph_card
from vflbench.cards.data.graph import planetoid as planetoid_card
from vflbench.cards.data.graph import reddit as reddit_card
from vflbench.data import twins
from vflbench.data.divide import partition
from vflbench.data.graph import herigraph, planetoid, reddit

SIZES = {
    "cora": (2708, 1433, 5278, 7, 18.17),
    "citeseer": (3327, 3703, 4552, 6, 31.7),
    "pubmed": (19717, 500, 44324, 3, 50.1),
}


def homophily(labels, edges):
    return (labels[edges[0]] == labels[edges[1]]).mean()


@pytest.mark.parametrize("name", SIZES)
def test_twin_has_the_sizes_sparsity_and_homophily_of_the_real_graph(name):
    shape = planetoid._TWINS[name]
    graph = twins.word_graph(name, shape)
    nodes, features, edges, classes, words = SIZES[name]
    assert graph.features.shape == (nodes, features) and graph.edges.shape == (2, 2 * edges)
    assert (
        np.bincount(graph.labels[graph.labels >= 0]).tolist() == list(shape.class_counts) and graph.classes == classes
    )
    labelled = graph.labels >= 0
    assert (graph.features[labelled] > 0).sum(axis=1).mean() == pytest.approx(words, rel=0.03)
    assert not graph.features[~labelled].any() and labelled[graph.edges].all()
    assert homophily(graph.labels, graph.edges) == pytest.approx(shape.homophily, abs=0.03)
    assert np.isin(graph.features, (0, 1)).all() != shape.weighted
    degrees = np.bincount(graph.edges[0], minlength=nodes)
    assert (degrees[labelled] == 0).mean() < 0.03 and degrees.max() > 10 * degrees.mean()


def test_a_twin_is_the_same_every_time():
    a, b = (twins.word_graph("cora", planetoid._TWINS["cora"]) for _ in range(2))
    assert np.array_equal(a.features, b.features) and np.array_equal(a.edges, b.edges)


def scores(task):
    """Test accuracy of a linear model: on one party's features alone, with its own graph, and on everything with the
    whole graph."""
    from sklearn.linear_model import LogisticRegression

    def score(features, edges, hops):
        n = len(task.labels)
        adjacency = sparse.coo_matrix((np.ones(edges.shape[1]), edges), shape=(n, n)) + sparse.eye(n)
        scale = sparse.diags(np.asarray(adjacency.sum(axis=1)).ravel() ** -0.5)
        for _ in range(hops):
            features = scale @ adjacency @ scale @ features
        features = features / np.abs(features).mean() / 10
        train, test = task.splits["train"], task.splits["test"]
        return (
            LogisticRegression(max_iter=200)
            .fit(features[train], task.labels[train])
            .score(features[test], task.labels[test])
        )

    joined = task.joined()
    alone, own = score(task.features[0], task.edges[0], 0), score(task.features[0], task.edges[0], 2)
    return alone, own, score(joined.features, joined.edges, 0), score(joined.features, joined.edges, 2)


def test_coras_twin_is_learnable_and_the_join_is_worth_it():
    task = planetoid.load(planetoid_card.Config(source="synthetic"), "graph", 3, 0, None)
    alone, own_graph, features, graph = scores(task)
    assert 0.75 < graph < 0.90  # Cora itself: 0.82 by this model
    assert alone + 0.1 < features < graph - 0.1 and own_graph < graph - 0.04


def test_reddits_twin_has_the_chosen_size():
    task = reddit.load(reddit_card.Config(source="synthetic", nodes=3000), "graph", 3, 0, None)
    assert task.source.kind == "synthetic" and task.source.variant == "3000 nodes" and task.classes == 41
    assert (
        len(task.labels) == 3000
        and task.all_edges.shape == (2, 150000)
        and sum(block.shape[1] for block in task.features) == 602
    )
    assert homophily(task.labels, task.all_edges) == pytest.approx(0.76, abs=0.01)


@pytest.mark.slow
def test_herigraphs_twin_has_three_graphs_and_three_blocks(caplog):
    with caplog.at_level(logging.WARNING):
        task = herigraph.load(herigraph_card.Config(name="venice"), "graph", 3, 0, None)
    assert task.source.kind == "synthetic" and "SYNTHETIC TWIN" in caplog.text
    assert [block.shape for block in task.features] == [(2951, 512), (2951, 365), (2951, 102)]
    assert [edges.shape[1] // 2 for edges in task.edges] == [249120, 242576, 221414]
    assert np.bincount(task.labels[task.labels >= 0]).tolist() == [196, 392, 28, 65, 177, 274, 188, 8, 28]


def test_pairs_are_distinct_and_exactly_as_many_as_asked():
    labels = np.random.default_rng(0).integers(0, 3, 100)
    for edges in (0, 20, 100, 1500):
        pairs = twins.homophilous_pairs(labels, edges, 0.7, np.random.default_rng(1))
        assert (
            pairs.shape == (2, edges)
            and (pairs[0] < pairs[1]).all()
            and partition.undirected(pairs, 100).shape[1] == 2 * edges
        )
        assert (labels[pairs[0]] == labels[pairs[1]]).sum() == round(0.7 * edges)
