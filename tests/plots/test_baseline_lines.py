"""Floor and ceiling in pictures, tables and on the page."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure
from rich.console import Console

from vflbench.plots import baseline_lines, curves, report, report_html, report_terminal
from vflbench.types import Metric

SHIPPED = {"bytes": 12_000_000, "seconds": 5.0, "form": "float32", "stored": 12_000_000, "largest": 6_000_000}
GAIN = {"party 0": {"without": 0.7, "gain": 0.2}, "party 1": {"without": 0.55, "gain": 0.35}}


def floor(alone: float = 0.55, whole: float = 0.9, **changes: Any) -> dict[str, Any]:
    """What a summary has of floor and ceiling."""
    levels = {
        name: {"metric": "accuracy", "value": value, "validation": value + 0.01, "learner": "boosted trees"}
        for name, value in (("alone", alone), ("centralised", whole))
    }
    return {"ship_it": SHIPPED, "times_ship_it": 2.5, **levels, "brings": GAIN, **changes}


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that are saved."""
    saved: list[Figure] = []
    monkeypatch.setattr(curves, "save", lambda figure, stem: saved.append(figure))
    monkeypatch.setattr(curves, "write_points", lambda path, table: None)
    return saved


def lines(figure: Figure) -> tuple[list[str], list[float], list[float]]:
    """A figure's direct labels, the heights of its level lines, and the places of upright ones."""
    (axes,) = figure.axes
    labels = [text.get_text() for text in axes.texts]
    dashed = [line for line in axes.lines if line.get_color() == baseline_lines.INK]
    level = [float(line.get_ydata()[0]) for line in dashed if list(line.get_xdata()) == [0, 1]]
    upright = [float(line.get_xdata()[0]) for line in dashed if list(line.get_ydata()) == [0, 1]]
    return labels, level, upright


@pytest.mark.parametrize(
    ("x", "place", "label"),
    [("bytes", 12.0, "ship it, 12 MB"), ("communication_seconds", 5.0, "ship it, 5 s"), ("round", None, None)],
)
def test_a_sweeps_picture_has_the_lines_of_its_seeds_mean(make_run: Any, drawn: Any, x: str, place: Any, label: Any):
    runs = [make_run(f"r{seed}", seed=seed, extra=floor(0.5 + seed / 10)) for seed in (0, 1)]
    curves.draw_runs(runs, Path("nowhere"), x)
    labels, level, upright = lines(drawn[0])
    assert sorted(level) == pytest.approx([0.55, 0.9])
    assert upright == ([] if place is None else [place])
    assert {"label owner alone 0.55", "centralised 0.9"} <= set(labels) and (label is None or label in labels)


def test_a_runs_pictures_have_them(make_run: Any, drawn: Any):
    run = make_run("r", extra=floor())
    curves.draw_run(run)
    found = [lines(figure) for figure in drawn]  # against time, bytes, rounds
    assert [upright for _, _, upright in found] == [[5.0], [12.0], []]
    assert all(sorted(level) == [0.55, 0.9] for _, level, _ in found)


def test_a_line_far_beyond_the_curves_is_an_arrow(make_run: Any, drawn: Any):
    run = make_run("r", extra=floor(ship_it={**SHIPPED, "bytes": 46_000_000}))  # the run sent 30 MB
    curves.draw_runs([run], Path("nowhere"), "bytes")
    labels, _, upright = lines(drawn[0])
    assert "ship it, 46 MB →" in labels and upright == []


def test_a_logarithmic_axis_has_room_for_a_line_far_before_the_curves(make_run: Any, drawn: Any):
    """Its label, outside the axes, would leave no room for the picture."""
    run = make_run("r", extra=floor(ship_it={**SHIPPED, "bytes": 20_000}))
    curves.draw_panels(curves.Picture("curves", "bytes", log=["x"]), {"": {"GLASU": [run]}}, Path("nowhere"))
    (axes,) = drawn[0].axes
    (place,) = lines(drawn[0])[2]
    assert place == pytest.approx(0.02) and axes.get_xlim()[0] < place


