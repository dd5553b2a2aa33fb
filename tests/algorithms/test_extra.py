"""EXTRA and NIDS: the recursions of the papers, the closed form on every graph, and their bytes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.algorithms.small_columns import config, ridge, run, sparse
from tests.every import few_fast
from tests.options import topology_config
from vflbench.algorithms.tokens import extra
from vflbench.federation import topology
from vflbench.types import ConfigError

GRAPHS = ("path", "ring", "grid", "complete")


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("variant", ["extra", "nids"])
def test_iterates_are_the_papers_recursion_on_stacked_copies(variant: str, graph: str) -> None:
    task, eta, alpha, count = ridge(alpha=0.5), 0.05, 0.5, 6
    w = topology.build(topology_config(graph), [], [f"client_{k}" for k in range(count)], 0).mixing("metropolis")
    average = (np.eye(count) + w) / 2

    def gradient(v: np.ndarray) -> np.ndarray:
        sums = [x @ (x.T @ own) / alpha for x, own in zip(task.features, v, strict=True)]
        return np.stack(sums) + (v - task.labels) / count

    old = np.zeros((count, len(task.labels)))
    new = (w @ old if variant == "extra" else old) - eta * gradient(old)
    for _ in range(6):
        if variant == "extra":
            nxt = new + w @ new - average @ old - eta * (gradient(new) - gradient(old))
        else:
            nxt = average @ (2 * new - old - eta * (gradient(new) - gradient(old)))
        old, new = new, nxt
    found = run(extra, task, config(extra, task, 1, graph, variant=variant, iterations=7, lr=eta)).theta
    theta = np.concatenate([x.T @ v / alpha for x, v in zip(task.features, new, strict=True)])
    np.testing.assert_allclose(found, theta, rtol=0, atol=1e-12)


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("variant", ["extra", "nids"])
def test_corrections_cancel_over_the_clients(variant: str, graph: str) -> None:
    """So the mean of the copies steps down the mean of the gradients, whatever the graph."""
    task, eta, alpha = ridge(alpha=0.5), 0.05, 0.5

    def copies(iterations: int) -> np.ndarray:
        found = run(extra, task, config(extra, task, 1, graph, variant=variant, iterations=iterations, lr=eta))
        return np.stack([party.state.v for party in found.engine.order])

    for t in range(1, 7):
        v = copies(t)
        sums = [x @ (x.T @ own) / alpha for x, own in zip(task.features, v, strict=True)]
        gradient = np.mean(sums, axis=0) + (v.mean(0) - task.labels) / len(v)
        np.testing.assert_allclose(copies(t + 1).mean(0), v.mean(0) - eta * gradient, rtol=0, atol=1e-12)


def test_its_step_is_within_the_bound_of_the_graph() -> None:
    """Nearly equal blocks on a grid whose W has a negative eigenvalue: with 1 / L EXTRA diverges."""
    task = ridge(features=32, parties=16, alpha=0.01)
    task = replace(task, features=tuple(task.features[0] * (1 - k / 1000) for k in range(16)))
    found = [
        run(extra, task, config(extra, task, 1, "grid", parties=16, variant="extra", iterations=n)).engine.parties
        for n in (200, 400)
    ]
    early, late = (list(parties.values())[1].state.v for parties in found)
    assert np.isfinite(late).all() and np.abs(late - early).max() < np.abs(early).max()


@pytest.mark.parametrize("graph", few_fast(GRAPHS))
@pytest.mark.parametrize("variant", ["extra", "nids"])
def test_it_ends_at_the_closed_form_on_every_graph(variant: str, graph: str) -> None:
    task = ridge(alpha=0.5)
    x = np.concatenate(task.features, axis=1)
    best = np.linalg.solve(x.T @ x + 0.5 * np.eye(x.shape[1]), x.T @ task.labels)
    found = run(extra, task, config(extra, task, 15, graph, variant=variant, iterations=100)).theta
    np.testing.assert_allclose(found, best, rtol=0, atol=1e-10)


def test_one_client_is_gradient_descent_on_the_dual() -> None:
    task = ridge(parties=1, alpha=0.5)
    found = run(extra, task, config(extra, task, 5, iterations=2, lr=0.1))
    x, v = task.features[0], np.zeros(len(task.labels))
    for _ in range(10):
        v = v - 0.1 * (x @ (x.T @ v) / 0.5 + v - task.labels)
    np.testing.assert_allclose(found.theta, x.T @ v / 0.5, rtol=0, atol=1e-12)
    assert not len(found.ledger)


@pytest.mark.parametrize(("graph", "edges", "width"), [("path", 5, 5), ("ring", 6, 3), ("complete", 15, 1)])
@pytest.mark.parametrize("variant", ["extra", "nids"])
def test_an_iteration_is_a_vector_along_every_edge_both_ways(variant: str, graph: str, edges: int, width: int) -> None:
    task = ridge(parties=6)
    sent = run(extra, task, config(extra, task, 2, graph, variant=variant, iterations=3)).sent()
    first = 3 - (variant == "nids")  # its first step needs nobody
    assert sent[1, "dual"] == (first * 2 * edges, first * 2 * edges * 8 * 40)
    assert sent[2, "dual"] == (3 * 2 * edges, 3 * 2 * edges * 8 * 40)
    assert sent[0, "curvature"] == (width * 2 * edges, width * 2 * edges * 8)


def test_all_find_the_same_step_size() -> None:
    task = ridge(parties=6, alpha=0.5)
    found = run(extra, task, config(extra, task, 1, "path"))
    rates = {party.state.lr for party in found.engine.order}
    largest = max(np.linalg.norm(x, 2) ** 2 / 0.5 + 1 / 6 for x in task.features)
    assert len(rates) == 1 and rates.pop() == pytest.approx(1 / largest, rel=1e-9)


def test_what_it_cannot_minimise_or_join_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="extra minimises a quadratic"):
        extra.parties(sparse(), config(extra, sparse()))
    task = ridge(parties=4)
    (tmp_path / "edges.csv").write_text("client_0 client_1\nclient_2 client_3\n")
    apart = topology_config("edge_list", edges=str(tmp_path / "edges.csv"))
    with pytest.raises(ConfigError, match="no path joins client_0 and client_2"):
        extra.parties(task, config(extra, task, graph=apart))
