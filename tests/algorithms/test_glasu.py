"""GLASU against slow references, its reductions (glasu.md section 4), its bytes (section 3), and a step by hand."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from tests.algorithms.reference import Parameters, Reference
from tests.algorithms.small_graphs import Result, assert_same, config, differ, run, task
from tests.every import few_fast
from tests.options import card_of, make_mechanism, privacy_config
from vflbench import seeding
from vflbench.algorithms.graph import (
    centralized_gnn,
    glasu,
    glasu_exact,
    graph_learner,
    joint,
    simulated_centralized,
    standalone_gnn,
)
from vflbench.algorithms.graph.joint import Aggregation
from vflbench.cards.algorithms.graph import glasu as glasu_card
from vflbench.cards.models import gnn as gnn_card
from vflbench.cards.models.gnn import MODEL_NAMES
from vflbench.config import convert
from vflbench.data.graph.sampling import Graph, full_block
from vflbench.models import gnn
from vflbench.privacy.gaussian import GaussianEmbedding

BOTH = (glasu, glasu_exact)


class Catch:
    """The networks as they were built, in the order of the parties; `change` may alter each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, change: Any = lambda model: None) -> None:
        self.start: list[Parameters] = []
        real = gnn.build

        def build(*args: Any, **kwargs: Any) -> gnn.Backbone:
            model = real(*args, **kwargs)
            change(model)
            self.start.append({name: value.detach().clone() for name, value in model.named_parameters()})
            return model

        monkeypatch.setattr(gnn, "build", build)


