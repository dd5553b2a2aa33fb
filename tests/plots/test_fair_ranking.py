"""The report ranks only what is alike, and says how sure it is, in a real browser."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from vflbench.plots import report, report_html

NETWORKS = {"us_uk": (136.0, 0.42), "us_us": (67.0, 1.15)}
#: SVFL plays the method whose course depends on time
KNOWN = {"svfl": True, "stcd": False, "mtcd": False}


@pytest.fixture
def opened(browser: Any, convex_runs: Path, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Opens the page of the convex runs, each changed by `change(algorithm, manifest, summary)` before."""

    def show(
        change: Callable[[str, dict[str, Any], dict[str, Any]], None] | None = None, view: str = "", zero: str = ""
    ) -> Any:
        root = tmp_path / "runs"
        shutil.rmtree(root, ignore_errors=True)
        for source in sorted(convex_runs.iterdir()):
            folder = root / source.name
            folder.mkdir(parents=True)
            for name in ("curve.csv", "ledger.parquet", "trace.parquet"):
                shutil.copy(source / name, folder / name)
            shutil.copytree(source / ".hydra", folder / ".hydra")
            manifest, summary = (json.loads((source / f"{name}.json").read_text()) for name in ("manifest", "summary"))
            if change:
                change(summary["algorithm"], manifest, summary)
            for name, values in (("manifest", manifest), ("summary", summary)):
                (folder / f"{name}.json").write_text(json.dumps(values))
            if summary["algorithm"] == zero:  # a run's own last values are 0 or 1e-16, as the processor rounds
                curve = pd.read_csv(folder / "curve.csv").assign(train_suboptimality=0.0)
                curve.to_csv(folder / "curve.csv", index=False, lineterminator="\n")
            if KNOWN[summary["algorithm"]]:
                without_communication_time(folder)
        page = tmp_path / "report.html"
        page.write_text(report_html.to_html(report.read([root], KNOWN), NETWORKS), encoding="utf-8")
        browser.get("about:blank")  # else only the fragment changes, and nothing is read again
        browser.get(page.as_uri() + view)
        return browser

    for kind in ("performance", "browser"):  # of the page before
        browser.get_log(kind)
    yield show
    assert browser.get_log("browser") == []


def without_communication_time(folder: Path) -> None:
    """Makes of a run one that could not be replayed."""
    curve, summary = pd.read_csv(folder / "curve.csv"), json.loads((folder / "summary.json").read_text())
    curve["idle_seconds"], curve["communication_seconds"] = curve["communication_seconds"], np.nan
    curve.to_csv(folder / "curve.csv", index=False, lineterminator="\n")
    summary["idle_seconds"], summary["communication_seconds"] = summary["communication_seconds"], None
    (folder / "summary.json").write_text(json.dumps(summary))


def choose(browser: Any, select: str, value: str) -> None:
    from selenium.webdriver.support.ui import Select

    Select(browser.find_element("id", select)).select_by_value(value)


def ranks(browser: Any) -> dict[str, str]:
    rows = browser.find_elements("css selector", "#ranking tbody tr")
    return {row.get_attribute("data-line"): row.find_elements("css selector", "td")[0].text for row in rows}


def answer(browser: Any) -> str:
    return str(browser.find_element("id", "answer").text)


def legend(browser: Any) -> list[str]:
    return [item.text for item in browser.find_elements("css selector", ".legend li")]


def enter(browser: Any, name: str, text: str) -> None:
    from selenium.webdriver import Keys

    browser.find_element("id", name).send_keys(Keys.CONTROL + "a", Keys.NULL, text or Keys.BACKSPACE, Keys.ENTER)


@pytest.mark.slow
def test_what_cannot_be_priced_anew_leaves_ranking_headline_and_picture(opened: Callable[..., Any]) -> None:
    page = opened(zero="stcd")
    assert ranks(page)["SVFL"] == "" and "no communication time" in page.find_element("id", "not_ranked").text
    choose(page, "axis", "bytes")
    assert set(ranks(page)) == {"SVFL", "STCD", "MTCD"} and all(ranks(page).values())
    assert set(legend(page)) == {"SVFL", "MTCD"}  # a logarithm cannot show STCD's zeros
    choose(page, "network", "us_us")
    assert ranks(page)["SVFL"] == "" and list(ranks(page))[-1] == "SVFL" and legend(page) == ["MTCD"]
    assert "SVFL" not in answer(page)
    note = page.find_element("id", "not_ranked").text
    assert "SVFL is not ranked: what it does depends on time" in note
    assert "vflbench -m algorithm=svfl" in note and note.endswith("seed=0,1 network=us_us")
    for axis in ("bytes", "round"):  # on another network it would have been another run: its bytes too
        choose(page, "axis", axis)
        assert ranks(page)["SVFL"] == ""
    choose(page, "network", "as_run")
    choose(page, "axis", "bytes")
    assert all(ranks(page).values()) and not page.find_element("id", "not_ranked").is_displayed()


