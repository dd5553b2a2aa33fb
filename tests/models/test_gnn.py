from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from vflbench.algorithms.graph.graph_learner import GraphLearner, make_optimizer, update
from vflbench.cards.algorithms.graph.graph_methods import Keys
from vflbench.cards.models import gnn as gnn_card
from vflbench.cards.models.gnn import Config, check_width
from vflbench.config import convert
from vflbench.data.graph.sampling import Graph, full_block
from vflbench.models import gnn
from vflbench.models.gnn import Features, adjacency, build, dropout

NODES, WIDTH, CLASSES = 30, 12, 4


def graph(self_weight: float = 1.0, pairs: int = 60) -> Graph:
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, NODES, (2, pairs))
    a, b = a[a != b], b[a != b]
    return Graph.from_edges(
        np.unique(np.concatenate([np.stack([a, b]), np.stack([b, a])], axis=1), axis=1), NODES, self_weight
    )


def block(self_weight: float = 1.0) -> gnn.Adjacency:
    return adjacency(full_block(graph(self_weight)), "cpu", torch.float64)


def edge_index() -> torch.Tensor:
    g = graph()
    return torch.from_numpy(np.stack([g.neighbours, np.repeat(np.arange(NODES), g.degree)]))


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def make(
    name: str, layers: int = 2, ends: tuple[int, ...] | None = None, columns: Any = None, **options: Any
) -> gnn.Backbone:
    config = Config(name=name, dtype="float64", **{"hidden": 16, "heads": 4, **options})
    return build(config, WIDTH, CLASSES, layers, ends or (layers - 1,), generator(), columns=columns)


def rows(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(*shape, generator=generator(seed), dtype=torch.float64)


def test_gcn_equals_pytorch_geometrics() -> None:
    from torch_geometric.nn import GCNConv

    model, x = make("gcn"), rows(NODES, WIDTH)
    first, second = GCNConv(WIDTH, 16).double(), GCNConv(16, 16).double()
    with torch.no_grad():
        for bias in model.biases:
            bias.uniform_(-1, 1, generator=generator(2))
        first.lin.weight.copy_(model.projection.weight.T)
        first.bias.copy_(model.biases[0])
        second.lin.weight.copy_(model.weights[0].T)
        second.bias.copy_(model.biases[1])
        want = second(first(x, edge_index()).relu(), edge_index()).relu()
        h = model.start(x)
        got, _ = model.segment(0, [block()] * 2, h, h)
    torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)


def test_gcnii_equals_pytorch_geometrics() -> None:
    from torch_geometric.nn import GCN2Conv

    model, x = make("gcnii", layers=3, alpha=0.2, lambda_=0.7), rows(NODES, WIDTH)
    with torch.no_grad():
        h = start = model.start(x)
        torch.testing.assert_close(start, torch.relu(x @ model.projection.weight + model.projection.bias))
        got, _ = model.segment(0, [block()] * 3, h, start)
        for layer in range(3):
            conv = GCN2Conv(16, alpha=0.2, theta=0.7, layer=layer + 1).double()
            conv.weight1.copy_(model.weights[layer])
            h = conv(h, start, edge_index()).relu()
    torch.testing.assert_close(got, h, rtol=1e-12, atol=1e-12)


def test_gat_equals_pytorch_geometrics_with_a_skip_connection() -> None:
    from torch_geometric.nn import GATConv

    model, x = make("gat", layers=1), rows(NODES, WIDTH)
    conv = GATConv(16, 4, heads=4, negative_slope=0.2).double()
    with torch.no_grad():
        conv.lin.weight.copy_(model.weights[0].T)
        conv.att_src[0].copy_(model.sources[0])
        conv.att_dst[0].copy_(model.targets[0])
        model.biases[0].uniform_(-1, 1, generator=generator(2))
        conv.bias.copy_(model.biases[0])
        h = model.start(x)
        got, _ = model.segment(0, [block()], h, h)
        want = torch.nn.functional.elu(conv(h, edge_index()) + h @ model.skips[0])
    torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)


def test_residual_gcn_by_hand() -> None:
    model, x = make("residual_gcn", layers=2, ends=(0, 1), mu=0.6), rows(NODES, WIDTH)
    a = torch.zeros(NODES, NODES, dtype=torch.float64)
    b = block(2.0)
    a[torch.repeat_interleave(torch.arange(NODES), b.start.diff()), b.columns] = b.weights
    assert torch.allclose(a, a.T) and model.self_weight == 2.0
    with torch.no_grad():
        h = h0 = model.start(x)
        for segment, mu in enumerate((0.6, 0.3)):  # mu / (segment + 1)
            out = torch.relu(a @ h @ model.weights[segment] + model.biases[segment])
            out = (out - out.mean(0)) / (out.var(0, unbiased=False) + 1e-5).sqrt()
            got, h0 = model.segment(segment, [b] * 2, h, h0)
            torch.testing.assert_close(got, mu * out + (1 - mu) * h)
            h = got


