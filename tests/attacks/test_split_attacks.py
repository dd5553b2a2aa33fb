"""Attacks on split learning: exact on transcripts with known answers, no better than guessing on noise, and as a run
makes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.attacks import small_split
from tests.options import make_mechanism, privacy_config, topology_config
from vflbench import registry
from vflbench.attacks import embedding_inversion, label_inference, transcript
from vflbench.attacks.transcript import Message
from vflbench.cards.data.tabular import bank as bank_card
from vflbench.cards.data.tabular import energy as energy_card
from vflbench.cards.models import split_learning as split_learning_card
from vflbench.data.tasks import AlignedTask
from vflbench.results.run_schema import validate_summary
from vflbench.runner.run import run
from vflbench.runner.transcript_writer import TranscriptWriter
from vflbench.seeding import batches, torch_stream
from vflbench.types import (
    ComputeConfig,
    ConfigError,
    DataSource,
    EngineConfig,
    Metric,
    NetworkConfig,
    OptionConfig,
    RunConfig,
)

SIZE = 16
HUBS = ["active", "passive_1"]


def task(labels: np.ndarray, classes: int = 2, features: int = 4, shadow: int = 600, seed: int = 0) -> AlignedTask:
    """The passive party has `features` columns: normal ones, and a last one of two values."""
    rng = np.random.default_rng(seed)

    def block(rows: int) -> np.ndarray:
        own = rng.normal(size=(rows, features)).astype(np.float32)
        own[:, -1] = np.where(rng.random(rows) < 0.3, 2.0, -0.5)
        return own

    blocks = {"train": block(len(labels)), "val": block(shadow)}
    held = {"val": (np.zeros((shadow, 1), np.float32), blocks["val"])}
    train = (np.zeros((len(labels), 1), np.float32), blocks["train"])
    source = DataSource("synthetic")
    return AlignedTask(
        "toy", source, Metric("auroc", "max"), classes, 0, train, labels, held, {"val": np.zeros(shadow, np.int64)}
    )


def config(attack: str, rows: int = 10_000, **keys: Any) -> RunConfig:
    chosen = OptionConfig() if attack == "none" else registry.option_config("attack", attack)(rows=rows)
    algorithm = small_split.Config(batch_size=SIZE)
    model = split_learning_card.Config(depth=2, width=16, embedding=8)
    fixed = NetworkConfig("ideal"), topology_config("complete"), privacy_config(), EngineConfig(), ComputeConfig()
    return replace(RunConfig(algorithm, None, model, *fixed, attack=chosen), **keys)


def view(
    tag: str, values: np.ndarray, epochs: int, leave_out: set[tuple[int, int]] | frozenset[Any] = frozenset()
) -> Iterator[Message]:
    """`values` (N, d) of the training rows, batch by batch; (epoch, batch) in `leave_out` never came."""
    for epoch in range(1, epochs + 1):
        for batch, rows in enumerate(batches(0, epoch, len(values), SIZE)):
            if (epoch, batch) not in leave_out:
                arrays = (np.array(batch), np.array(0), np.array(float(batch)), values[rows])
                yield Message(epoch, "active" if tag == "gradient" else "passive_1", "x", tag, arrays)


# --- which message counts ---------------------------------------------------------------------------------------------


def message(round: int, batch: int, attempt: int, time: float, value: float) -> Message:
    return Message(
        round,
        "passive_1",
        "active",
        "embedding",
        (np.array(batch), np.array(attempt), np.array(time), np.full((1, 1), value, np.float32)),
    )


def test_the_last_published_attempt_counts() -> None:
    seen = [
        message(1, 0, 0, 1.0, 10),
        message(1, 0, 1, 3.0, 11),
        message(1, 1, 0, 2.0, 12),
        message(2, 0, 5, 2.5, 13),  # of the round before, delivered late
        message(2, 0, 0, 4.0, 14),
        message(2, 1, 1, 6.0, 15),
        message(2, 1, 0, 5.0, 16),  # overtaken
        message(3, 0, 0, 0.0, 17),
        message(3, 0, 0, 0.0, 18),  # no timestamps: the last read
        Message(3, "passive_1", "active", "deadline", (np.zeros(1),)),
    ]
    published = {
        round: transcript.last_published(messages, "embedding")["passive_1"]
        for round, messages in transcript.by_round(seen)
    }
    found = {round: {batch: z.item() for batch, z in of_round.items()} for round, of_round in published.items()}
    assert found == {1: {0: 11, 1: 12}, 2: {0: 14, 1: 15}, 3: {0: 18}}


def asked(epochs: dict[int, np.ndarray]) -> Iterator[Message]:
    """Answers at the ends of epochs."""
    for epoch, answers in epochs.items():
        yield Message(epoch, "passive_1", "active", transcript.ANSWER, (answers,))


def together(*views: Iterator[Message]) -> list[Message]:
    return sorted((message for view in views for message in view), key=lambda message: message.round)


def test_only_whole_epochs_are_inverted() -> None:
    values = np.arange(40, dtype=np.float32)[:, None]

    def best(view: list[Message]) -> dict[str, tuple[int, np.ndarray, np.ndarray]]:
        return embedding_inversion.best_epoch(view, lambda epoch: batches(0, epoch, 40, SIZE), 40)

    left, answers = {(1, 2), (3, 2), (4, 0)}, {1: values - 1, 2: values + 9, 3: values, 4: values}
    epoch, embeddings, answer = best(together(view("embedding", values, 4, left), asked(answers)))["passive_1"]
    # the nearer of those before and after
    assert epoch == 2 and np.array_equal(embeddings, values) and np.array_equal(answer, values - 1)
    assert best(together(view("embedding", values, 1, {(1, 1)}), asked({1: values}))) == {}
    assert best(list(view("embedding", values, 2))) == {}


def test_the_epoch_whose_model_answered_is_inverted() -> None:
    rng = np.random.default_rng(0)
    values, shadow = rng.normal(size=(200, 3)), rng.normal(size=(300, 3))
    scale = {1: 1.0, 2: 2.0, 3: 4.0}

    def drawn(epoch: int) -> list[np.ndarray]:
        return batches(0, epoch, 200, SIZE)

    published = [m for epoch, s in scale.items() for m in view("embedding", s * values, 3) if m.round == epoch]
    answers = asked({1: 1.4 * shadow, 2: 4.0 * shadow, 3: 8.0 * shadow})
    epoch, embeddings, answer = embedding_inversion.best_epoch(together(iter(published), answers), drawn, 200)[
        "passive_1"
    ]
    assert epoch == 3 and np.array_equal(embeddings, 4 * values) and np.array_equal(answer, 4 * shadow)


def test_frechet_distance_by_hand() -> None:
    # a: means 0, 0, covariance diag(4, 1); b: the same moved by (3, 0) and covariance diag(1, 1): 9 + (2 - 1)^2 + 0 =
    # 10, over 4 + 1
    corners = np.array([[1, 1], [1, -1], [-1, 1], [-1, -1]]) * np.sqrt(3 / 4)
    a, b = corners * np.array([2, 1]), corners + np.array([3, 0])
    assert embedding_inversion.frechet(a, b) == pytest.approx(10 / 5) and embedding_inversion.frechet(
        a, a
    ) == pytest.approx(0, abs=1e-12)


def test_the_writer_keeps_what_the_attack_reads(tmp_path: Path) -> None:
    own = task(np.zeros(30, np.int64), shadow=25)
    watch = embedding_inversion.watch(own, config("embedding_inversion"), ["active", "passive_1"])
    assert set(watch.questions) == {"passive_1"} and np.array_equal(
        watch.questions["passive_1"], own.held_out_features["val"][1]
    )
    writer = TranscriptWriter(tmp_path, watch.party, watch.sent, received=watch.received)
    z = torch.ones(2, 3)
    writer.on_read("passive_1", "active", "embedding", 1, (7, 1, 0.25, z))
    writer.on_read("active_worker_00", "active", "parameters", 1, z)  # inside the party: much, and no secret
    writer.on_read("active", "passive_1", "gradient", 1, (7, 1, 0.5, z))  # somebody else reads it
    writer.write(1)
    (kept,) = transcript.read(tmp_path)
    assert (kept.src, kept.dst, kept.tag) == ("passive_1", "active", "embedding")
    assert [float(a) for a in kept.arrays[:3]] == [7, 1, 0.25] and kept.arrays[3].shape == (2, 3)
    assert (
        label_inference.watch(own, config("label_inference"), ["active", "passive_1", "passive_2"]).party == "passive_1"
    )


# --- inversion --------------------------------------------------------------------------------------------------------


def invert(embed: Callable[[np.ndarray, np.random.Generator], np.ndarray], **keys: Any) -> dict[str, Any]:
    """The attack where a passive party publishes `embed(x, rng)`, and answers so."""
    own = task(np.zeros(1500, np.int64))
    published = embed(own.features[1], np.random.default_rng(1))
    cfg = config("embedding_inversion", **keys)
    answers = asked({1: embed(own.held_out_features["val"][1], np.random.default_rng(2))})
    return embedding_inversion.attack(together(view("embedding", published, 2), answers), own, cfg, HUBS)


@pytest.mark.slow
def test_the_identity_is_inverted() -> None:
    found = invert(lambda x, _: x)
    assert found["success_rate"] > 0.99 and found["r2"] > 0.98
    # a normal column: P(|x| < 0.5) = 0.383; the column of two values: 0.7; three and one of them
    assert found["floor"] == pytest.approx((3 * 0.383 + 0.7) / 4, abs=0.03)
    assert found["clients"]["passive_1"] | {"rows": 1500, "features": 4} == found["clients"]["passive_1"]


@pytest.mark.slow
def test_a_rotation_into_more_numbers_is_inverted() -> None:
    mix = np.random.default_rng(5).normal(size=(4, 12)) / 2
    found = invert(lambda x, _: np.tanh(x @ mix))
    assert found["success_rate"] > 0.9 and found["r2"] > 0.9


def test_what_was_not_published_is_not_inverted() -> None:
    """The first column alone: the others are guessed. One column in four is right, the rest at their floor."""
    found = invert(lambda x, _: x[:, :1])
    assert found["success_rate"] == pytest.approx((1 + 2 * 0.383 + 0.7) / 4, abs=0.04) and found["r2"] == pytest.approx(
        0.25, abs=0.04
    )


def test_noise_gives_the_floor() -> None:
    found = invert(lambda x, rng: rng.normal(size=(len(x), 6)))
    assert found["success_rate"] == pytest.approx(found["floor"], abs=0.03) and abs(found["r2"]) < 0.03


@pytest.mark.slow
def test_less_privacy_more_success() -> None:
    """The mechanism itself: sigma = 160, 0.4 and 0 beside columns of deviation 1; at mu = 0.1 nothing is left above the
    floor."""
    rates = []
    for mu in (0.1, 40.0, float("inf")):
        secret: Any = make_mechanism(privacy_config("gdp_embedding", mu=mu, clip=4.0), 4)

        def embed(x: np.ndarray, rng: np.random.Generator, secret: Any = secret) -> np.ndarray:
            return secret.noised(torch.from_numpy(x), torch_stream(int(rng.integers(100)), "noise")).numpy()

        found = invert(embed)
        rates.append(found["success_rate"] - found["floor"])
    assert abs(rates[0]) < 0.03 and rates[0] + 0.03 < rates[1] < rates[2] - 0.03 and rates[2] > 0.3


def test_rows_are_bounded_and_nothing_published_is_said() -> None:
    assert invert(lambda x, _: x, rows=100)["clients"]["passive_1"]["rows"] == 100
    own, cfg = task(np.zeros(64, np.int64)), config("embedding_inversion")
    whole, answers = view("embedding", own.features[1], 1), own.held_out_features["val"][1]
    # no whole epoch; a run that diverged
    for messages in (list(asked({1: answers})), together(whole, asked({1: answers * np.nan}))):
        found = embedding_inversion.attack(messages, own, cfg, HUBS)
        assert (found["success_rate"], found["floor"], found["r2"], found["clients"]) == (None, None, None, {})


def test_success_by_hand() -> None:
    # Column 0: 0, 2, 4, ..., 18 has deviation sqrt(33) = 5.745, so half of it is 2.872. Column 1: two values, 0 and 10.
    # Column 2: constant.
    features = np.stack([np.arange(0, 20, 2), np.array([0, 10] * 5), np.full(10, 3)], axis=1).astype(np.float32)
    rows = np.array([0, 1, 2])  # (0, 0, 3), (2, 10, 3), (4, 0, 3)
    guesses = np.array([[2.8, 4.0, 9.0], [5.0, 6.0, 3.0], [1.0, 8.0, 3.0]])
    # Column 0: off by 2.8 (yes), 3 (no), 3 (no). Column 1: nearer to 0 (yes), 10 (yes), 10 (no). Column 2 has one
    # value: yes, yes, yes.
    columns = [embedding_inversion.Column(values) for values in features.T]
    truth = features[rows].astype(np.float64)
    recovered = embedding_inversion.hits(guesses, truth, columns, 0.5)
    assert recovered.tolist() == [[True, True, True], [False, True, True], [False, False, True]]
    # The best constants: 9 in column 0 recovers 9 and 9, 10 in column 1, 3 in column 2; of the truth 0, 1 and 3
    # entries.
    shadow = np.array([[9, 10, 3], [9, 10, 3], [0, 0, 3]], np.float32)
    constant = np.array([column.best_constant(values, 0.5) for column, values in zip(columns, shadow.T, strict=True)])
    assert constant.tolist() == [9, 10, 3]
    assert embedding_inversion.hits(constant[None], truth, columns, 0.5).sum(axis=0).tolist() == [0, 1, 3]
    # R^2: column 0 (2.8^2 + 9 + 9) / 33 of (4 + 0 + 4) / 33; column 1 (16 + 16 + 64) / 25 of (200 / 3) / 25; column 2
    # does not vary
    found = embedding_inversion.r_squared(guesses, truth, columns)
    assert found == pytest.approx(1 - (25.84 / 33 + 96 / 25) / (8 / 33 + 200 / 75))


@given(st.lists(st.integers(-20, 20), min_size=1, max_size=12), st.sampled_from([0.0, 0.5, 1.0, 2.5]))
def test_no_constant_is_better(values: list[int], reach: float) -> None:
    own = np.array(values, np.float64)
    found = np.sum(np.abs(own - embedding_inversion.best_constant(own, reach)) <= reach)
    assert found == max(np.sum(np.abs(own - c) <= reach) for c in np.arange(-22, 22.25, 0.25))


# --- labels -----------------------------------------------------------------------------------------------------------


def draw(shares: list[float], rows: int = 800, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).choice(len(shares), rows, p=shares)


def infer(gradients: np.ndarray, labels: np.ndarray, classes: int, **keys: Any) -> dict[str, Any]:
    leave_out = keys.pop("leave_out", frozenset())
    own = task(labels, classes, shadow=20)
    return label_inference.attack(
        view("gradient", gradients, 3, leave_out), own, config("label_inference", **keys), HUBS
    )


@pytest.mark.parametrize("shares", [[0.8, 0.2], [0.3, 0.7]])
def test_a_linear_top_gives_all_labels_away(shares: list[float]) -> None:
    """d loss / d z = (p - y) w: its sign is the label, however sure the model is."""
    labels, rng = draw(shares), np.random.default_rng(1)
    p = rng.uniform(1e-12, 1 - 1e-12, len(labels))
    gradients = ((p - labels)[:, None] * rng.normal(size=5) / SIZE).astype(np.float32)
    found = infer(gradients, labels, 2)
    assert found["success_rate"] == found["auroc"] == 1.0 and found["rows"] == 800
    assert found["floor"] == np.bincount(labels).max() / 800
    assert infer(gradients, labels, 2, rows=50)["rows"] == 50


def test_softmax_gives_classes_away() -> None:
    """d loss / d z = W^T (p - e_y) of a model that has just begun: one direction per class."""
    labels, rng = draw([0.5, 0.3, 0.2]), np.random.default_rng(2)
    p = rng.dirichlet([60, 60, 60], len(labels))
    found = infer((p - np.eye(3)[labels]) @ rng.normal(size=(3, 6)), labels, 3)
    assert found["success_rate"] == found["auroc"] == 1.0


def test_noise_gives_no_label_away() -> None:
    labels = draw([0.5, 0.5])
    found = infer(np.random.default_rng(3).normal(size=(800, 5)), labels, 2)
    # 800 coin tosses: standard error 0.018
    assert abs(found["success_rate"] - 0.5) < 0.08 and abs(found["auroc"] - 0.5) < 0.09


def test_names_come_from_sizes_not_from_labels() -> None:
    """With other labels behind the same gradients the guesses stay as they were."""
    labels = draw([0.8, 0.2])
    gradients = (0.5 - labels)[:, None] * np.ones((1, 4))
    balance = np.array([0.8, 0.2])
    near = label_inference.sides(view("gradient", gradients, 1), lambda e: batches(0, e, 800, SIZE), np.arange(800))
    guesses, _ = label_inference.named(near, balance)
    assert np.array_equal(guesses, labels)
    turned, scores = label_inference.named(near, balance[::-1])
    assert np.array_equal(turned, 1 - labels) and label_inference.auroc(scores, labels) == 0.0
    assert label_inference.auroc(scores, np.zeros(800, np.int64)) is None


def test_rows_without_a_gradient_are_left_out_or_seen_in_another_epoch() -> None:
    labels = draw([0.8, 0.2], rows=64)
    gradients = (0.5 - labels)[:, None] * np.array([[1.0, -2.0, 0.5]])
    first = batches(0, 1, 64, SIZE)[0]
    assert infer(gradients, labels, 2, leave_out={(1, 0)}) == infer(gradients, labels, 2) | {
        "auroc": 1.0,
        "success_rate": 1.0,
    }
    gradients[first] = 0.0  # dead units
    found = infer(gradients, labels, 2)
    assert found["rows"] == 48 and found["success_rate"] == 1.0
    gradients[:] = np.nan
    assert infer(gradients, labels, 2) | {"rows": 0, "success_rate": None, "auroc": None} == infer(gradients, labels, 2)


@pytest.mark.parametrize("scale", [1e-30, 1e-3, 1e30])
def test_only_directions_count(scale: float) -> None:
    labels = draw([0.8, 0.2])
    gradients = ((0.5 - labels)[:, None] * np.array([[1.0, -2.0, 0.5]]) * scale).astype(np.float32)
    found = label_inference.directions(
        view("gradient", gradients, 1), lambda e: batches(0, e, 800, SIZE), np.arange(0, 800, 3)
    )
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1.0, rtol=1e-6)
    np.testing.assert_allclose(
        found @ np.array([1.0, -2.0, 0.5]) / np.sqrt(5.25), np.sign(0.5 - labels[::3]), rtol=1e-6
    )


# --- as a run makes them ----------------------------------------------------------------------------------------------


def train(
    folder: Path, monkeypatch: pytest.MonkeyPatch, attack: str, privacy: Any = None, **keys: Any
) -> dict[str, Any]:
    """A whole run of small_split."""
    load, exposed = registry.load_algorithm, registry.exposed
    monkeypatch.setattr(registry, "load_algorithm", lambda name: small_split if name == "small_split" else load(name))
    monkeypatch.setattr(
        registry, "exposed", lambda name: small_split.EXPOSES if name == "small_split" else exposed(name)
    )
    data = keys.pop("dataset", None) or bank_card.Config(name="bank", source="synthetic", samples=1200, validation=0.3)
    algorithm = small_split.Config(**{"batch_size": 64, **keys.pop("algorithm", {})})
    cfg = config(
        attack,
        dataset=data,
        algorithm=algorithm,
        privacy=privacy or privacy_config(),
        device="cpu",
        **{"rounds": 3, **keys},
    )
    plain = {"algorithm": {"name": "small_split"}, "dataset": {"name": data.name}, "network": {}}
    return run(
        cfg, folder, command="", choices={}, plain=plain, identity="", hidden={}, info=small_split.ALGORITHM, quiet=True
    )


def test_a_run_says_what_its_embeddings_leak(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parties = {"algorithm": {"parties": 3}}
    plain = train(tmp_path / "a", monkeypatch, "embedding_inversion", **parties)
    assert validate_summary(plain) == [] and plain["status"] == "completed"
    attack = plain["attack"]
    assert attack["name"] == "embedding_inversion" and set(attack["clients"]) == {"passive_1", "passive_2"}
    assert attack["success_rate"] > attack["floor"] + 0.05 and attack["r2"] > 0.1
    assert {m.tag for m in transcript.read(tmp_path / "a" / "transcript")} == {"embedding", "answer"}
    assert {m.dst for m in transcript.read(tmp_path / "a" / "transcript")} == {"active"}

    private = train(
        tmp_path / "b", monkeypatch, "embedding_inversion", privacy_config("gdp_embedding", mu=0.1), **parties
    )
    assert private["attack"]["success_rate"] < private["attack"]["floor"] + 0.03 and private["attack"]["r2"] < 0.1
    spent = private["privacy"]
    assert (spent["releases"], spent["mu"]) == ({"planned": 3, "done": 3}, pytest.approx(0.1))
    assert spent["epsilon_by_party"] == {"active": 0.0, "passive_1": spent["epsilon"], "passive_2": spent["epsilon"]}


def test_the_papers_calibration_takes_the_tasks_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = train(tmp_path, monkeypatch, "none", privacy_config("gdp_embedding", mu=0.5, calibration="paper"))[
        "privacy"
    ]
    # 1200 rows, 40 % of them for training: 480 in 8 batches of 64, 3 epochs
    assert found["noise_multiplier"] == pytest.approx(2 * 64 * np.sqrt(24) / (0.5 * 480))
    assert found["mu"] == pytest.approx(np.sqrt(3) * 2 / found["noise_multiplier"]) and not found["guaranteed"]


def test_a_run_says_what_its_gradients_leak(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = train(tmp_path, monkeypatch, "label_inference")["attack"]
    assert found["adversary"] == "passive_1" and found["success_rate"] > found["floor"] and found["auroc"] > 0.9
    assert {(m.dst, m.tag) for m in transcript.read(tmp_path / "transcript")} == {("passive_1", "gradient")}


def test_tasks_that_cannot_be_attacked_are_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match="attack=label_inference: guesses classes, and this data set is a regression"):
        train(
            tmp_path,
            monkeypatch,
            "label_inference",
            dataset=energy_card.Config(name="energy", source="synthetic", samples=200),
        )
    with pytest.raises(ConfigError, match="attack=embedding_inversion: its shadow set is the validation rows"):
        data = bank_card.Config(name="bank", source="synthetic", samples=200, validation=0.0)
        train(tmp_path, monkeypatch, "embedding_inversion", dataset=data)
    assert list(tmp_path.iterdir()) == []
