"""TablePuppet and its baselines: each special case that the paper claims equals what it reduces to, in float64; and the
bytes."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType

import numpy as np
import pytest
import torch

from tests.algorithms.small_joins import aligned, config, raw, run, tables
from tests.every import few_fast
from vflbench.algorithms.joins import (
    centralized_join,
    gd_join,
    rfl_admm,
    rfl_admm_v,
    rfl_sgd,
    rfl_sgd_v,
    vfl_admm,
    vfl_sgd,
)
from vflbench.data.divide.raw_tables import RawTable, divide
from vflbench.types import DataSource, Metric

MODELS = [
    {"name": "linear"},
    {"name": "linear", "intercept": "tables"},
    {"name": "linear", "relu_output": True},
    {"name": "mlp", "hidden": 4},
    {"name": "mlp", "relu_output": True},
]
close = {"rtol": 1e-9, "atol": 1e-10}


@pytest.mark.parametrize("model", few_fast(MODELS), ids=str)
@pytest.mark.parametrize("classes", [0, 2, 3])
def test_sgd_over_joins_is_sgd_on_the_join(model: dict, classes: int) -> None:
    options = {"batch_size": 16, "lr": 0.2, "weight_decay": 0.01, "rounds": 3}
    how = {"classes": classes}
    whole = run(centralized_join, aligned(**how), config(centralized_join, model=model, **options))
    vertical = run(vfl_sgd, aligned(**how), config(vfl_sgd, model=model, **options))
    joins = run(rfl_sgd_v, tables(**how), config(rfl_sgd_v, model=model, **options))
    torch.testing.assert_close(vertical.theta(), whole.theta(), **close)
    torch.testing.assert_close(joins.theta(), whole.theta(), **close)
    np.testing.assert_allclose(joins.losses, whole.losses, rtol=1e-9)
    other = run(rfl_sgd_v, tables(**how), config(rfl_sgd_v, model=model, **{**options, "batch_size": 15}))
    assert not torch.allclose(other.theta(), whole.theta(), rtol=1e-4)


@pytest.mark.parametrize("method", [rfl_sgd_v, rfl_admm_v])
def test_a_linear_model_with_relu_outputs_learns(method: ModuleType) -> None:
    """From zero, where the relu passes no gradient, the loss would stay what it is without a model."""
    model = {"name": "linear", "relu_output": True, "intercept": "tables"}
    found = run(method, tables(), config(method, model=model, lr=0.1, batch_size=16, rounds=3))
    assert found.losses[-1] < found.losses[0] - 0.1


@pytest.mark.parametrize("parts", [2, 3])
def test_sgd_over_unions_is_sgd_whatever_the_horizontal_split(parts: int) -> None:
    options = {"batch_size": 16, "lr": 0.2, "weight_decay": 0.01, "rounds": 3, "model": {"name": "mlp", "hidden": 4}}
    one = run(rfl_sgd_v, tables(), config(rfl_sgd_v, **options))
    several = run(rfl_sgd, tables(parts), config(rfl_sgd, parts=parts, **options))
    for table in range(3):
        for q in range(parts):  # all replicas of theta_i are the same
            torch.testing.assert_close(several.theta(table * parts + q), one.theta(table), **close)
    single = run(rfl_sgd, tables(), config(rfl_sgd, **options))  # Q_i = 1: nothing is exchanged within a table
    torch.testing.assert_close(single.theta(), one.theta(), **close)
    assert not any(tag in ("gradient", "step") for _, tag in single.sent())


def test_gd_is_sgd_with_one_batch() -> None:
    options = {"lr": 0.2, "weight_decay": 0.01, "rounds": 3}
    whole = run(rfl_sgd_v, tables(), config(rfl_sgd_v, batch_size=10**6, **options))
    torch.testing.assert_close(run(gd_join, tables(), config(gd_join, **options)).theta(), whole.theta(), **close)


@pytest.mark.parametrize("proximal", [False, True])
@pytest.mark.parametrize("classes", [0, 3])
def test_exact_admm_over_joins_is_exact_admm_on_the_join(classes: int, proximal: bool) -> None:
    options = {
        "solver": "exact",
        "rho": 3.0,
        "weight_decay": 0.01,
        "rounds": 10,
        "proximal": proximal,
        "model": {"intercept": "tables"},
    }
    joins = run(rfl_admm_v, tables(classes=classes), config(rfl_admm_v, **options))
    vertical = run(vfl_admm, aligned(classes=classes), config(vfl_admm, **options))
    torch.testing.assert_close(joins.theta(), vertical.theta(), rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(joins.losses, vertical.losses, rtol=1e-8)


def test_with_one_to_one_tables_joins_and_aligned_rows_are_the_same_whatever_the_solver() -> None:
    """G = 1 everywhere: the tables' rows are those of the join in another order, so one local batch holds all of
    them."""
    options = {
        "rho": 3.0,
        "rounds": 3,
        "local_epochs": 3,
        "batch_size": 10**6,
        "lr": 0.05,
        "model": {"name": "mlp", "hidden": 3},
    }
    joins = run(rfl_admm_v, tables(one_to_one=True), config(rfl_admm_v, **options))
    vertical = run(vfl_admm, aligned(one_to_one=True), config(vfl_admm, **options))
    torch.testing.assert_close(joins.theta(), vertical.theta(), **close)


def test_sgd_over_unequal_parts_and_parts_that_join_with_nothing() -> None:
    """Parts of 2, 0 and the other joining rows: the last movie in `raw` joins with nothing, nor do copies of it."""
    options = {"batch_size": 16, "lr": 0.2, "weight_decay": 0.01, "rounds": 3}
    source = raw()
    splits = {"train": np.arange(40), "val": np.arange(40, 50), "test": np.arange(50, 60)}
    movies = source.tables[1]
    apart = np.concatenate([np.flatnonzero(movies.keys["id"] != 11), np.flatnonzero(movies.keys["id"] == 11)])
    moved = RawTable("movies", {"id": movies.keys["id"][apart]}, movies.features[apart], movies.columns)
    source = replace(source, tables=(source.tables[0], moved, source.tables[2]))
    nothing = int((movies.keys["id"] == 11).sum())
    sizes = {"movies": [2, len(apart) - 2 - nothing, nothing]}
    how = {"layout": "relational", "parts": 1}
    several = divide("toy", source, splits, DataSource("synthetic"), Metric("rmse", "min"), sizes=sizes, **how)
    whole = divide("toy", source, splits, DataSource("synthetic"), Metric("rmse", "min"), **how)
    one = run(rfl_sgd_v, whole, config(rfl_sgd_v, **options))
    parts = run(rfl_sgd, several, config(rfl_sgd, **options))
    for client, table in enumerate((0, 1, 1, 1, 2)):
        torch.testing.assert_close(parts.theta(client), one.theta(table), **close)


def test_one_table_in_parts_is_horizontal_learning() -> None:
    """M = 1: nothing is joined, and SGD over the union is SGD on all rows."""
    source = raw()
    alone = replace(source, tables=source.tables[:1], joins=())
    splits = {"train": np.arange(40), "val": np.arange(40, 50), "test": np.arange(50, 60)}
    options = {"batch_size": 16, "lr": 0.2, "weight_decay": 0.01, "rounds": 3}
    made = [
        divide("toy", alone, splits, DataSource("synthetic"), Metric("rmse", "min"), layout="relational", parts=q)
        for q in (1, 3)
    ]
    one = run(rfl_sgd_v, made[0], config(rfl_sgd_v, **options))
    several = run(rfl_sgd, made[1], config(rfl_sgd, parts=3, **options))
    x, y = torch.from_numpy(source.tables[0].features[:40]).double(), torch.from_numpy(source.labels[:40])
    x = (x - x.mean(0)) / x.std(0, correction=0)
    # what it starts from
    theta = run(rfl_sgd_v, made[0], config(rfl_sgd_v, **{**options, "lr": 1e-12, "weight_decay": 0.0})).theta()
    ones = torch.cat([x, torch.ones(40, 1, dtype=torch.float64)], dim=1)
    for _ in range(3):
        for at in range(0, 40, 16):
            rows, target = ones[at : at + 16], (y - y.mean())[at : at + 16]
            theta = theta - 0.2 * (rows.T @ (rows @ theta - target) / len(rows) + 0.01 * theta)
    torch.testing.assert_close(one.theta(), theta, rtol=1e-6, atol=1e-7)
    for q in range(3):
        torch.testing.assert_close(several.theta(q), one.theta(), **close)


@pytest.mark.parametrize("classes", few_fast([0, 3]))
def test_the_admms_fixed_point_is_the_regularised_optimum(classes: int) -> None:
    """With decay the centralized objective's gradient vanishes at what the ADMM settles at, and neither residual is
    left."""
    options = {"solver": "exact", "rho": 1.0, "weight_decay": 0.05, "rounds": 200}
    joins = run(rfl_admm_v, tables(classes=classes), config(rfl_admm_v, **options))
    task, theta = aligned(classes=classes), joins.theta().clone().requires_grad_()
    width = max(classes, 1)
    total, at = 0.0, 0
    for m, block in enumerate(task.features):
        x = torch.from_numpy(block).double()
        x = torch.cat([x, torch.ones(len(x), 1, dtype=torch.float64)], dim=1) if m == task.owner else x
        size = x.shape[1] * width
        total, at = total + x @ theta[at : at + size].view(-1, width), at + size
    y = torch.from_numpy(task.labels)
    loss = torch.nn.functional.cross_entropy(total, y) if classes else ((total[:, 0] - (y - y.mean())) ** 2).mean() / 2
    (loss + 0.025 * theta.square().sum()).backward()
    assert float(theta.grad.abs().max()) < 1e-6
    server = joins.engine.parties["server"].state
    assert torch.allclose(sum_h(server), server.z, atol=1e-6)  # primal
    one_more = run(rfl_admm_v, tables(classes=classes), config(rfl_admm_v, **{**options, "rounds": 201}))
    assert torch.allclose(one_more.engine.parties["server"].state.z, server.z, atol=1e-6)  # dual: z stands still


def test_exact_updates_of_a_table_of_constants() -> None:
    source = raw()
    flat = RawTable("users", source.tables[2].keys, np.ones((9, 2), np.float32), ("f", "g"))
    splits = {"train": np.arange(40), "val": np.arange(40, 50), "test": np.arange(50, 60)}
    task = divide(
        "toy",
        replace(source, tables=(*source.tables[:2], flat)),
        splits,
        DataSource("synthetic"),
        Metric("rmse", "min"),
        layout="relational",
    )
    result = run(rfl_admm_v, task, config(rfl_admm_v, solver="exact", rho=3.0, weight_decay=0.0, rounds=3))
    assert torch.isfinite(result.theta()).all() and not result.theta(2).any()


def test_the_admms_fixed_point_is_least_squares_on_the_join() -> None:
    options = {"solver": "exact", "rho": 3.0, "weight_decay": 0.0, "rounds": 400}
    task = aligned()
    x = np.concatenate([block.astype(np.float64) for block in task.features], axis=1)
    y = task.labels - task.labels.mean()
    best = np.linalg.lstsq(np.concatenate([x, np.ones((len(x), 1))], axis=1), y, rcond=None)
    optimum = float(best[1][0]) / len(y) / 2
    joins = run(rfl_admm_v, tables(), config(rfl_admm_v, **options))
    assert joins.losses[-1] == pytest.approx(optimum, rel=1e-8)
    assert joins.losses[0] > 1.01 * optimum
    server = joins.engine.parties["server"].state  # primal residual: what the tables predict is z
    assert torch.allclose(sum_h(server), server.z, atol=1e-6)


def sum_h(server: object) -> torch.Tensor:
    from vflbench.algorithms.joins.mapping import Join

    return Join.from_mapping(server.mapping, "cpu").total(server.h)  # type: ignore[attr-defined]


@pytest.mark.slow
@pytest.mark.parametrize("decay", [0.0, 0.05])  # equation 20's regulariser, with Q_i in place of the paper's M
def test_many_rounds_of_consensus_are_the_undivided_update(decay: float) -> None:
    options = {"solver": "exact", "rho": 3.0, "weight_decay": decay, "rounds": 3}
    one = run(rfl_admm_v, tables(), config(rfl_admm_v, **options))
    many = run(rfl_admm, tables(2), config(rfl_admm, inner_rounds=1000, predict="consensus", **options))
    few = run(rfl_admm, tables(2), config(rfl_admm, inner_rounds=2, predict="consensus", **options))
    for table in range(3):
        torch.testing.assert_close(many.theta(2 * table), one.theta(table), rtol=1e-5, atol=1e-6)
    assert not torch.allclose(few.theta(0), one.theta(0), rtol=1e-3)
    single = run(rfl_admm, tables(), config(rfl_admm, **options))
    torch.testing.assert_close(single.theta(), one.theta(), **close)


def test_cached_batch_matrices_are_the_same_recursion_as_the_batches() -> None:
    from vflbench.algorithms.joins import admm

    options = {
        "rho": 2.0,
        "rounds": 3,
        "batch_size": 7,
        "local_epochs": 3,
        "lr": 0.05,
        "weight_decay": 0.01,
        "proximal": True,
    }
    cached = run(rfl_admm_v, tables(), config(rfl_admm_v, **options))
    most, admm.MOST_CACHED = admm.MOST_CACHED, -1
    try:
        batches = run(rfl_admm_v, tables(), config(rfl_admm_v, **options))
        parts = run(rfl_admm, tables(2), config(rfl_admm, **options))
    finally:
        admm.MOST_CACHED = most
    torch.testing.assert_close(cached.theta(), batches.theta(), **close)
    torch.testing.assert_close(run(rfl_admm, tables(2), config(rfl_admm, **options)).theta(), parts.theta(), **close)


def test_a_round_of_admm_by_hand() -> None:
    """One table of one feature x = (1, 2) joined with itself row by row through another without features that matter.

    y = (1, 3), rho = 1, no intercept, no decay, labels as they are. z = y / 2 = (0.5, 1.5); lambda = rho (0 - z) = -z;
        Y = lambda +
    rho (0 - z) = -2 z = (-1, -3). theta = -(x . Y) / (rho x . x) = (1 + 6) / 5 = 1.4, jittered by 1e-10.
    """
    from vflbench.algorithms.joins.admm import Objective, ThetaUpdate, dual_step
    from vflbench.cards.algorithms.joins.join_methods import AdmmKeys
    from vflbench.cards.models.partial import Config
    from vflbench.models.losses import Squared
    from vflbench.models.partial import Partial

    zeros, y = torch.zeros(2, 1, dtype=torch.float64), torch.tensor([1.0, 3.0], dtype=torch.float64)
    z, dual, (pull,) = dual_step([zeros], zeros, zeros, y, Squared(), 1.0)
    assert (
        z[:, 0].tolist() == [0.5, 1.5] and dual[:, 0].tolist() == [-0.5, -1.5] and pull[:, 0].tolist() == [-1.0, -3.0]
    )
    model = Partial(Config(intercept="none", dtype="float64"), 1, 1, True, np.random.default_rng(0), "cpu")
    x = torch.tensor([[1.0], [2.0]], dtype=torch.float64)
    ThetaUpdate(model, x, torch.ones(2, dtype=torch.float64), Objective(rho=1.0), AdmmKeys(solver="exact"))(pull)
    assert model.theta.item() == pytest.approx(1.4, rel=1e-9)


def test_bytes_are_those_of_the_papers_table() -> None:
    """Section 3, float64 (8 bytes), three classes: rows that join, alpha of every batch, and parameters of shared
    tables."""
    from vflbench.data.tasks.join import hand_over, join

    d, rounds, size = 3, 2, 16
    source = raw(classes=d)
    keys = {t.name: {c: v[:40] if t.name == "ratings" else v for c, v in t.keys.items()} for t in source.tables}
    behind = join(
        {n: hand_over(k, len(next(iter(k.values()))), "none") for n, k in keys.items()}, source.joins, "ratings"
    )
    rows = {name: len(np.unique(p)) for name, p in behind.items()}
    total = len(behind["ratings"])
    alpha = sum(len(np.unique(p[at : at + size])) for p in behind.values() for at in range(0, total, size))
    width = {"ratings": 2 * d + d, "movies": 3 * d, "users": 2 * d}  # |theta_i|, an intercept at the label table
    batches = -(-total // size)
    halves = {name: np.array_split(np.arange(len(next(iter(k.values())))), 2) for name, k in keys.items()}
    empty = sum(
        not np.isin(p[at : at + size], half).any()
        for name, p in behind.items()
        for at in range(0, total, size)
        for half in halves[name]
    )

    sent = run(rfl_admm_v, tables(classes=d), config(rfl_admm_v, rounds=rounds)).sent()
    assert sent[1, "prediction"] == sent[1, "residual"] == sum(rows.values()) * d * 8
    assert sent[0, "mapping"] == sum(rows.values()) * 16 and sent[0, "labels"] == 40 * 8
    sent = run(rfl_admm, tables(2, classes=d), config(rfl_admm, rounds=rounds, inner_rounds=5)).sent()
    assert sent[2, "prediction"] == sum(rows.values()) * d * 8
    assert (
        sent[2, "parameters"] == 5 * 2 * sum(width.values()) * 8 and sent[2, "consensus"] == 2 * sent[2, "parameters"]
    )
    sent = run(rfl_sgd_v, tables(classes=d), config(rfl_sgd_v, rounds=rounds, batch_size=size)).sent()
    assert sent[2, "prediction"] == sent[2, "residual"] == alpha * d * 8
    sent = run(rfl_sgd, tables(2, classes=d), config(rfl_sgd, rounds=rounds, batch_size=size)).sent()
    assert sent[2, "prediction"] == alpha * d * 8 + empty  # a byte for each part without a row in a batch
    assert sent[2, "gradient"] == sent[2, "step"] == batches * 2 * sum(width.values()) * 8
    for module, per_round in ((vfl_admm, 3 * total * d * 8), (vfl_sgd, 3 * total * d * 8)):
        sent = run(module, aligned(classes=d), config(module, rounds=rounds, batch_size=size)).sent()
        assert sent[1, "prediction"] == sent[1, "residual"] == per_round
    assert not run(centralized_join, aligned(classes=d), config(centralized_join, rounds=rounds)).sent()


@pytest.mark.parametrize("module", [rfl_admm_v, rfl_sgd_v, gd_join])
def test_a_table_in_parts_is_refused_where_it_cannot_be_taken(module: object) -> None:
    from vflbench.types import ConfigError

    with pytest.raises(ConfigError, match="comes in parts"):
        module.parties(tables(2), config(module))  # type: ignore[attr-defined, arg-type]


@pytest.mark.parametrize("module", [vfl_sgd, vfl_admm, centralized_join])
def test_a_convex_problem_is_refused_by_methods_that_learn(module: object) -> None:
    from vflbench.data.tasks import Objective
    from vflbench.types import ConfigError

    task = replace(aligned(), objective=Objective("ridge", 1.0), optimum=1.0)
    with pytest.raises(ConfigError, match=r"dataset.problem=ridge: .* use dataset.problem=learning"):
        module.parties(task, config(module))  # type: ignore[attr-defined, arg-type]


@pytest.mark.parametrize("module", [vfl_sgd, vfl_admm, centralized_join])
def test_pixels_are_columns_between_0_and_1(module: ModuleType) -> None:
    task = aligned(classes=2)
    rng = np.random.default_rng(0)
    sizes = {split: len(labels) for split, labels in task.held_out_labels.items()}

    def images(rows: int) -> tuple[np.ndarray, ...]:
        return tuple(rng.integers(0, 256, (rows, 1, 2, 3), dtype=np.uint8) for _ in task.features)

    views, apart = images(len(task.labels)), {split: images(rows) for split, rows in sizes.items()}

    def flat(blocks: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
        return tuple(block.reshape(len(block), -1) / 255 for block in blocks)

    shown = replace(task, features=views, held_out_features=apart)
    columns = replace(
        task, features=flat(views), held_out_features={split: flat(rows) for split, rows in apart.items()}
    )
    mine, theirs = (run(module, one, config(module, batch_size=20)) for one in (shown, columns))
    assert torch.equal(mine.theta(), theirs.theta()) and mine.losses == theirs.losses
