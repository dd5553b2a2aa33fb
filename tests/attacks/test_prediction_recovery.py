"""Recovery of raw rows from predictions: works without privacy and with DP-SGD alone, fails with noise on the
predictions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tests.algorithms.small_joins import aligned, config, run, tables
from tests.every import few_fast
from tests.options import make_mechanism, privacy_config
from vflbench.algorithms.joins import rfl_admm, rfl_admm_v, rfl_sgd, rfl_sgd_v, vfl_admm, vfl_sgd
from vflbench.attacks import prediction_recovery, transcript
from vflbench.attacks.transcript import Message
from vflbench.cards.attacks import prediction_recovery as prediction_recovery_card
from vflbench.results import inventory
from vflbench.runner.transcript_writer import TranscriptWriter

METHODS = [rfl_admm_v, rfl_admm, rfl_sgd_v, rfl_sgd, vfl_admm, vfl_sgd]
ROUNDS = 12


def attacked(
    folder: Path, module: ModuleType, privacy: Any, parameters: str = "released", **options: Any
) -> dict[str, Any]:
    is_aligned, parts = module in (vfl_admm, vfl_sgd), 2 if module in (rfl_admm, rfl_sgd) else 1
    task = aligned() if is_aligned else tables(parts)
    keys = {"rounds": ROUNDS, "batch_size": 16, "parts": parts, "lr": 0.1, "local_epochs": 2, "rho": 3.0, **options}
    cfg = replace(
        config(module, **keys),
        privacy=privacy,
        attack=prediction_recovery_card.Config("prediction_recovery", parameters),
    )
    clients = [name for name in module.parties(task, cfg) if name != "server"]
    secrets = {name: make_mechanism(privacy, layout="aligned" if is_aligned else "relational") for name in clients}
    engine: list[Any] = []

    def theta(name: str) -> Any:
        return engine[0].parties[name].state.model.theta

    writer = TranscriptWriter(folder, "server", prediction_recovery.SENT, theta if parameters == "released" else None)

    def on_round(round: int, running: Any) -> bool:
        writer.write(round)
        return False

    def on_read(*message: Any) -> None:
        writer.on_read(*message)

    from vflbench.federation import simulated

    started = simulated.SimulatedEngine.__init__

    def remember(self: Any, *args: Any, **kwargs: Any) -> None:
        engine.append(self)
        started(self, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simulated.SimulatedEngine, "__init__", remember)
        run(module, task, cfg, privacy=secrets, on_round=on_round, on_read=on_read)
    return prediction_recovery.attack(transcript.read(folder), task, cfg, clients)


@pytest.mark.parametrize("module", few_fast(METHODS, 2), ids=lambda m: m.__name__.rpartition(".")[2])
def test_rows_are_recovered_without_privacy(module: ModuleType, tmp_path: Path) -> None:
    found = attacked(tmp_path, module, privacy_config())
    assert found["relative_error"] < 1e-3 and found["recovered"] > 0.95
    assert all(client["relative_error"] < 1e-3 for client in found["clients"].values())


@pytest.mark.parametrize("module", few_fast(METHODS), ids=lambda m: m.__name__.rpartition(".")[2])
def test_rows_are_recovered_in_spite_of_dp_sgd(module: ModuleType, tmp_path: Path) -> None:
    """Its noise is on theta, and theta is known: the equations only become better conditioned."""
    found = attacked(tmp_path, module, privacy_config("dp_sgd", noise_multiplier=4.0))
    assert found["relative_error"] < 1e-3 and found["recovered"] > 0.95


@pytest.mark.parametrize("module", few_fast(METHODS), ids=lambda m: m.__name__.rpartition(".")[2])
def test_noise_on_predictions_stops_it(module: ModuleType, tmp_path: Path) -> None:
    privacy = privacy_config("dp_sgd", noise_multiplier=4.0, prediction_noise=4.0)
    found = attacked(tmp_path, module, privacy)
    assert found["relative_error"] > 0.5 and found["recovered"] < 0.05


def test_it_is_the_noise_that_stops_it(tmp_path: Path) -> None:
    privacy = privacy_config("dp_sgd", noise_multiplier=4.0, prediction_noise=1e-9, prediction_clip=100.0)
    assert attacked(tmp_path, rfl_admm_v, privacy)["relative_error"] < 1e-3


@pytest.mark.parametrize("module", [rfl_admm, rfl_sgd], ids=["rfl_admm", "rfl_sgd"])
@pytest.mark.parametrize("noise", few_fast([None, pytest.param(2.0, marks=pytest.mark.slow)], 0))
def test_where_tables_come_in_parts_the_transcript_is_enough(
    module: ModuleType, noise: float | None, tmp_path: Path
) -> None:
    privacy = privacy_config() if noise is None else privacy_config("dp_sgd", noise_multiplier=noise)
    found = attacked(tmp_path, module, privacy, "received", weight_decay=0.01)
    assert found["relative_error"] < 1e-3 and len(found["clients"]) == 6
    assert not any(message.tag == transcript.RELEASED for message in transcript.read(tmp_path))
    if module is rfl_admm:
        consensus = attacked(tmp_path / "w", module, privacy, "received", predict="consensus")
        assert consensus["relative_error"] < 1e-3
        # theta^q is not what predicts then: only the right parameters do
        wrong = replace(
            config(module, rounds=ROUNDS, parts=2, predict="own"),
            attack=prediction_recovery_card.Config("prediction_recovery", "received", tolerance=0.05),
        )
        clients = [f"client_{c}" for c in range(6)]
        assert (
            prediction_recovery.attack(transcript.read(tmp_path / "w"), tables(2), wrong, clients)["relative_error"]
            > 1e-3
        )


@pytest.mark.parametrize("module", [rfl_admm_v, rfl_sgd_v, vfl_sgd], ids=lambda m: m.__name__.rpartition(".")[2])
def test_without_parameters_there_is_nothing_to_solve(module: ModuleType, tmp_path: Path) -> None:
    found = attacked(tmp_path, module, privacy_config(), "received")
    assert (found["rows"], found["relative_error"], found["clients"]) == (0, None, {})


def test_two_rounds_do_not_determine_three_features(tmp_path: Path) -> None:
    few = attacked(tmp_path, rfl_admm_v, privacy_config("dp_sgd", noise_multiplier=4.0), rounds=2)["clients"]
    assert few["client_1"]["relative_error"] > 0.05  # three features, two equations
    assert few["client_2"]["relative_error"] < 1e-3  # two


def test_by_hand() -> None:
    """x = (2, -1): h_1 = 1 + 0.5 = 2 - 1 + 0.5 with w = (1, 1), h_2 = 3 x_1 + 0.5 = 6.5 with w = (3, 0), each with b =
    0.5."""
    cfg = replace(config(vfl_admm), attack=prediction_recovery_card.Config())
    view = [
        Message(0, "client_0", "server", "labels", (np.zeros(1),)),
        Message(1, "client_0", "server", transcript.RELEASED, (np.array([1.0, 1.0, 0.5]),)),
        Message(1, "client_0", "server", "prediction", (np.array([[1.5]]),)),
        Message(2, "client_0", "server", transcript.RELEASED, (np.array([3.0, 0.0, 0.5]),)),
        Message(2, "client_0", "server", "prediction", (np.array([[6.5]]),)),
    ]
    rows, estimates = prediction_recovery.recover(view, cfg, {"client_0": True})["client_0"]
    assert rows.tolist() == [0]
    np.testing.assert_allclose(estimates, [[2.0, -1.0]], atol=1e-12)
    found = prediction_recovery.score({"client_0": (rows, estimates)}, {"client_0": np.array([[2.0, -1.1]])}, 0.05)
    assert found["relative_error"] == pytest.approx(0.1 / np.hypot(2, 1.1)) and found["recovered"] == 1.0
    assert (
        prediction_recovery.score({"client_0": (rows, estimates)}, {"client_0": np.array([[2.0, -1.1]])}, 0.04)[
            "recovered"
        ]
        == 0.0
    )


def test_a_transcript_is_read_as_it_was_written(tmp_path: Path) -> None:
    inventory.start(tmp_path)
    writer = TranscriptWriter(tmp_path, "server", frozenset(("rows",)))
    writer.on_read("client_0", "server", "keys", 0, {"rows": 3, "ids": np.arange(3)})
    writer.on_read("server", "client_0", "residual", 1, np.ones(2))  # not kept
    for number in range(12):  # more than ten: order is by number, not by text
        writer.on_read("server", "client_0", "rows", 1, (np.array([number]), None, *range(11)))
    writer.on_read("client_0", "server", "prediction", 2, np.ones((1, 1)))
    writer.write(1)
    messages = list(transcript.read(tmp_path))
    assert [(m.round, m.tag) for m in messages] == [(0, "keys"), *[(1, "rows")] * 12]
    assert [int(m.arrays[0][0]) for m in messages[1:]] == list(range(12))
    assert [int(a) for a in messages[1].arrays[1:]] == list(range(11)) and messages[0].arrays[1].tolist() == [0, 1, 2]
    writer.write(2)
    kept = [part for name, part in writer.files.items() if name <= transcript.file_name(1)]
    TranscriptWriter(tmp_path, "server", frozenset(), kept=kept)  # what came after the checkpoint comes again
    assert {m.round for m in transcript.read(tmp_path)} == {0, 1}
