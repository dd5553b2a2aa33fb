"""Privacy in the programs over tables: without noise they are what they were, bytes stay, runs go on where they
stopped."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import dp_accounting
import numpy as np
import pandas as pd
import pytest
import torch

import vflbench
from tests.algorithms.small_joins import Result, aligned, config, run, tables
from tests.every import few_fast
from tests.options import make_mechanism, privacy_config
from vflbench.algorithms.joins import gd_join, rfl_admm, rfl_admm_v, rfl_sgd, rfl_sgd_v, vfl_admm, vfl_sgd
from vflbench.federation.simulated import SimulatedEngine
from vflbench.privacy import accountant
from vflbench.results.run_schema import validate_summary
from vflbench.runner.evaluate import Observer
from vflbench.types import ConfigError, VflbenchError

ADMM, SGD = [rfl_admm_v, rfl_admm, vfl_admm], [rfl_sgd_v, rfl_sgd, vfl_sgd]
FAST = (rfl_admm, rfl_sgd_v)
FEW = [pytest.param(one, marks=[] if one in FAST else [pytest.mark.slow]) for one in (*ADMM, *SGD)]
SGD_FEW = [pytest.param(one, marks=[] if one is vfl_sgd else [pytest.mark.slow]) for one in SGD]
RESUMED = [*FEW, gd_join]
NONE = privacy_config()


def name_of(module: ModuleType) -> str:
    return module.__name__.rpartition(".")[2]


def privately(
    module: ModuleType, privacy: Any, classes: int = 3, engine: dict[str, Any] | None = None, **options: Any
) -> Result:
    over_joined, parts = module in (vfl_admm, vfl_sgd), 2 if module in (rfl_admm, rfl_sgd) else 1
    task = aligned(classes=classes) if over_joined else tables(parts, classes=classes)
    keys = {"rounds": 3, "batch_size": 16, "parts": parts, "local_epochs": 2, "inner_rounds": 3, **options}
    cfg = replace(config(module, **keys), privacy=privacy, seed=options.get("seed", 0))
    clients = [name for name in module.parties(task, cfg) if name != "server"]
    secrets = {n: make_mechanism(privacy, layout="aligned" if over_joined else "relational") for n in clients}
    return run(module, task, cfg, **{"privacy": secrets, **(engine or {})})


def spent(result: Result) -> dict[str, dict[str, Any]]:
    return {p.name: p.privacy.spent() for p in result.engine.order if p.privacy is not None}


@pytest.mark.parametrize("module", FEW, ids=name_of)
@pytest.mark.parametrize("model", few_fast([{"name": "linear"}, {"name": "mlp", "hidden": 3}]), ids=lambda m: m["name"])
def test_without_noise_or_clipping_and_with_whole_batches_nothing_changes(
    module: ModuleType, model: dict[str, Any]
) -> None:
    """A batch of all rows is drawn with certainty; what then differs is only how a sum is divided, and it must not."""
    whole = {"batch_size": 10**6, "lr": 0.1, "weight_decay": 0.01, "model": model, "proximal": True}
    plain = privately(module, NONE, **whole)
    private = privately(module, privacy_config("dp_sgd", clip=1e9, noise_multiplier=0.0), **whole)
    torch.testing.assert_close(private.theta(), plain.theta(), rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(private.losses, plain.losses, rtol=1e-9)
    clipped = privately(module, privacy_config("dp_sgd", clip=1e-3, noise_multiplier=0.0), **whole)
    noisy = privately(module, privacy_config("dp_sgd", clip=1e9, noise_multiplier=1e-9), **whole)
    for other in (clipped, noisy):
        assert not torch.allclose(other.theta(), plain.theta(), rtol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("module", FEW, ids=name_of)
def test_a_random_batchs_step_is_on_average_that_of_all_rows(module: ModuleType) -> None:
    """At a tiny learning rate every step starts from theta = 0 all but exactly: their mean is that of the gradient
    estimates."""
    keys = {"lr": 1e-9, "weight_decay": 0.0, "inner_rounds": 1}
    whole = privately(module, NONE, rounds=1, local_epochs=1, batch_size=10**6, **keys)
    many = {"rounds": 1, "local_epochs": 200} if module in ADMM else {"rounds": 150}
    private = privately(module, privacy_config("dp_sgd", clip=1e9, noise_multiplier=0.0), **many, **keys)
    for c in range(len(private.engine.order) - 1):
        mean, step = private.theta(c) / private.engine.order[c + 1].privacy.steps.taken, whole.theta(c)
        assert float((mean - step).norm() / step.norm()) < 0.2, c


@pytest.mark.parametrize("module", few_fast(FEW), ids=name_of)
def test_every_party_ends_at_its_target_and_no_step_is_left(module: ModuleType) -> None:
    result = privately(module, privacy_config("tablepuppet", epsilon=2.0))
    for name, found in spent(result).items():
        party = result.engine.parties[name].privacy
        assert found["steps"] == party.steps.planned > 0, name
        assert 1.97 < found["epsilon"] <= 2.0 and found["covers"] == "model"
        assert 0.99 < found["spent_of_target"] <= 1.0
    labelled = [found["label_epsilon"] for found in spent(result).values() if found["label_epsilon"]]
    assert labelled == [2.0] * (2 if module in (rfl_admm, rfl_sgd) else 1)
    again = privately(module, privacy_config("tablepuppet", epsilon=2.0))
    assert torch.equal(again.theta(), result.theta())
    other = privately(module, privacy_config("tablepuppet", epsilon=2.0), seed=1)
    assert not torch.equal(other.theta(), result.theta())


def test_steps_and_rates_are_those_of_the_protocol() -> None:
    """RFL-ADMM: rounds x inner rounds x local epochs x batches at rate batch/n; RFL-SGD: rounds x N/B at 1 - (1 -
    B/N)^G."""
    dp = privacy_config("dp_sgd", noise_multiplier=1.0)
    for result in (privately(rfl_admm_v, dp), privately(rfl_admm, dp)):
        inner = 3 if len(result.engine.order) > 4 else 1
        for party in result.engine.order[1:]:
            n = len(party.state.rows)
            assert party.privacy.steps.planned == 3 * inner * 2 * math.ceil(n / 16)
            assert party.privacy.steps.sample_rate == min(1, 16 / n)
    for result in (privately(rfl_sgd_v, dp), privately(rfl_sgd, dp)):
        for party in result.engine.order[1:]:
            joined = party.state.joined
            assert party.privacy.steps.planned == 3 * math.ceil(joined / 16)
            assert party.privacy.steps.sample_rate == pytest.approx(1 - (1 - 16 / joined) ** party.state.counts.max())
    vertical = privately(vfl_sgd, dp).engine.order[1].privacy.steps
    assert (vertical.planned, vertical.sample_rate) == (3 * math.ceil(47 / 16), pytest.approx(16 / 47))


def test_replicas_of_a_table_stay_equal_with_noise() -> None:
    result = privately(rfl_sgd, privacy_config("dp_sgd", noise_multiplier=2.0))
    for table in range(3):
        assert torch.equal(result.theta(2 * table), result.theta(2 * table + 1))


def test_every_client_noises_what_it_sends_by_a_stream_of_its_own() -> None:
    """Beside a noise of 200 clips a sum of at most 16 clipped rows is nothing: look at the noise on the wire."""
    seen: dict[str, list[np.ndarray]] = {}

    def keep(src: str, dst: str, tag: str, round: int, payload: Any) -> None:
        if tag == "gradient":
            seen.setdefault(src, []).append(np.asarray(payload, dtype=np.float64).ravel())

    privacy = privacy_config("dp_sgd", noise_multiplier=200.0, clip=1e-9)
    privately(rfl_sgd, privacy, engine={"on_read": keep}, rounds=60, weight_decay=0.0, lr=1e-6)
    noises = {name: np.concatenate(found) for name, found in seen.items()}
    assert len(noises) == 6
    for name, noise in noises.items():
        assert noise.std() == pytest.approx(2e-7, rel=5 / math.sqrt(2 * len(noise))), name
    for table in range(3):
        one, two = noises[f"client_{2 * table}"], noises[f"client_{2 * table + 1}"]
        assert abs(np.corrcoef(one, two)[0, 1]) < 5 / math.sqrt(len(one)), table


# --- bytes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", ADMM, ids=name_of)
def test_admm_sends_the_same_messages_with_and_without_privacy(module: ModuleType) -> None:
    plain = privately(module, NONE).engine.ledger.take()
    for privacy in (
        privacy_config("label_dp"),
        privacy_config("tablepuppet", noise_multiplier=1.0, prediction_noise=1.0),
    ):
        assert np.array_equal(privately(module, privacy).engine.ledger.take(), plain)


@pytest.mark.parametrize("module", SGD_FEW, ids=name_of)
def test_sgd_names_its_random_batches_and_sends_what_their_rows_need(module: ModuleType) -> None:
    plain = privately(module, NONE, rounds=60).sent()
    private = privately(module, privacy_config("dp_sgd", noise_multiplier=1.0), rounds=60).sent()
    labels_only = privately(module, privacy_config("label_dp"), rounds=60).sent()
    assert labels_only == plain
    assert not any(tag == "rows" for _, tag in plain) and not any(tag == "batches" for _, tag in private)
    for tag in ("gradient", "step"):
        assert [private.get((t, tag)) for t in range(1, 61)] == [plain.get((t, tag)) for t in range(1, 61)]
    for t in range(1, 61):  # a prediction (3 numbers of 8 bytes) and a residual for every row that is named (8 bytes)
        assert private[t, "prediction"] == private[t, "residual"] == 3 * private[t, "rows"]
    sent = sum(private[t, "prediction"] for t in range(1, 61)) / 60 / 24
    if module is vfl_sgd:
        expected = 3 * 3 * 16.0  # tables x batches x B
    else:
        found = privately(module, NONE).engine.parties["server"].state.mapping["rows"]
        rate = 16 / len(found[0])
        expected = 3 * sum(float((1 - (1 - rate) ** np.bincount(rows)).sum()) for rows in found)
    assert sent == pytest.approx(expected, rel=0.03)


# --- predictions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", few_fast([*ADMM, *SGD], 2), ids=name_of)
def test_with_noisy_predictions_the_transcript_is_covered(module: ModuleType) -> None:
    result = privately(module, privacy_config("dp_sgd", noise_multiplier=30.0, prediction_noise=20.0))
    for found in spent(result).values():
        assert (
            found["covers"] == "transcript"
            and found["epsilon"] > max(found["model_epsilon"], found["prediction_epsilon"]) > 0
        )
        assert (
            found["prediction_releases"] == 3 if module in ADMM else 1 <= found["prediction_releases"] <= found["steps"]
        )
    received: list[torch.Tensor] = []

    def on_read(src: str, dst: str, tag: str, round: int, payload: Any) -> None:
        if tag == "prediction" and round == 1:
            received.append(payload.reshape(-1).clone())

    privately(
        module,
        privacy_config("dp_sgd", noise_multiplier=30.0, prediction_noise=20.0),
        engine={"on_read": on_read},
        lr=1e-9,
    )
    noise = torch.cat(received)  # theta is still all but 0, and so is every prediction
    assert abs(float(noise.std()) / 20 - 1) < 4.5 / math.sqrt(2 * len(noise))


def test_predictions_are_sent_as_they_are_without_the_option() -> None:
    results = [
        privately(rfl_admm_v, privacy, lr=1e-9) for privacy in (NONE, privacy_config("dp_sgd", noise_multiplier=1.0))
    ]
    for result in results:
        assert max(float(h.abs().max()) for h in result.engine.parties["server"].state.h) < 1e-5


@pytest.mark.parametrize("module", few_fast(RESUMED), ids=name_of)
def test_gradients_and_predictions_share_one_epsilon(module: ModuleType) -> None:
    """Each party spends what was asked, by as many releases as it was told of, and the shares are those of mu^2."""
    result = privately(module, privacy_config("tablepuppet", epsilon=2.0, split=[0.4, 0.6]))
    for found in spent(result).values():
        assert 1.98 < found["epsilon"] <= 2.0 and found["target"] == {"epsilon": 2.0}
        assert found["covers"] == "transcript" and found["label_epsilon"] in (0.0, 2.0)
        predictions = accountant.composed_mu(1.0, found["prediction_noise"], found["prediction_releases"])
        if module in ADMM:  # sampled gradients have no mu; what RDP can prove does
            assert found["mu"] is None and found["prediction_releases"] == 3
            assert predictions**2 * accountant.calibrate_steps(2.0, 1e-5, 1.0, 1) ** 2 == pytest.approx(0.6, rel=1e-9)
        else:
            assert found["accountant"] == "exact" and predictions**2 / found["mu"] ** 2 == pytest.approx(0.6, rel=1e-9)
            assert accountant.epsilon(found["mu"], 1e-5) == found["epsilon"]
    for party in result.engine.order[1:]:
        assert party.privacy.predictions.limit == party.privacy.predictions.releases > 0


@pytest.mark.parametrize("module", [*SGD, gd_join], ids=name_of)
def test_only_what_a_row_will_be_asked_for_is_told_beside(module: ModuleType) -> None:
    given = privately(module, privacy_config("dp_sgd", noise_multiplier=1.0, prediction_noise=1.0)).sent()
    shared = privately(module, privacy_config("dp_sgd", split=[0.5, 0.5], epsilon=2.0)).sent()
    more = {key: shared[key] for key in shared.keys() - given.keys()}
    assert {key: shared[key] for key in given} == given
    clients = 6 if module is rfl_sgd else 3
    assert more == ({} if module is gd_join else {(0, "releases"): 8 * clients})


@pytest.mark.slow
def test_a_second_accountant_agrees_with_shared_epsilon() -> None:
    """Privacy loss distributions are tighter than RDP, and prove no more than a sixth less."""
    for found in spent(privately(rfl_admm_v, privacy_config("dp_sgd", epsilon=2.0, split=[0.5, 0.5]))).values():
        event = dp_accounting.dp_event
        one = event.PoissonSampledDpEvent(found["sample_rate"], event.GaussianDpEvent(found["noise_multiplier"]))
        other = event.GaussianDpEvent(found["prediction_noise"])
        counts = found["steps"], found["prediction_releases"]
        both = [event.SelfComposedDpEvent(*pair) for pair in zip((one, other), counts, strict=True)]
        exact = dp_accounting.pld.PLDAccountant().compose(event.ComposedDpEvent(both)).get_epsilon(1e-5)
        assert 1.65 < exact <= found["epsilon"] <= 2.0


# --- whole batches ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", [{"name": "linear"}, {"name": "mlp", "hidden": 3}], ids=lambda m: m["name"])
def test_gd_join_without_noise_is_what_it_was_and_with_noise_sgd_of_one_batch(model: dict[str, Any]) -> None:
    keys = {"rounds": 4, "model": model, "batch_size": 10**6, "lr": 0.1, "weight_decay": 0.01}
    plain = privately(gd_join, NONE, **keys)
    off = privately(gd_join, privacy_config("dp_sgd", clip=1e9, noise_multiplier=0.0), **keys)
    assert torch.equal(off.theta(), plain.theta()) and off.losses == plain.losses
    infinite = privately(
        gd_join, privacy_config("dp_sgd", epsilon=math.inf, clip=1e9, split=[0.5, 0.5], prediction_clip=1e9), **keys
    )
    assert torch.equal(infinite.theta(), plain.theta()) and infinite.losses == plain.losses
    noise = privacy_config("tablepuppet", noise_multiplier=0.7, label_noise=0.5, prediction_noise=0.3)
    one, other = privately(gd_join, noise, **keys), privately(rfl_sgd_v, noise, **keys)
    assert torch.equal(one.theta(), other.theta()) and one.losses == other.losses
    assert np.array_equal(one.engine.ledger.take(), plain.engine.ledger.take())


def test_an_epoch_of_gd_join_is_one_gaussian_release_of_each_row() -> None:
    found = spent(privately(gd_join, privacy_config("dp_sgd", epsilon=2.0), rounds=5)).values()
    noise = accountant.calibrate(2.0, 1e-5, 1.0, 5)
    for one in found:
        assert one["noise_multiplier"] == pytest.approx(noise, rel=1e-8) and one["accountant"] == "exact"
        assert 2 * (1 - 1e-6) < one["epsilon"] <= 2 and one["mu"] == pytest.approx(math.sqrt(5) / noise, rel=1e-8)
        assert not any("sampling" in phrase for phrase in one["not_covered"]) and one["covers"] == "model"
    assert noise < accountant.calibrate_steps(2.0, 1e-5, 1.0, 5)  # what RDP would ask for


# --- labels -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", few_fast([*ADMM, *SGD, gd_join], 2), ids=name_of)
def test_the_server_sees_noisy_labels_only(module: ModuleType) -> None:
    def labels(result: Result) -> np.ndarray:
        state = result.engine.parties["server"].state
        return np.asarray(state.mapping["labels"] if hasattr(state, "mapping") else state.labels)

    true, noisy = (
        labels(privately(module, NONE)),
        labels(privately(module, privacy_config("label_dp", label_noise=1.0))),
    )
    assert true.shape == noisy.shape and 0.1 < np.mean(true != noisy) < 0.7
    assert np.array_equal(true, labels(privately(module, privacy_config("dp_sgd", noise_multiplier=1.0))))
    # once per row of the label table: all joined rows of one rating have the same noisy label
    if module in (rfl_admm_v, rfl_sgd_v):
        server = privately(module, privacy_config("label_dp", label_noise=1.0)).engine.parties["server"].state.mapping
        by_row = pd.DataFrame({"row": server["rows"][0], "label": server["labels"]}).groupby("row")["label"].nunique()
        assert (by_row == 1).all() and len(by_row) < len(server["labels"])


def test_a_regression_that_is_no_rating_is_refused() -> None:
    with pytest.raises(ConfigError, match="whole ratings from 1 to 5"):
        privately(rfl_admm_v, privacy_config("label_dp"), classes=0)


# --- stopping and going on --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", few_fast(RESUMED), ids=name_of)
def test_a_resumed_run_is_the_one_that_never_stopped(module: ModuleType) -> None:
    privacy = privacy_config("tablepuppet", epsilon=1.0, split=[0.5, 0.5])
    cuts: list[Any] = []
    whole = privately(module, privacy, rounds=4, engine={"checkpoint_every": 1, "on_cut": cuts.append})
    for cut in cuts:
        resumed = privately(module, privacy, rounds=4, engine={"resume_from": cut})
        assert torch.equal(resumed.theta(), whole.theta())
        assert spent(resumed) == spent(whole)
    for party in cuts[1].parties.values():  # the test bites: without the mechanism's state it is another run
        party["privacy"] = None
    assert spent(privately(module, privacy, rounds=4, engine={"resume_from": cuts[1]})) != spent(whole)


# --- the whole command ------------------------------------------------------------------------------------------------


@pytest.fixture
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vflbench.plots.curves.draw_run", lambda folder, summary: None)


SMALL = [
    *(
        "dataset=star_schema",
        "dataset.rows=200",
        "dataset.dimension_rows=20",
        "dataset.width=3",
        "dataset.task=classes",
    ),
    *("network=lan", "epochs=5", "checkpoint_every=2", "model.dtype=float64", "engine.threads=1", "plot=none"),
]


def command(folder: Path, *more: str) -> Any:
    return vflbench.run([*SMALL, *more, f"hydra.run.dir={folder}"])


@pytest.mark.slow
@pytest.mark.usefixtures("no_pictures")
@pytest.mark.parametrize("algorithm", ["rfl_admm", "rfl_sgd_v"])
def test_a_run_with_privacy_and_attack_says_what_it_is_worth(
    algorithm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [f"algorithm={algorithm}", "algorithm.batch_size=64", "attack=prediction_recovery"]
    keys += ["privacy=tablepuppet", "privacy.epsilon=1", "privacy.delta=1e-5", "privacy.label_noise=0.5"]
    whole = command(tmp_path / "whole", *keys)
    assert validate_summary(whole.summary) == []
    private, attack = whole.summary["privacy"], whole.summary["attack"]
    assert (private["mechanism"], private["covers"], private["delta"]) == ("tablepuppet", "model", 1e-5)
    assert 0.98 < private["epsilon"] <= 1.0 and private["label_epsilon"] == pytest.approx(5.657, abs=1e-3)
    assert max(private["epsilon_by_party"].values()) == private["epsilon"] == whole.curve["epsilon"].iloc[-1]
    assert whole.curve["epsilon"].is_monotonic_increasing and whole.curve["epsilon"].iloc[0] < 0.9
    assert attack["name"] == "prediction_recovery" and attack["relative_error"] < 1e-3 and attack["recovered"] > 0.9
    assert len(list((whole.folder / "transcript").iterdir())) == 6

    on_round = Observer.on_round

    def breaks(self: Observer, round: int, engine: SimulatedEngine) -> bool:
        if round == 3:
            raise VflbenchError("the power went")
        return on_round(self, round, engine)

    monkeypatch.setattr(Observer, "on_round", breaks)
    with pytest.raises(VflbenchError, match="the power went"):
        command(tmp_path / "stopped", *keys)
    monkeypatch.undo()
    monkeypatch.setattr("vflbench.plots.curves.draw_run", lambda folder, summary: None)
    resumed = command(tmp_path / "stopped", *keys, "resume=true")
    pd.testing.assert_frame_equal(whole.curve, resumed.curve, check_exact=True)
    again = resumed.summary["attack"]
    assert resumed.summary["privacy"] == private and {**again, "seconds": 0} == {**attack, "seconds": 0}


@pytest.mark.usefixtures("no_pictures")
def test_noisy_predictions_stop_the_attack_and_cover_the_transcript(tmp_path: Path) -> None:
    budget = ["privacy=dp_sgd", "privacy.epsilon=2", "privacy.split=[0.5,0.5]"]
    found = command(tmp_path, "algorithm=rfl_admm_v", *budget, "attack=prediction_recovery").summary
    assert found["attack"]["relative_error"] > 0.5 and found["privacy"]["covers"] == "transcript"
    assert found["privacy"]["epsilon"] > found["privacy"]["model_epsilon"]


def refusals() -> Iterator[tuple[tuple[str, ...], str]]:
    yield ("algorithm=rfl_admm_v", "privacy=dp_sgd", "algorithm.solver=exact"), "exact minimiser has no noisy gradients"
    yield ("algorithm=rfl_sgd", "attack=prediction_recovery", "model=mlp"), "solves linear models only"
    yield (
        ("algorithm=rfl_sgd_v", "attack=prediction_recovery", "attack.parameters=received"),
        "receives parameters of tables in several",
    )
    yield ("algorithm=rfl_sgd_v", "attack=prediction_recovery", "attack.rows=0"), "attack.rows=0: must be at least 1"
    yield ("algorithm=rfl_admm_v", "privacy=label_dp", "dataset.task=regression"), "whole ratings from 1 to 5"
    yield (
        ("algorithm=rfl_admm_v", "privacy=gaussian_embedding"),
        "rfl_admm_v can have: none, label_dp, dp_sgd, tablepuppet",
    )


@pytest.mark.parametrize(
    ("keys", "reason"), few_fast(list(refusals()), 2), ids=lambda v: v if isinstance(v, str) else " ".join(v)
)
def test_what_cannot_be_is_refused_before_any_file(keys: tuple[str, ...], reason: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=reason):
        command(tmp_path / "run", *keys)
    assert not (tmp_path / "run" / "manifest.json").exists()
