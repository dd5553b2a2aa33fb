"""Run folders of a stranger's: nothing of them runs in a browser, commands a terminal, becomes markup, a formula or a
broken picture."""

from __future__ import annotations

import csv
import io
import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.plots.poison import COMMANDS, MARKUP, Poisoner, in_header
from vflbench import cli
from vflbench.cli.words import say
from vflbench.plots import curves, report, report_html
from vflbench.plots.report_terminal import show
from vflbench.results import reader, sweep_table, texts

KNOWN = {"svfl": False, "stcd": False, "mtcd": False}
NETWORKS = {"us_uk": (136.0, 0.42)}
# Every panel and every run's messages, one after the other: all that the page can show.
EVERYTHING = """
const found = [];
DATA.panels.forEach((panel, place) => {
  openPanel(place);
  panel.runs.forEach((_, run) => {
    state.run = run; drawTraffic(); found.push(document.getElementById("traffic").textContent);
  });
  for (const axis of panel.axes) { state.axis = axis; draw(); }
  const box = $("chart").getBoundingClientRect();
  drawn.slice(0, 1).forEach((at) => $("chart").onpointermove({ clientX: box.left + at.x, clientY: box.top + at.y }));
  found.push(...["header", "nav", "main"].map((part) => document.querySelector(part).textContent));
  found.push(...[...document.querySelectorAll("[aria-label]")].map((part) => part.ariaLabel));
});
return found.join("\\n");
"""
HANDLERS = (
    "return [...document.querySelectorAll('*')].filter((e) => [...e.attributes].some((a) => "
    "a.name.startsWith('on'))).length"
)


