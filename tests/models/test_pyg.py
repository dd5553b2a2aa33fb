"""Convolutions of torch_geometric on blocks: equal to its own layers on the whole graph, also in GLASU's exchanges."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import vflbench
from tests.algorithms.small_graphs import assert_same, config, differ, run, task
from tests.every import few_fast
from vflbench.algorithms.graph import centralized_gnn, glasu, glasu_exact, simulated_centralized, standalone_gnn
from vflbench.algorithms.graph.joint import Aggregation
from vflbench.cards.models.pyg import Config
from vflbench.data.graph.sampling import Graph, full_block, sample_blocks
from vflbench.data.tasks import GraphTask
from vflbench.models import gnn, pyg
from vflbench.models.pyg import build, check_convolution, check_width
from vflbench.types import ConfigError

NODES, WIDTH, CLASSES, HIDDEN = 30, 12, 4, 16
PAGE = (Path(__file__).parents[2] / "docs/how-to/own-graphs.md").read_text(encoding="utf-8")
LISTED = re.findall(r"`(\w+)`", PAGE.split("These work without further keys")[1].split("Others are refused")[0])


def kind(name: str) -> Any:
    import torch_geometric.nn  # seconds, which no other test should wait for

    return getattr(torch_geometric.nn, name)


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN))


# conv, conv_options -> torch_geometric's own layer of width HIDDEN, with its own self-loops and its own normalisation
WHOLE: dict[tuple[str, tuple[tuple[str, Any], ...]], Any] = {
    ("SAGEConv", ()): lambda kind: kind(HIDDEN, HIDDEN),
    ("SAGEConv", (("aggr", "max"), ("normalize", True))): lambda kind: kind(HIDDEN, HIDDEN, "max", normalize=True),
    ("GINConv", ()): lambda kind: kind(mlp()),
    ("GINConv", (("train_eps", True),)): lambda kind: kind(mlp(), train_eps=True),
    ("APPNP", (("alpha", 0.3),)): lambda kind: kind(1, 0.3),
    ("TransformerConv", (("heads", 4),)): lambda kind: kind(HIDDEN, HIDDEN // 4, heads=4),
    ("GATConv", (("heads", 2),)): lambda kind: kind(HIDDEN, HIDDEN // 2, heads=2),
    ("GATv2Conv", (("heads", 4), ("concat", False))): lambda kind: kind(HIDDEN, HIDDEN, heads=4, concat=False),
    ("GATv2Conv", (("add_self_loops", False),)): lambda kind: kind(HIDDEN, HIDDEN, add_self_loops=False),
    ("GraphConv", ()): lambda kind: kind(HIDDEN, HIDDEN),
    ("GCNConv", ()): lambda kind: kind(HIDDEN, HIDDEN),
    ("ResGatedGraphConv", ()): lambda kind: kind(HIDDEN, HIDDEN),
    ("MFConv", ()): lambda kind: kind(HIDDEN, HIDDEN),
    ("LEConv", ()): lambda kind: kind(HIDDEN, HIDDEN),
    ("GENConv", ()): lambda kind: kind(HIDDEN, HIDDEN, norm="layer"),
    ("FeaStConv", (("heads", 3),)): lambda kind: kind(HIDDEN, HIDDEN, heads=3),
}


def graph() -> Graph:
    a, b = np.random.default_rng(0).integers(0, NODES, (2, 60))
    a, b = a[a != b], b[a != b]
    return Graph.from_edges(np.unique(np.stack([np.r_[a, b], np.r_[b, a]]), axis=1), NODES)


def block() -> gnn.Adjacency:
    return gnn.adjacency(full_block(graph()), "cpu", torch.float64)


def edge_index() -> Tensor:
    own = graph()
    return torch.from_numpy(np.stack([own.neighbours, np.repeat(np.arange(NODES), own.degree)]))


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def settings(conv: str = "SAGEConv", hidden: int = HIDDEN, drop: float = 0.5, **options: Any) -> Config:
    return Config(conv=conv, conv_options=options, hidden=hidden, dropout=drop, dtype="float64")


def make(given: Config, layers: int = 2, ends: Sequence[int] | None = None, columns: Any = None) -> Any:
    return build(given, WIDTH, CLASSES, layers, ends or (layers - 1,), generator(), columns=columns)


def rows(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=generator(seed), dtype=torch.float64)


# --- the layer --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("conv", "options"), WHOLE)
def test_layers_equal_pytorch_geometrics_on_the_whole_graph(conv: str, options: Any) -> None:
    """Values and gradients, where the block is the whole graph; an aggregation after each layer."""
    model = make(settings(conv, **dict(options)), layers=2, ends=(0, 1))
    x, got, want = rows(NODES, WIDTH), [], []
    h = model.start(x)
    for segment in range(2):
        out, _ = model.segment(segment, [block()] * 2, h, h)
        got.append(out)
        whole = WHOLE[conv, options](kind(conv)).double()
        whole.load_state_dict(model.convs[segment].conv.state_dict())
        mixed = h if model.convs[segment].linear is None else model.convs[segment].linear(h)
        want.append(whole(mixed, edge_index()).relu())
        torch.testing.assert_close(got[-1], want[-1], rtol=1e-12, atol=1e-12)
        weights = rows(NODES, HIDDEN, seed=5)
        one = torch.autograd.grad((out * weights).sum(), [*model.convs[segment].conv.parameters(), h])
        other = torch.autograd.grad((want[-1] * weights).sum(), [*whole.parameters(), h])
        for a, b in zip(one, other, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)
        h = (out + rows(NODES, HIDDEN, seed=6)) / 2  # what another party adds
    assert float(got[0].detach().abs().max()) > 0.1


@pytest.mark.parametrize("conv", LISTED)
def test_sampled_rows_are_those_of_the_whole_graph(conv: str) -> None:
    """With all neighbours, a batch's representations do not depend on what else is computed."""
    model, x = make(settings(conv), layers=3, ends=(0, 2)).eval(), rows(NODES, WIDTH)
    batch = np.array([3, 8, 21])
    levels, sampled = asyncio.run(sample_blocks(graph(), batch, 3, None, np.random.default_rng(0)))
    blocks = [gnn.adjacency(b, "cpu", torch.float64) for b in sampled]
    h, H = model.start(x[torch.from_numpy(levels[0])]), model.start(x)
    for segment in range(2):
        h, _ = model.segment(segment, blocks, h, h)
        H, _ = model.segment(segment, [block()] * 3, H, H)
    torch.testing.assert_close(h, H[batch])


