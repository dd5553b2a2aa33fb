"""Figures' pages and their index, of runs and results of a stranger's: all is text, and the pages load nothing but
their own pictures."""

from __future__ import annotations

import json
import re
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.plots.poison import COMMANDS, MARKUP
from vflbench.papers import figure_page, figures
from vflbench.papers.claims import Claim
from vflbench.papers.definition import Definition, Numbers
from vflbench.papers.jobs import Job
from vflbench.plots.curves import Picture
from vflbench.types import VflbenchError

POISON = MARKUP.replace("{mark}", "here")


def make(folder: Path, make_run: Any, poison: str) -> figures.Made:
    """A figure in whose definition, runs and failures every text is poisoned."""
    runs = [
        make_run(f"run{i}", algorithm=f"{poison} {i}", options={"aggregations": f"{poison}{i}"}, reason=poison)
        for i in (1, 2)
    ]
    jobs = [Job([], str(i), {}, run) for i, run in enumerate(runs)]
    failed = {"algorithm": {"name": poison}, "dataset": {"name": poison}, "network": {"name": poison}, "seed": 0}
    jobs.append(Job([], "3", {**failed, **runs[0].manifest["config"]}, failure=poison))
    pictures = [
        Picture("values", "algorithm.name", lines=[], title=poison),
        Picture("curves", "bytes", lines=["algorithm.aggregations"], title=poison),
    ]
    claim = Claim(poison, "order", paper=poison, of=[{"algorithm.name": f"{poison} {i}"} for i in (1, 2)])
    numbers = [Numbers(poison, column="selected", by=["algorithm.name"], values={f"{poison} 1": 0.5})]
    texts = {"scaled": poison, "tuning": poison, "name": "glasu/x"}
    made = Definition(
        poison, poison, [], ["algorithm.name", "algorithm.aggregations"], pictures, {}, numbers, [claim], **texts
    )
    return figures.make(made, jobs, "small", folder, ["glasu/x", poison])


class Asked(BaseHTTPRequestHandler):
    """A server that should never be asked for anything."""

    paths: list[str]

    def do_GET(self) -> None:
        self.server.paths.append(self.path)  # type: ignore[attr-defined]
        self.send_response(404)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:constrained_layout not applied")
def test_figure_pages_show_text_and_load_their_own_pictures_alone(browser: Any, tmp_path: Path, make_run: Any) -> None:
    folder = tmp_path / 'out #?"><img src=x onerror=window.hit=1>' / "glasu" / "javascript:window.hit=1"
    with HTTPServer(("127.0.0.1", 0), Asked) as server:
        server.paths = []  # type: ignore[attr-defined]
        Thread(target=server.serve_forever, daemon=True).start()
        poison = POISON.replace("http://198.51.100.1", f"http://127.0.0.1:{server.server_port}")
        make(folder, make_run, poison)
        index = figure_page.write_index(folder.parents[1])
        for path, pictures in ((folder / "page.html", 2), (index, 1)):
            html = path.read_text(encoding="utf-8")
            bare = path.with_name("bare.html")
            bare.write_text(
                re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", html, count=1), encoding="utf-8"
            )
            for opened in (path, bare):
                browser.get_log("browser")
                browser.get(opened.as_uri())
                browser.execute_script("for (const one of document.images) one.loading = 'eager'")
                browser.execute_async_script("setTimeout(arguments[0], 500)")
                assert browser.execute_script("return window.hit") is None
                assert (
                    browser.execute_script("return [...document.images].map((one) => one.naturalWidth > 0)")
                    == [True] * pictures
                )
                assert (
                    browser.get_log("browser") == [] and browser.execute_script("return document.scripts.length") == 0
                )
                links = browser.execute_script("return [...document.links].map((one) => one.href)")
                assert all(link == (folder / "page.html").as_uri() for link in links) and bool(links) == (path == index)
                shown = browser.execute_script(
                    "return document.body.textContent + [...document.images].map((one) => one.alt).join('')"
                )
                assert " ".join(poison.replace("\u2028", "").split()) in shown.replace("\\u2028", "")
                assert (
                    browser.execute_script("return getComputedStyle(document.querySelector('td')).fontSize") == "13px"
                ), "its style holds"
        server.shutdown()
        assert server.paths == []  # type: ignore[attr-defined]
    browser.get((folder / "page.html").as_uri())
    for markup in ("<script>window.hit=1</script>", "<img src=x onerror=window.hit=1>"):
        (folder / "injected.html").write_text(
            (folder / "page.html").read_text("utf-8").replace("</body>", f"{markup}</body>"), "utf-8"
        )
        browser.get((folder / "injected.html").as_uri())
        browser.execute_async_script("setTimeout(arguments[0], 300)")
        assert browser.execute_script("return window.hit") is None, (
            "the policy stops what is written as markup all the same"
        )


@pytest.mark.filterwarnings("ignore:constrained_layout not applied")
def test_names_that_are_formulas_or_commands_are_drawn(tmp_path: Path, make_run: Any) -> None:
    made = make(tmp_path / "glasu" / "x", make_run, COMMANDS.replace("\ud800", ""))
    for path in made.folder.iterdir():
        if path.suffix in (".svg", ".md", ".csv"):
            assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", path.read_text(encoding="utf-8")), path
        if path.suffix == ".csv":
            assert not re.search(r'(^|,)"?=', path.read_text(encoding="utf-8"), re.MULTILINE)


GOOD = {"heading": "GLASU", "title": "t", "picture": "figure.png", "scale": "small", "data": "real", "claims": []}
CLAIM = {"claim": "c", "paper": "", "verdict": "holds", "why": "w"}


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", "null", '"x"', "[" * 100_000, "\ufffe"),
        *(json.dumps({key: value for key, value in GOOD.items() if key != left}) for left in GOOD),
        *(json.dumps(GOOD | {key: wrong}) for key in GOOD for wrong in (None, 7, {"a": 1})),
        *(json.dumps(GOOD | {"claims": [CLAIM | {key: wrong}]}) for key in CLAIM for wrong in (None, 7, [])),
        json.dumps(GOOD | {"claims": [CLAIM | {"verdict": "<b>holds</b>"}]}),
        *(
            json.dumps(GOOD | {"picture": name})
            for name in ("../../secret.png", "/etc/x.png", "a/b.png", "", "https://a.b/c.png")
        ),
    ],
)
def test_a_result_that_is_none_is_named(tmp_path: Path, text: str) -> None:
    folder = tmp_path / "glasu" / "x"
    folder.mkdir(parents=True)
    (folder / "result.json").write_text(text, encoding="utf-8")
    with pytest.raises(
        VflbenchError,
        match=r"glasu/x/result\.json is no figure's result: draw the figure again, or remove its folder",
    ):
        figure_page.write_index(tmp_path)
    assert not (tmp_path / "index.html").exists()


def test_a_result_that_is_bytes_or_a_folder_is_named(tmp_path: Path) -> None:
    path = tmp_path / "glasu" / "x" / "result.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"\xff\xfe{")
    with pytest.raises(VflbenchError, match=r"result\.json is no figure's result"):
        figure_page.write_index(tmp_path)
    path.unlink()
    path.mkdir()
    with pytest.raises(VflbenchError, match=r"result\.json is no figure's result"):
        figure_page.write_index(tmp_path)