@pytest.fixture(scope="module")
def poisoned(convex_runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Poisoner:
    """Runs with markup in all their texts."""
    made = Poisoner(convex_runs / "mtcd_0", tmp_path_factory.mktemp("poisoned"), MARKUP)
    made.one_by_one()
    made.all_at_once()
    return made


def stripped(html: str) -> str:
    """The page without its policy."""
    found, count = re.subn(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", html)
    assert count == 1
    return found


def hit(browser: Any) -> Any:
    """What a script of the poison would have set, once pictures had the time to fail."""
    browser.execute_async_script("setTimeout(arguments[0], 300)")
    return browser.execute_script("return window.hit")


@pytest.mark.slow
def test_no_text_of_a_run_runs_in_a_browser(poisoned: Poisoner, browser: Any, tmp_path: Path) -> None:
    html = report_html.to_html(report.read([poisoned.root], KNOWN), NETWORKS)
    for name, content in (("with.html", html), ("without.html", stripped(html))):
        (tmp_path / name).write_text(content, encoding="utf-8")
        browser.get_log("browser")
        browser.get((tmp_path / name).as_uri())
        shown = browser.execute_script(EVERYTHING)
        assert hit(browser) is None
        assert browser.get_log("browser") == [], "a part of the page broke its own policy, or another error"
        assert (
            browser.execute_script(
                "return document.querySelectorAll('img, a:not([href^=\"#\"]), iframe, object').length"
            )
            == 0
        )
        assert browser.execute_script("return document.scripts.length") == 2
        assert browser.execute_script(HANDLERS) == 0
        assert len(browser.find_elements("css selector", "#ranking tbody tr")) > 0, "the page's own script has run"
        visible = {what for mark, what in poisoned.marks.items() if mark in shown}
        assert visible >= {
            *(
                "summary.algorithm",
                "summary.dataset",
                "summary.metric.name",
                "summary.status",
                "summary.data_source",
                "summary.reason",
            ),
            *(
                "summary.data_variant",
                "summary.timing",
                "summary.accounting",
                "summary.compute_clock",
                "summary.device",
            ),
            *(
                "manifest.command",
                "manifest.platform",
                "manifest.git.commit",
                "manifest.versions.torch",
                "manifest.data.note",
            ),
            *(
                "manifest.config.network.name",
                "manifest.config.algorithm.name",
                "a key of the configuration",
                "its value",
            ),
            *("a failed run's reason", "all: reason", "all: a file", "all: a package", "all: a word of the command"),
            *("all: algorithm", "all: dataset", "all: metric.name", "all: command", "all: note"),
        }, f"not shown: {set(poisoned.marks.values()) - visible}"
        assert {"ledger src", "ledger dst", "ledger tag"} <= {
            " ".join(what.split()[1:3]) for what in visible if what.startswith("all: ledger")
        }
        assert "<img src=x onerror=window.hit=1>\"'onload=" in shown, "the folder's name"
        whole = next(mark for mark, what in poisoned.marks.items() if what == "all: metric.name")
        assert in_header(MARKUP.replace("{mark}", whole)) in shown, "it is shown as it is"


@pytest.mark.slow
def test_the_poison_would_work_and_the_policy_stops_it(poisoned: Poisoner, browser: Any, tmp_path: Path) -> None:
    """The test above can fail: as markup the poison runs; and where a page takes it for markup all the same, the policy
    stops it."""
    html = report_html.to_html(report.read([poisoned.root / "summary1"], KNOWN), NETWORKS)
    inject = "document.querySelector('main').innerHTML = arguments[0]"
    written = html.replace("</main>", MARKUP.replace("alert(1)", "0") + "</main>")
    for name, content, works in (("without.html", stripped(html), True), ("with.html", html, False)):
        (tmp_path / name).write_text(content, encoding="utf-8")
        browser.get((tmp_path / name).as_uri())
        if works:
            browser.execute_script(inject, MARKUP)
        else:
            from selenium.common.exceptions import JavascriptException

            with pytest.raises(JavascriptException, match="TrustedHTML"):
                browser.execute_script(inject, MARKUP)
        assert hit(browser) == (1 if works else None)
    for name, content, works in (("a.html", stripped(written), True), ("b.html", written, False)):
        (tmp_path / name).write_text(content, encoding="utf-8")
        browser.get_log("browser")
        browser.get((tmp_path / name).as_uri())
        assert hit(browser) == (1 if works else None)
        assert works or any("Content Security Policy" in entry["message"] for entry in browser.get_log("browser"))


# --- Markdown, CSV, terminal, pictures --------------------------------------------------------------------------------


@pytest.mark.slow
def test_no_text_becomes_markup_in_markdown(poisoned: Poisoner) -> None:
    from markdown_it import MarkdownIt

    text = report.to_markdown(report.read([poisoned.root], KNOWN))
    tokens = [
        inner
        for token in MarkdownIt("commonmark", {"html": True}).enable("table").parse(text)
        for inner in (token, *(token.children or ()))
    ]
    assert {token.type for token in tokens if token.type.startswith(("link", "image", "html", "fence"))} == set()
    widths = {line.count("|") - line.count("\\|") for line in text.splitlines() if line.startswith("| ")}
    assert widths <= {len(report.HEADS) + 1, 7}
    shown = "".join(token.content for token in tokens if token.type in ("text", "code_inline"))
    assert sum(mark in shown for mark in poisoned.marks) > 20
    whole = next(mark for mark, what in poisoned.marks.items() if what == "summary.algorithm")
    assert MARKUP.replace("{mark}", whole).replace(" \u2028", "") in shown.replace("\\u2028", "")


@pytest.fixture(scope="module")
def commanding(convex_runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Poisoner:
    """Runs with terminal commands, formulas and mathematics in all their texts."""
    made = Poisoner(convex_runs / "svfl_0", tmp_path_factory.mktemp("commanding"), COMMANDS)
    made.one_by_one()
    made.all_at_once()
    return made


CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


@pytest.mark.slow
def test_no_text_commands_a_terminal(
    commanding: Poisoner, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    whole = next(path for path in commanding.root.iterdir() if path.name.startswith("<"))
    for words in (
        ["show", str(commanding.root)],
        ["show", str(whole)],
        ["report", str(commanding.root), "--csv", "a.csv", "--markdown", "a.md"],
    ):
        assert cli.command(words) == 0
        told = capsys.readouterr()
        for text in (told.out, told.err):
            assert not CONTROL.search(text)
        assert re.search(r"m\d{4}m", told.out) and "[red]x[/red][link=http://a.b]y[/link]" in told.out.replace("\n", "")
    say(sweep_table.table(commanding.root))
    told = capsys.readouterr()
    assert not CONTROL.search(told.out) and "m" in told.out
    assert len(told.out.splitlines()) == 5, (
        "head, runs with poisoned overrides, others, one of other data, a note on it"
    )
    summary = json.loads((whole / "summary.json").read_text())
    say(texts.result_line({**summary, "status": "budget"}))
    assert not CONTROL.search(capsys.readouterr().out)
    assert not CONTROL.search(Path("a.md").read_text())


@pytest.mark.slow
def test_no_text_is_a_colour_on_a_terminal(commanding: Poisoner) -> None:
    """rich's own colours are there, and none of the poison's."""
    shown = {}
    for poison in ("", "[red]x[/red][link=http://a.b]y[/link]\x1b[35m"):
        found = report.read([commanding.root / "summary2"], KNOWN)
        found.panels[0].settings[0].differs = {"a": f"b{poison}"}
        console = Console(file=io.StringIO(), force_terminal=True, color_system="standard", width=400, highlight=False)
        show(found, console)
        shown[poison] = set(re.findall(r"\x1b[\[\]][^m]*m", console.file.getvalue()))  # type: ignore[attr-defined]
    plain, other = shown.values()
    assert plain and plain == other


@pytest.mark.slow
def test_no_text_is_a_formula(commanding: Poisoner) -> None:
    rows = list(csv.reader(io.StringIO(report.to_csv(report.read([commanding.root], KNOWN)))))
    cells = [cell for row in rows for cell in row]
    assert any(cell.startswith("'=cmd") for cell in cells)
    for cell in cells:
        assert not cell.startswith(("=", "+", "@", "\t", "\r")) and (not cell.startswith("-") or float(cell) < 0)


@pytest.mark.parametrize(
    ("value", "expected"),
    [("=1+1", "'=1+1"), ("+1", "+1"), ("-1e-5", "-1e-5"), ("-1+cmd", "'-1+cmd"), ("@x", "'@x"), ("\t=x", "'\t=x"),
     ("\r=x", "\\r=x"), (" =x", "' =x"), ("a=1", "a=1"), ("", ""), (-1.5, -1.5), (None, None), ("-", "'-")],
)  # fmt: skip
def test_cells_of_a_spreadsheet(value: Any, expected: Any) -> None:
    assert texts.spreadsheet(value) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("a_b c", "a_b c"), ("_a_", r"\_a\_"), ("[x](y)", r"\[x\](y)"),
     ("a|b\nc", r"a\|b c"), ("- a", r"\- a"), ("lr=0.1", "lr=0.1"), ("-0.5 to 1", "-0.5 to 1"),
     ("# a", r"\# a"), ("\x1b[0m", r"\\x1b\[0m"), ("2 * 3 & 4", r"2 \* 3 \& 4")],
)  # fmt: skip
def test_text_as_markdown(text: str, expected: str) -> None:
    assert texts.markdown(text) == expected


def test_logs_command_no_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    import logging.config

    import yaml

    from vflbench.config import config_dir

    for group in ("job_logging", "hydra_logging"):
        settings = yaml.safe_load((config_dir() / "hydra" / group / "stderr.yaml").read_text())
        formatter = logging.config.DictConfigurator(settings).configure_formatter(settings["formatters"]["simple"])
        record = logging.makeLogRecord({"msg": "left out: %s", "args": ("\x1b[31mcity",), "levelname": "INFO"})
        assert formatter.format(record).endswith(r"left out: \x1b[31mcity")
        assert re.match(r"\d\d:\d\d:\d\d INFO    left", formatter.format(record))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:constrained_layout not applied")  # the names are longer than the picture
def test_pictures_show_names_and_take_none_for_a_formula(commanding: Poisoner) -> None:
    """`$\\frac{$` is no formula, and an SVG with a control character would be none."""
    folder = next(path for path in commanding.root.iterdir() if path.name.startswith("<"))
    summary = reader.load(folder).summary
    curves.draw_run(folder, {**summary, "algorithm": f"$\\frac{{$ \x1b[31m</text>{MARKUP}"}, ["curve"])
    curves.draw_runs([reader.load(folder)], folder, name="many")
    for name in ("curve", "many"):
        svg = (folder / f"{name}.svg").read_text(encoding="utf-8")
        words = "".join(ET.fromstring(svg).itertext())
        assert "$\\frac{$" in words and "\\x1b[31m" in words
        assert not re.search(r'(?:href|src)="(?!#)|url\((?!#)|<script|<image', svg)
        assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")
