"""The one vertical model: every family of methods trains the same network, to the last but a few bits."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

import vflbench
from tests.algorithms.small_columns import classes, config
from vflbench.algorithms.tokens import svfl
from vflbench.algorithms.tokens.block_descent import make_server
from vflbench.cards.models import mvcnn as mvcnn_card
from vflbench.cards.models import split_learning as split_learning_card
from vflbench.models import vertical
from vflbench.models.split_network import SplitClient
from vflbench.results.reader import Run
from vflbench.types import ConfigError

# Full batches and plain gradient steps: then all of these are gradient descent on the joint network.
SAME = {
    "centralized_gd": (),
    "svfl": ("algorithm.local_steps=1",),
    "vfl": ("algorithm.optimizer=sgd",),
    "vfl_ps": ("algorithm.optimizer=sgd", "algorithm.workers=1"),
    "vfl_sgd": ("algorithm.weight_decay=0",),
    "centralized_join": ("algorithm.weight_decay=0",),
    "rfl_sgd_v": ("algorithm.weight_decay=0",),
}
DIGITS = ("dataset=digits", "algorithm.parties=4")
ENERGY = ("dataset=energy", "dataset.source=synthetic", "dataset.samples=300", "algorithm.parties=4")
COLUMNS = {DIGITS: "[16,16,16,16]", ENERGY: "[7,7,7,6]"}
ROWS = {DIGITS: 1078, ENERGY: 180}  # of training


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vflbench.plots.curves.draw_run", lambda folder, summary: None)


def run(folder: Path, algorithm: str, *more: str) -> Run:
    return vflbench.run(
        [f"algorithm={algorithm}", *more, "engine.threads=1", "plot=none", f"hydra.run.dir={folder / algorithm}"]
    )


@pytest.mark.slow
def test_split_learning_and_tokens_train_the_same_embeddings(tmp_path: Path) -> None:
    """The layer above them is the active party's, or the server's: what is compared is every passive party's
    network."""
    common = (
        *DIGITS,
        "model=split_mlp",
        "model.dtype=float64",
        "algorithm.lr=0.1",
        "rounds=2",
        f"algorithm.batch_size={ROWS[DIGITS]}",
    )
    split = run(tmp_path, "vfl", *common, "algorithm.optimizer=sgd")
    tokens = run(tmp_path, "svfl", *common, "algorithm.aggregation=concat")
    for k in (1, 2, 3):
        one, two = (
            load_file(r.folder / "model" / f"{name}_{k}.safetensors")
            for r, name in ((split, "passive"), (tokens, "client"))
        )
        layers = [two[f"model.local.{layer}.{kind}"].ravel() for layer in (0, 2) for kind in ("weight", "bias")]
        np.testing.assert_allclose(one["model.theta"], np.concatenate(layers), rtol=0, atol=1e-10)
    assert split.curve["test_accuracy"].iloc[-1] == tokens.curve["test_accuracy"].iloc[-1]
    with pytest.raises(ConfigError, match="model=mvcnn: takes image views"):
        run(tmp_path, "vfl_ps", *DIGITS, "model=mvcnn")
    with pytest.raises(ConfigError, match="the scores of mlp are a sum: use sum"):
        run(tmp_path, "mtcd", *DIGITS, "model=mlp", "algorithm.aggregation=concat")


@pytest.mark.parametrize(("name", "kind"), [("mlp10", "sum"), ("residual_mlp", "concat")])
def test_tokens_train_deep_networks(name: str, kind: str) -> None:
    """One visit is a step of autograd on the joint network."""
    task = classes()
    model = split_learning_card.Config(name, depth=4, width=5, embedding=3, top_width=4, dtype="float64")
    cfg = replace(config(svfl, task, aggregation=kind), model=model)
    blocks = [SplitClient(k, task.part(k, True), task.public, cfg, model, "cpu") for k in range(task.parties)]
    server = make_server(task.joined(), task.public, cfg, model, "cpu")
    token = server.token([block.represent().detach() for block in blocks])
    loss = torch.nn.functional.cross_entropy(
        server.fusion(server.aggregation.aggregate([block.local(block.x) for block in blocks])), server.y
    )
    for block in blocks:
        (joint,) = torch.autograd.grad(loss, list(block.local.parameters()), retain_graph=True)
        moved, _ = block.visit(block.theta, token, None, 1, 0.1)
        torch.testing.assert_close((block.theta - moved) / 0.1, joint, rtol=1e-9, atol=1e-12)
        assert joint.abs().max() > 1e-6


def test_a_module_is_a_function_of_its_parameters() -> None:
    config = mvcnn_card.Config(channels=[8], embedding=3, dtype="float64")
    network, x = vertical.bottom(config, (1, 8, 8), 0, False), torch.arange(128, dtype=torch.uint8).view(2, 1, 8, 8)
    theta, module = (make(torch.Generator().manual_seed(1)) for make in (network.initial, network.make))  # type: ignore[attr-defined]
    assert torch.equal(network(theta, x), module(x)) and not torch.equal(network(2 * theta, x), module(x))
    slope = torch.autograd.grad(network(theta.requires_grad_(), x).sum(), theta)[0]
    assert slope.shape == (network.size,) and slope.abs().max() > 0


def test_how_many_rows_a_party_may_keep() -> None:
    network = vertical.Deep(split_learning_card.Config(depth=3, width=8, embedding=2), 5, 2, "mlp10")
    theta = network.initial(torch.Generator().manual_seed(0)).requires_grad_()
    x = torch.zeros(4, 5)
    a_row = 4 * (5 + 2 * 8)  # its five columns, which the batch's copy holds, and two hidden layers
    assert vertical.kept_rows(lambda rows: network(theta, rows), x, 10) == vertical.KEPT_BYTES / 10 / a_row


@pytest.mark.slow
@pytest.mark.parametrize("name", ["vfl", "svfl", *(name for name in ("avfl", "mtcd"))])
def test_a_graph_that_is_not_kept_changes_no_number(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = (*DIGITS, "model=split_mlp", "rounds=2")
    kept = run(tmp_path / "kept", name, *words)
    monkeypatch.setattr(vertical, "KEPT_BYTES", 0)
    again = run(tmp_path / "again", name, *words)
    assert kept.curve.equals(again.curve)
    assert all(np.array_equal(a, b) for a, b in zip(parameters(kept), parameters(again), strict=True))


def parameters(run: Run) -> list[np.ndarray]:
    """theta of every party, in their order; of a worker's organisation that of its own party."""
    files = [path for path in sorted((run.folder / "model").iterdir()) if "worker" not in path.name]
    found = [values for path in files for _, values in sorted(load_file(path).items())]
    return [theta for theta in found if theta.ndim and theta.size > 1]  # beside them the mean and deviation of labels


