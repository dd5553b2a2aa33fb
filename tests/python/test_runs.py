"""Runs from Python: what they look like, as a table, as a report, in axes, and under another network."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pandas as pd
import pytest
from matplotlib import pyplot as plt

import vflbench
from vflbench.plots import report as page
from vflbench.python.runs import Runs
from vflbench.results.reader import Run
from vflbench.types import ConfigError, DataSource, Metric, VflbenchError

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _closed(monkeypatch: pytest.MonkeyPatch) -> Any:
    mpl.use("Agg")
    yield
    plt.close("all")


@pytest.fixture
def several(make_run: Any, tmp_path: Path) -> Path:
    """Two methods with two seeds each, and a run that diverged."""
    for algorithm in ("glasu", "standalone_gnn"):
        for seed in (0, 1):
            make_run(f"{algorithm}_{seed}", algorithm=algorithm, seed=seed, level=lambda t: t / 50)
    make_run("lost", seed=2, status="diverged", reason="not finite")
    return tmp_path


def test_importing_it_takes_nothing() -> None:
    code = """if True:
        import sys
        import vflbench
        assert {"run", "load", "tables", "report", "reprice", "plot", "__version__"} <= set(dir(vflbench))
        assert {"choose", "tune"} <= set(dir(vflbench))
        heavy = {"torch", "pandas", "numpy", "hydra", "matplotlib", "pyarrow"} & set(sys.modules)
        assert not heavy, heavy
        try:
            vflbench.rum
        except AttributeError as error:
            print(error)
    """
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert done.stdout == "module 'vflbench' has no attribute 'rum'\n", done.stderr


def test_a_run_says_what_it_is_in_two_lines(make_run: Any, tmp_path: Path) -> None:
    run = make_run("a", seed=3, status="budget", reason="max_bytes", source=DataSource("synthetic"))
    said = "budget: max_bytes · test_accuracy 0.6 (selected on validation at round 30) · 30 MB · 1 s communication"
    assert repr(run) == f"Run of glasu on cora, seed 3: {said} · SYNTHETIC DATA\n{run.folder}"
    (run.folder / "summary.json").unlink()
    assert repr(Run(run.folder)) == f"Run of glasu on cora, seed 3: not ended\n{run.folder}"
    (run.folder / "manifest.json").write_text("{")
    assert repr(Run(run.folder)).startswith("Run of what cannot be read: ") and repr(Run(tmp_path / "none"))
    assert all(len(repr(Run(folder)).splitlines()) == 2 for folder in (run.folder, tmp_path / "none"))


def test_load(several: Path, make_run: Any) -> None:
    assert vflbench.load(several / "lost") == Run(several / "lost")
    runs = vflbench.load(str(several))
    assert isinstance(runs, Runs) and len(runs) == 5 and runs[0].summary["seed"] == 0 and len(runs[1:3]) == 2
    table = runs.table
    assert table.status.tolist() == ["completed", "completed", "diverged", "completed", "completed"]
    assert table.algorithm.tolist() == ["glasu"] * 3 + ["standalone_gnn"] * 2
    assert list(table.columns[:5]) == ["folder", "status", "algorithm", "dataset", "seed"]
    assert (table.bytes == 30_000_000).all() and table.selected[0] == pytest.approx(0.6) and table.epsilon.isna().all()
    assert repr(runs) == f"5 runs: 4 completed, 1 diverged\n{several}"
    make_run("slow", network={"name": "us_us"})
    (several / "glasu_0/summary.json").unlink()
    (several / "glasu_1/summary.json").write_text("{}")
    table = vflbench.load(several).table
    assert {*table.status} == {"unfinished", "unreadable", "completed", "diverged"}
    assert table.set_index("folder")["network.name"].dropna().unique().tolist() == ["us_uk", "us_us"]
    with pytest.raises(ConfigError, match=r"there is no such folder. Did you mean 'lost'"):
        vflbench.load(several / "lots")
    (several / "empty").mkdir()
    with pytest.raises(VflbenchError, match="no run is in it"):
        vflbench.load(several / "empty")


def test_markup_in_a_run_is_text_in_a_notebook(make_run: Any, tmp_path: Path) -> None:
    run = make_run("a", algorithm="<script>alert(1)</script>")
    runs = vflbench.load(tmp_path)
    assert isinstance(runs, Runs) and "<script>" not in Runs(runs.runs, ("<script>",))._repr_html_()
    assert "<script>" not in vflbench.report(run)._repr_html_()


def test_plot_draws_into_the_axes_that_it_is_given(several: Path) -> None:
    _, (left, right) = plt.subplots(1, 2)
    right.text(0, 0, "$x^2$")
    assert vflbench.plot(vflbench.load(several), ax=right, x="bytes") is right
    assert not left.lines and right.get_xlabel() == "bytes sent (MB)" and right.get_ylabel() == "test accuracy"
    labels = [text.get_text() for text in right.get_legend().get_texts()]
    assert labels == ["GLASU, n=2", "Standalone GNN, n=2"]
    assert right.lines[0].get_xdata().tolist() == [10, 20, 30]
    assert right.lines[0].get_ydata() == pytest.approx([0.2, 0.4, 0.6])
    assert right.get_title() == "Cora · us_uk · real data"
    texts = {text.get_text(): text.get_parse_math() for text in right.texts}
    assert texts == {"left out: 1 diverged": False, "$x^2$": True}, "the user's own text stays a formula"
    new = vflbench.plot([several / "glasu_0", several / "glasu_1"])
    assert new.figure.number in plt.get_fignums() and new.get_xlabel() == "communication time (s)"
    assert new.get_xscale() == "linear" and vflbench.plot(several / "glasu_0", log=["x", "y"]).get_yscale() == "log"


def test_a_formula_in_a_run_is_text_in_a_picture(make_run: Any) -> None:
    run = make_run("a", algorithm=r"$\frac{", network={"name": r"$\bad"})
    axes = vflbench.plot(run)
    axes.figure.canvas.draw()
    assert r"$\frac{" in axes.get_legend().get_texts()[0].get_text()


def test_made_up_data_are_loud_in_a_picture(make_run: Any) -> None:
    axes = vflbench.plot(make_run("a", source=DataSource("synthetic")))
    assert "SYNTHETIC DATA, nothing of it is real" in [text.get_text() for text in axes.texts]


def test_what_cannot_be_drawn_is_told(several: Path, make_run: Any) -> None:
    runs = vflbench.load(several)
    with pytest.raises(ConfigError) as caught:
        vflbench.plot(runs, ax=3, x="byte", metric="acuracy", log="xz")  # type: ignore[arg-type]
    hints = [(problem.key, problem.closest) for problem in caught.value.problems]
    assert hints == [("x", "bytes"), ("log", None), ("ax", None), ("metric", "accuracy")]
    with pytest.raises(VflbenchError, match="none of the runs can be drawn:\nRun of glasu"):
        vflbench.plot(several / "lost")
    make_run("other", metric=Metric("rmse", "min"))
    with pytest.raises(VflbenchError, match=r"\(cora accuracy; cora rmse\): draw each into its own axes"):
        vflbench.plot(several)
    for wrong in (3, [], [3]):
        with pytest.raises(ConfigError, match="must be a run, a folder with runs, or a list of either"):
            vflbench.plot(wrong)  # type: ignore[arg-type]


def test_epsilons_of_different_kinds_share_no_axis(make_run: Any, tmp_path: Path) -> None:
    """R0.1."""
    for unit in ("a row", "a label"):
        told = {"mechanism": "m", "epsilon": 2.0, "unit": unit, "neighbouring": "replace_one", "covers": "transcript"}
        run = make_run(unit, options={"unit": unit}, privacy=told)
        run.curve["epsilon"] = [0.5, 1.0, 2.0]
    runs = vflbench.load(tmp_path)
    assert isinstance(runs, Runs)
    assert runs.table.guarantee.tolist() == [f"{one}, replaced; covers the transcript" for one in ("a label", "a row")]
    with pytest.raises(VflbenchError, match=r"epsilons are about different things \(a label, .*; a row, .*own axes"):
        vflbench.plot(runs, x="epsilon")
    assert vflbench.plot(run, x="epsilon").lines and len(vflbench.plot(runs, x="bytes").lines) == 2


def test_report(several: Path, tmp_path: Path) -> None:
    made = vflbench.report(vflbench.load(several))
    kept = page.table(made.found)
    assert made.table.to_dict("records")[0]["algorithm"] == "glasu" == kept[0]["algorithm"]
    assert list(made.table.columns) == list(kept[0]) and made.table.reached.tolist() == [2, 2]
    assert made.answers.iloc[0]["others may see"] == "anything" and (made.answers.data == "Cora, accuracy").all()
    assert len(made.notes) == 3 + 2 and "lost is left out: status diverged" in made.notes[0]
    first, second = repr(made).splitlines()
    assert first == "Report of 4 runs, 2 settings on Cora, accuracy; 5 notes"
    assert second.startswith("where others may see anything: ")
    assert "<table" in made._repr_html_() and made.html().startswith("<!doctype html>") and "## Cora" in made.markdown()
    assert not list(tmp_path.glob("*.html"))
    files = {"out": tmp_path / "r.html", "csv": tmp_path / "r.csv"}
    again = vflbench.report([several / "glasu_0", str(several / "standalone_gnn_0")], **files)
    assert len(pd.read_csv(files["csv"])) == len(again.table) == 2 and files["out"].read_text() == again.html()
    with pytest.raises(VflbenchError, match="already exists: name another file, or replace it with overwrite=True"):
        vflbench.report(several, **files)
    vflbench.report(several, **files, overwrite=True)
    assert files["out"].read_text() == made.html()
    with pytest.raises(VflbenchError, match="is in the folder of a run"):
        made.write(markdown=several / "glasu_0/page.md")
    with pytest.raises(ConfigError) as caught:
        vflbench.report(several, predictions=-1, without=["trian", "align"], noise=-1)
    assert [problem.key for problem in caught.value.problems] == ["predictions", "without", "noise"]


def test_a_list_of_overrides_is_a_list() -> None:
    with pytest.raises(ConfigError, match="overrides='algorithm=vfl': must be a list of texts"):
        vflbench.run("algorithm=vfl")
    with pytest.raises(ConfigError, match="must be a list of texts"):
        vflbench.run(["algorithm=vfl", 3])  # type: ignore[list-item]


@pytest.mark.slow
def test_reprice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["algorithm=svfl", "dataset=ridge", "dataset.samples=40", "rounds=3", "plot=none", "engine.threads=1"]
    run = vflbench.run([*words, "network=us_us"])
    moved, fresh = vflbench.reprice(run, "lan"), vflbench.run([*words, "network=lan"])
    assert isinstance(moved, Run) and moved.folder.parent == Path("outputs/reprice")
    pd.testing.assert_frame_equal(moved.curve, fresh.curve)
    assert moved.manifest["command"].startswith("vflbench.reprice([")
    both = vflbench.reprice([run, fresh], ["us_uk", "lan"], bandwidth_mbps=3, out="elsewhere")
    assert isinstance(both, Runs) and len(both) == 4 and len(both.table["network.name"].unique()) == 2
    with pytest.raises(ConfigError, match="Did you mean 'us_us'"):
        vflbench.reprice(run, "us_u")
    with pytest.raises(ConfigError, match="name what to price by"):
        vflbench.reprice(run)
    cancer = ["dataset=breast_cancer", "dataset.problem=learning", "floor=none"]
    timed = vflbench.run(["algorithm=avfl", *cancer, "rounds=2", "plot=none", "engine.threads=1"])
    with pytest.raises(VflbenchError, match=re.escape(str(timed.folder))):
        vflbench.reprice(timed, "lan")
    some = vflbench.reprice([run, timed], "ideal")
    assert isinstance(some, Runs) and len(some) == len(some.notes) == 1 and "1 left out" in repr(some)


@pytest.mark.slow
def test_a_run_leaves_nothing_that_bindings_complain_of_at_the_end(tmp_path: Path) -> None:
    """What is frozen for speed is thawed: DuckDB's bindings print what the last collection does not find."""
    words = ["algorithm=vfl_sgd", "dataset=bank", "dataset.source=synthetic", "dataset.samples=600", "epochs=1"]
    code = f"import duckdb; from vflbench import cli; cli.command({[*words, 'floor=none', 'plot=none']})"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and "run folder: " in done.stdout and "leaked" not in done.stderr, done.stderr


@pytest.mark.slow
def test_runs_of_several_threads_wait_for_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a service: Hydra has one state for all."""
    monkeypatch.chdir(tmp_path)
    words = ["algorithm=stcd", "dataset=ridge", "rounds=2", "floor=none", "plot=none"]

    async def several() -> list[Any]:
        return await asyncio.gather(*(asyncio.to_thread(vflbench.run, [*words, f"seed={seed}"]) for seed in range(3)))

    assert sorted(run.summary["seed"] for run in asyncio.run(several())) == [0, 1, 2]
