"""Graph once: it is training in one place, for the bytes that the data take."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from tests.algorithms import small_graphs
from tests.algorithms.small_graphs import Result, assert_same
from tests.options import make_mechanism, privacy_config
from vflbench.algorithms.graph import alone, centralized_gnn
from vflbench.algorithms.oneshot import graph_once
from vflbench.data.tasks import GraphTask
from vflbench.federation.party import PartySpec


def run(task: GraphTask, **options: Any) -> Result:
    keys = {"dropout": options.pop("dropout", 0.0)}
    return small_graphs.run(graph_once, task, small_graphs.config(graph_once, keys, parties=task.parties, **options))


def binary(task: GraphTask, width: int = 30, share: float = 0.1) -> GraphTask:
    rng = np.random.default_rng(1)
    blocks = [(rng.random((len(task.labels), width)) < share).astype(np.float32) for _ in task.features]
    return replace(task, features=tuple(blocks))


@pytest.mark.parametrize("fanout", [None, 2])
def test_raw_data_are_centralized_training(fanout: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """With all edges at one client: the network of centralized_gnn, from the same start (its party's name), to the last
    bit."""
    for task in (small_graphs.task(1, keep=1.0), binary(small_graphs.task(1, keep=1.0))):
        keys = {"fanout": fanout, "optimizer": "adam", "lr": 0.01, "rounds": 4}
        once = run(task, dropout=0.5, **keys)
        monkeypatch.setattr(
            centralized_gnn, "parties", lambda task, config: {"server": PartySpec(alone.client, task.joined())}
        )
        cfg = small_graphs.config(centralized_gnn, {"dropout": 0.5}, parties=1, **keys)
        whole = small_graphs.run(centralized_gnn, task, cfg)
        monkeypatch.undo()
        assert once.losses == whole.losses
        assert_same(once.parameters("server"), whole.parameters("server"))
        for split in ("val", "test"):
            assert torch.equal(once.predictions("server")[0][split], whole.predictions("server")[0][split])


def test_the_server_learns_from_the_union_of_edges_and_all_columns() -> None:
    task = small_graphs.task(3, keep=0.5)
    union = np.unique(np.concatenate(task.edges, axis=1), axis=1)
    assert len(union.T) < len(task.all_edges.T)
    one = replace(task, features=(np.concatenate(task.features, axis=1),), edges=(union,))
    assert run(task).losses == run(one).losses


@pytest.mark.slow
def test_all_components_and_a_linear_head_are_sgc_on_the_joined_graph() -> None:
    """Projections turn the columns: linear heads reach the same minimum, here by many steps with weight decay."""
    task = small_graphs.task(2, nodes=40, keep=1.0)
    result = run(task, form="propagated", components=99, head="linear", rounds=1500, lr=1.0, weight_decay=0.01)
    edges = task.all_edges
    a = np.eye(40)
    a[edges[0], edges[1]] = 1
    inverse = 1 / np.sqrt(a.sum(axis=1))
    z = np.linalg.matrix_power(inverse[:, None] * a * inverse, 2) @ np.concatenate(task.features, axis=1)
    train = task.splits["train"]
    sent = np.concatenate([graph_once.propagated(block, edges, 2, 99) for block in task.features], axis=1)
    x = torch.from_numpy((z - z.mean(axis=0)) / sent[train].std())
    w = torch.zeros(8, 3, dtype=torch.float64, requires_grad=True)
    b = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.SGD([w, b], lr=1.0, weight_decay=0.01)
    y = torch.from_numpy(task.labels)
    for _ in range(1500):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(x[train] @ w + b, y[train]).backward()
        optimizer.step()
    expected = (x @ w + b).detach().numpy()
    for split in ("val", "test"):
        predicted = result.predictions("server")[0][split].numpy()
        np.testing.assert_allclose(predicted, expected[task.splits[split]], atol=1e-5)


def test_the_order_of_columns_does_not_matter() -> None:
    task = small_graphs.task(2, nodes=40, width=6)
    other = replace(task, features=tuple(block[:, ::-1].copy() for block in task.features))
    one, two = (run(t, form="propagated", components=3, rounds=20) for t in (task, other))
    np.testing.assert_allclose(one.losses, two.losses, rtol=1e-5)


@pytest.mark.parametrize("parties", [1, 3])
def test_bytes(parties: int) -> None:
    task = small_graphs.task(parties)
    for data in (task, binary(task)):
        for form in ("raw", "propagated"):
            sent = run(data, form=form, components=2).ledger()
            assert {row["round"] for row in sent} == {1}
            assert [row["bytes"] for row in sent if row["tag"] == "labels"] == [2 * len(task.splits["train"])]
            for m in range(parties):
                (size,) = (r["bytes"] for r in sent if r["tag"] == "features" and r["src"] == f"client_{m}")
                links = 4 * task.edges[m].shape[1] // 2
                if form == "propagated":
                    assert size == 4 * 20 * 2
                elif data is task:  # dense
                    assert size == 4 * 20 * 4 + links
                else:
                    assert size == 2 * np.count_nonzero(data.features[m]) + 4 * 21 + links


def test_what_is_packed_comes_back() -> None:
    rng = np.random.default_rng(0)
    for share, parts in ((0.0, 2), (0.05, 3), (0.9, 1)):
        x = (rng.normal(size=(30, 40)) * (rng.random((30, 40)) < share)).astype(np.float32)
        packed = graph_once.packed(x)
        assert len(packed) == parts
        np.testing.assert_array_equal(graph_once.unpacked(packed, 40), x)


@pytest.mark.parametrize("form", ["raw", "propagated"])
def test_rows_are_noised_once(form: str) -> None:
    task = binary(small_graphs.task(1))
    private = privacy_config("gaussian_embedding", noise_multiplier=0.5, clip=1.0)
    mechanism = make_mechanism(private, 1, "graph")
    cfg = small_graphs.config(graph_once, parties=1, form=form, components=2, privacy=private)
    result = small_graphs.run(graph_once, task, cfg, privacy={"client_0": mechanism})
    assert mechanism.releases == 1 and len(mechanism.counts) == 20
    sent = result.engine.parties["server"].state.received[0]
    rows = sent[0] if form == "raw" else np.stack(sent, axis=1)
    assert rows.shape == ((20, 30) if form == "raw" else (20, 2)) and (rows != 0).all()