CASES = {
    "linear": (DIGITS, ()),
    "mlp": (DIGITS, ("model.hidden=5",)),
    "mlp of a regression": (ENERGY, ("model.intercept=tables",)),
}


@pytest.mark.slow  # the test of models that are put together stands for it
@pytest.mark.parametrize("case", CASES)
def test_every_family_trains_the_same_model(case: str, tmp_path: Path) -> None:
    data, more = CASES[case]
    common = (
        *data,
        f"model={case.split()[0]}",
        *more,
        "model.dtype=float64",
        "algorithm.lr=0.1",
        "rounds=4",
        "seed=2",
        "eval_every=2",
    )
    size = f"algorithm.batch_size={ROWS[data]}"
    # Over joins every organisation's columns are a table, and the data set says how many: the parties find their rows
    # by id.
    tables = (f"dataset.columns={COLUMNS[data]}", *(word for word in common if word != "algorithm.parties=4"))
    runs = {
        name: run(tmp_path, name, *(tables if name == "rfl_sgd_v" else common), *own, size)
        for name, own in SAME.items()
    }
    assert {"keys", "mapping"} <= set(runs["rfl_sgd_v"].ledger["tag"]) and not runs["vfl_sgd"].ledger["tag"].isin(
        ["keys"]
    ).any()
    whole = runs.pop("centralized_gd")
    expected = parameters(whole)
    assert len(expected) == 4 and all(np.abs(theta).max() > 1e-3 for theta in expected)
    for name, other in runs.items():
        found = parameters(other)
        assert [theta.shape for theta in found] == [theta.shape for theta in expected], name
        for one, two in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, two, rtol=0, atol=1e-10, err_msg=name)
        metric = f"test_{whole.summary['metric']['name']}"
        np.testing.assert_allclose(other.curve[metric], whole.curve[metric], rtol=1e-10, err_msg=name)