@pytest.mark.parametrize("others", [0, 1])
def test_an_older_run_beside_a_new_one_is_said_to_be_charged_less(make_run: Any, others: int):
    nothing = {"bytes": 0, "messages": 0, "cost": 0.0, "seconds": 0.0}
    phases = dict.fromkeys(("align", "setup", "train"), nothing) | {"predict": {**nothing, "rows": 10}}
    runs = [make_run("old"), *(make_run(f"new{n}", seed=n + 1, extra={"phases": phases}) for n in range(others))]
    notes = report.read([run.folder for run in runs], {}).notes
    assert sum("an older vflbench made it" in note for note in notes) == others


def test_a_method_without_a_number_of_parts_has_the_division_of_one_part(make_run: Any):
    runs = [make_run("r", options={"parts": 1}, extra=floor()), make_run("s", algorithm="gram_once", extra=floor())]
    assert len(baseline_lines.by_division(runs)) == 1


@pytest.mark.parametrize("older", [True, False])
def test_without_floor_or_with_two_divisions_the_picture_is_as_before(make_run: Any, drawn: Any, older: bool):
    if older:
        runs = [make_run("r")]
    else:
        runs = [make_run(f"r{k}", options={"parties": k}, extra=floor()) for k in (2, 3)]
    curves.draw_runs(runs, Path("nowhere"), "bytes")
    assert lines(drawn[0]) == ([], [], [])
    if older:
        assert baseline_lines.rows(runs) == [] and baseline_lines.note(runs, "accuracy") == ""
    else:
        assert [row["words"] for row in baseline_lines.rows(runs) if row["name"] == "ship it"] == [
            "parties=2",
            "parties=3",
        ]
        assert "Several divisions" in baseline_lines.note(runs, "accuracy")


def test_a_number_of_parties_that_the_data_decide_is_no_other_division(make_run: Any):
    """vfl_sgd's default leaves it to the data; what each party brings is known of two."""
    brings = {f"party {k}": {"without": 0.6, "gain": 0.1} for k in (0, 1)}
    runs = [
        make_run(name, algorithm=name, options={"parties": parties}, extra=floor(brings=brings))
        for name, parties in (("vfl", 2), ("vfl_sgd", None))
    ]
    (found,) = baseline_lines.by_division(runs)
    assert found.words == ""
    runs.append(make_run("three", algorithm="vfl", options={"parties": 3}, extra=floor()))
    assert len(baseline_lines.by_division(runs)) == 2


def test_a_number_of_parties_that_was_adapted_is_no_other_division(make_run: Any):
    """Two files, which are two parties: svfl's default of 40 became 2, which is vfl's."""
    adapted = {"adapted": {"algorithm.parties": {"default": 40, "used": 2}}}
    runs = [
        make_run("a", algorithm="vfl", options={"parties": 2}, extra=floor()),
        make_run("b", algorithm="svfl", options={"parties": 40}, extra=floor() | adapted),
    ]
    (found,) = baseline_lines.by_division(runs)
    assert found.words == "" and "Several divisions" not in baseline_lines.note(runs, "accuracy")


def test_where_all_have_labels_a_method_that_is_shown_is_the_line(make_run: Any):
    none = {"metric": "accuracy", "value": None, "learner": None, "why": "every client has labels: use it"}
    own = floor(alone=0, whole=0) | {"alone": none, "centralised": none, "brings": {}}
    glasu = make_run("r", extra=own)
    assert baseline_lines.note([glasu], "accuracy").startswith(
        "No line for label owner alone and centralised: every client"
    )
    alone = make_run("s", algorithm="standalone_gnn", level=lambda t: 0.4, extra=own)
    (found,) = baseline_lines.by_division([glasu, alone])
    assert found.levels == {"alone": (0.4, None)} and found.learners == {"alone": "standalone_gnn"}
    assert [row["name"] for row in baseline_lines.rows([glasu, alone])] == ["ship it", "each party alone"]
    assert baseline_lines.note([glasu, alone], "accuracy").startswith("No line for centralised:")


