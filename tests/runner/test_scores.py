"""No run without a finite score at its end is called complete, and what a party reports is what can be reported."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import vflbench
from tests.every import few_fast
from vflbench.federation.runtime.member import Member
from vflbench.types import ConfigError, DataError, FederationError

RUN = [
    "algorithm=glasu",
    "dataset=digits_graph",
    "model.hidden=8",
    "rounds=4",
    "eval_every=2",
    "engine.threads=1",
    "plot=none",
]
Change = Callable[[int, dict[str, Any]], dict[str, Any]]


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vflbench.plots.curves.draw_run", lambda folder, *_: None)


def reporting(change: Change, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let clients report what `change` makes of round and values."""
    report = Member.report
    monkeypatch.setattr(Member, "report", lambda self, **values: report(self, **change(self.round, values)))


def failed(folder: Path, *more: str) -> str:
    with pytest.raises(FederationError) as error:
        vflbench.run([*RUN, *more, f"hydra.run.dir={folder}"])
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["status"] == "failed"
    return f"{summary['reason']} | {error.value}"


def test_a_key_that_nobody_knows_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reporting(
        lambda _, values: {("prediction" if key == "predictions" else key): value for key, value in values.items()},
        monkeypatch,
    )
    text = failed(tmp_path / "run")
    assert "client_0 reports 'prediction' in round 2; what can be reported is train_loss, predictions" in text
    assert "Did you mean 'predictions'?" in text


def test_a_run_that_was_never_scored_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reporting(lambda _, values: {key: value for key, value in values.items() if key != "predictions"}, monkeypatch)
    assert "no round was scored: no party reported predictions" in failed(tmp_path / "run")


def test_a_run_whose_last_round_lacks_the_test_rows_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def validation_only(round: int, values: dict[str, Any]) -> dict[str, Any]:
        return (
            {**values, "predictions": {"val": values["predictions"]["val"]}}
            if round == 4 and "predictions" in values
            else values
        )

    reporting(validation_only, monkeypatch)
    assert "the last round was not scored: no party reported predictions of the rows of test_accuracy" in failed(
        tmp_path / "run"
    )


@pytest.mark.parametrize("more", few_fast([[], ["max_bytes=1e30"]]))
def test_predictions_that_are_not_finite_at_the_end_have_diverged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: list[str]
) -> None:
    def broken(round: int, values: dict[str, Any]) -> dict[str, Any]:
        if round == 4 and "predictions" in values:
            return {
                **values,
                "predictions": {split: torch.full_like(z, torch.nan) for split, z in values["predictions"].items()},
            }
        return values

    reporting(broken, monkeypatch)
    summary = vflbench.run([*RUN, *more, f"hydra.run.dir={tmp_path / 'run'}"]).summary
    assert (summary["status"], summary["reason"]) == ("diverged", "test_accuracy is not finite after round 4")


@pytest.mark.parametrize(
    ("losses", "reason"),
    few_fast(
        [
            ([1, 1, 20, 30, 40, 50, 1, 1], None),  # batches with outliers
            ([1, 20000], "from 1 to 2e+04 by round 2"),
            (
                [1, 1, 5, 5, 10, 10, 20, 20, 40, 40],
                "from 1 to 20 by round 8",
            ),  # means: 1, 5, 10, 20, each above the last
            ([1, 1, 20, 20, 19, 19, 18, 18, 17, 17], None),  # much, but it does not keep growing
        ]
    ),
)
def test_a_loss_that_keeps_growing_has_diverged_and_a_batch_with_outliers_has_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, losses: list[float], reason: str | None
) -> None:
    reporting(lambda round, values: {**values, "train_loss": losses[round - 1]}, monkeypatch)
    words = [*RUN, f"rounds={len(losses)}", "eval_every=2", f"hydra.run.dir={tmp_path / 'run'}"]
    summary = vflbench.run(words).summary
    assert (summary["status"] == "diverged") == (reason is not None)
    assert reason is None or summary["reason"].endswith(reason)


def test_a_metric_that_overflows_has_diverged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(vflbench.runner.evaluate.METRICS, "accuracy", lambda scores, labels: float("inf"))
    summary = vflbench.run([*RUN, f"hydra.run.dir={tmp_path / 'run'}"]).summary
    assert (summary["status"], summary["reason"]) == ("diverged", "test_accuracy is not finite after round 4")


@pytest.mark.parametrize(
    ("words", "message"),
    few_fast(
        [
            (["target=1.5"], "target=1.5: cannot be: accuracy lies between 0 and 1"),
            (["target=-1"], "target=-1.0: cannot be: accuracy lies between 0 and 1"),
            (
                ["algorithm=mtcd", "dataset=ridge", "target=-1"],
                "target=-1.0: cannot be: suboptimality is never below 0",
            ),
        ]
    ),
)
def test_a_target_that_all_or_no_values_reach_is_refused(words: list[str], message: str, tmp_path: Path) -> None:
    base = RUN[:3] if len(words) == 1 else []
    with pytest.raises(ConfigError, match=message):
        vflbench.run([*base, *words, "rounds=2", f"hydra.run.dir={tmp_path / 'run'}"])


@pytest.mark.parametrize(
    ("words", "message"),
    few_fast(
        [
            (
                ["dataset.noise=0", "dataset.alpha=1e-20"],
                "too small for a relative gap; choose a larger dataset.alpha, here 1e-20",
            ),
            (
                ["dataset.alpha=1e25"],
                r"dataset.alpha=1e\+25 is so large that all parameters are 0 at the minimum: there is nothing to learn",
            ),
        ]
    ),
)
def test_a_convex_problem_whose_gap_means_nothing_is_refused(words: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        vflbench.run(["algorithm=mtcd", "dataset=ridge", *words, "rounds=2", f"hydra.run.dir={tmp_path / 'run'}"])


def test_a_delta_that_publishes_rows_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    noisy = ["privacy=gaussian_embedding", "privacy.noise_multiplier=1", "privacy.delta=0.5"]
    vflbench.run([*RUN, *noisy, f"hydra.run.dir={tmp_path / 'run'}"])
    assert "privacy.delta=0.5 is not below 1/n" in caplog.text


@pytest.mark.parametrize(
    ("algorithm", "dataset", "whose"),
    few_fast(
        [
            ("glasu", "digits_graph", "mean worker"),
            pytest.param("centralized_gnn", "digits_graph", "server", marks=pytest.mark.slow),
            ("d_psgd", "digits", "mean worker"),
            pytest.param("fedavg", "digits", "server", marks=pytest.mark.slow),
            pytest.param("svfl", "ridge", "server", marks=pytest.mark.slow),
            ("vfl", "digits", "server"),
        ]
    ),
)
def test_the_summary_says_whose_metric_it_is(algorithm: str, dataset: str, whose: str, tmp_path: Path) -> None:
    run = vflbench.run(
        [f"algorithm={algorithm}", f"dataset={dataset}", "rounds=1", "plot=none", f"hydra.run.dir={tmp_path / 'a'}"]
    )
    assert run.summary["metric_of"] == whose
    assert (run.summary.get("averaged_model") is not None) == (dataset == "digits" and algorithm != "vfl")
