"""A delta that guarantees nothing is told, and no epsilon is below 0."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

import vflbench
from tests.every import few_fast
from tests.options import check_keys, privacy_config
from vflbench.privacy import accountant, examples, keys, mechanisms
from vflbench.results import texts


@pytest.mark.parametrize("name", few_fast(["rdp", "prv", "gdp", "exact"]))
@pytest.mark.parametrize("delta", [0.4, 0.5])
@pytest.mark.parametrize("noise", [1.0, 50.0])
def test_no_accountant_goes_below_zero(name: str, delta: float, noise: float) -> None:
    assert accountant.spent_epsilon([(noise, 0.1, 20)], delta, name) >= 0
    assert accountant.spent_epsilon([(noise, 0.1, 20)], 1e-5, name) >= accountant.spent_epsilon(
        [(noise, 0.1, 20)], delta, name
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rdp", "gdp"])
def test_noise_is_found_at_any_delta(name: str) -> None:
    for delta in (0.4, 0.5):
        noise = accountant.calibrate_steps(0.1, delta, 0.1, 20, name)
        assert 0 <= accountant.spent_epsilon([(noise, 0.1, 20)], delta, name) <= 0.1


def test_no_delta_is_above_a_half() -> None:
    assert [p.key for p in check_keys(privacy_config("dp_sgd", delta=0.51))] == ["privacy.delta"]
    assert not check_keys(privacy_config("dp_sgd", delta=0.5))


def test_what_counts_as_large() -> None:
    for name in ("dp_sgd", "gaussian_embedding", "gdp_embedding", "tablepuppet", "gaussian_gradient"):
        large = privacy_config(name, delta=0.01)
        assert "privacy.delta=0.01 is not below 1/n = 0.01 of a party with 100 rows" in keys.large_delta(large, 100)
        assert keys.large_delta(large, 99) == "" == keys.large_delta(privacy_config(name, delta=None), 100)
        assert keys.large_delta(keys.settled(privacy_config(name, delta=None), 100), 100) == ""  # the default
    assert keys.large_delta(privacy_config("edge_rr", delta=0.5, row_epsilon=1.0), 100)
    for name in ("edge_rr", "label_rr", "rr_bins", "label_dp"):  # pure: their epsilon needs no delta
        assert keys.large_delta(privacy_config(name, delta=0.5), 100) == ""
    assert keys.large_delta(privacy_config("none"), 100) == ""


def test_it_is_said_once_a_run(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        examples.plan(privacy_config("dp_sgd", delta=0.5, noise_multiplier=1.0), [100], 10, lambda: [5], pooled=True)
        assert not caplog.records  # the runner says it
        examples.plan(privacy_config("dp_sgd", delta=0.5, noise_multiplier=1.0), [100], 10, lambda: [5])
        assert len(caplog.records) == 1


def test_a_zero_is_explained() -> None:
    spent = {"epsilon": 0.0, "delta": 0.4, "releases": {"done": 3}}
    assert "delta=0.4 by itself allows all" in mechanisms.zero_in_words(spent)
    for other in ({"epsilon": 0.1}, {"delta": 0.0}, {"releases": {"done": 0}}):
        assert mechanisms.zero_in_words(spent | other) == ""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "noise"),
    [
        ("vfl_sgd", ["privacy=dp_sgd", "privacy.noise_multiplier=50"]),
        ("vfl", ["privacy=gdp_embedding", "privacy.noise_multiplier=50"]),
        ("centralized_sgd", ["privacy=dp_sgd", "privacy.noise_multiplier=50", "privacy.accountant=prv"]),
    ],
)
def test_such_a_run_can_be_read_and_says_so(
    algorithm: str, noise: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    data = (
        ["dataset=breast_cancer", "dataset.problem=learning"] if algorithm != "centralized_sgd" else ["dataset=digits"]
    )
    run = vflbench.run([f"algorithm={algorithm}", *data, "epochs=1", "floor=none", *noise, "privacy.delta=0.4"])
    private = vflbench.load(run.folder).summary["privacy"]  # type: ignore[union-attr]
    assert private["epsilon"] == 0 and len(private["notes"]) == 2
    assert json.loads((run.folder / "summary.json").read_text())["privacy"]["notes"] == private["notes"]
    assert (run.curve["epsilon"] >= 0).all()


@pytest.mark.slow
def test_a_mechanism_whose_result_no_reader_accepts_ends_the_run_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    whole = mechanisms.together
    monkeypatch.setattr(mechanisms, "together", lambda spent: (whole(spent) or {}) | {"epsilon": -1.0})
    words = ["algorithm=vfl_sgd", "dataset=breast_cancer", "dataset.problem=learning", "epochs=1", "floor=none"]
    words += ["privacy=dp_sgd", "hydra.run.dir=run"]
    with pytest.raises(vflbench.VflbenchError, match=r"summary.json is not written.*privacy.epsilon: -1.0 is below 0"):
        vflbench.run(words)
    assert vflbench.load("run").status is None  # type: ignore[union-attr]  # it can be read: it has not ended


def test_a_hollow_epsilon_is_no_guarantee() -> None:
    private = {"epsilon": 0.0, "delta": 0.4, "unit": "row", "neighbouring": "replace_one", "covers": "model"}
    assert texts.guarantee(private) == "row, replaced; covers the model"
    assert texts.guarantee({**private, "delta_too_large": True}) is None