@pytest.mark.parametrize("name", gnn_card.MODEL_NAMES)
def test_bags_equal_dense_rows_also_backward(name: str) -> None:
    rng = np.random.default_rng(3)
    matrix = ((rng.random((NODES, WIDTH)) < 0.15) * rng.random((NODES, WIDTH))).astype(np.float32)
    matrix[4] = 0  # a row without entries
    nodes = np.array([1, 4, 4, 20])
    features = Features(matrix, "cpu", torch.float64)
    bags = features.rows(nodes)
    assert isinstance(bags, gnn.Bags)
    wanted = torch.from_numpy(matrix[nodes]).double()
    torch.testing.assert_close(
        Features(matrix + 1, "cpu", torch.float64).rows(nodes), torch.from_numpy(matrix[nodes] + 1).double()
    )
    model = make(name)
    results = []
    for x in (bags, wanted):
        model.zero_grad()
        out = model.start(x)
        out.square().sum().backward()
        results.append((out.detach(), model.projection.weight.grad))
    torch.testing.assert_close(results[0], results[1])
    empty = features.rows(np.array([4]))
    torch.testing.assert_close(model.start(empty), model.start(wanted[1:2]))


@pytest.mark.parametrize("name", gnn_card.MODEL_NAMES)
def test_gradients_by_finite_differences(name: str) -> None:
    model, x = make(name, ends=(0, 1), hidden=8, heads=2), rows(NODES, WIDTH)
    blocks = [block(model.self_weight)] * 2

    def loss() -> torch.Tensor:
        h = h0 = model.start(x)
        for segment in range(2):
            h, h0 = model.segment(segment, blocks, h, h0)
        return model.classify(h).square().mean()

    loss().backward()
    for parameter in model.parameters():
        assert parameter.grad is not None
        flat, grad = parameter.data.view(-1), parameter.grad.view(-1)
        for i in {0, len(flat) // 2, int(grad.abs().argmax())}:
            kept, step = float(flat[i]), 1e-5
            with torch.no_grad():
                flat[i] = kept + step
                above = loss()
                flat[i] = kept - step
                below = loss()
                flat[i] = kept
            assert float(grad[i]) == pytest.approx(float(above - below) / (2 * step), rel=1e-4, abs=1e-7)


@pytest.mark.parametrize("name", gnn_card.MODEL_NAMES)
def test_sampled_rows_are_those_of_the_whole_graph(name: str) -> None:
    """With all neighbours, a batch's representations do not depend on what else is computed (batch statistics
    aside)."""
    import asyncio

    from vflbench.data.graph.sampling import sample_blocks

    model, x = make(name, layers=3, ends=(0, 2)).eval(), rows(NODES, WIDTH)
    batch = np.array([3, 8, 21])
    levels, sampled = asyncio.run(sample_blocks(graph(model.self_weight), batch, 3, None, np.random.default_rng(0)))
    blocks = [adjacency(b, "cpu", torch.float64) for b in sampled]
    h = h0 = model.start(x[torch.from_numpy(levels[0])])
    H = H0 = model.start(x)
    for segment in range(2):
        h, h0 = model.segment(segment, blocks, h, h0)
        H, H0 = model.segment(segment, [block(model.self_weight)] * 3, H, H0)
    torch.testing.assert_close(h, H[batch])


@pytest.mark.parametrize("name", gnn_card.MODEL_NAMES)
def test_shares_have_their_width_and_layers_take_the_full_one(name: str) -> None:
    model = make(name, layers=3, ends=(0, 2), columns=(8, 16), heads=2)
    assert model.widths == [8, 16, 8]
    h = h0 = model.start(rows(NODES, WIDTH))
    for segment in range(2):
        own, h0 = model.segment(segment, [block()] * 3, h, h0)
        assert own.shape == (NODES, 8)
        h = torch.cat([own, own], dim=1)
    assert model.classify(h).shape == (NODES, CLASSES)


def test_gcnii_shares_side_by_side_keep_the_identity() -> None:
    """lambda = 0 makes beta = 0: each share is its columns of the mixed representation, and together they are all of
    it."""
    x = rows(NODES, WIDTH)
    whole = make("gcnii", layers=1, lambda_=0.0)
    parts = [make("gcnii", layers=1, lambda_=0.0, columns=c) for c in ((0, 8), (8, 16))]
    for part in parts:
        part.projection.load_state_dict(whole.projection.state_dict())
    outs = [model.segment(0, [block()], model.start(x), model.start(x))[0] for model in (whole, *parts)]
    torch.testing.assert_close(torch.cat(outs[1:], dim=1), outs[0])


def test_dropout_moments_and_streams() -> None:
    x = torch.ones(400, 500, dtype=torch.float64)
    for share in (0.5, 0.6):
        y = dropout(x, share, generator())
        kept = float((y != 0).double().mean())
        assert abs(kept - (1 - share)) < 5 * math.sqrt(share * (1 - share) / x.numel())
        assert y.unique().tolist() == pytest.approx([0.0, 1 / (1 - share)], rel=1e-4)
    assert torch.equal(dropout(x, 0.5, generator(3)), dropout(x, 0.5, generator(3)))
    assert not torch.equal(dropout(x, 0.5, generator(3)), dropout(x, 0.5, generator(4)))
    assert dropout(x, 0.5, None) is x and dropout(x, 0.0, generator()) is x
    odd = dropout(torch.ones(3, 7), 0.25, generator())
    assert odd.shape == (3, 7)
    # the four masks of one draw are independent
    lanes = dropout(torch.ones(100_000, 4), 0.5, generator()).ne(0).double()
    assert (torch.corrcoef(lanes.T) - torch.eye(4)).abs().max() < 0.02


@pytest.mark.parametrize("name", gnn_card.MODEL_NAMES)
def test_no_global_generator(name: str) -> None:
    before = torch.get_rng_state()
    model = make(name)
    h = model.start(rows(NODES, WIDTH), generator())
    h, _ = model.segment(0, [block()] * 2, h, h, generator())
    model.classify(h, generator())
    assert torch.equal(before, torch.get_rng_state())
    same = make(name)
    for a, b in zip(model.parameters(), same.parameters(), strict=True):
        assert torch.equal(a, b)
    other = build(Config(name=name, hidden=16, heads=4, dtype="float64"), WIDTH, CLASSES, 2, (1,), generator(9))
    assert not torch.equal(other.head, model.head)


@pytest.mark.slow
def test_every_network_learns_the_labels_of_a_small_graph() -> None:
    labels = torch.arange(NODES) % CLASSES
    for name in gnn_card.MODEL_NAMES:
        model, x = make(name, hidden=32), rows(NODES, WIDTH)
        optimizer = make_optimizer(Keys(lr=0.02, weight_decay=0.0), model)
        for _ in range(150):
            h = model.start(x)
            h, _ = model.segment(0, [block(model.self_weight)] * 2, h, h)
            loss = torch.nn.functional.cross_entropy(model.classify(h), labels)
            update(optimizer, loss)
        assert float(loss.detach()) < 0.1, name


def test_check_names_the_nearest_widths() -> None:
    assert check_width(Config()) == [] and check_width(Config(name="gat", hidden=48), 3, "cat") == []
    (problem,) = check_width(Config(hidden=64), 3, "cat")
    assert problem.key == "model.hidden" and "63 or 66" in problem.allowed
    (problem,) = check_width(Config(name="gat", hidden=60))
    assert "56 or 64" in problem.allowed
    (problem,) = check_width(Config(hidden=2), 3, "cat")
    assert "nearest: 3" in problem.allowed
    assert [str(p) for p in convert(Config, {"dropout": 1.0})[1]] == ["dropout=1.0: must be below 1."]
    bad = {"hidden": 0, "alpha": 2.0, "mu": -0.1, "lambda_": -1.0, "heads": 0}
    assert {p.key for p in convert(Config, bad)[1]} == bad.keys()


def test_the_cosine_starts_at_lr_and_ends_near_zero() -> None:
    keys = Keys(optimizer="sgd", lr=0.4)
    learner: Any = SimpleNamespace(algorithm=keys, rounds=100, optimizer=make_optimizer(keys, torch.nn.Linear(1, 1)))
    seen = []
    for round in (1, 51, 100):
        GraphLearner.set_lr(learner, round)
        seen.append(learner.optimizer.param_groups[0]["lr"])
    assert seen[0] == 0.4 and seen[1] == pytest.approx(0.2) and 0 < seen[2] < 1e-3
    keys.schedule = "none"
    GraphLearner.set_lr(learner, 100)
    assert learner.optimizer.param_groups[0]["lr"] == 0.4