@pytest.mark.slow
def test_a_run_that_was_made_on_the_chosen_network_is_ranked_there(opened: Callable[..., Any]) -> None:
    import yaml

    from vflbench import registry

    us_us = yaml.safe_load((registry.config_dir() / "network/us_us.yaml").read_text())

    def moved(algorithm: str, manifest: dict[str, Any], summary: dict[str, Any]) -> None:
        if algorithm == "svfl":
            manifest["config"]["network"] = us_us

    page = opened(moved)
    choose(page, "network", "us_us")
    (name,) = [line for line in ranks(page) if line.startswith("SVFL")]
    assert "network=us_us" in name and ranks(page)[name] == ""  # it has no communication time
    choose(page, "axis", "bytes")
    assert ranks(page)[name] != ""
    choose(page, "network", "us_uk")
    choose(page, "axis", "bytes")
    assert ranks(page)[name] == ""


@pytest.mark.slow
def test_clocks_are_never_on_one_axis_of_running_time(opened: Callable[..., Any]) -> None:
    def timed(algorithm: str, manifest: dict[str, Any], summary: dict[str, Any]) -> None:
        if algorithm != "mtcd":
            summary["compute_clock"], summary["compute_seconds"] = "modelled", 21.0

    page = opened(timed, zero="stcd")
    assert not page.find_element("id", "clock").is_displayed()
    choose(page, "axis", "virtual_seconds")
    assert legend(page) == ["SVFL"] and ranks(page)["MTCD"] == "" and "MTCD" not in answer(page)
    assert "MTCD is not ranked: its compute clock is none, not modelled" in page.find_element("id", "not_ranked").text
    choose(page, "clock", "none")
    assert legend(page) == ["MTCD"] and "Only runs with compute clock none" in page.find_element("id", "rule").text
    choose(page, "axis", "bytes")
    assert all(ranks(page).values())


@pytest.mark.slow
def test_accountings_are_never_on_one_axis_of_costs(opened: Callable[..., Any]) -> None:
    def charged(algorithm: str, manifest: dict[str, Any], summary: dict[str, Any]) -> None:
        if algorithm == "mtcd":
            summary["accounting"] = manifest["config"]["accounting"] = "everything"

    page = opened(charged)
    for axis in ("bytes", "communication_seconds", "cost"):
        choose(page, "axis", axis)
        (name,) = [line for line in ranks(page) if line.startswith("MTCD")]
        assert ranks(page)[name] == "" and "MTCD" not in answer(page)
        assert "it is charged by accounting=everything, not strict" in page.find_element("id", "not_ranked").text
    choose(page, "axis", "round")
    assert all(ranks(page).values())


@pytest.mark.slow
def test_who_sends_only_predictions_is_ranked_where_they_are_charged(opened: Callable[..., Any]) -> None:
    def served(algorithm: str, manifest: dict[str, Any], summary: dict[str, Any]) -> None:
        if algorithm == "mtcd":
            nothing = dict.fromkeys(("bytes", "messages", "cost", "seconds"), 0)
            phases = dict.fromkeys(("align", "setup", "train"), nothing)
            summary["phases"] = phases | {"predict": {**nothing, "bytes": 1000, "rows": 100}}
            summary["predictions"] = 10

    page = opened(served, "#axis=bytes")
    page.execute_script("for (const run of runsOf(panel().lines.find((line) => line.label === 'MTCD'))) run.bytes = 0")
    page.execute_script("draw()")
    assert ranks(page)["MTCD"] != ""
    page.find_element("id", "with_predict").click()
    assert ranks(page)["MTCD"] == ""


@pytest.mark.slow
def test_the_headline_keeps_to_the_readers_limits(opened: Callable[..., Any]) -> None:
    page = opened()
    choose(page, "axis", "bytes")
    sent = dict(page.execute_script("return ranking().map((row) => [title(row.line), row.goal.value])"))
    order = sorted(sent, key=lambda name: sent[name])
    assert order[0] in answer(page)
    between = (sent[order[1]] + sent[order[2]]) / 2
    enter(page, "most_bytes", f"{between / 1e6:.9f}")
    assert ranks(page)[order[2]] == "" and f"Beyond your limits: {order[2]} (more than" in answer(page)
    enter(page, "most_epsilon", "1")
    assert "is within your limits" in answer(page) and answer(page).count("no privacy") == 3
    enter(page, "most_epsilon", "")
    enter(page, "most_bytes", "")
    assert all(ranks(page).values())


