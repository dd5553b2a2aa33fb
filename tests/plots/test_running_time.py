"""A report shows no predicted running time that real processes did not confirm."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from tests.contracts.test_algorithms import run
from vflbench.plots import report, report_html, running_time
from vflbench.results.reader import Run, load

NETWORKS = {"lan": (1.0, 1.0)}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    for algorithm, folder, compute in (
        ("avfl", "avfl", "reference"), ("vfl", "vfl", "reference"), ("vfl", "table8", "paper_table8"),
    ):  # fmt: skip
        words = ["rounds=2", "eval_every=1", "checkpoint_every=null", "network=lan", f"compute={compute}"]
        run(root / folder, algorithm, "aligned", *words)
    return root


def page(root: Path, monkeypatch: pytest.MonkeyPatch, **ratios: float) -> tuple[dict[str, object], str]:
    monkeypatch.setattr(running_time, "ratios", lambda: ratios)
    found = report.read([root], {"avfl": True, "vfl": False})
    (panel,) = found.panels
    return report_html._data(found, panel, 200), report.caveat(panel)


@pytest.mark.slow
def test_a_prediction_that_is_far_off_has_no_running_time(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, caveat = page(runs, monkeypatch, vfl=1.2, avfl=1.3)
    assert "virtual_seconds" in data["axes"] and "No running time of AVFL" in caveat
    unproven = {line["label"]: line["unproven"] for line in data["lines"]}  # type: ignore[attr-defined]
    assert unproven == {"AVFL": True, "VFL": False}
    data, caveat = page(runs, monkeypatch, vfl=0.7, avfl=3.0)
    assert "virtual_seconds" not in data["axes"] and "AVFL, VFL" in caveat
    data, caveat = page(runs, monkeypatch, vfl=0.8, avfl=1.25)
    assert "virtual_seconds" in data["axes"] and "No running time" not in caveat


@pytest.mark.slow
def test_models_of_computing_are_never_on_one_axis_of_running_time(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, _ = page(runs, monkeypatch)
    clocks = [line["clock"] for line in data["lines"]]  # type: ignore[attr-defined]
    assert sorted(clocks) == ["modelled (paper_table8)", "modelled (reference)", "modelled (reference)"]


def test_what_was_measured_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running_time, "ratios", lambda: {"vfl": 9.0})
    assert not running_time.proven("vfl", "modelled") and running_time.proven("vfl", "measured")
    assert running_time.proven("glasu", "modelled")  # of no architecture that was compared


def test_the_rule_reads_what_the_script_found() -> None:
    findings = Path("docs/results/validation/cores.csv").read_text(encoding="utf-8").splitlines()
    rows = list(csv.DictReader(findings))
    found = json.loads(running_time.FILE.read_text(encoding="utf-8"))
    assert {row["architecture"]: float(row["ratio"]) for row in rows} == found["ratios"] == running_time.ratios()
    assert {row["machine"] for row in rows} == {found["machine"]}
    assert set(found["ratios"]) == {"vfl", "vfl_ps", "avfl", "avfl_ps", "pubsub_vfl"}


@pytest.mark.slow
def test_a_run_alone_shows_none_in_the_terminal(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from vflbench.plots import report_terminal

    alone: Run = load(runs / "avfl")
    seconds = f"{alone.curve['virtual_seconds'].iloc[-1]:.4g} s"
    for ratio, there in ((1.0, True), (2.0, False)):
        monkeypatch.setattr(running_time, "ratios", lambda ratio=ratio: {"avfl": ratio})
        report_terminal.show(report.read([alone.folder], {"avfl": True}))
        assert (seconds in capsys.readouterr().out) is there
