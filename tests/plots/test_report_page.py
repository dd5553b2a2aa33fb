"""The page of `vflbench report` in a real browser: it loads offline, its sliders move the ranking, and its prices are
Python's."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vflbench.plots import report, report_html
from vflbench.results import pricing, selection

KNOWN = {"svfl": False, "stcd": False, "mtcd": False}
NETWORKS = {"us_uk": (136.0, 0.42), "us_us": (67.0, 1.15)}


@pytest.fixture(scope="module")
def page(convex_runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(report_html.to_html(report.read([convex_runs], KNOWN), NETWORKS), encoding="utf-8")
    return path


@pytest.fixture
def opened(browser: Any, page: Path) -> Iterator[Any]:
    """The page, freshly loaded; after the test it has asked for nothing and complained of nothing."""
    for kind in ("performance", "browser"):  # of the page before
        browser.get_log(kind)
    browser.get(page.as_uri())
    yield browser
    assert browser.get_log("browser") == []
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = {event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"}
    assert page.as_uri() in asked
    assert {url for url in asked if not url.startswith("data:")} == {page.as_uri()}


def drag(browser: Any, name: str, to: float) -> None:
    """Pull a slider's thumb to `to`, 0 to 1, of its length, with the mouse."""
    from selenium.webdriver import ActionChains

    slider = browser.find_element("id", name)
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", slider)
    width, value = slider.size["width"], int(slider.get_attribute("value"))
    thumb = 8 + (width - 16) * value / 1000 - width / 2  # from the slider's middle, where the mouse goes first
    actions = ActionChains(browser).move_to_element_with_offset(slider, round(thumb), 0).click_and_hold()
    actions.move_to_element_with_offset(slider, round((width - 16) * (to - 0.5)), 0).release().perform()


def ranking(browser: Any) -> list[str]:
    return [row.get_attribute("data-line") for row in browser.find_elements("css selector", "#ranking tbody tr")]


def column(browser: Any, head: str) -> dict[str, str]:
    """The cells of a column, by the row's name."""
    heads = [cell.text.split(" ▲")[0].split(" ▼")[0] for cell in browser.find_elements("css selector", "#ranking th")]
    at = heads.index(head)
    rows = browser.find_elements("css selector", "#ranking tbody tr")
    return {row.get_attribute("data-line"): row.find_elements("css selector", "td")[at].text for row in rows}


def expected(folder: Path, latency: float, bandwidth: float | None, ratio: float | None = None) -> dict[str, float]:
    """Method -> mean seconds (with `ratio`, mean cost) to the target over its seeds, by Python's prices."""
    found = report.read([folder], KNOWN)
    (panel,) = found.panels
    assert panel.target is not None
    costs = {}
    for setting in panel.settings:
        values = []
        for run in setting.runs:
            place, priced = selection.reached(run, panel.target), found.priced[run.folder]
            if place is not None and priced.chains is not None and priced.bytes_by_link is not None:
                links = priced.bytes_by_link[place]
                values.append(
                    pricing.seconds(priced.chains[place], latency, bandwidth)
                    if ratio is None
                    else pricing.cost(*links, ratio)
                )
        if len(values) == len(setting.runs):
            costs[report.style.look(setting.algorithm).label] = float(np.exp(np.mean(np.log(values))))
    return costs


def test_prices_are_pythons(opened: Any) -> None:
    rng = random.Random(0)
    for _ in range(50):
        chains = tuple((rng.randrange(2000), rng.randrange(10**9)) for _ in range(rng.randrange(1, 6)))
        latency, bandwidth = 10 ** rng.uniform(-3, 3), rng.choice([None, 10 ** rng.uniform(-3, 3)])
        flat = [number for chain in chains for number in chain]
        assert opened.execute_script("return seconds(...arguments)", flat, latency, bandwidth) == pricing.seconds(
            chains, latency, bandwidth
        )
        links, ratio = (rng.randrange(10**9), rng.randrange(10**9)), 10 ** rng.uniform(-2, 2)
        assert opened.execute_script("return cost(...arguments)", *links, ratio) == pricing.cost(*links, ratio)