@pytest.mark.slow
def test_typed_networks_and_the_view_in_the_address(opened: Callable[..., Any]) -> None:
    page = opened()
    enter(page, "latency_typed", "50")
    enter(page, "bandwidth_typed", "0.1")
    enter(page, "most_seconds", "1000")
    assert "every link 50 ms, 0.1 Gbit/s" in page.find_element("id", "rule").text
    assert page.execute_script("return [state.latency, state.bandwidth]") == [50, 0.1]
    assert "network.client_server.latency_ms=50" in page.find_element("id", "not_ranked").text
    choose(page, "axis", "cost")
    view = page.execute_script("return location.hash")
    before = ranks(page)
    again = opened(view=view)
    assert ranks(again) == before and again.find_element("id", "axis").get_attribute("value") == "cost"
    assert again.execute_script("return [state.latency, state.bandwidth, state.limits.seconds]") == [50, 0.1, 1000]
    assert again.find_element("id", "most_seconds").get_attribute("value") == "1000"
    for nonsense in (
        "#panel=7&axis=no&split=&network=a,b&target=x&clock=z&ratio=-1", "#%%%", "#network=constructor",
        "#network=1e999,5&epsilon=-5", "#network=__proto__", "#network=100,abc",
    ):  # fmt: skip
        assert set(ranks(opened(view=nonsense))) == set(before)


@pytest.mark.slow
def test_the_interval_of_paired_differences_is_students(opened: Callable[..., Any]) -> None:
    page, rng = opened(), np.random.default_rng(0)
    for seeds in (2, 3, 5, 31):
        a, b = np.exp(rng.normal(size=(2, seeds)))
        found = page.execute_script(
            "return compare(...arguments)", *({str(k): float(x) for k, x in enumerate(values)} for values in (a, b))
        )
        difference = np.log(b) - np.log(a)
        low, high = stats.t.interval(0.95, seeds - 1, difference.mean(), stats.sem(difference))
        assert found["low"] == pytest.approx(math.exp(low), rel=1e-3)
        assert found["high"] == pytest.approx(math.exp(high), rel=1e-3)
        assert found["tie"] == (low <= 0 <= high) and found["seeds"] == seeds
    assert page.execute_script("return compare({0: 1, 1: 2}, {1: 3, 2: 4})") is None  # one common seed
    zeros = page.execute_script("return compare({0: 0, 1: 0}, {0: 0, 1: 0})")
    assert zeros["tie"] and not zeros["ratio"]
    sure = page.execute_script("return compare({0: 1, 1: 1}, {0: 2, 1: 2})")
    assert not sure["tie"] and sure["low"] == pytest.approx(2)


@pytest.mark.slow
def test_a_tie_and_one_seed_are_said(opened: Callable[..., Any]) -> None:
    page = opened()
    page.execute_script(
        "for (const run of panel().runs) run.axes.bytes = run.axes.bytes.map(() => 100 + (run.line + 1) * run.seed);"
        "state.axis = 'bytes'; draw();"
    )
    assert "A tie with" in answer(page) and "2 common seeds" in answer(page)
    assert [rank[-1] for rank in ranks(page).values()] == ["1", "≈", "≈"]

    def alone(algorithm: str, manifest: dict[str, Any], summary: dict[str, Any]) -> None:
        summary["status"] = "failed" if summary["seed"] else summary["status"]

    page = opened(alone)
    choose(page, "axis", "bytes")
    assert "Fewer than two common seeds: no statement" in answer(page)
    assert [rank[-1] for rank in ranks(page).values()] == ["1", "?", "?"]

    def lost(algorithm: str, manifest: dict[str, Any], summary: dict[str, Any]) -> None:
        summary["status"] = "diverged" if summary["seed"] and algorithm == "mtcd" else summary["status"]

    page = opened(lost)  # the seed that it lost did not reach the target
    choose(page, "axis", "bytes")
    assert "MTCD" not in answer(page) and list(ranks(page))[-1] == "MTCD"


@pytest.mark.slow
def test_ranks_and_intervals_are_of_one_statistic(opened: Callable[..., Any]) -> None:
    """The arithmetic means are the other way round: the interval would contradict the ranks."""
    page = opened()
    page.execute_script(
        "const runs = panel().lines[0].runs.map((at) => panel().runs[at]);"
        "panel().runs.forEach((run) => { run.axes.bytes = run.axes.bytes.map(() => 1000); });"
        "runs[0].axes.bytes = runs[0].axes.bytes.map(() => 1); runs[1].axes.bytes = runs[1].axes.bytes.map(() => 5000);"
        "state.axis = 'bytes'; draw();"
    )
    assert page.execute_script("return ranking()[0].line.label") == page.execute_script("return panel().lines[0].label")


