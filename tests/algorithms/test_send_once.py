"""Send once: forms and their bytes by hand, and what the mathematics promise about learning at home."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import vflbench
from tests.algorithms import small_columns
from tests.options import make_mechanism, privacy_config
from vflbench.algorithms.oneshot import forms, learners, send_once
from vflbench.algorithms.split import vfl
from vflbench.cards.algorithms.oneshot import send_once as send_once_card
from vflbench.cards.models import split_learning as split_learning_card
from vflbench.cards.models.split_network import Config as ModelConfig
from vflbench.data.tasks import AlignedTask, OwnRows
from vflbench.federation.ledger import COLUMN
from vflbench.federation.simulated import SimulatedEngine
from vflbench.models import trees
from vflbench.models.bins import Bins, pack, unpack, widths
from vflbench.runner import task_baselines
from vflbench.types import ConfigError, RunConfig

ROUNDS = 6


def config(task: AlignedTask, rounds: int = ROUNDS, **keys: Any) -> RunConfig:
    return small_columns.config(send_once, task, rounds, "star", **keys)


def run(task: AlignedTask, cfg: RunConfig, module: Any = send_once, **more: Any) -> SimpleNamespace:
    """The engine after the run, what the active party kept, its reported predictions, and the ledger."""
    reports: list[dict[str, Any]] = []
    engine = SimulatedEngine(
        module.parties(task, cfg), task.public, cfg, rounds=cfg.rounds, seed=cfg.seed,
        on_report=lambda party, round, values: reports.append(values), **more,
    )  # fmt: skip
    engine.run()
    predictions = [one["predictions"] for one in reports if "predictions" in one]
    state = engine.parties["active"].state
    return SimpleNamespace(engine=engine, state=state, predictions=predictions, ledger=engine.ledger.take())


def whole(task: AlignedTask, parties: int | None = None) -> dict[str, np.ndarray]:
    """All columns, or those of the first parties, side by side."""
    held_out = {split: np.concatenate(blocks[:parties], axis=1) for split, blocks in task.held_out_features.items()}
    return {"train": np.concatenate(task.features[:parties], axis=1)} | held_out


# --- forms ------------------------------------------------------------------------------------------------------------


def test_bins_by_hand() -> None:
    column = np.array([3.0, 1.0, 2.0, 2.0, 9.0, 1.0])
    form = Bins.fit(np.stack([column, np.full(6, 7.0), column > 2], axis=1), 32)
    assert [edges.tolist() for edges in form.edges] == [[1.0, 2.0, 3.0], [], [0.0]]
    assert form.last.tolist() == [3, 0, 1] and widths(form.last) == [2, 0, 1]
    unseen = np.array([[0.5, 7.0, 0.0], [1.5, 8.0, 1.0], [99.0, 6.0, 0.0]])
    assert form.codes(unseen).tolist() == [[0, 0, 0], [1, 0, 1], [3, 0, 0]]
    last, packed = form.encode(unseen)
    assert packed.nbytes == 2  # 9 bits
    assert unpack(packed, last, 3).tolist() == form.codes(unseen).tolist()


@pytest.mark.parametrize("bins", [2, 3, 32, 256])
def test_bins_are_never_empty_and_what_is_packed_comes_back(bins: int) -> None:
    rng = np.random.default_rng(bins)
    x = np.stack([rng.normal(size=500), rng.integers(0, 3, 500), np.zeros(500), rng.geometric(0.5, 500)], axis=1)
    form = Bins.fit(x, bins)
    codes = form.codes(x)
    for column, last in zip(codes.T, form.last, strict=True):
        assert sorted(set(column.tolist())) == list(range(int(last) + 1)) and last < bins
    packed = pack(codes, form.last)
    assert packed.nbytes == math.ceil(500 * sum(widths(form.last)) / 8)
    np.testing.assert_array_equal(unpack(packed, form.last, 500), codes)


def test_projections_keep_all_that_there_is() -> None:
    x = np.random.default_rng(0).normal(size=(50, 4)) * [5, 1, 3, 2]
    form = forms.Projection.fit(x, 4)
    z = np.stack(form.encode(x), axis=1)
    assert (np.diff(z.var(axis=0)) < 0).all()
    np.testing.assert_allclose(z @ form.directions.T + form.mean, x, atol=1e-12)


# --- what the mathematics promise -------------------------------------------------------------------------------------


@pytest.mark.parametrize("passive", [1, 2, 5])
@pytest.mark.parametrize("classes", [0, 2, 3])
def test_raw_columns_and_trees_are_trees_on_the_joined_columns(passive: int, classes: int) -> None:
    task = small_columns.classes(200, 12, passive + 1, classes)
    result = run(task, config(task, form="raw", leaves=5, fallback=False))
    x = whole(task)
    grown = trees.fit(
        x["train"], task.labels, x["val"], task.held_out_labels["val"], classes=classes, metric=task.metric.name,
        seed=0, leaves=5, iterations=ROUNDS, patience=15,
    )  # fmt: skip
    assert result.state.best["joint"]["iteration"] == grown.best
    for split in ("val", "test"):
        np.testing.assert_array_equal(result.predictions[-1][split], grown.scores(x[split]))


def test_the_learners_own_bins_give_the_same_trees() -> None:
    """scikit-learn has at most 255 bins of a column, by the same quantiles."""
    rng = np.random.default_rng(3)
    task = small_columns.classes(1020, 6, 2, 2)
    x = np.stack([rng.normal(size=1000), rng.integers(0, 9, 1000)], axis=1)
    task = replace(task, features=(task.features[0], x))
    task = replace(task, held_out_features={s: (own, x[: len(own)]) for s, (own, _) in task.held_out_features.items()})
    raw, bins = (run(task, config(task, form=form, bins=255, fallback=False)) for form in ("raw", "bins"))
    np.testing.assert_array_equal(raw.predictions[-1]["val"], bins.predictions[-1]["val"])  # of rows that were seen


@pytest.mark.parametrize("classes", [0, 2, 3])
def test_all_components_are_the_columns_for_a_linear_model(classes: int) -> None:
    task = small_columns.classes(200, 9, 3, classes)
    if classes:  # else they could be separated, and there would be no optimum
        rng = np.random.default_rng(0)
        task = replace(task, labels=np.where(rng.random(180) < 0.3, rng.integers(0, classes, 180), task.labels))
    raw, pca = (
        run(task, config(task, form=form, components=9, learner="linear", penalty=0.0, fallback=False))
        for form in ("raw", "pca")
    )
    for split in ("val", "test"):
        one, other = raw.predictions[-1][split], pca.predictions[-1][split]
        np.testing.assert_allclose(one - one[:, :1], other - other[:, :1], rtol=1e-6, atol=1e-6)


def test_a_linear_regression_is_least_squares() -> None:
    task = small_columns.classes(200, 9, 3, 0)
    result, x = run(task, config(task, form="raw", learner="linear", penalty=0.0, fallback=False)), whole(task)
    design = {split: np.column_stack([rows, np.ones(len(rows))]) for split, rows in x.items()}
    theta = np.linalg.lstsq(design["train"], task.labels, rcond=None)[0]
    np.testing.assert_allclose(result.predictions[0]["test"][:, 0], design["test"] @ theta, rtol=1e-9)
    assert len(result.predictions) == ROUNDS and result.state.best["joint"]["iteration"] == 1


@pytest.mark.parametrize("classes", [2, 3])
def test_wide_tables_have_the_same_minimum_without_a_hessian(classes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    task = small_columns.classes(200, 9, 3, classes)
    few = run(task, config(task, form="raw", learner="linear", penalty=0.01, fallback=False))
    monkeypatch.setattr(learners, "MOST_WEIGHTS", 0)
    many = run(task, config(task, form="raw", learner="linear", penalty=0.01, fallback=False))
    for split in ("val", "test"):
        np.testing.assert_allclose(few.predictions[0][split], many.predictions[0][split], atol=1e-4)


@pytest.mark.parametrize("learner", ["trees", "linear", "model"])
def test_nobody_else_is_the_label_owner_alone(learner: str) -> None:
    """One party sends and receives nothing; with more, its own learner is the one beside all columns."""
    both = small_columns.classes(200, 12, 2, 2)
    one = replace(both, features=both.features[:1])
    one = replace(one, held_out_features={split: own[:1] for split, own in both.held_out_features.items()})
    keys = {"learner": learner, "batch_size": 32}
    alone, beside = run(one, config(one, **keys)), run(both, config(both, **keys))
    assert len(alone.ledger) == 0 and list(alone.state.best) == ["joint"]
    assert alone.state.best["joint"]["value"] == beside.state.best["alone"]["value"]
    for split in ("val", "test"):
        np.testing.assert_array_equal(
            alone.state.best["joint"]["scores"][split], beside.state.best["alone"]["scores"][split]
        )


@pytest.mark.parametrize("parties", [2, 4])
@pytest.mark.parametrize("model", ["split_mlp", "mlp10"])
def test_raw_columns_and_a_network_are_split_learning(parties: int, model: str) -> None:
    """The same network from the same start, with the same batches and steps: to the last bit."""
    task = small_columns.classes(120, 12, parties, 3)
    network = {} if model == "split_mlp" else {"name": "mlp10"}
    keys: dict[str, Any] = {"batch_size": 16, "lr": 0.01}
    cfg = config(task, 3, form="raw", learner="model", fallback=False, **keys)
    split = small_columns.config(vfl, task, 3, "star", **keys)
    if network:
        deep = split_learning_card.Config(depth=3, width=8, embedding=4, dtype="float64")
        cfg, split = replace(cfg, model=deep), replace(split, model=deep)
    assert isinstance(cfg.model, ModelConfig) == (model == "split_mlp")
    once, many = run(task, cfg), run(task, split, vfl)
    for mine, theirs in zip(once.engine.parties["active"].state.model["joint"].thetas, [
        party.state.model.theta for party in many.engine.order
    ], strict=True):  # fmt: skip
        assert torch.equal(mine, theirs)
    values = [learners.validated(p, task.held_out_labels["val"], "accuracy") for p in many.predictions]
    assert once.state.best["joint"]["value"] == max(values)


@pytest.mark.parametrize("learner", ["trees", "linear", "model"])
def test_an_increasing_function_of_a_column_changes_nothing_for_bins(learner: str) -> None:
    task = small_columns.classes(200, 6, 2, 2)

    def bent(x: np.ndarray) -> np.ndarray:
        return np.stack([7 * x[:, 0], np.exp(x[:, 1]), x[:, 2] ** 3], axis=1)

    other = replace(task, features=(task.features[0], bent(task.features[1])))
    other = replace(other, held_out_features={s: (own, bent(x)) for s, (own, x) in task.held_out_features.items()})
    keys = {"learner": learner, "bins": 8, "batch_size": 32}
    one, two = run(task, config(task, **keys)), run(other, config(other, **keys))
    for split in ("val", "test"):
        np.testing.assert_array_equal(one.predictions[-1][split], two.predictions[-1][split])


# --- validation chooses -----------------------------------------------------------------------------------------------


def test_columns_of_noise_are_not_used() -> None:
    task = small_columns.classes(300, 8, 2, 2, seed=1)
    rng = np.random.default_rng(0)
    noise = {s: (own, rng.normal(size=(len(own), 40))) for s, (own, _) in task.held_out_features.items()}
    labels = {s: (own[:, 0] > 0).astype(np.int64) for s, (own, _) in noise.items()}
    own = task.features[0]
    task = replace(
        task, features=(own, rng.normal(size=(len(own), 40))), held_out_features=noise,
        labels=(own[:, 0] + rng.normal(size=len(own)) > 0).astype(np.int64), held_out_labels=labels,
    )  # fmt: skip
    result = run(task, config(task, 20, learner="linear", penalty=0.0))
    best = result.state.best
    assert best["alone"]["value"] > best["joint"]["value"]
    np.testing.assert_array_equal(result.predictions[-1]["test"], best["alone"]["scores"]["test"])


def test_a_learner_stops_where_validation_no_longer_gains(monkeypatch: pytest.MonkeyPatch) -> None:
    task, steps = small_columns.classes(120, 6, 2, 2), []
    step = learners.Network.step
    monkeypatch.setattr(learners.Network, "step", lambda self, t: steps.append(t) or step(self, t))
    result = run(task, config(task, 12, learner="model", fallback=False, patience=3, lr=1e-12, batch_size=32))
    assert result.state.best["joint"]["iteration"] == 1 and steps == [1, 2, 3, 4]
    assert len(result.predictions) == 12


# --- bytes and noise --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parties", [2, 3, 6])
def test_one_message_of_every_passive_party(parties: int) -> None:
    task = small_columns.classes(110, 12, parties, 2)
    rows, width = 90, 12 // parties
    sizes = {
        "bins": width + -(-rows * width * 5 // 8),  # 90 different values: 32 bins of 5 bits
        "raw": 8 * rows * width,  # float64
        "pca": 8 * rows,
    }
    for form, size in sizes.items():
        ledger = run(task, config(task, form=form, components=1)).ledger
        assert ledger[:, COLUMN["bytes"]].tolist() == [size] * (parties - 1)
        assert set(ledger[:, COLUMN["round"]]) == {1}


@pytest.mark.parametrize("parties", [2, 3, 6])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_raw_columns_are_the_bytes_that_ship_it_names(parties: int, dtype: Any) -> None:
    task = small_columns.classes(110, 12, parties, 2)
    task = replace(task, features=tuple(block.astype(dtype) for block in task.features))
    shipped = task_baselines.ship_it(task)
    assert shipped["form"] == dtype  # no form is smaller
    assert run(task, config(task, form="raw")).ledger[:, COLUMN["bytes"]].sum() == shipped["bytes"]


def test_noise_is_added_once_to_the_rows_and_not_to_those_held_out() -> None:
    """Bins are made of the noisy rows: what is sent is post-processing of one release."""
    task = small_columns.classes(110, 6, 2, 2)
    private = privacy_config("gaussian_embedding", noise_multiplier=0.5, clip=2.0)
    seen = {}
    for form in ("raw", "bins"):
        cfg = replace(config(task, form=form), privacy=private)
        mechanism = make_mechanism(private, 1, "aligned")
        result = run(task, cfg, privacy={"passive_1": mechanism})
        assert mechanism.releases == 1 and set(mechanism.counts) == {1}
        left = mechanism.spent()["not_covered"]
        assert left[0] == "evaluation exchanges" and "means and scales" in left[1] and len(left) == 2
        seen[form] = result.state.received[0], result.state.held_out[0]
    noisy = np.stack(seen["raw"][0], axis=1)
    clipped = mechanism.clip(torch.from_numpy(task.features[1])).numpy()
    assert 0.8 < np.std(noisy - clipped) < 1.2  # noise_multiplier times clip
    for split, rows in task.held_out_features.items():
        sent = np.stack(seen["raw"][1][split], axis=1)
        np.testing.assert_array_equal(sent, mechanism.clip(torch.from_numpy(rows[1])).numpy())
    form = Bins.fit(noisy, 32)
    last, packed = seen["bins"][0]
    np.testing.assert_array_equal(unpack(packed, last, len(noisy)), form.codes(noisy))


def test_randomised_bins_are_sent_once_at_the_epsilon_that_is_reported() -> None:
    task = small_columns.classes(110, 6, 2, 2)
    private = privacy_config("rr_bins", epsilon=3.0)
    mechanism = make_mechanism(private, 1, "aligned")
    result = run(task, replace(config(task, bins=4), privacy=private), privacy={"passive_1": mechanism})
    form = Bins.fit(task.features[1], 4)
    last, packed = result.state.received[0]
    kept = (unpack(packed, last, 90) == form.codes(task.features[1])).mean()
    assert abs(kept - math.e / (math.e + 3)) < 4 * 0.5 / math.sqrt(270)
    assert result.ledger[:, COLUMN["bytes"]].tolist() == [3 + -(-90 * 6 // 8)]
    assert (mechanism.spent()["epsilon"], mechanism.spent()["columns"]) == (3.0, 3)
    last, packed = result.state.held_out[0]["val"]
    np.testing.assert_array_equal(unpack(packed, last, 10), form.codes(task.held_out_features["val"][1]))


@pytest.mark.slow
def test_noise_is_for_one_release_as_nothing_is_sent_again(tmp_path: Path) -> None:
    words = [
        "algorithm=send_once",
        "dataset=digits",
        "dataset.problem=learning",
        "rounds=2",
        "algorithm.learner=linear",
    ]
    run = vflbench.run(
        [*words, "privacy=gdp_embedding", "privacy.mu=4", "plot=none", "floor=none", f"hydra.run.dir={tmp_path}/run"]
    )
    spent = run.summary["privacy"]
    assert (spent["releases"], spent["noise_multiplier"], spent["mu"]) == ({"planned": 1, "done": 1}, 0.5, 4.0)
    assert not [one for one in spent["not_covered"] if "batch" in one or "gradients" in one or "bottom model" in one]
    with pytest.raises(ConfigError, match=r"privacy\.calibration=paper: needs an algorithm with batches"):
        vflbench.run([*words, "privacy=gdp_embedding", "privacy.calibration=paper", f"hydra.run.dir={tmp_path}/no"])


def test_what_does_not_go_together_is_refused() -> None:
    words = ["algorithm=send_once", "dataset=digits"]
    with pytest.raises(ConfigError, match=r"randomises bin numbers: use algorithm\.form=bins"):
        vflbench.run([*words, "privacy=rr_bins", "algorithm.form=raw"])
    for wrong, told in {
        "codec=int8": "bin numbers are whole, and codecs compress fractions",
        "privacy=dp_sgd": "send_once can have: none, gaussian_embedding, gdp_embedding, rr_bins",
        "algorithm.bins=300": "must be at most 256",
    }.items():
        with pytest.raises(ConfigError, match=told):
            vflbench.run([*words, wrong])
    convex = small_columns.ridge()
    with pytest.raises(ConfigError, match="scored on rows held out"):
        send_once.parties(convex, replace(small_columns.config(send_once, convex), privacy=privacy_config()))


# --- rows that only the label owner has -------------------------------------------------------------------------------


def test_own_rows_are_training_rows_whose_other_columns_are_missing() -> None:
    """By hand: trees on all rows, with NaN where the passive parties know nothing."""
    task = small_columns.classes(samples=200, features=6, parties=2)
    rng = np.random.default_rng(1)
    features = rng.normal(size=(60, 3))
    own = OwnRows(features, (features[:, 0] > 0).astype(np.int64), np.arange(60))
    cfg = config(task, rounds=5, form="raw", fallback=False)
    plain, found = run(task, cfg), run(replace(task, own=own), cfg)
    missing = np.full((60, 3), np.nan)
    x = np.concatenate([whole(task)["train"], np.concatenate([features, missing], axis=1)])
    model = trees.fit(
        x.astype(np.float32), np.concatenate([task.labels, own.labels]), whole(task)["val"].astype(np.float32),
        task.held_out_labels["val"], classes=3, metric="accuracy", seed=0, iterations=5,
    )  # fmt: skip
    scores = found.predictions[-1]["test"]
    np.testing.assert_allclose(scores, model.scores(whole(task)["test"].astype(np.float32)), rtol=1e-6)
    assert not np.array_equal(scores, plain.predictions[-1]["test"])
    sent = [one.ledger[:, COLUMN["bytes"]].sum() for one in (plain, found)]
    assert sent[0] == sent[1]  # nothing of them leaves the label owner


def test_only_trees_take_rows_with_missing_columns() -> None:
    task = small_columns.classes(parties=2)
    cfg = replace(config(task, learner="linear"), dataset=SimpleNamespace(own_rows="train"))
    (problem,) = send_once_card.check(cfg)
    assert problem.key == "algorithm.learner" and "use trees" in problem.allowed


def test_a_regression_that_did_not_converge_is_told_in_our_words(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, recwarn: pytest.WarningsRecorder
) -> None:
    monkeypatch.setattr(learners, "STEPS", 1)
    task = small_columns.classes(parties=2)
    run(task, config(task, learner="linear", fallback=False))
    said = [line.getMessage() for line in caplog.records if "stopped before its minimum" in line.getMessage()]
    assert len(said) == 1 and "a larger algorithm.penalty (now 0.0001)" in said[0]
    assert not [one for one in recwarn if "converge" in str(one.message).lower()]


@pytest.mark.parametrize("learner", ["trees", "linear"])
def test_all_learners_share_one_table_in_the_type_that_scikit_learn_computes_in(
    monkeypatch: pytest.MonkeyPatch, learner: str
) -> None:
    """Of a million rows with 500 columns, a copy for each would be gigabytes."""
    made, kind = [], learners.Boosted if learner == "trees" else learners.Linear
    begin = kind.__init__

    def first(self: Any, tables: Any, *rest: Any) -> None:
        made.append(tables)
        begin(self, tables, *rest)

    monkeypatch.setattr(kind, "__init__", first)
    task = small_columns.classes(parties=2)
    run(task, config(task, learner=learner, form="raw"))
    joint, alone = made
    for split, x in joint.items():
        assert x.dtype == np.float64 and np.shares_memory(x, alone[split])
        own = task.features[0] if split == "train" else task.held_out_features[split][0]
        np.testing.assert_array_equal(alone[split], own)