# --- against the slow reference ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["avg", "cat"])
@pytest.mark.parametrize(("layers", "ends"), [(2, (1,)), (2, (0, 1)), (4, (1, 3)), (3, (0, 2))])
@pytest.mark.parametrize("local_steps", [1, 3])
def test_training_equals_the_dense_reference(
    monkeypatch: pytest.MonkeyPatch, how: str, layers: int, ends: tuple[int, ...], local_steps: int
) -> None:
    """Q = 1: autograd of loss_m with the others detached. K = 1 is Zhou et al. 2020: local networks, one
    aggregation."""
    catch, graph = Catch(monkeypatch), task(parties=3)
    options = {"layers": layers, "aggregation_layers": list(ends), "aggregate": how, "local_steps": local_steps}
    result = run(glasu, graph, config(glasu, **options))
    reference = Reference(graph, catch.start, layers, ends, how, lr=0.5)
    exact = Reference(graph, catch.start, layers, ends, how, lr=0.5)
    for _ in range(3):
        reference.glasu_round(local_steps)
        exact.exact_round()
    for m, client in enumerate(result.clients):
        assert_same(result.parameters(client), reference.parameters[m])
        assert differ(result.parameters(client), catch.start[m])
    assert differ(result.parameters(result.clients[0]), exact.parameters[0])
    logits, _ = reference.joint()  # and prediction is joint inference on the whole graph
    for m, client in enumerate(result.clients):
        for split, scores in result.predictions(client)[-1].items():
            torch.testing.assert_close(scores, logits[m][graph.splits[split]], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("how", ["avg", "cat"])
@pytest.mark.parametrize(("layers", "ends"), [(2, (1,)), (2, (0, 1)), (4, (1, 3))])
def test_the_exact_variant_is_autograd_of_the_sum(
    monkeypatch: pytest.MonkeyPatch, how: str, layers: int, ends: tuple[int, ...]
) -> None:
    catch, graph = Catch(monkeypatch), task(parties=3)
    result = run(glasu_exact, graph, config(glasu_exact, layers=layers, aggregation_layers=list(ends), aggregate=how))
    reference = Reference(graph, catch.start, layers, ends, how, lr=0.5)
    for _ in range(3):
        reference.exact_round()
    for m, client in enumerate(result.clients):
        assert_same(result.parameters(client), reference.parameters[m])


@pytest.mark.parametrize("name", MODEL_NAMES)
@pytest.mark.parametrize("how", ["avg", "cat"])
def test_exact_gradients_equal_joint_autograd_for_every_network(name: str, how: str) -> None:
    """Also with dropout: both passes draw the same masks."""
    graph, aggregation = task(parties=2), Aggregation(how, 2)
    settings = gnn_card.Config(name=name, hidden=8, heads=2, dropout=0.3, dtype="float64")
    ends, labels = (0, 2), torch.from_numpy(graph.labels)
    models, xs, blocks = [], [], []
    for m in range(2):
        init = torch.Generator().manual_seed(m)
        models.append(gnn.build(settings, 4, graph.classes, 3, ends, init, columns=aggregation.columns(8, m)))
        own = Graph.from_edges(graph.edges[m], 20, models[m].self_weight)
        blocks.append([gnn.adjacency(full_block(own), "cpu", torch.float64)] * 3)
        xs.append(torch.from_numpy(graph.features[m]).double())

    def masks(m: int) -> torch.Generator:
        return torch.Generator().manual_seed(10 + m)

    streams = [masks(m) for m in range(2)]
    h = h0 = [models[m].start(xs[m], streams[m]) for m in range(2)]
    for segment in range(2):
        pairs = [models[m].segment(segment, blocks[m], h[m], h0[m], streams[m]) for m in range(2)]
        h, h0 = [aggregation.combine([p[0] for p in pairs])] * 2, [p[1] for p in pairs]
    losses = [torch.nn.functional.cross_entropy(models[m].classify(h[m], streams[m]), labels) for m in range(2)]
    (losses[0] + losses[1]).backward()
    want = [[p.grad.clone() for p in model.parameters()] for model in models]  # type: ignore[union-attr]
    for model in models:
        model.zero_grad()

    passes: list[Any] = []
    for m in range(2):

        async def wait(segment: int, tensor: torch.Tensor) -> torch.Tensor:
            return await Ask(tensor)

        passes.append(joint.exact_gradients(models[m], xs[m], blocks[m], labels, wait, wait, masks(m)))
    asked = [each.send(None) for each in passes]
    for step in range(4):
        answers = [aggregation.combine(asked)] * 2 if step < 2 else aggregation.gradients(asked)
        asked = []
        for each, answer in zip(passes, answers, strict=True):
            try:
                asked.append(each.send(answer.clone()))
            except StopIteration as stop:
                asked.append(stop.value)
    for m in range(2):
        torch.testing.assert_close(asked[m], losses[m].detach(), rtol=1e-12, atol=1e-12)
        for parameter, gradient in zip(models[m].parameters(), want[m], strict=True):
            torch.testing.assert_close(parameter.grad, gradient, rtol=1e-10, atol=1e-12)


class Ask:
    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    def __await__(self) -> Any:
        return (yield self.tensor)


@pytest.mark.parametrize("name", MODEL_NAMES)
@pytest.mark.parametrize("how", ["avg", "cat"])
def test_the_first_local_pass_equals_joint_inference(name: str, how: str) -> None:
    """Stale = fresh at q = 0, with the same masks; after an update of the own part it is not."""
    graph, aggregation = task(parties=2), Aggregation(how, 2)
    settings = gnn_card.Config(name=name, hidden=8, heads=2, dropout=0.3, dtype="float64")
    model = gnn.build(
        settings, 4, graph.classes, 3, (0, 2), torch.Generator().manual_seed(0), columns=aggregation.columns(8, 1)
    )
    blocks = [
        gnn.adjacency(full_block(Graph.from_edges(graph.edges[1], 20, model.self_weight)), "cpu", torch.float64)
    ] * 3
    x, others = torch.from_numpy(graph.features[1]).double(), []
    other = torch.randn(20, model.widths[0], generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    stream = torch.Generator().manual_seed(3)
    h = h0 = model.start(x, stream)
    for segment in range(2):
        own, h0 = model.segment(segment, blocks, h, h0, stream)
        h = aggregation.combine([other, own])  # what the server sends back
        others.append(aggregation.extract(h, own, 1).detach())
    whole = model.classify(h, stream)

    def local() -> torch.Tensor:
        stream = torch.Generator().manual_seed(3)
        return joint.forward(model, x, blocks, stream, lambda segment, own: aggregation.insert(others[segment], own, 1))

    torch.testing.assert_close(local(), whole, rtol=1e-12, atol=1e-12)
    with torch.no_grad():
        model.projection.weight += 0.1
    assert not torch.allclose(local(), whole)


# --- by hand ----------------------------------------------------------------------------------------------------------


def hand_made(monkeypatch: pytest.MonkeyPatch) -> tuple[Any, list[gnn.Backbone]]:
    """Two clients, one training node without edges, one layer, one hidden unit, two classes.

    x = (1, 2) and w = (2, 3), b = 0: H^+ = relu(x w) = (2, 6), H = (2 + 6) / 2 = 4. Heads v = (1/4, -1/4), c = (-1, 1):
        logits are
    4 / 4 - 1 = 0 and -4 / 4 + 1 = 0, so p = (1/2, 1/2); the label is 0, so d logits = (-1/2, 1/2) and the loss is log
    2.
    """
    graph = task(parties=2, nodes=3, width=1)
    edges = np.zeros((2, 0), np.int64)
    features = tuple(np.array([[value], [0], [0]], np.float32) for value in (1, 2))
    graph = replace(
        graph, features=features, edges=(edges, edges), all_edges=edges, labels=np.array([0, 0, 1]), classes=2
    )
    models: list[gnn.Backbone] = []

    def change(model: gnn.Backbone) -> None:
        with torch.no_grad():
            model.projection.weight.fill_([2.0, 3.0][len(models)])
            model.head.copy_(torch.tensor([[0.25, -0.25]]))
            model.head_bias.copy_(torch.tensor([-1.0, 1.0]))
        models.append(model)

    Catch(monkeypatch, change)
    return graph, models


def values(model: gnn.Backbone) -> list[float]:
    parameters = (model.projection.weight, model.biases[0], model.head, model.head_bias)
    return [round(float(v), 12) for p in parameters for v in p.detach().flatten()]


def test_a_local_step_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """lr 0.8. d H = v . d logits = -1/8 - 1/8 = -1/4, d H_m^+ = d H / M = -1/8: d w = x d H_m^+ = (-1/8, -1/4), d b =
    -1/8.

    d v = H d logits = (-2, 2), d c = (-1/2, 1/2). So w = (2.1, 3.2), b = 0.1, v = (1.85, -1.85), c = (-0.6, 0.6).
    """
    graph, models = hand_made(monkeypatch)
    result = run(glasu, graph, config(glasu, {"hidden": 1}, layers=1, aggregations=1, local_steps=1, lr=0.8, rounds=1))
    assert values(models[0]) == [2.1, 0.1, 1.85, -1.85, -0.6, 0.6]
    assert values(models[1]) == [3.2, 0.1, 1.85, -1.85, -0.6, 0.6]
    assert result.losses == pytest.approx([np.log(2)] * 2)


def test_a_second_local_step_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Client 0 goes on with H_{-0} = 6 / 2 = 3, stale, and its own H^+ = 2.1 + 0.1 = 2.2: H = 3 + 1.1 = 4.1.

    logits = 4.1 * 1.85 - 0.6 = 6.985 and -6.985; s = 1 / (1 + exp(13.97)) = p of the wrong class; d logits = (-s, s). d
        H = -3.7 s,
    d H_0^+ = -1.85 s; w = 2.1 + 0.8 * 1.85 s, b = 0.1 + 0.8 * 1.85 s, v = 1.85 + 0.8 * 4.1 s, c = -0.6 + 0.8 s.
    """
    graph, models = hand_made(monkeypatch)
    run(glasu, graph, config(glasu, {"hidden": 1}, layers=1, aggregations=1, local_steps=2, lr=0.8, rounds=1))
    s = 1 / (1 + np.exp(13.97))
    want = [2.1 + 1.48 * s, 0.1 + 1.48 * s, 1.85 + 3.28 * s, -1.85 - 3.28 * s, -0.6 + 0.8 * s, 0.6 - 0.8 * s]
    assert values(models[0]) == pytest.approx(want, abs=1e-11)
    assert s * 1.48 > 1e-7  # the step is there


def test_an_exact_step_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each client's d H is -1/4; their sum over M is -1/4 for both parts: d w = (-1/4, -1/2), d b = -1/4; heads as
    before."""
    graph, models = hand_made(monkeypatch)
    run(glasu_exact, graph, config(glasu_exact, {"hidden": 1}, layers=1, aggregations=1, lr=0.8, rounds=1))
    assert values(models[0]) == [2.2, 0.2, 1.85, -1.85, -0.6, 0.6]
    assert values(models[1]) == [3.4, 0.2, 1.85, -1.85, -0.6, 0.6]


# --- reductions -------------------------------------------------------------------------------------------------------


ALONE = [(name, k, how) for name in MODEL_NAMES for k, how in ((1, "avg"), (2, "avg"), (2, "cat"))]
# residual_gcn's residuals span the layers between two aggregations: with more of them it is another network


@pytest.mark.parametrize(
    ("name", "aggregations", "how"), [case for case in ALONE if case[0] != "residual_gcn" or case[1] == 1]
)
@pytest.mark.parametrize("module", BOTH)
def test_one_party_is_the_centralized_network(module: ModuleType, name: str, aggregations: int, how: str) -> None:
    graph, model = task(parties=1, keep=1.0), {"name": name}
    single = run(centralized_gnn, graph, config(centralized_gnn, model))
    split = run(module, graph, config(module, model, aggregations=aggregations, aggregate=how, local_steps=1))
    assert_same(split.parameters("client_0"), single.parameters("client_0"))
    assert split.losses == pytest.approx(single.losses, rel=1e-12)
    if module is glasu:
        more = run(glasu, graph, config(glasu, model, aggregations=aggregations, aggregate=how, local_steps=2))
        assert differ(more.parameters("client_0"), single.parameters("client_0"))


def test_two_parties_are_not_the_centralized_network() -> None:
    graph = task(parties=2)
    split, single = (
        run(glasu, graph, config(glasu, local_steps=1)),
        run(centralized_gnn, graph, config(centralized_gnn)),
    )
    assert abs(split.losses[-1] - single.losses[-1]) > 1e-6


def test_without_edges_and_with_one_frozen_classifier_it_is_fedbcd(monkeypatch: pytest.MonkeyPatch) -> None:
    """Liu et al. 2022: parties' networks f_m(x_m), a fixed function of their mean, Q block updates with the others'
    outputs stale."""
    graph = task(parties=2)
    edges = np.zeros((2, 0), np.int64)
    graph = replace(graph, edges=(edges, edges), all_edges=edges)
    head = torch.linspace(-1, 1, 36, dtype=torch.float64).reshape(12, 3)

    def freeze(model: gnn.Backbone) -> None:
        model.head.data.copy_(head)
        model.head_bias.data.zero_()
        model.head.requires_grad_(False)
        model.head_bias.requires_grad_(False)

    catch = Catch(monkeypatch, freeze)
    result = run(glasu, graph, config(glasu, aggregations=1, local_steps=3, rounds=4))
    x = [torch.from_numpy(features[graph.splits["train"]]).double() for features in graph.features]
    y = torch.from_numpy(graph.labels[graph.splits["train"]])
    names = ("projection.weight", "biases.0", "weights.0", "biases.1")
    weights = [[start[name].clone().requires_grad_() for name in names] for start in catch.start]

    def local(m: int) -> torch.Tensor:
        w0, b0, w1, b1 = weights[m]
        return torch.relu(torch.relu(x[m] @ w0 + b0) @ w1 + b1)

    for _ in range(4):
        stale = [local(m).detach() for m in range(2)]
        for m in range(2):
            for _ in range(3):
                loss = torch.nn.functional.cross_entropy((local(m) + stale[1 - m]) / 2 @ head, y)
                for w, g in zip(weights[m], torch.autograd.grad(loss, weights[m]), strict=True):
                    w.data -= 0.5 * g
    for m in range(2):
        got = result.parameters(f"client_{m}")
        assert_same({name: got[name] for name in names}, dict(zip(names, weights[m], strict=True)))
        assert differ(got, catch.start[m])


@pytest.mark.parametrize("how", ["avg", "cat"])
def test_all_aggregations_all_edges_and_exact_gradients_are_simulated_centralized(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    catch, graph = Catch(monkeypatch), task(parties=3, keep=0.6)
    simulated = run(simulated_centralized, graph, config(simulated_centralized, aggregate=how))
    shared = replace(graph, edges=(graph.all_edges,) * 3)
    exact = run(glasu_exact, shared, config(glasu_exact, aggregations=2, aggregate=how))
    reference = Reference(graph, catch.start[:3], 2, (0, 1), how, lr=0.5, full_edges=True)
    for _ in range(3):
        reference.exact_round()
    for m, client in enumerate(simulated.clients):
        assert_same(simulated.parameters(client), exact.parameters(client))
        assert_same(simulated.parameters(client), reference.parameters[m])
    fewer = run(glasu_exact, graph, config(glasu_exact, aggregations=2, aggregate=how))
    assert differ(fewer.parameters("client_0"), simulated.parameters("client_0"))


def test_local_and_exact_gradients_differ_with_two_parties_and_agree_with_one() -> None:
    for parties, same in ((1, True), (2, False)):
        graph = task(parties=parties)
        local = run(glasu, graph, config(glasu, aggregations=2, local_steps=1)).parameters("client_0")
        exact = run(glasu_exact, graph, config(glasu_exact, aggregations=2)).parameters("client_0")
        assert differ(local, exact) != same


def test_one_client_standing_alone_is_the_centralized_network_and_sends_nothing() -> None:
    graph = task(parties=1, keep=1.0)
    alone, single = (
        run(standalone_gnn, graph, config(standalone_gnn)),
        run(centralized_gnn, graph, config(centralized_gnn)),
    )
    assert_same(alone.parameters("client_0"), single.parameters("client_0"))
    three = run(standalone_gnn, task(parties=3), config(standalone_gnn))
    assert three.ledger() == [] and three.engine.bytes_sent == 0 and len(three.clients) == 3
    assert all(three.predictions(client) for client in three.clients)


@pytest.mark.parametrize("module", [glasu, glasu_exact, simulated_centralized, standalone_gnn, centralized_gnn])
def test_with_all_neighbours_and_nodes_training_is_deterministic(module: ModuleType) -> None:
    graph = task(parties=2)
    most = int(max(np.bincount(graph.all_edges[0]).max(), 1))
    every, listed = (run(module, graph, config(module, fanout=fanout)) for fanout in (None, most))
    fewer = run(module, graph, config(module, fanout=1))
    assert_same(every.parameters("client_0"), listed.parameters("client_0"))
    assert differ(every.parameters("client_0"), fewer.parameters("client_0"))


def test_a_linear_layer_averages_the_parties_products() -> None:
    """One layer whose inputs and weights are positive, so that relu is the identity: H = (1/M) sum A_m X_m W_m."""
    graph, aggregation, parts, want = task(parties=3), Aggregation("avg", 3), [], []
    for m in range(3):
        model = gnn.build(
            gnn_card.Config(name="gcn", hidden=5, dtype="float64"), 4, 3, 1, (0,), torch.Generator().manual_seed(m)
        )
        model.projection.weight.data.abs_()
        own = Graph.from_edges(graph.edges[m], 20)
        blocks = [gnn.adjacency(full_block(own), "cpu", torch.float64)]
        h = model.start(torch.from_numpy(graph.features[m]).double())
        parts.append(model.segment(0, blocks, h, h)[0])
        a = np.eye(20)
        a[graph.edges[m][0], graph.edges[m][1]] = 1
        a /= np.sqrt(np.outer(a.sum(1), a.sum(1)))
        want.append(torch.from_numpy(a @ graph.features[m]) @ model.projection.weight)
    torch.testing.assert_close(aggregation.combine(parts), sum(want) / 3, rtol=1e-12, atol=1e-12)


# --- bytes ------------------------------------------------------------------------------------------------------------


def levels_of(graph: Any, cfg: Any) -> tuple[list[list[set[int]]], list[int], list[list[int]]]:
    """First round, all neighbours, by sets: per client the levels as sent for a union, their unions' sizes, and the
    levels' sizes."""
    own = cfg.algorithm
    ends = joint.aggregation_layers(own.layers, own.aggregations, own.aggregation_layers)
    train = graph.splits["train"]
    batch = seeding.stream(cfg.seed, "batches/server").choice(train, min(own.batch_size, len(train)), replace=False)
    neighbours = [{u: set(edges[1][edges[0] == u].tolist()) for u in range(20)} for edges in graph.edges]
    level = [set(batch.tolist()) for _ in graph.edges]
    sent, unions, sizes = [], [], [[len(batch)] for _ in graph.edges]
    for number in reversed(range(own.layers)):
        level = [nodes.union(*(near[u] for u in nodes)) for nodes, near in zip(level, neighbours, strict=True)]
        if number - 1 in ends or (number == 0 and getattr(own, "index_exchange", "paper") == "code"):
            sent.append([len(nodes) for nodes in level])
            common = set().union(*level)
            unions.append(len(common))
            level = [common] * len(level)
        for m, nodes in enumerate(level):
            sizes[m].insert(0, len(nodes))
    return sent, unions, sizes  # type: ignore[return-value]


def table(graph: Any, cfg: Any, exact: bool) -> dict[tuple[str, str], list[int]]:
    """Bytes of one round by the table of glasu.md section 3: (tag, client) -> every message."""
    own, width = cfg.algorithm, 8 if cfg.model.dtype == "float64" else 4
    ends = joint.aggregation_layers(own.layers, own.aggregations, own.aggregation_layers)
    sent, unions, sizes = levels_of(graph, cfg)
    hidden, share = cfg.model.hidden, cfg.model.hidden // (len(graph.edges) if own.aggregate == "cat" else 1)
    want = {}
    for m in range(len(graph.edges)):
        name = f"client_{m}"
        want["batch", name] = [8 * sizes[m][-1]]
        want["nodes", name] = [8 * each[m] for each in sent]
        want["union", name] = [8 * size for size in unions]
        want["embedding", name] = [sizes[m][end + 1] * share * width for end in ends]
        want["aggregate", name] = [sizes[m][end + 1] * hidden * width for end in ends]
        if exact:
            want["gradient", name] = want["aggregate", name][::-1]
            want["backward", name] = want["embedding", name][::-1]
    return {key: messages for key, messages in want.items() if messages}


def sent_messages(result: Result) -> dict[tuple[str, str], list[int]]:
    got: dict[tuple[str, str], list[int]] = {}
    for row in result.ledger():
        client = row["dst"] if row["src"] == "server" else row["src"]
        got.setdefault((row["tag"], client), []).append(int(row["bytes"]))
    return got


@pytest.mark.parametrize("parties", few_fast([2, 3]))
@pytest.mark.parametrize("aggregations", [1, 2, 4])
@pytest.mark.parametrize(("how", "options"), [("avg", {}), ("cat", {}), ("avg", {"index_exchange": "code"})])
def test_bytes_of_a_round_are_the_papers(parties: int, aggregations: int, how: str, options: dict[str, Any]) -> None:
    graph = task(parties=parties)
    for local_steps in (1, 4):
        common = {"layers": 4, "aggregations": aggregations, "aggregate": how, "batch_size": 2, "rounds": 1}
        cfg = config(glasu, local_steps=local_steps, **common, **options)
        assert sent_messages(run(glasu, graph, cfg)) == table(graph, cfg, exact=False)  # Q does not enter
    cfg = config(glasu_exact, **common)
    if not options:
        assert sent_messages(run(glasu_exact, graph, cfg)) == table(graph, cfg, exact=True)
    single = replace(cfg, model=replace(cfg.model, dtype="float32"))
    assert sent_messages(run(glasu_exact, graph, single)) == table(graph, single, exact=True)


def test_unions_and_exchanges_are_as_many_as_the_paper_has() -> None:
    for aggregations in (1, 2, 4):
        for exchange, unions in (("paper", aggregations - 1), ("code", aggregations)):
            options = {
                "layers": 4,
                "aggregations": aggregations,
                "index_exchange": exchange,
                "batch_size": 2,
                "rounds": 3,
            }
            got = sent_messages(run(glasu, task(), config(glasu, local_steps=5, **options)))
            assert len(got.get(("union", "client_0"), [])) == 3 * unions
            assert len(got["aggregate", "client_0"]) == 3 * aggregations


def test_bytes_to_a_number_of_updates_fall_as_aggregations_fall_and_local_steps_rise() -> None:
    def of(aggregations: int, local_steps: int) -> int:
        options = {"layers": 4, "aggregations": aggregations, "local_steps": local_steps, "batch_size": 2, "fanout": 2}
        return run(glasu, task(nodes=60), config(glasu, rounds=8 // local_steps, **options)).engine.bytes_sent

    assert of(1, 2) < of(2, 2) < of(4, 2)
    assert of(2, 8) < of(2, 4) < of(2, 1)


def test_levels_above_an_aggregation_are_common_also_when_sampled() -> None:
    """Every client sends as many rows as every other, round after round, though each samples for itself."""
    result = run(
        glasu, task(parties=3, nodes=60), config(glasu, layers=4, aggregations=2, batch_size=3, fanout=2, rounds=5)
    )
    got = sent_messages(result)
    assert got["embedding", "client_0"] == got["embedding", "client_1"] == got["embedding", "client_2"]
    assert len({tuple(got["nodes", f"client_{m}"]) for m in range(3)}) > 1


# --- the run ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "module", few_fast([glasu, glasu_exact, simulated_centralized, standalone_gnn, centralized_gnn])
)
@pytest.mark.parametrize("name", MODEL_NAMES)
def test_every_network_runs_in_every_method_and_equal_seeds_give_equal_runs(module: ModuleType, name: str) -> None:
    graph, model = task(parties=2, nodes=40), {"name": name, "dropout": 0.3, "dtype": "float32"}
    options = {
        "fanout": 2,
        "batch_size": 6,
        "optimizer": "adam",
        "lr": 0.01,
        "schedule": "cosine",
        "weight_decay": 1e-3,
    }
    first, second, other = (run(module, graph, config(module, model, seed=seed, **options)) for seed in (1, 1, 2))
    assert first.losses == second.losses != other.losses
    for client in first.clients:
        assert all(
            torch.equal(a, b)
            for a, b in zip(first.parameters(client).values(), second.parameters(client).values(), strict=True)
        )
        (predictions,) = first.predictions(client)
        assert predictions["val"].shape == (13, 3) and predictions["test"].dtype == torch.float32
        assert all(torch.isfinite(scores).all() for scores in predictions.values())


def test_dropout_weight_decay_and_schedule_change_the_run() -> None:
    plain = run(glasu, task(), config(glasu)).parameters("client_0")
    for model, options in (
        ({"dropout": 0.4}, {}),
        ({}, {"weight_decay": 0.1}),
        ({}, {"schedule": "cosine"}),
        ({}, {"optimizer": "adam"}),
    ):
        assert differ(run(glasu, task(), config(glasu, model, **options)).parameters("client_0"), plain)


def test_evaluating_changes_nothing_of_the_training() -> None:
    """Joint inference waits for others in its middle, without gradients; what they do meanwhile must still learn."""
    options = {"fanout": 2, "batch_size": 4, "rounds": 6}
    model = {"dropout": 0.3}
    often = run(glasu, task(parties=3), config(glasu, model, **options), eval_every=1)
    once = run(glasu, task(parties=3), config(glasu, model, **options))
    assert len(often.predictions("client_0")) == 6 and torch.is_grad_enabled()
    assert often.losses == once.losses
    assert sent_messages(often) == sent_messages(once)


def test_sampling_the_undropped_graph_is_sampling_the_own_one_where_nothing_was_lost() -> None:
    options = {"fanout": 2, "batch_size": 4}
    for keep, same in ((1.0, True), (0.5, False)):
        graph = task(keep=keep)
        own, leaky = (
            run(glasu, graph, config(glasu, sampling=how, **options)).parameters("client_0")
            for how in ("own", "undropped")
        )
        assert differ(own, leaky) != same


def with_privacy(clip: float, noise: float, rounds: int = 3) -> Result:

    settings = privacy_config("gaussian_embedding", clip=clip, noise_multiplier=noise)
    cfg = config(glasu, privacy=settings, rounds=rounds)
    bound = glasu.max_releases(cfg, rounds)
    guards = {f"client_{m}": make_mechanism(settings, bound) for m in range(2)}
    return run(glasu, task(), cfg, privacy=guards)


def test_a_wide_clip_without_noise_is_no_privacy_and_both_knobs_act() -> None:
    plain = run(glasu, task(), config(glasu)).parameters("client_0")
    wide = with_privacy(1e6, 0.0)
    assert_same(wide.parameters("client_0"), plain)
    assert differ(with_privacy(0.1, 0.0).parameters("client_0"), plain)
    assert differ(with_privacy(1e3, 1e-3).parameters("client_0"), plain)


def test_releases_stay_within_the_bound_and_reach_it_and_bytes_are_the_same() -> None:
    noisy = with_privacy(1.0, 1.0)
    releases = [noisy.engine.parties[name].privacy.releases for name in noisy.clients]
    cfg = config(glasu, rounds=3)
    # two aggregations, three rounds; evaluations are not counted
    assert releases == [glasu.max_releases(cfg, 3)] * 2 == [6, 6]
    assert noisy.engine.bytes_sent == run(glasu, task(), cfg).engine.bytes_sent


def test_noise_stays_out_of_the_own_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a client goes on with is the others' noisy part and its own exact one: with one party, noise changes
    nothing."""

    settings = privacy_config("gaussian_embedding", clip=1e6, noise_multiplier=1.0)
    graph = task(parties=1)
    cfg = config(glasu, local_steps=2)
    noisy = run(glasu, graph, replace(cfg, privacy=settings), privacy={"client_0": make_mechanism(settings, None)})
    plain = run(glasu, graph, cfg)
    for name, value in noisy.parameters("client_0").items():
        torch.testing.assert_close(value, plain.parameters("client_0")[name], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"aggregations": 2, "layers": 4, "index_exchange": "code"},
        {"layers": 3, "aggregation_layers": [0, 2], "sampling": "undropped"},
        {"layers": 3, "aggregation_layers": [1, 2], "aggregate": "cat", "fanout": 1},
    ],
)
@pytest.mark.parametrize("parties", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_rehearsed_releases_are_those_that_happen(
    parties: int, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the last row; and the rehearsal changes no message, no byte and no number."""
    settings = privacy_config("gaussian_embedding", epsilon=8.0)
    cfg = config(glasu, **{"fanout": 2, "batch_size": 5, "rounds": 7, **options}, seed=3, privacy=settings)
    graph, rehearsed, plan = task(parties=parties, nodes=60, keep=0.5), [], GaussianEmbedding.plan

    def record(self: GaussianEmbedding, counts: np.ndarray) -> None:
        rehearsed.append(counts)
        plan(self, counts)

    monkeypatch.setattr(GaussianEmbedding, "plan", record)
    secrets = {f"client_{m}": make_mechanism(settings, glasu.max_releases(cfg, 7)) for m in range(parties)}
    result = run(glasu, graph, cfg, privacy=secrets)
    assert len(rehearsed) == parties and rehearsed[0].max() < glasu.max_releases(cfg, 7)
    for secret, counts in zip(secrets.values(), rehearsed, strict=True):
        assert np.array_equal(counts, np.pad(secret.counts, (0, 60 - len(secret.counts))))
        spent = secret.spent()
        assert spent["releases"] == {"planned": counts.max(), "done": counts.max()}
        assert 0.9999 < spent["spent_of_target"] <= 1
    noise = secrets["client_0"].noise_multiplier
    given = replace(cfg, privacy=privacy_config("gaussian_embedding", noise_multiplier=noise))
    guards = {name: make_mechanism(given.privacy, None) for name in secrets}
    plain = run(glasu, graph, given, privacy=guards)
    assert len(rehearsed) == parties  # nothing is calibrated, so nothing is rehearsed
    assert result.losses == plain.losses and result.ledger() == plain.ledger()


def test_beyond_the_quantile_rows_repeat_themselves() -> None:
    """Half of the rows that are sent get noise for all their releases; the others repeat what they sent last."""
    settings = privacy_config("gaussian_embedding", epsilon=8.0, release_quantile=0.5)
    cfg = config(glasu, fanout=2, batch_size=5, rounds=9, privacy=settings)
    secrets = {f"client_{m}": make_mechanism(settings, glasu.max_releases(cfg, 9)) for m in range(2)}
    read: dict[str, int] = {}

    def on_read(src: str, dst: str, tag: str, round: int, payload: Any) -> None:
        if tag == "embedding":
            read[src] = read.get(src, 0) + len(payload)

    run(glasu, task(nodes=60), cfg, privacy=secrets, on_read=on_read)
    for name, secret in secrets.items():
        spent = secret.spent()
        assert spent["releases"]["planned"] == spent["releases"]["done"] == secret.counts.max() == secret.limit
        assert read[name] > secret.counts.sum() and 0.9999 < spent["spent_of_target"] <= 1
    whole = make_mechanism(replace(settings, release_quantile=1.0), glasu.max_releases(cfg, 9))
    run(glasu, task(nodes=60), cfg, privacy={name: whole if name == "client_0" else s for name, s in secrets.items()})
    assert whole.noise_multiplier > secrets["client_0"].noise_multiplier


# --- configuration ----------------------------------------------------------------------------------------------------


def test_check_collects_every_problem() -> None:
    assert glasu_card.check(config(glasu)) == []
    bad = config(glasu, {"hidden": 64}, parties=3, aggregate="cat", layers=4, aggregations=3)
    keys = [problem.key.partition(".")[2] for problem in glasu_card.check(bad)]
    assert keys == ["aggregations", "hidden"]
    assert [p.key for p in glasu_card.check(config(glasu, layers=2, aggregations=4))] == ["algorithm.aggregations"]
    for module in (glasu, glasu_exact, simulated_centralized, centralized_gnn, standalone_gnn):
        assert card_of(module).check(config(module)) == []
        wrong = {"fanout": 0, "weight_decay": -1.0, "default_rounds": 0}
        assert {problem.key for problem in convert(card_of(module).Config, wrong)[1]} == wrong.keys()


def test_a_batch_larger_than_the_training_nodes_takes_them_all() -> None:
    got = sent_messages(run(glasu, task(), config(glasu, batch_size=1000, rounds=1)))
    assert got["batch", "client_0"] == [8 * len(task().splits["train"])]


def test_the_schedules_of_the_learning_rate():
    """Half a cosine; a quarter after 12 and 24 of 32 parts of the run; constant."""
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=1.0)

    def rates(schedule):
        for t in range(1, 65):
            graph_learner.set_lr(SimpleNamespace(lr=0.8, schedule=schedule), optimizer, t, 64)
            yield optimizer.param_groups[0]["lr"]

    assert list(rates("step")) == [0.8] * 24 + [0.2] * 24 + [0.05] * 16
    assert list(rates("none")) == [0.8] * 64
    cosine = list(rates("cosine"))
    assert cosine[0] == 0.8 and cosine[32] == pytest.approx(0.4) and 0 < cosine[-1] < 0.001