COMPOSED = {
    "linear": ("bottom=linear", "aggregate=sum", "top=none"),
    "a mean": ("aggregate=mean", "top=linear"),
    "deep": ("bottom=residual_mlp", "depth=4", "width=6", "top_width=5"),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "data", [pytest.param(DIGITS, id="classes"), pytest.param(ENERGY, id="regression", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[] if case == "deep" else [pytest.mark.slow]) for case in COMPOSED]
)
def test_every_family_trains_what_is_put_together(case: str, data: tuple[str, ...], tmp_path: Path) -> None:
    words = [f"model.{word}" for word in ("embedding=4", *COMPOSED[case])]
    common = (
        *data,
        "model=vertical",
        *words,
        "model.dtype=float64",
        f"algorithm.lr={0.1 if data == DIGITS else 0.001}",
    )
    common += ("rounds=4", f"algorithm.batch_size={ROWS[data]}")
    whole, *others = (run(tmp_path, name, *common, *SAME[name]) for name in ("centralized_gd", "svfl", "vfl", "vfl_ps"))
    values = load_file(whole.folder / "model/client_0.safetensors")
    top = [values[key] for key in values if key.startswith("model.centre.fusion.theta")]
    expected = [values[f"model.blocks.{k}.local.theta"] for k in range(4)]
    assert len(top) == (case != "linear") and all(np.abs(theta).max() > 1e-3 for theta in expected)
    for other in others:
        files = {path.stem: load_file(path) for path in (other.folder / "model").iterdir()}
        if "active" not in files:  # tokens: who has the labels has the top network alone
            found = [files[f"client_{k}"]["model.local.theta"] for k in range(4)] + [
                files["server"]["model.fusion.theta"] for _ in top
            ]
            theirs = [*expected, *top]
        else:
            found = [files[name]["model.theta"] for name in ("active", "passive_1", "passive_2", "passive_3")]
            theirs = [np.concatenate([expected[0], *top]), *expected[1:]]
        for one, two in zip(found, theirs, strict=True):
            np.testing.assert_allclose(one, two, rtol=0, atol=1e-10)
        metric = f"test_{whole.summary['metric']['name']}"
        assert other.curve[metric].iloc[-1] == pytest.approx(whole.curve[metric].iloc[-1], rel=1e-9)


@pytest.mark.slow
def test_what_cannot_be_put_together_is_refused(tmp_path: Path) -> None:
    for words, told in {
        ("model.top=none",): "model.aggregate=concat: top=none: the scores are a sum, use sum",
        ("model.bottom=residual_mlp", "model.depth=3"): "model.depth=3: must be even",
        ("model.bottom=cnn",): "model.bottom=cnn: must be one of linear, mlp, residual_mlp",
        ("model.depth=1",): "model.depth=1: mlp has at least 2 layers; or use bottom=linear",
        ("algorithm.aggregation=concat",): "algorithm.aggregation=concat: model.aggregate says it",
    }.items():
        with pytest.raises(ConfigError, match=re.escape(told)):
            run(tmp_path, "svfl", *DIGITS, "model=vertical", *words)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["vfl", "svfl", "vfl_sgd", "mtcd", "vfl_admm", "pubsub_vfl"])
def test_four_parties_learn_the_digits(algorithm: str, tmp_path: Path) -> None:
    batches = ("algorithm.lr=0.03", "algorithm.batch_size=64")
    own = {"mtcd": ("algorithm.lr=0.1",), "svfl": ("algorithm.lr=0.5", "algorithm.local_steps=5"), "vfl_admm": ()}
    words = ["tuned@_global_=none", "model=mlp", "rounds=10", "eval_every=10", *own.get(algorithm, batches)]
    trained = run(tmp_path, algorithm, *DIGITS, *words)
    assert trained.summary["status"] == "completed" and trained.curve["test_accuracy"].iloc[-1] > 0.7
