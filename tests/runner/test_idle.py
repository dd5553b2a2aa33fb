"""Communication time is the end of the same run without computing. A run that cannot be replayed has idle time
instead."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.contracts.test_algorithms import CASES, represented, run
from tests.every import few_fast
from vflbench import registry
from vflbench.federation.accounting import Payload
from vflbench.federation.ledger import COMPUTE, TRACE_COLUMN
from vflbench.papers import measured
from vflbench.plots import curves, report
from vflbench.results import reader, run_schema, sweep_table, texts
from vflbench.runner.costs import Costs, PartyInfo
from vflbench.types import NetworkConfig, VflbenchError

SHORT = ["rounds=2", "eval_every=1", "checkpoint_every=null"]
DEPENDS = [(name, layout) for name, layout in CASES if registry.algorithms()[name].time_dependent]


@pytest.mark.slow
@pytest.mark.parametrize(("algorithm", "layout"), represented(DEPENDS))
def test_what_depends_on_time_has_idle_time(algorithm: str, layout: str, tmp_path: Path) -> None:
    done = run(tmp_path / "run", algorithm, layout, *SHORT)
    summary, curve = done.summary, done.curve
    assert run_schema.validate_summary(summary) == []
    assert summary["communication_seconds"] is None and curve["communication_seconds"].isna().all()
    assert 0 <= summary["idle_seconds"] < summary["virtual_seconds"]
    assert summary["compute_seconds"] == pytest.approx(summary["virtual_seconds"] - summary["idle_seconds"])
    assert (curve["idle_seconds"].diff().dropna() >= 0).all() and curve["idle_seconds"].notna().all()
    assert f"{summary['virtual_seconds']:.4g} s running time" in texts.result_line(summary)


@pytest.fixture(scope="module")
def asynchronous(tmp_path_factory: pytest.TempPathFactory) -> reader.Run:
    return run(tmp_path_factory.mktemp("avfl") / "run", "avfl", "aligned", *SHORT, "network=lan")


def test_idle_time_worked_by_hand() -> None:
    """Two parties compute from 1 to 3 and from 2 to 4 s, one again from 6 to 7: idle in 0-1, 4-6 and 7-8."""

    def computing(*spans: tuple[float, float]) -> np.ndarray:
        rows = np.zeros((len(spans), len(TRACE_COLUMN)))
        rows[:, TRACE_COLUMN["kind"]] = COMPUTE
        rows[:, TRACE_COLUMN["time"]] = [end for _, end in spans]
        rows[:, TRACE_COLUMN["value"]] = [end - start for start, end in spans]
        return rows

    traces = {"a": computing((1, 3), (6, 7)), "b": computing((2, 4))}
    parties = dict.fromkeys(traces, PartyInfo("client"))
    costs = Costs(np.empty((0, 10)), traces, parties, NetworkConfig("lan"), "strict", Payload([], 0, 0), True)
    early, late = costs.times([1, 2], [3.5, 8.0])
    assert early == {"virtual_seconds": 3.5, "communication_seconds": None, "idle_seconds": 1, "compute_seconds": 2.5}
    assert late == {"virtual_seconds": 8, "communication_seconds": None, "idle_seconds": 4, "compute_seconds": 4}


@pytest.mark.slow
def test_its_picture_is_against_running_time_and_says_so(asynchronous: reader.Run) -> None:
    for clock in ("none", "modelled", "measured"):
        summary = asynchronous.summary | {"compute_clock": clock}
        figure = curves._picture(asynchronous.curve, summary, "lan", "communication_seconds")
        assert figure.axes[0].get_xlabel() == "running time (virtual s)"
        (line,) = [line for line in figure.axes[0].lines if line.get_label() == "test"]
        assert line.get_xdata().tolist() == asynchronous.curve["virtual_seconds"].tolist()  # type: ignore[union-attr]


def test_its_row_has_no_communication_time(asynchronous: reader.Run) -> None:
    (row,) = report.table(report.read([asynchronous.folder], {"avfl": True}))
    assert row["communication_seconds"] is None and row["communication_seconds_to_target"] is None
    assert row["bytes"] > 0
    assert sweep_table.results(asynchronous)[-1] == "-"
    metric = asynchronous.summary["metric"]
    for target in (-1e9, 1e9):  # one is reached at once, the other never
        found = measured.numbers(asynchronous, {metric["name"]: target})
        names = ("communication_seconds", "seconds_per_epoch", "seconds_to_target")
        assert all(math.isnan(found[name]) for name in names)
        assert found["idle_seconds"] == asynchronous.summary["idle_seconds"]
        assert math.isfinite(found["megabytes_to_target"]) == ((target < 0) == (metric["goal"] == "max"))


def older(done: reader.Run, root: Path) -> reader.Run:
    """`done` as it was written before there was `idle_seconds`."""
    shutil.copytree(done.folder, root)
    (root / "files.jsonl").unlink()
    summary = json.loads((root / "summary.json").read_text())
    idle = summary.pop("idle_seconds")
    summary["communication_seconds"] = summary["communication_seconds"] if idle is None else idle
    (root / "summary.json").write_text(json.dumps(summary))
    curve = pd.read_csv(root / "curve.csv", dtype=str)
    idle_column = curve.pop("idle_seconds")
    curve["communication_seconds"] = curve["communication_seconds"].fillna(idle_column)
    curve.to_csv(root / "curve.csv", index=False, lineterminator="\n")
    return reader.load(root)


@pytest.mark.parametrize("algorithm", few_fast(["avfl", "vfl"]))
def test_an_old_folder_reads_as_a_new_one(algorithm: str, asynchronous: reader.Run, tmp_path: Path) -> None:
    new = asynchronous if algorithm == "avfl" else run(tmp_path / "vfl", "vfl", "aligned", *SHORT, "network=lan")
    old = older(new, tmp_path / "old")
    assert "idle" not in (old.folder / "curve.csv").read_text() + (old.folder / "summary.json").read_text()
    assert old.summary == new.summary and list(old.summary) != []
    pd.testing.assert_frame_equal(old.curve, new.curve, check_exact=True)
    old.check_curve()
    (old.folder / "curve.csv").write_text("round,test_accuracy\n1,0.5\n")
    with pytest.raises(VflbenchError, match="not the columns of a curve"):
        _ = reader.load(old.folder).curve


def test_a_summary_has_one_of_the_two(asynchronous: reader.Run) -> None:
    for both in ({"communication_seconds": 1.0}, {"idle_seconds": None}):
        assert run_schema.validate_summary(asynchronous.summary | both) == [
            "communication_seconds, idle_seconds: exactly one must be null"
        ]
