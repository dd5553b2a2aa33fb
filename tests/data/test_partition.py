import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vflbench.data.divide import partition
from vflbench.types import ConfigError

quick = settings(max_examples=60, deadline=None)
pair_lists = st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=60)


def edge_set(edges):
    return {tuple(edge) for edge in edges.T.tolist()}


@quick
@given(pair_lists)
def test_undirected_holds_both_directions_once_and_no_loops(pairs):
    edges = partition.undirected(np.array(pairs, np.int64).reshape(-1, 2).T, 12)
    expected = {(a, b) for a, b in pairs if a != b}
    expected |= {(b, a) for a, b in expected}
    assert [tuple(edge) for edge in edges.T.tolist()] == sorted(expected) and edges.dtype == np.int64


@quick
@given(pair_lists, st.floats(0, 1), st.integers(1, 4), st.integers(0, 99))
def test_dropped_edges_leave_symmetric_sorted_subsets(pairs, keep, parties, seed):
    edges = partition.undirected(np.array(pairs, np.int64).reshape(-1, 2).T, 12)
    for kept in partition.drop_edges(edges, 12, keep, parties, np.random.default_rng(seed)):
        held = edge_set(kept)
        assert held <= edge_set(edges) and {(b, a) for a, b in held} == held
        assert [tuple(edge) for edge in kept.T.tolist()] == sorted(held)


def test_each_party_keeps_the_wanted_share_of_edges_independently():
    rng = np.random.default_rng(0)
    edges = partition.undirected(rng.integers(0, 1000, (2, 20000)), 1000)
    first, second = partition.drop_edges(edges, 1000, 0.8, 2, rng)
    n = edges.shape[1] / 2  # the standard error of a share is sqrt(0.8 * 0.2 / n) = 0.003
    assert first.shape[1] / 2 / n == pytest.approx(0.8, abs=0.012)
    assert len(edge_set(first) & edge_set(second)) / 2 / n == pytest.approx(0.64, abs=0.014)
    assert partition.drop_edges(edges, 1000, 1.0, 2, rng)[1] is edges


@quick
@given(st.integers(1, 200), st.integers(1, 20), st.integers(0, 99))
def test_feature_blocks_are_disjoint_complete_and_ceil_equal(columns, parties, seed):
    size = -(-columns // parties)
    if size * (parties - 1) >= columns:  # ceil(5/4) = 2 leaves nothing for the fourth
        with pytest.raises(ConfigError):
            partition.feature_blocks(columns, parties, np.random.default_rng(seed))
        return
    blocks = partition.feature_blocks(columns, parties, np.random.default_rng(seed))
    assert [len(block) for block in blocks[:-1]] == [size] * (parties - 1) and 0 < len(blocks[-1]) <= size
    assert sorted(np.concatenate(blocks).tolist()) == list(range(columns))
    assert all((np.diff(block) > 0).all() for block in blocks)


@quick
@given(st.integers(0, 999), st.floats(0.05, 0.5), st.floats(0.05, 0.5))
def test_fraction_split_is_disjoint_complete_and_per_class(seed, train, test):
    labels = np.random.default_rng(seed).integers(-1, 4, 200)
    splits = partition.fraction_split(labels, 4, train, test, seed)
    everyone = np.concatenate(list(splits.values()))
    assert sorted(everyone.tolist()) == np.flatnonzero(labels >= 0).tolist()
    for c in range(4):
        n = (labels == c).sum()
        assert (labels[splits["train"]] == c).sum() == int(train * n + 1e-9)
        assert (labels[splits["test"]] == c).sum() == int(test * n + 1e-9)


def test_count_split_is_disjoint_and_reproducible():
    labels = np.random.default_rng(0).integers(-1, 4, 400)
    a, b = (partition.count_split(labels, 4, 10, 50, 100, seed=3) for _ in range(2))
    assert [len(a[name]) for name in ("train", "val", "test")] == [40, 50, 100]
    assert (
        len(np.unique(np.concatenate(list(a.values())))) == 190
        and (labels[np.concatenate(list(a.values()))] >= 0).all()
    )
    assert all(np.array_equal(a[name], b[name]) for name in a)
