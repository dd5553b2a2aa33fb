"""The answer's page: one file, whose texts are never more than texts."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from tests.choosing.made import curves, method, record
from tests.plots.poison import COMMANDS, MARKUP
from vflbench.choosing import answer, page, page_figures, terminal
from vflbench.choosing.record import Excluded, Record, Trial

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]")
LONG = pytest.mark.filterwarnings("ignore:constrained_layout not applied")  # names are longer than the picture
ALLOWED = ("data:image/svg+xml;base64,", "data:,", "finals/", "trials/")


class Page(HTMLParser):
    """What a page has: its elements, addresses and texts."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags, self.addresses, self.handlers, self.text = set[str](), list[str](), list[str](), ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("href", "src")]
        self.handlers += [name for name, _ in attrs if name.startswith("on")]

    def handle_data(self, data: str) -> None:
        self.text += data


def poisoned(folder: Path, poison: str) -> Record:
    """A record with `poison` in all texts that are not our own."""
    first = method(folder, "vfl", curves([(10, 1.0), (12, 1.1)]), dataset=f"data {poison}")
    plugin = method(folder, "svfl", curves([(20, 2.0), (21, 2.0)]))
    first.words.append(f"dataset.files={poison}")
    first.trials[0].values[poison] = poison
    first.edges.append(poison)
    plugin.algorithm = f"own {poison}"
    plugin.trials.append(
        Trial(1, {"a": poison}, f"trials/{poison}", "failed", False, None, 1.0, None, 3.0, 1.0, poison)
    )
    made = record([first, plugin], seeds=[0, 1])
    made.question["words"] = [poison]
    made.excluded, made.notes = [Excluded(poison, poison, poison)], [poison]
    made.floor["ship_it"]["form"] = made.floor["alone"]["learner"] = poison
    lost = method(folder / "lost", "avfl", curves([(10, 1.0)], last=0.8))
    lost.finals, lost.out = [], poison
    made.methods.append(lost)
    return made


@pytest.mark.slow
@LONG
@pytest.mark.parametrize("poison", [MARKUP.replace("{mark}", "m"), COMMANDS.replace("{mark}", "m")])
def test_no_text_is_markup_or_a_command(tmp_path: Path, poison: str) -> None:
    found = answer.answer(tmp_path, poisoned(tmp_path, poison.replace("\ud800", "")))
    html = page.to_html(found, tmp_path)
    read = Page(html)
    assert not read.tags & {"script", "svg", "iframe", "object"} and not read.handlers
    assert all(address.startswith(ALLOWED) for address in read.addresses), read.addresses
    assert "script-src" not in html and "default-src &#39;none&#39;" in html
    assert read.text.count("1//m';" if "<script>" in poison else "=cmd|") >= 8, "it is shown as it is"
    for text, _ in terminal.lines(found, tmp_path):
        assert not CONTROL.search(terminal.in_line(text))


@LONG
@pytest.mark.slow
def test_no_text_runs_in_a_browser(tmp_path: Path, browser: Any) -> None:
    found = answer.answer(tmp_path, poisoned(tmp_path, MARKUP.replace("{mark}", "m")))
    file = tmp_path / "answer.html"
    file.write_text(page.to_html(found, tmp_path), encoding="utf-8")
    browser.get_log("browser")
    browser.get(file.as_uri())
    browser.execute_async_script("setTimeout(arguments[0], 300)")
    assert browser.execute_script("return window.hit") is None and browser.get_log("browser") == []
    for width in (360, 1280):
        browser.set_window_size(width, 900)
        body = browser.execute_script("return [document.documentElement.scrollWidth, window.innerWidth]")
        assert body[0] <= max(body[1], 500), "nothing but tables scrolls sideways"
    browser.set_window_size(1280, 1000)


@pytest.mark.slow
def test_epsilons_of_several_kinds_are_not_on_one_axis(tmp_path: Path) -> None:
    def noised(epsilon: float, covers: str) -> dict[str, Any]:
        about = {"delta": 1e-5, "unit": "row", "neighbouring": "replace_one", "covers": covers}
        return {"mechanism": "gdp_embedding", "epsilon": epsilon} | about

    whole = [
        method(tmp_path, name, curves([(9, 1.0)] * 2), noised(at, "transcript"))
        for name, at in (("vfl", 3.0), ("vfl_ps", 2.0))
    ]
    other = method(tmp_path, "avfl", curves([(9, 1.0)] * 2), noised(1.0, "model"))
    found = answer.answer(tmp_path, record([*whole, other], epsilon=4.0))
    finals, _ = page_figures._points(found, "epsilon")
    assert sorted(x for points in finals.values() for x, _ in points) == [2.0, 3.0]
    assert len(page_figures.fronts(found)) == 3


def test_the_page_says_all(tmp_path: Path) -> None:
    made = record(
        [method(tmp_path, "vfl", curves([(10, 1.0), (12, 1.1)])), method(tmp_path, "svfl", curves([(20, 2.0)] * 2))]
    )
    made.excluded = [Excluded("glasu", None, "needs a graph")]
    found = answer.answer(tmp_path, made)
    read = Page(page.to_html(found, tmp_path))
    for text in (
        found["sentence"],
        found["methods"][0]["command"],
        "GLASU: needs a graph",
        "ship it",
        "label owner alone",
    ):
        assert text in read.text
    assert sum(address.startswith("data:image") for address in read.addresses) == 3, (
        "two fronts and the course of tuning"
    )
    assert "finals/vfl-none/0" in read.addresses