@pytest.mark.slow
def test_dragging_latency_and_bandwidth_moves_curves_and_ranking(opened: Any, convex_runs: Path) -> None:
    assert "Times as the runs had them" in opened.find_element("id", "rule").text
    shapes = opened.find_element("css selector", "#chart svg").get_attribute("innerHTML")
    seen = set()
    for slider, to in (("latency", 0.95), ("latency", 0.0), ("bandwidth", 0.0), ("bandwidth", 1.0)):
        drag(opened, slider, to)
        latency, bandwidth = opened.execute_script("return [state.latency, state.bandwidth]")
        want = expected(convex_runs, latency, bandwidth)
        assert len(want) > 1
        reach = [name for name in ranking(opened) if name in want]
        assert reach == sorted(want, key=lambda name: want[name])
        assert reach == ranking(opened)[: len(want)]
        shown = column(opened, "time to target")
        for name, value in want.items():
            # three digits
            assert float(shown[name].split()[0].replace(",", "")) == pytest.approx(value, rel=6e-3), name
        moved = opened.find_element("css selector", "#chart svg").get_attribute("innerHTML")
        assert moved != shapes
        shapes = moved
        seen.add(tuple(reach))
        assert reach[0] in opened.find_element("id", "answer").text
    assert len(seen) > 1, "no drag changed who is first: the test shows nothing"
    assert 'rule "round"' in opened.find_element("id", "rule").text


@pytest.mark.slow
def test_dragging_the_ratio_prices_the_server(opened: Any, convex_runs: Path) -> None:
    orders = []
    for to in (0.0, 1.0):
        drag(opened, "ratio", to)
        want = expected(convex_runs, 0.0, None, opened.execute_script("return state.ratio"))
        orders.append([name for name in ranking(opened) if name in want])
        assert orders[-1] == sorted(want, key=lambda name: want[name])
    assert orders[0] != orders[1]
    assert opened.find_element("id", "axis").get_attribute("value") == "cost"


@pytest.mark.slow
def test_the_reader_types_a_target_sorts_and_points(opened: Any, convex_runs: Path) -> None:
    from selenium.webdriver import ActionChains, Keys

    opened.find_element("id", "target").send_keys(Keys.CONTROL + "a", Keys.NULL, "1e-30", Keys.ENTER)
    (panel,) = report.read([convex_runs], KNOWN).panels
    shown = column(opened, "time to target")
    for setting in panel.settings:  # none of SVFL's and MTCD's; STCD may have come to an exact zero
        hits = sum(selection.reached(run, 1e-30) is not None for run in setting.runs)
        text = shown[report.style.look(setting.algorithm).label]
        assert (text == "not reached") == (hits == 0) and ("(1 of 2)" in text) == (hits == 1)
    assert "not reached" in shown.values()
    before = ranking(opened)
    head = next(cell for cell in opened.find_elements("css selector", "#ranking th button") if cell.text == "sent")
    head.click()
    sent = opened.execute_script("return ranking().map((row) => [title(row.line), total(row.line, 'bytes')])")
    assert ranking(opened) == [name for name, _ in sorted(sent, key=lambda one: one[1])]
    assert sorted(before) == sorted(ranking(opened))
    x, y = opened.execute_script("const at = drawn[drawn.length - 1]; return [at.x, at.y]")
    chart = opened.find_element("id", "chart")
    opened.execute_script("arguments[0].scrollIntoView({block: 'center'})", chart)
    size = chart.size
    ActionChains(opened).move_to_element_with_offset(
        chart, round(x - size["width"] / 2), round(y - size["height"] / 2)
    ).perform()
    assert "suboptimality" in opened.find_element("id", "tip").text


@pytest.mark.slow
def test_every_control_draws(opened: Any) -> None:
    """Each axis, plain and logarithmic, each network and each run's messages: something is drawn and nothing is
    undefined."""
    from selenium.webdriver.support.ui import Select

    for _ in range(2):
        opened.find_element("id", "log").click()
        for option in Select(opened.find_element("id", "axis")).options:
            option.click()
            assert opened.find_elements("css selector", "#chart svg path")
    for option in Select(opened.find_element("id", "network")).options:
        option.click()
    for option in Select(opened.find_element("id", "run")).options:
        option.click()
        assert opened.find_elements("css selector", "#traffic td[title]")
    text = opened.find_element("css selector", "body").text
    assert not any(word in text for word in ("undefined", "NaN", "Infinity", "[object"))


@pytest.mark.slow
def test_it_fits_a_narrow_screen(opened: Any) -> None:
    opened.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    )
    try:
        opened.refresh()
        assert opened.execute_script("return document.documentElement.scrollWidth") <= 390
    finally:
        opened.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