@pytest.mark.parametrize(("conv", "options"), [("SAGEConv", {}), ("APPNP", {}), ("GATConv", {"heads": 2})])
def test_shares_have_their_width_and_layers_take_the_full_one(conv: str, options: Any) -> None:
    model = make(settings(conv, **options), layers=3, ends=(0, 2), columns=(8, 16))
    assert model.widths == [8, 16, 8]
    h = model.start(rows(NODES, WIDTH))
    for segment in range(2):
        own, _ = model.segment(segment, [block()] * 3, h, h)
        assert own.shape == (NODES, 8)
        h = torch.cat([own, own], dim=1)
    assert model.classify(h).shape == (NODES, CLASSES)


@pytest.mark.parametrize("conv", LISTED)
def test_no_global_generator(conv: str) -> None:
    before = torch.get_rng_state()
    model = make(settings(conv))
    h = model.start(rows(NODES, WIDTH), generator())
    h, _ = model.segment(0, [block()] * 2, h, h, generator())
    model.classify(h, generator())
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(1234)
    for a, b in zip(model.parameters(), make(settings(conv)).parameters(), strict=True):
        assert torch.equal(a, b)
    other = build(settings(conv), WIDTH, CLASSES, 2, (1,), generator(9))
    own = [*model.convs.parameters()]
    assert not own or any(not torch.equal(a, b) for a, b in zip(own, other.convs.parameters(), strict=True))


@pytest.mark.slow
def test_the_how_to_lists_those_that_work() -> None:
    import torch_geometric

    found = pyg.usable()
    assert set(LISTED) <= set(found)
    if torch_geometric.__version__.startswith("2.8."):  # whose the page lists; another version may have more
        assert tuple(LISTED) == found


