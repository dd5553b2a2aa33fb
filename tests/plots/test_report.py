"""The report: its table, its page as text, its size, and what it says of bad input. `test_report_page.py` opens it in a
browser."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from vflbench import cli
from vflbench.plots import report, report_html
from vflbench.plots.report_terminal import show
from vflbench.results import folder, identity, inventory, pricing, selection
from vflbench.results.experiment import SEMANTICS
from vflbench.results.reader import Run, load
from vflbench.types import DataSource, Metric

KNOWN = {"svfl": False, "stcd": False, "mtcd": False, "glasu": False}
NETWORKS = {"us_uk": (136.0, 0.42), "us_us": (67.0, 1.15)}


def page_data(html: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL)
    assert found is not None
    data: dict[str, Any] = json.loads(found.group(1))
    return data


def write_run(path: Path, evaluations: int = 3, **changes: Any) -> Run:
    """A run folder without ledger and trace, its test accuracy rising to 0.9 and its validation accuracy to 0.8."""
    folder.prepare(path)
    metric = changes.pop("metric", Metric("accuracy", "max"))
    config = {
        "algorithm": {"name": "glasu", **changes.pop("options", {})},
        "dataset": {"name": "cora"},
        "network": {"name": "us_uk"},
    }
    config |= {"privacy": changes.pop("private", {}), "seed": changes.get("seed", 0)}
    curve = []
    for t in range(1, evaluations + 1):
        share = t / evaluations
        scores = dict(
            zip(
                (f"{split}_{metric.name}" for split in folder.splits(metric.name)),
                (0.8 * share, 0.9 * share),
                strict=False,
            )
        )
        curve.append({"round": t, "bytes": 1000 * t, "cost": 1000.0 * t, "communication_seconds": 0.5 * t, **scores})
    folder.write_curve(path / "curve.csv", curve, metric.name)
    folder.write_json(
        path / "manifest.json",
        {"schema": 1, "config": config, "config_hash": identity.config_hash(config), "semantics": SEMANTICS},
    )
    total = 1000 * evaluations
    settled: dict[str, Any] = {
        **{
            "status": "completed",
            "algorithm": "glasu",
            "dataset": "cora",
            "source": DataSource("real"),
            "seed": 0,
            "metric": metric,
        },
        **{
            "rows": curve,
            "rounds": evaluations,
            "bytes_by_tag": {"x": total},
            "bytes_by_link": {"client_server": total},
        },
        **{
            "messages": 1,
            "vectors": 1,
            "cost": float(total),
            "communication_seconds": 0.5 * evaluations,
            "compute_seconds": 0.0,
        },
        **{"virtual_seconds": 0.5 * evaluations, "wall_seconds": 1.0, "compute_clock": "none", "timing": "causal"},
        **{"accounting": "strict", "device": "cpu"},
    }
    folder.write_json(path / "summary.json", folder.summarise(**(settled | changes)))
    (path / inventory.NAME).unlink()  # as older runs are: tests change them
    return load(path)


def test_whose_metric_it_is_is_said_where_methods_differ(tmp_path: Path) -> None:
    workers = {"final": 0.95, "selected": 0.96, "selected_round": 2}
    write_run(tmp_path / "mixed/a", extra={"metric_of": "server"})
    write_run(
        tmp_path / "mixed/b",
        algorithm="d_psgd",
        options={"name": "d_psgd"},
        extra={"metric_of": "mean worker", "averaged_model": workers},
    )
    found = report.read([tmp_path / "mixed"], KNOWN)
    assert {row["algorithm"]: (row["metric_of"], row["averaged"]) for row in report.table(found)} == {
        "glasu": ("server", None), "d_psgd": ("mean worker", 0.96)
    }  # fmt: skip
    (panel,) = found.panels
    said = "The metric of D-PSGD is the mean over workers, that of GLASU one model's"
    assert report.caveat(panel) == said
    assert "averaged model" in report.to_markdown(found)
    (line,) = [
        line for line in page_data(report_html.to_html(found, NETWORKS))["panels"][0]["lines"] if line["averaged"]
    ]
    assert line["averaged"] == 0.96
    write_run(tmp_path / "alike/b", algorithm="d_psgd", options={"name": "d_psgd"}, extra={"metric_of": "server"})
    (panel,) = report.read([tmp_path / "alike"], KNOWN).panels
    assert report.caveat(panel) == ""


def test_defaults_that_did_not_fit_the_data_are_told(tmp_path: Path) -> None:
    write_run(tmp_path / "a", extra={"adapted": {"algorithm.parties": {"default": 40, "used": 2}}})
    (panel,) = report.read([tmp_path], KNOWN).panels
    assert report.caveat(panel) == "Defaults that did not fit the data: GLASU used algorithm.parties=2"


def test_the_table_by_hand(tmp_path: Path) -> None:
    """Two seeds of three evaluations; validation 0.267, 0.533, 0.8: the target of 0.8 is reached at the third, by
    both."""
    for seed in (0, 1):
        write_run(tmp_path / str(seed), seed=seed)
    (row,) = report.table(report.read([tmp_path], KNOWN))
    assert (row["algorithm"], row["seeds"], row["runs"], row["differs"]) == ("glasu", "0 1", 2, "")
    assert (row["target"], row["reached"]) == (0.8, 2)
    assert (row["bytes_to_target"], row["communication_seconds_to_target"], row["cost_to_target"]) == (3000, 1.5, 3000)
    assert row["selected"] == row["final"] == pytest.approx(0.9) and row["selected_sd"] == 0
    (again,) = csv.DictReader(io.StringIO(report.to_csv(report.read([tmp_path], KNOWN))))
    assert {key: "" if value is None else str(value) for key, value in row.items()} == again


def test_the_page_asks_nobody_for_anything(convex_runs: Path) -> None:
    # a name, no address
    html = report_html.to_html(report.read([convex_runs], KNOWN), NETWORKS).replace('"http://www.w3.org/2000/svg"', "")
    assert not re.search(r"(?:src|href)=[\"'](?!#|data:)|@import|url\(|fetch\(|XMLHttpRequest|https?://", html)
    assert html.count("<script") == html.count("</script>") == 2


def test_the_page_has_the_engines_numbers(convex_runs: Path) -> None:
    """Every evaluation of every run, its chains, its bytes by kind of link, and who sent what."""
    found = report.read([convex_runs], KNOWN)
    (panel,) = page_data(report_html.to_html(found, NETWORKS))["panels"]
    assert [line["label"] for line in panel["lines"]] == ["MTCD", "STCD", "SVFL"]
    for line in panel["lines"]:
        for place in line["runs"]:
            entry = panel["runs"][place]
            run = load(convex_runs / entry["name"])
            priced = pricing.price(run, run.arrays("ledger"), False)
            assert entry["chains"] == [
                [number for chain in chains for number in chain] for chains in priced.chains or []
            ]
            assert [sum(links) for links in entry["links"]] == run.curve["bytes"].tolist() == entry["axes"]["bytes"]
            assert sum(row[5] for row in entry["traffic"]["rows"]) == run.summary["bytes"]["total"]
            assert entry["axes"]["communication_seconds"] == pytest.approx(
                run.curve["communication_seconds"].tolist(), rel=1e-5
            )


def test_long_curves_are_thinned_and_the_page_says_so(tmp_path: Path) -> None:
    run = write_run(tmp_path / "long", evaluations=5000)
    found = report.read([tmp_path], KNOWN)
    html = report_html.to_html(found, NETWORKS)
    (entry,) = page_data(html)["panels"][0]["runs"]
    rounds = entry["axes"]["round"]
    assert len(rounds) <= report_html.MOST_POINTS + 2 and rounds[0] == 1 and rounds[-1] == 5000
    target = found.panels[0].target
    assert target is not None and int(run.curve["round"][selection.reached(run, target)]) in rounds
    assert "(the longest has 5000) are thinned" in html


def test_text_of_a_run_cannot_become_markup(tmp_path: Path) -> None:
    """What stands in a folder is data: a key, a value and a reason with markup in them are shown as they are."""
    nasty = "</script><script>alert(1)</script>"
    for seed, value in enumerate((nasty, "plain")):
        write_run(tmp_path / str(seed), options={"combine": value}, seed=seed)
    write_run(tmp_path / "failed", status="failed", reason=nasty, seed=5)
    html = report_html.to_html(report.read([tmp_path], KNOWN), NETWORKS)
    assert nasty not in html and "alert(1)" in html and html.count("<script") == 2


def test_data_that_are_not_real_are_said_so_loudly(tmp_path: Path) -> None:
    write_run(tmp_path / "a", source=DataSource("synthetic"))
    write_run(tmp_path / "b", source=DataSource("partial"), seed=1)
    write_run(tmp_path / "c", source=DataSource("partial", lacks="1 of 2 rows"), seed=2)
    found = report.read([tmp_path], KNOWN)
    assert len(found.panels) == 3
    html, markdown = report_html.to_html(found, NETWORKS), report.to_markdown(found)
    for text in (html, markdown):
        assert "SYNTHETIC DATA: Cora is made up here" in text and "PARTLY SYNTHETIC DATA" in text
        assert "PARTIAL DATA: Cora is real here, but not all of it: 1 of 2 rows." in text


def test_runs_with_other_metrics_have_panels_of_their_own(tmp_path: Path) -> None:
    write_run(tmp_path / "a")
    write_run(tmp_path / "b", metric=Metric("rmse", "min"), seed=1)
    data = page_data(report_html.to_html(report.read([tmp_path], KNOWN), NETWORKS))
    assert [(panel["metric"], panel["goal"]) for panel in data["panels"]] == [("accuracy", "max"), ("rmse", "min")]


def test_times_of_real_processes_are_said_to_be_of_no_network() -> None:
    run = SimpleNamespace(
        manifest={"config": {"network": {"name": "us_uk"}}}, summary={"timing": "measured", "accounting": "strict"}
    )
    panel: Any = SimpleNamespace(runs=[run])
    assert report.rule(panel) == "network engine=ray, timing measured, accounting strict"


def test_without_validation_no_target_is_judged_on_test(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a")
    lines = run.folder.joinpath("curve.csv").read_text().splitlines()
    at = lines[0].split(",").index("val_accuracy")
    cut = [
        lines[0],
        *(",".join("" if i == at else cell for i, cell in enumerate(line.split(","))) for line in lines[1:]),
    ]
    run.folder.joinpath("curve.csv").write_text("\n".join(cut) + "\n")
    found = report.read([tmp_path], KNOWN)
    (row,) = report.table(found)
    assert (row["target"], row["reached"], row["bytes_to_target"]) == (None, 0, None)
    (panel,) = page_data(report_html.to_html(found, NETWORKS))["panels"]
    assert panel["judged"] == "val" and panel["splits"] == ["test"] and "test data" in panel["target_why"]


@pytest.mark.parametrize("name", ["ledger.parquet", "trace.parquet"])
def test_a_run_without_its_messages_is_shown_and_not_repriced(name: str, convex_runs: Path, tmp_path: Path) -> None:
    copied = tmp_path / "svfl_0"
    shutil.copytree(convex_runs / "svfl_0", copied)
    whole = (copied / name).read_bytes()
    for damage in (None, whole[: len(whole) // 2]):
        (copied / name).unlink() if damage is None else (copied / name).write_bytes(damage)
        found = report.read([copied], KNOWN)
        (entry,) = page_data(report_html.to_html(found, NETWORKS))["panels"][0]["runs"]
        assert "chains" not in entry and entry["why"]
        if name == "ledger.parquet":
            assert "ledger.parquet" in found.notes[0] and "traffic" not in entry


def test_the_command_writes_all_three_and_names_what_it_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path / "runs" / "a")
    write_run(tmp_path / "runs" / "b", status="failed", reason="the disk is full", seed=1)
    names = [tmp_path / name for name in ("page.html", "table.csv", "table.md")]
    page, table, markdown = names
    assert (
        cli.command(
            ["report", str(tmp_path / "runs"), "--out", str(page), "--csv", str(table), "--markdown", str(markdown)]
        )
        == 0
    )
    out, err = capsys.readouterr()
    assert "the disk is full" in err and "report: " in out and "GLASU: selected the only one" in out
    assert all("the disk is full" in path.read_text() for path in (page, markdown)) and table.read_text().startswith(
        "dataset,"
    )


@pytest.mark.parametrize("verb", ["report", "show"])
def test_without_a_run_the_command_says_so(verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path / "runs" / "b", status="failed", reason="the disk is full")
    for path, words in ((tmp_path / "nowhere", "is no folder"), (tmp_path / "runs", "none of the runs can be shown")):
        assert cli.command([verb, str(path)]) == 1
        out, err = capsys.readouterr()
        assert words in err and "Traceback" not in err and not out


def test_show_has_what_the_page_has(convex_runs: Path) -> None:
    text = io.StringIO()
    show(report.read([convex_runs / "mtcd_0"], KNOWN), Console(file=text, width=200))
    run = load(convex_runs / "mtcd_0")
    for words in ("MTCD", "SYNTHETIC DATA", "train_suboptimality", "token", "client_0", "timing causal", "command: "):
        assert words in text.getvalue(), words
    assert f"{run.curve['train_suboptimality'].iloc[-1]:.4g}" in text.getvalue()


@pytest.mark.slow
def test_what_is_rerun_has_the_runs_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command of the selected setting composes to the configuration of the run it names."""
    import shlex

    from vflbench import config

    monkeypatch.setattr("vflbench.plots.curves.draw_run", lambda folder, summary: None)
    monkeypatch.setattr("vflbench.plots.curves.draw_runs", lambda runs, folder: None)
    words = [
        "algorithm=glasu",
        "dataset=digits_graph",
        "model.hidden=8",
        "rounds=2",
        "eval_every=1",
        "engine.threads=1",
    ]
    sweep = ["-m", *words, "algorithm.lr=0.001,0.05", "seed=0,1", f"hydra.sweep.dir={tmp_path / 'sweep'}"]
    assert cli.command(sweep) == 0
    found = report.read([tmp_path / "sweep"], KNOWN)
    (choice,) = found.panels[0].choices
    assert choice.setting is not None and choice.command is not None and choice.candidates == 2
    program, flag, *again = shlex.split(choice.command)
    assert (program, flag, again[-1]) == ("vflbench", "-m", "seed=0,1")
    with config.session(again[:-1], None) as hydra:
        for run in choice.setting.runs:
            cfg = config.compose(hydra, [*again[:-1], f"seed={run.summary['seed']}"])
            assert identity.config_hash(config.plain(cfg)) == run.manifest["config_hash"]
