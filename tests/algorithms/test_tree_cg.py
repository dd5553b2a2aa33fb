"""Tree-CG: it is conjugate gradients on the joined columns, whatever the graph, for two messages an edge."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse.linalg import LinearOperator, cg

from tests.algorithms.small_columns import config, ridge, run, sparse
from tests.options import topology_config
from vflbench.algorithms.tokens import tree_cg
from vflbench.data.tasks import AlignedTask
from vflbench.federation import topology
from vflbench.types import ConfigError

GRAPHS = ("path", "ring", "grid", "complete")


def iterates(task: AlignedTask, count: int) -> list[np.ndarray]:
    """The parameters of all columns after each iteration of SciPy's conjugate gradients."""
    assert task.objective is not None
    x, alpha, found = np.concatenate(task.features, axis=1), task.objective.weight, []
    matrix = LinearOperator((len(x), len(x)), matvec=lambda v: v + x @ (x.T @ v) / alpha, dtype=np.float64)
    cg(matrix, task.labels, rtol=0.0, maxiter=count, callback=lambda v: found.append(x.T @ v / alpha))
    return found


@pytest.mark.parametrize("graph", GRAPHS)
def test_iterates_are_those_of_scipy_on_the_joined_columns(graph: str) -> None:
    task = ridge(alpha=0.05)
    for count, expected in enumerate(iterates(task, 6), start=1):
        theta = run(tree_cg, task, config(tree_cg, task, count, graph)).theta
        np.testing.assert_allclose(theta, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize(("dtype", "close"), [("float64", 1e-10), ("float32", 1e-5)])
def test_it_ends_at_the_closed_form_and_stays_there(dtype: str, close: float) -> None:
    task = ridge(alpha=0.05)
    x = np.concatenate(task.features, axis=1)
    best = np.linalg.solve(x.T @ x + 0.05 * np.eye(x.shape[1]), x.T @ task.labels)
    found = run(tree_cg, task, config(tree_cg, task, 10, "ring", iterations=10, dtype=dtype))
    np.testing.assert_allclose(found.theta, best, rtol=0, atol=close)


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize(("dtype", "width"), [("float64", 8), ("float32", 4)])
def test_an_iteration_costs_two_messages_an_edge_of_the_tree(graph: str, dtype: str, width: int) -> None:
    task = ridge(parties=6)
    sent = run(tree_cg, task, config(tree_cg, task, 2, graph, iterations=3, dtype=dtype)).sent()
    for t in (1, 2):
        assert sent[t, "product"] == (3 * 5, 3 * 5 * width * 40)
        assert sent[t, "direction"] == (3 * 5, 3 * 5 * (width * 40 + 8))  # with the step


def test_one_client_sends_nothing() -> None:
    task = ridge(parties=1)
    found = run(tree_cg, task, config(tree_cg, task, 20, iterations=2))
    assert not found.sent() and found.gaps[-1] < 1e-12


def test_the_root_is_the_centre() -> None:
    names = [f"client_{k}" for k in range(7)]
    above = tree_cg.parents(topology.build(topology_config("path"), [], names, 0))
    assert above[3] < 0 and [above[k] for k in (0, 1, 2, 4, 5, 6)] == [1, 2, 3, 3, 4, 5]
    assert list(tree_cg.parents(topology.build(topology_config("complete"), [], names, 0)) == 0) == [False] + [True] * 6


def test_what_it_cannot_minimise_or_join_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="minimises a quadratic"):
        tree_cg.parties(sparse(), config(tree_cg, sparse()))
    task = ridge(parties=4)
    (tmp_path / "edges.csv").write_text("client_0 client_1\nclient_2 client_3\n")
    apart = topology_config("edge_list", edges=str(tmp_path / "edges.csv"))
    with pytest.raises(ConfigError, match="no path joins client_0 and client_2"):
        tree_cg.parties(task, replace(config(tree_cg, task), topology=apart))
