"""The phases that a reader charges: on the page in a real browser, in its address, and in the terminal's tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import vflbench
from vflbench.cli import report as report_verb
from vflbench.cli import show as show_verb
from vflbench.plots import curves, report, report_html
from vflbench.results import pricing, reader, selection
from vflbench.results.pricing import Charged

KNOWN = {"vfl_sgd": False, "svfl": False, "vfl": False}
NETWORKS = {"us_uk": (136.0, 0.42), "us_us": (67.0, 1.15)}
AXES = ("bytes", "communication_seconds", "cost")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """VFL-SGD, which hands labels over before the first round, and VFL, which does not."""
    root = tmp_path_factory.mktemp("phases")
    words = ["dataset=digits", "dataset.problem=learning", "rounds=2", "engine.threads=1", "plot=none"]
    words += ["algorithm.parties=2", "engine.compute_clock=none", "target=0.1", "network=us_us", "network.timing=round"]
    for algorithm in ("vfl_sgd", "vfl"):
        vflbench.run([f"algorithm={algorithm}", *words, f"hydra.run.dir={root / algorithm}"])
    return root


@pytest.fixture
def opened(browser: Any, runs: Path, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    def show(view: str = "", charged: Charged | None = None) -> Any:
        page = tmp_path / "report.html"
        page.write_text(report_html.to_html(report.read([runs], KNOWN, charged), NETWORKS), encoding="utf-8")
        browser.get("about:blank")  # else only the fragment changes, and nothing is read again
        browser.get(page.as_uri() + view)
        return browser

    browser.get_log("browser")
    yield show
    assert browser.get_log("browser") == []


def to_target(page: Any, axis: str) -> dict[str, float]:
    """Method -> what the page says that it takes."""
    script = f"return panel().lines.map((line) => [line.label, toTarget(line, '{axis}').value])"
    return dict(page.execute_script(script))


def expected(runs: Path, axis: str, charged: Charged) -> dict[str, float]:
    found = report.read([runs], KNOWN, charged)
    (panel,) = found.panels
    rows = [(setting, report.row(found, panel, setting)) for setting in panel.settings]
    return {report.style.look(setting.algorithm).label: row[f"{axis}_to_target"] for setting, row in rows}


def enter(page: Any, name: str, text: str) -> None:
    from selenium.webdriver import Keys

    page.find_element("id", name).send_keys(Keys.CONTROL + "a", Keys.NULL, text or Keys.BACKSPACE, Keys.ENTER)


def agrees(page: Any, runs: Path, charged: Charged) -> None:
    for axis in AXES:
        assert to_target(page, axis) == pytest.approx(expected(runs, axis, charged), rel=1e-5), axis


@pytest.mark.slow
def test_each_phase_can_be_left_out(opened: Callable[..., Any], runs: Path) -> None:
    page = opened()
    agrees(page, runs, Charged())
    whole = to_target(page, "bytes")
    # labels of 1,078 rows and the predictions of 539: 2 x 10 and 1 x 32 numbers of 4 bytes each
    page.find_element("id", "with_setup").click()
    assert to_target(page, "bytes") == pytest.approx({"VFL-SGD": whole["VFL-SGD"] - 1078 * 8, "VFL": whole["VFL"]})
    agrees(page, runs, Charged(frozenset({"setup"})))
    page.find_element("id", "with_predict").click()
    agrees(page, runs, Charged(frozenset({"setup", "predict"})))
    alone = {"VFL-SGD": whole["VFL-SGD"] - 1078 * 8 - 539 * 80, "VFL": whole["VFL"] - 539 * 128}
    assert to_target(page, "bytes") == pytest.approx(alone)
    page.find_element("id", "with_align").click()
    agrees(page, runs, Charged(frozenset(pricing.LIFE)))
    assert "Axis and target: training." in page.find_element("id", "rule").text
    # what a run sent itself does not depend on it
    sent = page.execute_script("return panel().lines.map((line) => total(line, 'bytes'))")
    assert sorted(sent) == sorted(run.summary["bytes"]["total"] for run in reader.find(runs))


@pytest.mark.slow
def test_the_ranking_follows_the_number_of_predictions(opened: Callable[..., Any], runs: Path) -> None:
    page = opened("#axis=bytes")
    assert page.execute_script("return state.axis") == "bytes"
    enter(page, "predictions", "0")
    agrees(page, runs, Charged(predictions=0))
    few = page.execute_script("return ranking().filter((row) => row.ranked).map((row) => row.line.label)")
    enter(page, "predictions", "10000000")
    agrees(page, runs, Charged(predictions=10_000_000))
    assert "10,000,000 predictions" in page.find_element("id", "rule").text
    many = page.execute_script("return ranking().filter((row) => row.ranked).map((row) => row.line.label)")
    assert sorted(few) == sorted(many) and many[0] == "VFL-SGD"  # 80 bytes a prediction, not 128
    enter(page, "predictions", "")
    agrees(page, runs, Charged())


@pytest.mark.slow
def test_the_address_keeps_the_choice(opened: Callable[..., Any], runs: Path) -> None:
    page = opened()
    page.find_element("id", "with_align").click()
    enter(page, "predictions", "250")
    view = page.execute_script("return location.hash")
    assert "without=align" in view and "predictions=250" in view
    again = opened(view)
    assert not again.find_element("id", "with_align").is_selected()
    assert again.find_element("id", "with_setup").is_selected()
    assert again.find_element("id", "predictions").get_attribute("value") == "250"
    agrees(again, runs, Charged(frozenset({"align"}), 250))
    # what the command was told is where the page begins
    told = opened("", Charged(frozenset({"setup"}), 7))
    assert not told.find_element("id", "with_setup").is_selected()
    agrees(told, runs, Charged(frozenset({"setup"}), 7))


@pytest.mark.slow
def test_phases_are_priced_on_another_network(opened: Callable[..., Any], runs: Path) -> None:
    """Setup is in the chains of training; the predictions' exchange is a gather at the server: one latency."""
    page = opened("#network=us_uk")
    more = page.execute_script(
        "return panel().lines.map((line) => [line.label, beside(runsOf(line)[0], 'communication_seconds')])"
    )
    # 80,000 and 128,000 bytes for 1,000 rows
    seconds = {"VFL-SGD": 0.136 + 80_000 * 8 / 0.42e9, "VFL": 0.136 + 128_000 * 8 / 0.42e9}
    assert dict(more) == pytest.approx({name: one * 539 / 1000 for name, one in seconds.items()})


