from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
from scipy import stats

from vflbench.data.graph.sampling import (
    Graph,
    draw_batch,
    full_block,
    make_block,
    sample_blocks,
    sample_neighbours,
    union,
)


def random_graph(nodes: int = 40, pairs: int = 120, seed: int = 0, self_weight: float = 1.0) -> Graph:
    """Node 0 is a hub, the last two nodes are alone."""
    rng = np.random.default_rng(seed)
    a, b = rng.integers(0, nodes - 2, (2, pairs))
    a[: nodes // 2] = 0
    keep = a != b
    both = np.concatenate([np.stack([a, b])[:, keep], np.stack([b, a])[:, keep]], axis=1)
    return Graph.from_edges(
        np.unique(both, axis=1)[:, rng.permutation(np.unique(both, axis=1).shape[1])], nodes, self_weight
    )


def dense(graph: Graph) -> np.ndarray:
    matrix = np.zeros((graph.nodes, graph.nodes))
    matrix[np.repeat(np.arange(graph.nodes), graph.degree), graph.neighbours] = 1
    return matrix


def normalised(graph: Graph) -> np.ndarray:
    """D^-1/2 (A + w I) D^-1/2, the slow way."""
    matrix = dense(graph) + graph.self_weight * np.eye(graph.nodes)
    scale = 1 / np.sqrt(matrix.sum(axis=1))
    return scale[:, None] * matrix * scale[None, :]


def scattered(block: Any, rows: np.ndarray, columns: np.ndarray, nodes: int) -> np.ndarray:
    """A block as a dense matrix over all nodes."""
    matrix = np.zeros((nodes, nodes))
    np.add.at(
        matrix, (rows[np.repeat(np.arange(len(rows)), np.diff(block.start))], columns[block.columns]), block.weights
    )
    return matrix


def blocks_of(*args: Any, **kwargs: Any) -> Any:
    return asyncio.run(sample_blocks(*args, **kwargs))


@pytest.mark.parametrize("fanout", [1, 3, 8, 100, None])
def test_neighbours_are_distinct_and_as_many_as_there_are(fanout: int | None) -> None:
    graph = random_graph()
    nodes = np.arange(40)[::-1].copy()
    draw = sample_neighbours(graph, nodes, fanout, np.random.default_rng(1))
    limit = graph.nodes if fanout is None else fanout
    np.testing.assert_array_equal(draw.counts, np.minimum(graph.degree[nodes], limit))
    ends = np.cumsum(draw.counts)
    for node, end, count in zip(nodes, ends, draw.counts, strict=True):
        got = draw.neighbours[end - count : end]
        assert len(set(got)) == count
        assert set(got) <= set(graph.neighbours[graph.start[node] : graph.start[node + 1]])
    np.testing.assert_allclose(draw.scale * draw.counts, graph.degree[nodes])


def test_every_subset_of_neighbours_is_equally_likely() -> None:
    graph = Graph.from_edges(np.array([[0] * 6 + list(range(1, 7)), list(range(1, 7)) + [0] * 6]), 7)
    rng = np.random.default_rng(2)
    draw = sample_neighbours(graph, np.zeros(20_000, np.int64), 3, rng)
    subsets = np.sort(draw.neighbours.reshape(-1, 3), axis=1) @ [49, 7, 1]
    _, counts = np.unique(subsets, return_counts=True)
    assert len(counts) == 20  # 6 choose 3
    assert stats.chisquare(counts).pvalue > 1e-3


def test_a_batch_is_sorted_without_replacement_and_all_where_there_are_fewer() -> None:
    rng = np.random.default_rng(0)
    batch = draw_batch(np.arange(10, 20), 4, rng)
    assert len(set(batch)) == 4 and list(batch) == sorted(batch) and set(batch) <= set(range(10, 20))
    np.testing.assert_array_equal(draw_batch(np.arange(10, 20), 99, rng), np.arange(10, 20))


def test_union_is_sorted_and_without_duplicates() -> None:
    np.testing.assert_array_equal(union(9, [np.array([5, 1]), np.array([8, 1]), np.array([], np.int64)]), [1, 5, 8])


@pytest.mark.parametrize("weight", [1.0, 2.0])
def test_the_full_block_is_the_symmetric_normalisation(weight: float) -> None:
    graph = random_graph(self_weight=weight)
    nodes = np.arange(graph.nodes)
    np.testing.assert_allclose(scattered(full_block(graph), nodes, nodes, graph.nodes), normalised(graph), atol=1e-14)


def test_a_sampled_block_is_unbiased_and_equals_the_full_one_on_all_neighbours() -> None:
    graph, upper = random_graph(), np.array([0, 3, 4, 17, 39])
    want = np.zeros((graph.nodes, graph.nodes))
    want[upper] = normalised(graph)[upper]

    def once(fanout: int | None, rng: np.random.Generator) -> np.ndarray:
        draw = sample_neighbours(graph, upper, fanout, rng)
        lower = union(graph.nodes, (upper, draw.neighbours))
        return scattered(make_block(graph, upper, lower, draw), upper, lower, graph.nodes)

    rng = np.random.default_rng(3)
    np.testing.assert_allclose(once(None, rng), want, atol=1e-14)
    np.testing.assert_allclose(once(int(graph.degree.max()), rng), want, atol=1e-14)
    draws = np.stack([once(2, rng) for _ in range(4000)])
    error = draws.std(axis=0) / np.sqrt(len(draws))
    assert (np.abs(draws.mean(axis=0) - want) <= 4.5 * error + 1e-12).all()
    assert draws.std(axis=0).max() > 0.1  # and it does vary


def test_levels_contain_the_level_above_and_blocks_know_their_own_rows() -> None:
    graph, batch = random_graph(), np.array([2, 5, 30])
    levels, blocks = blocks_of(graph, batch, 4, 2, np.random.default_rng(4))
    assert len(levels) == 5 and len(blocks) == 4
    np.testing.assert_array_equal(levels[4], batch)
    for lower, upper, block in zip(levels, levels[1:], blocks, strict=False):
        assert (np.diff(lower) > 0).all() and set(upper) <= set(lower)
        np.testing.assert_array_equal(lower[block.own], upper)
        # the self-loop is a row's last entry
        np.testing.assert_array_equal(block.columns[block.start[1:] - 1], block.own)
        assert np.diff(block.start).max() <= 3 and block.columns.max() < len(lower)


def test_a_level_is_what_union_of_makes_it() -> None:
    graph, batch, asked = random_graph(), np.array([2, 5]), []

    async def with_seven(level: int, ids: np.ndarray) -> np.ndarray:
        asked.append(level)
        return union(graph.nodes, (ids, np.array([7]))) if level == 1 else ids

    levels, blocks = blocks_of(graph, batch, 3, 2, np.random.default_rng(5), with_seven)
    assert asked == [2, 1, 0]
    assert 7 in levels[1] and 7 in levels[0] and len(blocks[0].own) == len(levels[1])


def test_sampling_from_a_larger_graph_keeps_only_own_edges() -> None:
    whole = random_graph(pairs=200)
    rng = np.random.default_rng(6)
    edges = np.stack([np.repeat(np.arange(40), whole.degree), whole.neighbours])
    kept = edges[:, edges[0] < edges[1]]
    kept = kept[:, rng.random(kept.shape[1]) < 0.4]
    own = Graph.from_edges(np.concatenate([kept, kept[::-1]], axis=1), 40)
    levels, blocks = blocks_of(own, np.arange(0, 40, 16), 2, 3, rng, drawn_from=whole)
    for lower, upper, block in zip(levels, levels[1:], blocks, strict=False):
        matrix = scattered(block, upper, lower, 40)
        assert not matrix[(dense(own) + np.eye(40)) == 0].any()
    reach = np.flatnonzero((dense(own) + np.eye(40))[::16].any(axis=0))
    assert set(levels[1]) - set(reach), "the leak: nodes that only lost edges lead to"
    # with nothing lost, it is sampling from the own graph
    same = [blocks_of(whole, np.array([0, 9]), 2, 3, np.random.default_rng(7), drawn_from=g) for g in (None, whole)]
    for a, b in zip(*(s[1] for s in same), strict=True):
        np.testing.assert_allclose(
            scattered(a, np.arange(len(a.own)), np.arange(40), 40),
            scattered(b, np.arange(len(b.own)), np.arange(40), 40),
        )


def test_edges_are_recognised() -> None:
    graph = random_graph()
    u, v = (a.ravel() for a in np.meshgrid(np.arange(40), np.arange(40), indexing="ij"))
    np.testing.assert_array_equal(graph.has_edges(u, v), dense(graph)[u, v] == 1)
    assert not Graph.from_edges(np.zeros((2, 0), np.int64), 3).has_edges(np.array([0]), np.array([1])).any()


def test_a_graph_without_edges_has_only_self_loops() -> None:
    graph = Graph.from_edges(np.zeros((2, 0), np.int64), 5, self_weight=2.0)
    levels, blocks = blocks_of(graph, np.array([1, 3]), 2, 3, np.random.default_rng(0))
    for block in blocks:
        np.testing.assert_allclose(block.weights, [1, 1], rtol=1e-15)
    np.testing.assert_array_equal(levels[0], [1, 3])
