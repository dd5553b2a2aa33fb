"""Who learns what, on the report's page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vflbench.plots import learnt, report, report_html
from vflbench.results.selection import Setting

KNOWN = {"svfl": False, "stcd": False, "mtcd": False}


def settings(folder: Path) -> list[Setting]:
    (panel,) = report.read([folder], KNOWN).panels
    return [*panel.settings]


def test_every_method_has_the_table_of_its_summary(convex_runs: Path) -> None:
    found = settings(convex_runs)
    tables = {table["name"]: table for table in learnt.tables(found)}
    assert set(tables) == {"SVFL", "STCD", "MTCD"}
    of = {setting.algorithm: setting.runs[0].summary["exposure"] for setting in found}
    rows = tables["SVFL"]["rows"]
    assert len(rows) == len(of["svfl"]["entries"]) and {len(row) for row in rows} == {len(learnt.HEADS)}
    shown = [dict(zip(learnt.HEADS, row, strict=True)) for row in rows]
    (recovered,) = (row for row in shown if row["shown by"] == "gram_recovery")
    assert (recovered["who"], recovered["what"], recovered["covered by"]) == ("server", "features", "")
    page = report_html.to_html(report.read([convex_runs], KNOWN), {})
    assert page.count("<details><summary>") == 3 and "gram_recovery" in page


def test_settings_that_differ_in_it_have_a_table_each(convex_runs: Path) -> None:
    one, *_ = settings(convex_runs)

    def like(words: str, exposure: Any) -> Any:
        class Like:
            runs = [type("Run", (), {"summary": {"exposure": exposure}})]

        Like.algorithm, Like.words = one.algorithm, words  # type: ignore[attr-defined]
        return Like

    first = one.runs[0].summary["exposure"]
    other = {**first, "entries": first["entries"][:1]}
    found = learnt.tables([like("a", first), like("b", first), like("c", other), like("d", None)])
    label = found[0]["label"]
    assert [table["name"] for table in found] == [f"{label} · a · b", f"{label} · c"]
    assert learnt.tables([like("d", None)]) == []