# --- in GLASU ---------------------------------------------------------------------------------------------------------

NETWORKS = [("SAGEConv", {}), ("GINConv", {}), ("GATv2Conv", {"heads": 2}), ("TransformerConv", {"heads": 2})]
WAYS = [("avg", (1,)), ("avg", (0, 1)), ("cat", (0, 1))]


def pyg_config(module: ModuleType, conv: str = "SAGEConv", options: Any = None, **keys: Any) -> Any:
    model = settings(conv, hidden=8, drop=keys.pop("dropout", 0.0), **(options or {}))
    return dataclasses.replace(config(module, **keys), model=model)


class Slow:
    """GLASU with torch_geometric's layers on each client's whole graph, and torch's autograd."""

    def __init__(self, graph: GraphTask, models: list[Any], ends: tuple[int, ...], how: str, lr: float) -> None:
        self.models, self.ends, self.lr = models, ends, lr
        self.aggregation = Aggregation(how, len(models))
        self.x = [torch.from_numpy(features).double() for features in graph.features]
        self.train, self.labels = graph.splits["train"], torch.from_numpy(graph.labels)
        loops = np.tile(np.arange(len(graph.labels)), (2, 1))
        self.edges = [
            torch.from_numpy(np.concatenate([edges, loops], axis=1) if model.convs[0].loops else edges)
            for model, edges in zip(models, graph.edges, strict=True)
        ]

    def own(self, m: int, layer: int, h: Tensor) -> Tensor:
        return torch.relu(self.models[m].convs[layer].conv(h, self.edges[m]))

    def losses(self, stale: list[list[Tensor]] | None = None, only: int | None = None) -> tuple[list[Tensor], Any]:
        """All clients' losses and their parts of each aggregate; with `stale` parts those of the others."""
        clients = range(len(self.models))
        h, parts = [self.models[m].start(self.x[m]) for m in clients], []
        for layer in range(len(self.models[0].convs)):
            h = [self.own(m, layer, h[m]) for m in clients]
            if layer in self.ends:
                parts.append(h)
                if stale is None:
                    h = [self.aggregation.combine(h)] * len(h)
                else:
                    there = stale[len(parts) - 1]
                    h = [
                        self.aggregation.combine([h[m] if k == m else there[k].detach() for k in clients])
                        for m in clients
                    ]
        logits = [self.models[m].classify(h[m])[self.train] for m in clients]
        return [nn.functional.cross_entropy(z, self.labels[self.train]) for z in logits], parts

    def descend(self, loss: Tensor) -> None:
        parameters = [p for model in self.models for p in model.parameters()]
        gradients = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter -= self.lr * gradient

    def exact_round(self) -> None:
        self.descend(sum(self.losses()[0], torch.zeros(())))

    def glasu_round(self, local_steps: int) -> None:
        with torch.no_grad():
            _, parts = self.losses()
        for _ in range(local_steps):
            self.descend(sum(self.losses(parts)[0], torch.zeros(())))


