"""What a sweep's job returns to its sweeper, on curves worked by hand."""

import json
import math

import pytest

from vflbench.results import objective, reader


def test_costs_are_those_of_the_first_evaluation_at_the_target(make_run):
    """Validation is 0.1, 0.2, 0.3 at rounds 10, 20, 30, of 1,000 bytes and half a second each."""
    run = make_run("run", target=0.15)
    assert objective.value(run, "bytes_to_target") == 20_000.0
    assert objective.value(run, "seconds_to_target") == 10.0
    assert objective.value(run, "metric") == 0.3


def test_what_is_not_reached_costs_infinity(make_run):
    never, none = make_run("never", target=0.31), make_run("none")
    for run in (never, none):
        assert objective.value(run, "bytes_to_target") == objective.value(run, "seconds_to_target") == math.inf


def test_test_rows_judge_a_target_only_without_validation_rows(make_run):
    """Test values are 10/90, 20/90, 30/90; at validation rows 0.25 is reached at round 30, too, where there are any."""
    assert objective.value(make_run("a", target=0.21, validation=False), "bytes_to_target") == 20_000.0
    assert objective.value(make_run("b", target=0.21), "bytes_to_target") == 30_000.0
    assert math.isnan(objective.value(make_run("c", validation=False), "metric"))


@pytest.mark.parametrize("status", ["failed", "diverged", "skipped", "interrupted"])
def test_a_job_that_did_not_end_well_has_no_value(make_run, status):
    run = make_run("run", status=status, target=0.15)
    for one in (run, None):
        assert objective.value(one, "bytes_to_target") == math.inf
        assert math.isnan(objective.value(one, "metric"))


def test_what_comes_before_and_after_training_counts_as_in_the_report(make_run):
    """2,000 predictions are asked for: 7,000 bytes and 3 s for each 1,000. Alignment is 500 bytes and 1 s."""
    run = make_run("run", target=0.15)
    summary = json.loads((run.folder / "summary.json").read_text())
    one = {"messages": 1, "cost": 0.0}
    phases = {
        "align": {"bytes": 500, "seconds": 1.0, **one},
        "setup": {"bytes": 0, "seconds": 0.0, **one},
        "train": {"bytes": 30_000, "seconds": 15.0, **one},
        "predict": {"bytes": 7_000, "seconds": 3.0, "rows": 10, **one},
    }
    (run.folder / "summary.json").write_text(json.dumps({**summary, "phases": phases, "predictions": 2_000}))
    again = reader.load(run.folder)
    assert objective.value(again, "bytes_to_target") == 20_000 + 500 + 2 * 7_000
    assert objective.value(again, "seconds_to_target") == 10 + 1 + 2 * 3


def test_a_damaged_run_has_no_value(make_run):
    run = make_run("run", target=0.15)
    (run.folder / "curve.csv").write_text("nonsense\n1\n")
    assert objective.value(reader.load(run.folder), "bytes_to_target") == math.inf