def test_flags_of_the_terminal(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page, table = tmp_path / "r.html", tmp_path / "r.md"
    words = [str(runs), "--out", str(page), "--markdown", str(table), "--overwrite"]
    assert report_verb.command([*words, "--predictions", "1000", "--without", "align,setup"]) == 0
    assert "to target: training, 1,000 predictions" in table.read_text().replace("\\", "")
    for flags, said in (
        (["--predictions", "-1"], "not a whole number of at least 0"),
        (["--without", "training"], "not a phase to leave out; choose from align, setup, predict"),
    ):
        with pytest.raises(SystemExit):
            report_verb.command([*words, *flags])
        assert said in capsys.readouterr().err


def test_a_run_is_shown_with_its_phases_and_what_it_assumes(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert show_verb.command([str(runs / "vfl")]) == 0
    shown = capsys.readouterr().out
    assert "predict 1,000 (from 719)" in shown and "128 kB" in shown
    assert "VFL: row i is the same sample at every party" in shown


def test_a_run_of_an_older_version_has_nothing_beside_training(runs: Path) -> None:
    run = reader.load(runs / "vfl")
    assert selection.judged(run) == "val_accuracy"
    run.summary.pop("phases")
    assert all(Charged().more(run, axis) == 0 for axis in AXES)


def test_the_picture_says_which_phases_its_axis_has(runs: Path) -> None:
    run = reader.load(runs / "vfl_sgd")
    for axis, said in (("bytes", True), ("communication_seconds", True), ("round", False)):
        figure = curves._picture(run.curve, run.summary, None, axis)
        (legend,) = figure.legends
        assert ("phases setup and train" in legend.get_title().get_text()) == said, axis
