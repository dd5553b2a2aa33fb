"""What definitions, tables and claims do beyond their simplest use (vflbench/papers)."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pandas as pd
import pytest

from vflbench.papers import claims, definition, measured
from vflbench.papers.claims import Claim
from vflbench.plots import curves, values


class Ended:
    """A run with seed and test metric at epochs 0, 1, ..."""

    def __init__(self, seed: int, scores: list[float]) -> None:
        metric = {"name": "rmse", "goal": "min", "selected": scores[-1], "final": scores[-1]}
        self.summary = {"seed": seed, "metric": metric, "algorithm": "rfl_admm_v", "compute_clock": "none"}
        columns = {"round": range(len(scores)), "epoch": [float(epoch) for epoch in range(len(scores))]}
        self.curve = pd.DataFrame(
            {**columns, "bytes": 1.0, "train_loss": scores, "val_rmse": scores, "test_rmse": scores}
        )


def test_points_of_a_curve_become_columns_of_the_table() -> None:
    points = {"mlp": {"vfl_sgd": {1: 1.09, 10: 1.05}, "rfl_sgd": {1: 1.1}}}
    numbers = definition.Numbers("read off", ["model.name", "algorithm.name"], points, along="epoch")
    first, last = numbers.parts()
    assert (first.column, last.column) == ("at_epoch_1", "at_epoch_10")
    assert [(row["algorithm.name"], row["mean"]) for row in first.rows()] == [("vfl_sgd", 1.09), ("rfl_sgd", 1.1)]
    assert [row["mean"] for row in last.rows()] == [1.05]


def test_the_column_of_an_epoch_is_the_test_metric_there() -> None:
    assert measured.at("at_epoch_8") == ("epoch", 8.0)
    assert measured.at("at_noon_8") is None
    assert measured.columns(["at_epoch_8"])["at_epoch_8"] == "test metric at epoch 8"


def test_a_made_up_data_set_says_nothing_unless_the_claim_is_about_sizes() -> None:
    table: list[dict[str, Any]] = [{"algorithm.name": "a", "seconds_per_epoch": 2.0, "data_source": "synthetic"}]
    claim = Claim("it takes 2 s", "value", column="seconds_per_epoch", at_least=1.9, at_most=2.1)
    assert claims.judge(claim, table, []).verdict == "not testable"
    assert claims.judge(dataclasses.replace(claim, made_up=True), table, []).verdict == "holds"
    assert claims.judge(dataclasses.replace(claim, made_up=True, at_most=1.95), table, []).verdict == "does not hold"


def test_near_counts_shares_of_the_number_and_only_numbers_of_its_settings() -> None:
    table: list[dict[str, Any]] = [
        {"k": "a", "final": 50.4, "data_source": "real"},
        {"k": "b", "final": 9.0, "data_source": "real"},
    ]
    numbers = [{"k": "a", "mean": 50.0, "sd": None}, {"k": "b", "mean": 1.0, "sd": None}]
    claim = Claim("near", "near", column="final", where={"k": "a"}, at_most=0.01, relative=True)
    assert claims.judge(claim, table, numbers).verdict == "holds"
    assert claims.judge(dataclasses.replace(claim, at_most=0.007), table, numbers).verdict == "does not hold"
    assert claims.judge(dataclasses.replace(claim, where={}), table, numbers).verdict == "does not hold"


@pytest.mark.parametrize(("accuracy", "verdict"), [(0.75, "does not hold"), (0.65, "holds")])
def test_best_is_the_smallest_of_all(accuracy: float, verdict: str) -> None:
    table: list[dict[str, Any]] = [
        {"k": name, "selected": value, "data_source": "real"}
        for name, value in (("worst", accuracy), ("x", 0.7), ("y", 0.9))
    ]
    assert claims.judge(Claim("the worst", "best", of=[{"k": "worst"}]), table, []).verdict == verdict


def test_paired_bands_leave_out_what_a_seed_does_to_every_line() -> None:
    hard, easy = 0.1, -0.1  # what splits do to all methods
    lines: Any = {
        name: [Ended(0, [2.0, base + hard]), Ended(1, [2.0, base + easy])] for name, base in (("a", 1.0), ("b", 1.5))
    }
    levels = curves._levels(lines)
    assert levels == pytest.approx({0: hard, 1: easy})
    assert curves._levels({**lines, "c": lines["a"][:1]}) == {}, "lines of other seeds cannot be paired"


def test_names_of_settings() -> None:
    names = {"accounting": {"strict": "as sent"}, "algorithm.name": {"glasu": ""}}
    row = {"accounting": "strict", "algorithm.local_steps": "-", "algorithm.name": "glasu", "rounds": 3}
    assert values.line_label(row, list(row), names) == "as sent · rounds 3"
    assert values.line_label(row, ["accounting", "algorithm.name"]) == "accounting strict · GLASU"


def test_a_target_by_data_set() -> None:
    run: Any = Ended(0, [0.5, 0.4])
    run.manifest = {"config": {"target": None, "dataset": {"name": "cora"}}}
    assert measured.target(run, {"rmse": {"cora": 0.45, "pubmed": 0.1}}) == 0.45
    assert measured.target(run, {"rmse": {"pubmed": 0.1}}) is None
    assert math.isclose(measured.target(run, {"rmse": 0.3}) or 0, 0.3)


def test_excess_is_over_the_run_of_the_same_seed() -> None:
    def run(privacy: str, seed: int, score: float) -> Any:
        ended: Any = Ended(seed, [2.0, score])
        ended.status = "completed"
        ended.manifest = {"config": {"target": None, "privacy": {"name": privacy}}}
        counts = dict.fromkeys(
            ("messages", "vectors", "cost", "communication_seconds", "wall_seconds", "virtual_seconds", "epochs"), 1
        )
        ended.summary |= {
            **counts,
            "idle_seconds": None,
            "bytes": {"total": 1},
            "privacy": {"epsilon": None},
            "data_source": "real",
        }
        ended.curve["iterations"] = 1
        return ended

    runs = [
        run("none", 0, 1.0),
        run("none", 1, 2.0),
        run("dp_sgd", 1, 2.3),
        run("dp_sgd", 0, 1.1),
        run("label_dp", 5, 1.0),
    ]
    rows = {
        row["privacy.name"]: row for row in measured.table(runs, ["privacy.name"], {}, (), {"privacy.name": "none"})
    }
    assert rows["none"]["excess"] == 0
    assert rows["dp_sgd"]["excess"] == pytest.approx(0.2)
    assert rows["dp_sgd"]["excess_sd"] == pytest.approx(0.2 / math.sqrt(2))
    assert math.isnan(rows["label_dp"]["excess"]), "there is no run of its seed to compare with"