@pytest.mark.slow
def test_a_metric_that_never_changes_is_drawn(opened: Callable[..., Any]) -> None:
    page = opened()
    page.execute_script(
        "panel().log = false; for (const run of panel().runs)"
        " run.scores.train = run.scores.train.map((_, i) => 0.7 + (i % 2) * 1.2e-16); draw();"
    )
    assert page.find_elements("css selector", "#chart svg path")
    assert page.execute_script("return ticks(0.7, 0.7000000000000001, false, 6).length") <= 100


@pytest.mark.slow
def test_all_runs_on_another_network_equal_fresh_runs_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """AVFL depends on time and is trained there; VFL is re-priced."""
    from vflbench import cli
    from vflbench.cli import rerun

    monkeypatch.chdir(tmp_path)
    link = [f"network.{kind}.latency_ms=50" for kind in ("client_server", "client_client")]
    own = ["dataset=breast_cancer", "dataset.problem=learning", "rounds=1", "plot=none", "seed=0"]
    sweep = ["-m", "algorithm=avfl,vfl", *own]
    assert cli.command([*sweep, *link, "hydra.sweep.dir=slow"]) == 0
    assert cli.command([*sweep, "network=lan", "hydra.sweep.dir=fresh"]) == 0
    for words in (["slow", "--rerun", "lan", "--out", "a.html", "--csv", "a.csv"], ["fresh", "--csv", "b.csv"]):
        assert cli.command(["report", *words]) == 0
    table = Path("a.csv").read_text()
    assert table == Path("b.csv").read_text() and ",avfl," in table and ",vfl," in table
    before = {path: path.stat().st_mtime_ns for path in Path("outputs/rerun").glob("*/summary.json")}
    assert len(before) == 2
    assert cli.command(["report", "slow", "--rerun", "lan", "--out", "c.html"]) == 0  # kept
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert cli.command(["report", "slow", "--rerun", "lann", "--out", "d.html"]) == 1 and not Path("d.html").exists()
    for several in ("lan,us_us", "glob(*)", ""):
        assert (
            cli.command(["report", "slow", "--rerun", several, "--out", "d.html"]) == 1 and not Path("d.html").exists()
        )
    # what a folder holds may have been trained on other data, e.g. on a twin: the page then lacks it, and says so
    monkeypatch.setattr(rerun.experiment, "differences", lambda before, now: "file a.csv: 1 there, 2 here")
    capsys.readouterr()
    assert cli.command(["report", "slow", "--rerun", "us_us", "--out", "e.html", "--csv", "e.csv"]) == 1
    assert capsys.readouterr().err.count("is another experiment than") == 1
    assert "is another experiment than" in Path("e.html").read_text() and ",avfl," not in Path("e.csv").read_text()


@pytest.mark.slow
def test_picture_and_table_are_downloaded_as_shown(opened: Callable[..., Any], tmp_path: Path) -> None:
    import time
    from io import BytesIO
    from xml.etree import ElementTree

    from PIL import Image

    page = opened()
    page.execute_script("window.saved = {}; save = (name, address) => { saved[name.split('.').pop()] = address; };")
    for kind in ("svg", "png", "pdf", "csv", "tex"):
        page.find_element("id", f"save_{kind}").click()
    for _ in range(50):  # pictures are painted in the background
        found = page.execute_script("return saved")
        if len(found) == 5:
            break
        time.sleep(0.1)
    from base64 import b64decode
    from urllib.parse import unquote

    read = {
        kind: b64decode(text) if ";base64," in head + "," else unquote(text).encode()
        for kind, (head, text) in ((kind, address.split(",", 1)) for kind, address in found.items())
    }
    image = Image.open(BytesIO(read["png"]))
    assert len(image.getcolors(10**7) or []) > 10  # lines and texts, not a blank
    picture = ElementTree.fromstring(read["svg"])
    texts = {part.text for part in picture.iter("{http://www.w3.org/2000/svg}text")}
    assert {"MTCD", "communication time"} <= texts
    assert image.width == 2 * int(picture.get("width") or 0)
    assert read["pdf"].startswith(b"%PDF-1.4") and b"/DCTDecode" in read["pdf"]
    start = int(read["pdf"].rsplit(b"startxref\n", 1)[1].split()[0])
    assert read["pdf"][start:].startswith(b"xref\n")
    heads, *rows = read["csv"].decode().strip().split("\r\n")
    assert len(rows) == 4 and '"sent to target"' in heads and any('"MTCD"' in row for row in rows)
    assert read["tex"].startswith(b"\\begin{tabular}") and b"$\\pm$" in read["tex"] and b"MTCD" in read["tex"]
