"""Randomised response on edges: rates, candidates, symmetry, streams, what is refused and reported."""

from __future__ import annotations

import logging
import math

import numpy as np
import pytest
from scipy.stats import binomtest

from tests.algorithms.small_graphs import symmetric, task
from tests.every import few_fast
from tests.options import check_keys, make_mechanism, privacy_config
from vflbench import seeding
from vflbench.privacy import edge_rr
from vflbench.privacy.edge_rr import Pairs, RandomisedEdges, bernoulli, flip_rate
from vflbench.types import ConfigError


def dense(edges: np.ndarray, nodes: int) -> np.ndarray:
    matrix = np.zeros((nodes, nodes), bool)
    matrix[edges[0], edges[1]] = True
    return matrix


@pytest.mark.parametrize("secret", [False, True])
@pytest.mark.parametrize("epsilon", few_fast([0.5, 2.0, 6.0]))
def test_every_candidate_flips_at_the_rate_and_others_show_nothing(epsilon: float, secret: bool) -> None:
    """Edges and pairs without one at the same rate: each count within the binomial's middle 99.9 %."""
    nodes, public = 400, np.arange(50, 300)
    rng = np.random.default_rng(7)
    edges = symmetric(rng.integers(0, nodes, (2, 4000)))
    stream = seeding.Secret().stream("edges") if secret else seeding.stream(11, "edges/client_0")
    shown = RandomisedEdges(epsilon).respond(edges, public, nodes, stream)
    assert shown.dtype == np.int64 and np.array_equal(shown, symmetric(shown))  # both directions, sorted, no loops
    before, after = dense(edges, nodes), dense(shown, nodes)
    upper, listed = np.triu(np.ones((nodes, nodes), bool), 1), np.isin(np.arange(nodes), public)
    candidates = upper & (listed[:, None] | listed[None, :])
    assert not (after & upper & ~candidates).any() and (before & upper & ~candidates).any()
    for there in (before, ~before):
        flips, count = int((after != before)[candidates & there].sum()), int((candidates & there).sum())
        assert binomtest(flips, count, 1 / (1 + math.exp(epsilon))).pvalue > 1e-3
    first = candidates & (np.arange(nodes) < nodes // 2)[:, None]  # wherever the pair stands
    flips, count = int((after != before)[first].sum()), int(first.sum())
    assert binomtest(flips, count, flip_rate(epsilon)).pvalue > 1e-3


def test_the_response_is_that_of_the_named_stream_and_stays() -> None:
    graph = task(nodes=30)
    one, other = RandomisedEdges(1.0), RandomisedEdges(1.0)
    shown = one.respond(graph.edges[0], np.arange(30), 30, seeding.stream(3, "edges/client_0"))
    assert np.array_equal(shown, other.respond(graph.edges[0], np.arange(30), 30, seeding.stream(3, "edges/client_0")))
    fresh = RandomisedEdges(1.0).respond(graph.edges[0], np.arange(30), 30, seeding.stream(3, "edges/client_1"))
    assert fresh.shape != shown.shape or (fresh != shown).any()
    assert one.respond(graph.edges[0], np.arange(30), 30, seeding.stream(4, "edges/client_0")) is shown
    resumed = RandomisedEdges(1.0)
    resumed.load_state_dict(one.state_dict())
    assert resumed.respond(graph.edges[1], np.arange(30), 30, seeding.stream(9, "x")) is shown
    assert resumed.spent() == one.spent()


def test_pairs_are_numbered_once_each() -> None:
    for public in (np.arange(7), np.array([2, 5]), np.array([6]), np.zeros(0, np.int64)):
        pairs = Pairs(public, 7)
        edges = pairs.edges(np.arange(pairs.count))
        wanted = [(u, v) for u in range(7) for v in range(7) if u != v and (u in public or v in public)]
        assert [tuple(pair) for pair in edges.T.tolist()] == wanted and pairs.count == len(wanted) // 2
        assert np.array_equal(pairs.numbers(edges[:, edges[0] < edges[1]]), np.arange(pairs.count))
        every = symmetric(np.array(np.meshgrid(np.arange(7), np.arange(7))).reshape(2, -1))
        assert np.array_equal(pairs.numbers(every[:, every[0] < every[1]]), np.arange(pairs.count))


def test_numbers_come_up_independently_whatever_the_size_of_a_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    found = bernoulli(2_000_000, 0.01, np.random.default_rng(0))
    assert (np.diff(found) > 0).all() and found[0] >= 0 and found[-1] < 2_000_000
    assert binomtest(len(found), 2_000_000, 0.01).pvalue > 1e-3
    follows = int((np.diff(found) == 1).sum())  # one after another: the rate squared
    assert binomtest(follows, len(found), 0.01).pvalue > 1e-3
    monkeypatch.setattr(edge_rr, "AT_ONCE", 7)
    assert np.array_equal(bernoulli(500, 0.5, np.random.default_rng(0)), pieces(500, 0.5))
    assert len(bernoulli(500, 0.0, np.random.default_rng(0))) == 0
    assert len(bernoulli(10**9, flip_rate(500), np.random.default_rng(0))) == 0


def pieces(count: int, rate: float) -> np.ndarray:
    """By the definition: one gap after another, seven numbers of the stream at once."""
    rng, at, found = np.random.default_rng(0), -1, []
    while at < count - 1:
        for u in rng.random(7):
            at += 1 + int(math.log(1 - u) / math.log(1 - rate))
            found.append(at)
    return np.array([one for one in found if one < count])


def test_without_a_budget_edges_stay() -> None:
    graph = task(nodes=30)
    same = RandomisedEdges(math.inf).respond(graph.edges[0], np.arange(30), 30, np.random.default_rng(0))
    assert np.array_equal(same, graph.edges[0])


def test_what_is_spent_is_an_edges_and_beside_it_a_rows() -> None:
    alone = make_mechanism(privacy_config("edge_rr"), 4, "graph")
    assert alone.rows is None and alone.spent()["epsilon"] == 0
    graph = task(nodes=30)
    both = make_mechanism(privacy_config("edge_rr", epsilon=3.0, row_epsilon=2.0, clip=0.5), 4, "graph")
    for one in (alone, both):
        one.respond(graph.edges[0], np.arange(30), 30, np.random.default_rng(0))
    fresh = len(set(map(tuple, alone.shown.T)) - set(map(tuple, graph.edges[0].T)))  # in both directions
    assert alone.false_edges == fresh / graph.edges[0].shape[1]
    said = alone.spent()
    assert (said["epsilon"], said["delta"], said["target"], said["accountant"]) == (8, 0, {"epsilon": 8}, "pure")
    assert (said["unit"], said["neighbouring"]) == ("one edge of one client's graph", "add_remove")
    assert said["not_covered"] == ["nodes' features", "labels"] and "row_epsilon" not in said
    import torch

    for _ in range(4):
        both.rows.protect(torch.ones(3, 2), np.arange(3), torch.Generator().manual_seed(0))
    said = both.spent()
    assert said["epsilon"] == 3 and said["row_epsilon"] == pytest.approx(2, rel=1e-6)
    assert (said["clip"], said["row_neighbouring"], said["row_releases"]) == (
        0.5,
        "replace_one",
        {"planned": 4, "done": 4},
    )
    assert said["clipped_share"] == 1 and "row_clipped_share" not in said
    state = make_mechanism(privacy_config("edge_rr", epsilon=3.0, row_epsilon=2.0, clip=0.5), 4, "graph")
    state.load_state_dict(both.state_dict())
    assert state.spent() == said


def test_keys() -> None:
    assert check_keys(privacy_config("edge_rr")) == []
    assert [p.key for p in check_keys(privacy_config("edge_rr", row_epsilon=0.0, clip=0.0))] == ["row_epsilon", "clip"]
    assert [p.key for p in check_keys(privacy_config("edge_rr", epsilon=-1.0))] == ["epsilon"]


def test_edges_that_would_swamp_a_graph_are_refused(caplog: pytest.LogCaptureFixture) -> None:
    """The figures of Cora: 2,708 nodes; 1,230 false edges at epsilon 8 (4,237 edges), 66,000 at 4."""
    rng = np.random.default_rng(0)
    pairs = np.unique(np.sort(rng.integers(0, 2708, (2, 6000)), axis=0), axis=1)
    edges = {"client_0": symmetric(pairs[:, pairs[0] != pairs[1]][:, :4237]), "client_1": np.zeros((2, 0), np.int64)}
    with caplog.at_level(logging.INFO):
        edge_rr.refuse_swamped(privacy_config("edge_rr"), edges, np.arange(2708), 2708)
    assert caplog.messages == [
        "privacy=edge_rr: client_0 has 4237 edges; about 1228 false ones will be added, and 1 of its own left out "
        "(not private; no file has it)"
    ]
    with pytest.raises(ConfigError) as refused:
        edge_rr.refuse_swamped(privacy_config("edge_rr", epsilon=4.0), edges, np.arange(2708), 2708)
    assert str(refused.value) == (
        "privacy.epsilon=4.0: would add about 65,848 false edges to the 4,237 of client_0: more than 5 for each. "
        "Epsilon 5.15 or more does not."
    )
    edge_rr.refuse_swamped(privacy_config("edge_rr", epsilon=5.15), edges, np.arange(2708), 2708)
    with pytest.raises(ConfigError):
        edge_rr.refuse_swamped(privacy_config("edge_rr", epsilon=5.14), edges, np.arange(2708), 2708)