@pytest.mark.parametrize(
    ("metric", "alone", "whole", "gain", "says"),
    [
        ("accuracy", 0.89, 0.895, 0.005, "Partners add nothing here."),
        ("accuracy", 0.85, 0.9, 0.05, ""),
        ("rmse", 100.0, 99.0, 1.0, "Partners add nothing here."),
        ("rmse", 100.0, 97.0, 3.0, ""),
    ],
)
def test_it_says_where_partners_add_nothing(make_run: Any, metric, alone, whole, gain, says):
    brings = {"party 0": {"without": whole + 50, "gain": 50.0}, "party 1": {"without": alone, "gain": gain}}
    goal = "min" if metric == "rmse" else "max"
    run = make_run("r", metric=Metric(metric, goal), extra=floor(alone, whole, brings=brings))
    said = baseline_lines.note([run], metric)
    assert f"{whole:.4g} with all columns" in said and f"without party 1 {alone:.4g}" in said
    assert ("add nothing" in said) == bool(says) and said.endswith(says or ".")


def test_a_row_of_table_terminal_and_markdown_for_each(make_run: Any):
    run = make_run("r", extra=floor())
    shown = report.read([run.folder], {"glasu": False})
    console = Console(file=(text := io.StringIO()), width=200)
    report_terminal.show(shown, console)
    for page in (text.getvalue(), report.to_markdown(shown)):
        found = {
            name: [cell.strip(" |") for cell in line.replace("|", " ").split("  ") if cell.strip(" |")]
            for name in ("ship it", "label owner alone", "centralised")
            for line in page.splitlines()
            if line.removeprefix("| ").startswith(name)
        }
        assert found["ship it"][:4] == ["ship it", "–", "–", "12 MB"] or "12 MB" in found["ship it"]
        assert "5 s" in found["ship it"] and "0.5500" in found["label owner alone"] and "0.9000" in found["centralised"]
    assert "without party 1 0.55" in text.getvalue()


@pytest.mark.slow
def test_the_page_draws_and_lists_them(browser: Any, make_run: Any, tmp_path: Path):
    """In test and validation, against bytes and time, on the runs' network and another one."""
    from selenium.webdriver.support.ui import Select

    run = make_run("r", extra=floor())
    page = tmp_path / "report.html"
    networks = {"lan": (1.0, 1.0)}
    page.write_text(report_html.to_html(report.read([run.folder], {"glasu": False}), networks), encoding="utf-8")
    for kind in ("performance", "browser"):
        browser.get_log(kind)
    browser.get(page.as_uri())

    def choose(name: str, value: str) -> None:
        Select(browser.find_element("id", name)).select_by_value(value)

    def labels() -> set[str]:
        return {text.text for text in browser.find_elements("css selector", "#chart text.bound")}

    choose("split", "test")
    choose("axis", "bytes")
    assert labels() == {"label owner alone 0.5500", "centralised 0.9000", "ship it, 12 MB"}
    choose("split", "val")
    assert labels() == {"label owner alone 0.5600", "centralised 0.9100", "ship it, 12 MB"}
    choose("axis", "communication_seconds")
    assert "ship it, 5 s" in labels()
    rows = {
        row.get_attribute("data-bound"): [cell.text for cell in row.find_elements("css selector", "td")]
        for row in browser.find_elements("css selector", "#ranking tfoot tr")
    }
    assert list(rows) == ["ship it", "label owner alone", "centralised"]
    assert "12 MB" in rows["ship it"] and "5 s" in rows["ship it"] and "0.5500" in rows["label owner alone"]
    choose("network", "lan")  # 1 ms and 6 MB at 1 Gbit/s
    moved = browser.find_element("css selector", '#ranking tfoot tr[data-bound="ship it"]').text
    assert "0.049 s" in moved and "12 MB" in moved
    assert "without party 0 0.7" in browser.find_element("id", "bounds").text
    assert browser.get_log("browser") == []