def caught(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    models: list[Any] = []
    real = pyg.build

    def build(*args: Any, **kwargs: Any) -> Any:
        model = real(*args, **kwargs)
        models.append(copy.deepcopy(model))
        return model

    monkeypatch.setattr(pyg, "build", build)
    return models


@pytest.mark.parametrize(("how", "ends"), WAYS)
@pytest.mark.parametrize(("conv", "options"), NETWORKS)
def test_exact_gradients_cross_parties_as_joint_autograd(
    monkeypatch: pytest.MonkeyPatch, conv: str, options: Any, how: str, ends: tuple[int, ...]
) -> None:
    """The server back-propagates through each aggregation; the slow reference differentiates all parties at once."""
    models, own = caught(monkeypatch), task(parties=2)
    keys = {"layers": 2, "aggregation_layers": list(ends), "aggregate": how, "lr": 0.1}
    result = run(glasu_exact, own, pyg_config(glasu_exact, conv, options, **keys))
    slow = Slow(own, models, ends, how, lr=0.1)
    start = [dict(copy.deepcopy(model).named_parameters()) for model in models]
    for _ in range(3):
        slow.exact_round()
    for m, client in enumerate(result.clients):
        assert_same(result.parameters(client), dict(models[m].named_parameters()))
        assert differ(result.parameters(client), start[m])


@pytest.mark.parametrize(("how", "ends"), WAYS)
@pytest.mark.parametrize(("conv", "options"), few_fast(NETWORKS))
def test_stale_local_updates_equal_the_slow_reference(
    monkeypatch: pytest.MonkeyPatch, conv: str, options: Any, how: str, ends: tuple[int, ...]
) -> None:
    models, own = caught(monkeypatch), task(parties=2)
    keys = {"layers": 2, "aggregation_layers": list(ends), "aggregate": how, "lr": 0.1, "local_steps": 3}
    result = run(glasu, own, pyg_config(glasu, conv, options, **keys))
    slow = Slow(own, models, ends, how, lr=0.1)
    for _ in range(3):
        slow.glasu_round(3)
    for m, client in enumerate(result.clients):
        assert_same(result.parameters(client), dict(models[m].named_parameters()))


@pytest.mark.parametrize("conv", ["SAGEConv", "GINConv", "APPNP", "TransformerConv"])
@pytest.mark.parametrize("module", [glasu, glasu_exact])
def test_one_party_is_the_centralized_network(module: ModuleType, conv: str) -> None:
    own = task(parties=1, keep=1.0)
    single = run(centralized_gnn, own, pyg_config(centralized_gnn, conv, lr=0.1))
    split = run(module, own, pyg_config(module, conv, aggregations=2, local_steps=1, lr=0.1))
    assert_same(split.parameters("client_0"), single.parameters("client_0"))
    assert split.losses == pytest.approx(single.losses, rel=1e-12)


@pytest.mark.parametrize("module", [glasu, glasu_exact, simulated_centralized, standalone_gnn, centralized_gnn])
@pytest.mark.parametrize("conv", few_fast(["SAGEConv", "APPNP", "GENConv"]))
def test_it_runs_in_every_method_and_equal_seeds_give_equal_runs(module: ModuleType, conv: str) -> None:
    keys = {"fanout": 2, "batch_size": 6, "optimizer": "adam", "lr": 0.01, "dropout": 0.3}
    first, second, other = (
        run(module, task(parties=2, nodes=40), pyg_config(module, conv, seed=seed, **keys)) for seed in (1, 1, 2)
    )
    assert first.losses == second.losses != other.losses
    for client in first.clients:
        (predictions,) = first.predictions(client)
        assert predictions["val"].shape == (13, 3) and torch.isfinite(predictions["test"]).all()


# --- what cannot be ---------------------------------------------------------------------------------------------------


def told(conv: str, hidden: int = HIDDEN, **options: Any) -> list[str]:
    return [str(problem) for problem in check_convolution(settings(conv, hidden, **options))]


def test_what_cannot_be_a_layer_is_told() -> None:
    assert told("SAGEConv") == told("GATConv", heads=4) == []
    (text,) = told("GINConf")
    assert text.startswith("model.conv=GINConf: is no convolution of torch_geometric; these can be used: APPNP, ")
    assert text.endswith("Did you mean 'GINConv'?") and "SAGEConv, SimpleConv, TransformerConv" in text
    for conv, reason in {
        "ChebConv": "needs K, which the network does not give",
        "NNConv": "does not work on nodes and edges alone",
        "ClusterGCNConv": "does not take the sources and the targets of a block apart",
    }.items():
        (text,) = told(conv)
        assert text.startswith(f"model.conv={conv}: {reason}") and "these can be used: APPNP" in text
    # two steps of APPNP need two hops; attention that drops edges draws from the global generator
    (text,) = told("APPNP", K=2)
    assert "with these APPNP gives another result on a block than on the whole graph" in text


def test_a_convolution_that_draws_numbers_of_its_own_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch_geometric.nn

    class Noisy(kind("SAGEConv")):  # type: ignore[misc]
        def forward(self, x: Any, edge_index: Tensor) -> Tensor:
            out: Tensor = super().forward(x, edge_index)
            return nn.functional.dropout(out, 0.5, self.training)

    monkeypatch.setattr(torch_geometric.nn, "NoisyConv", Noisy, raising=False)
    assert pyg.failure("NoisyConv", {}, 8) == "draws random numbers that no seed of a run controls"


@pytest.mark.parametrize(
    ("conv", "options", "text"),
    [
        ("SAGEConv", {"agr": "max"}, "model.conv_options.agr=max: unknown key; SAGEConv has: aggr, normalize, "),
        ("GATConv", {"head": 4}, "Did you mean 'heads'?"),
        ("SAGEConv", {"kwargs": 1}, "model.conv_options.kwargs=1: unknown key; SAGEConv has: aggr, normalize, "),
        ("GATConv", {"dropout": 0.2}, "model.conv_options.dropout=0.2: use model.dropout, whose masks"),
        ("SAGEConv", {"out_channels": 3}, "model.conv_options.out_channels=3: is model.hidden"),
        ("GINConv", {"nn": "mlp"}, "is two linear layers of width model.hidden"),
        ("GCNConv", {"normalize": False}, "the block's weights are normalised, with self-loops"),
        ("GATConv", {"edge_dim": 3}, "edges have no features here"),
        ("SAGEConv", {"aggr": "maxi"}, "with these SAGEConv does not work on nodes and edges alone (Could not resolve"),
        (
            "GENConv",
            {"norm": "batch"},
            "with these GENConv gives another result in training: it normalises by the rows of",
        ),
        ("GATConv", {"heads": "four"}, "model.conv_options={'heads': 'four'}: with these GATConv does not work"),
    ],
)
def test_wrong_keys_are_told(conv: str, options: Any, text: str) -> None:
    (found,) = told(conv, **options)
    assert text in found


@pytest.mark.parametrize("name", ["conv", "Sequential", "global_mean_pool", "MessagePassing", ""])
def test_other_names_of_the_package_are_no_convolutions(name: str) -> None:
    with pytest.raises(ConfigError, match=r"model\.conv=\S*: is no convolution of torch_geometric"):
        vflbench.run(["algorithm=glasu", "dataset=digits_graph", "model=pyg", f"model.conv='{name}'"])


def test_heads_and_parties_divide_the_width() -> None:
    given = settings("GATConv", 10, heads=4)
    assert check_convolution(given) == []
    (problem,) = check_width(given)
    assert str(problem) == "model.hidden=10: must divide by 4 heads; nearest: 8 or 12."
    assert check_width(settings("GATConv", 10, heads=4, concat=False)) == []
    (problem,) = check_width(settings("GATConv", 16, heads=4), 3, "cat")
    assert "3 parties (algorithm.aggregate=cat) times 4 heads" in problem.allowed


def test_without_torch_geometric_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    pyg._names.cache_clear()
    monkeypatch.setitem(sys.modules, "torch_geometric.nn.conv", None)
    (problem,) = check_convolution(settings())
    assert str(problem) == "model=pyg: needs torch_geometric: pip install torch-geometric."
    assert check_width(settings(hidden=7)) == []
    pyg._names.cache_clear()


# --- the command ------------------------------------------------------------------------------------------------------


def test_a_users_graph_with_a_users_convolution(tmp_path: Path) -> None:
    from torch_geometric.data import Data

    labels = torch.arange(NODES) % CLASSES
    torch.save(Data(x=rows(NODES, WIDTH), edge_index=edge_index(), y=labels), tmp_path / "data.pt")
    words = ["algorithm=glasu", "dataset=graph_files", f"dataset.pyg={tmp_path / 'data.pt'}", "model=pyg"]
    conv = ["model.conv=TransformerConv", "model.conv_options={heads: 4}", "rounds=2", "plot=none"]
    found = vflbench.run([*words, *conv, f"hydra.run.dir={tmp_path / 'run'}"])
    assert found.summary["status"] == "completed" and found.summary["data_source"] == "real"
    assert found.manifest["config"]["model"]["conv_options"] == {"heads": 4}
    for one in ("model.conv_options.heads=4", "+model.conv_options.heads=4"):
        with pytest.raises(ConfigError, match=r"model\.conv_options takes all its keys at once: model\.conv_options="):
            vflbench.run([*words, one, f"hydra.run.dir={tmp_path / 'other'}"])
    assert not (tmp_path / "other").exists()
