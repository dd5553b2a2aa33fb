"""Runs of different experiments are never averaged, and the reader learns in what they differ."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import vflbench
from vflbench import cli
from vflbench.plots import curves
from vflbench.results import experiment, reader, selection, sweep_table
from vflbench.runner import provenance

VFL = ["algorithm=vfl", "dataset=tabular_files", "dataset.files=[a.csv,b.csv]", "dataset.id=id", "dataset.label=y"]
SHORT = ["epochs=1", "floor=none", "plot=none"]


def write_tables(folder: Path, seed: int = 0, rows: int = 60) -> None:
    folder.mkdir(exist_ok=True)
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 4)).round(3)
    frame = pd.DataFrame({"id": range(100, 100 + rows), "x1": x[:, 0], "x2": x[:, 1], "y": (x.sum(1) > 0).astype(int)})
    frame.to_csv(folder / "a.csv", index=False)
    pd.DataFrame({"id": frame["id"], "z1": x[:, 2], "z2": x[:, 3]}).to_csv(folder / "b.csv", index=False)


def flip(path: Path) -> None:
    frame = pd.read_csv(path)
    frame.loc[frame.index[:5], "y"] = 1 - frame.loc[frame.index[:5], "y"]
    frame.to_csv(path, index=False)


def changed(run: reader.Run, **manifest: object) -> None:
    """Rewrite a run's manifest."""
    path = run.folder / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **manifest}))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_tables(tmp_path)
    return tmp_path


# --- facts ------------------------------------------------------------------------------------------------------------


def test_facts_name_files_source_plug_ins_and_version():
    data = {"kind": "real", "variant": "1m", "files": [["a.csv", "1" * 64], ["a.csv", "2" * 64]]}
    found = experiment.facts({"data": data, "plugins": {"algorithm mine": "3" * 64}, "semantics": 7})
    assert found == {
        "data.a.csv": "1" * 12,
        "data.a.csv (2)": "2" * 12,
        "source": "real 1m",
        "plugin.algorithm mine": "3" * 12,
        "semantics": "7",
    }
    assert experiment.facts({}) == {"semantics": "unknown"}
    assert experiment.differences(found, found) == ""
    assert experiment.differences(found, {**found, "semantics": "8"}) == "semantics version: 7 there, 8 here"


def test_a_fact_is_a_condition_and_no_hyper_parameter(make_run):
    runs = [make_run("a", seed=0), make_run("b", seed=1)]
    changed(runs[1], semantics=experiment.SEMANTICS + 1)
    found = selection.settings([reader.load(run.folder) for run in runs])
    assert [setting.differs for setting in found] == [{"semantics": str(experiment.SEMANTICS + new)} for new in (0, 1)]
    assert len(selection.choose(found)) == 2


# --- all that puts runs together --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("manifest", "word"),
    [
        ({"data": {"kind": "real", "files": [["a.csv", "f" * 64]]}}, "file a.csv"),
        ({"data": {"kind": "partial", "files": [["a.csv", "1" * 64]]}}, "data source"),
        ({"semantics": 0}, "semantics version"),
        ({"plugins": {"algorithm glasu": "2" * 64}}, "plug-in algorithm glasu"),
    ],
)
def test_neither_table_nor_report_averages_two_experiments(make_run, tmp_path, manifest, word):
    for seed in range(4):
        run = make_run(str(seed), seed=seed, overrides=[f"seed={seed}"])
        known = {"data": {"kind": "real", "files": [["a.csv", "1" * 64]]}, "plugins": {"algorithm glasu": "1" * 64}}
        changed(run, **known)
        if seed > 1:
            changed(run, **manifest)
    lines = sweep_table.table(tmp_path).splitlines()
    assert [line.split()[0] for line in lines[1:3]] == ["0-1", "2-3"] and f"runs differ in {word}" in lines[3]
    runs = selection.collect([tmp_path]).runs
    assert [setting.seeds for setting in selection.settings(runs)] == [[0, 1], [2, 3]]
    panels = [[run.summary["seed"] for run in panel] for panel in selection.unlike(runs)]
    apart = not word.startswith("plug-in")  # methods may be of different packages
    assert panels == ([[0, 1], [2, 3]] if apart else [[0, 1, 2, 3]])


def test_runs_from_before_are_averaged_among_themselves_with_a_word(make_run, tmp_path):
    for seed in range(3):
        run = make_run(str(seed), seed=seed, overrides=[f"seed={seed}"])
        if seed < 2:
            manifest = json.loads((run.folder / "manifest.json").read_text())
            manifest.pop("semantics")
            (run.folder / "manifest.json").write_text(json.dumps(manifest))
    found = selection.collect([tmp_path])
    assert [setting.seeds for setting in selection.settings(found.runs)] == [[0, 1], [2]]
    note = "2 runs of an older vflbench have no semantics version: such runs are averaged only among themselves"
    assert found.notes == [note] and sweep_table.table(tmp_path).endswith(note)


def test_another_plug_in_for_the_data_is_other_data(make_run):
    runs = [make_run("a"), make_run("b", seed=1)]
    for number, run in enumerate(runs):
        changed(run, plugins={"dataset mine": f"{number}" * 64})
    assert len(selection.unlike([reader.load(run.folder) for run in runs])) == 2


def test_files_that_only_one_run_has_are_a_line_of_their_own(make_run, tmp_path):
    runs = [make_run("a"), make_run("b", seed=1)]
    for run, name in zip(runs, ("x.csv", "x.csv.gz"), strict=True):
        changed(run, data={"kind": "real", "files": [[name, "1" * 64]]})
    drawn = curves.draw_runs([reader.load(run.folder) for run in runs], tmp_path)
    first, second = drawn["line"].unique()
    assert drawn["n"].unique().tolist() == [1] and first in second and "file x.csv.gz: none there" in second


def test_equal_runs_of_two_folders_count_once(make_run):
    runs = [make_run("a"), make_run("b"), make_run("c", seed=1)]
    found = selection.collect([run.folder for run in runs])
    assert [run.summary["seed"] for run in found.runs] == [
        0,
        1,
    ] and "it has the configuration, the data" in found.notes[0]
    (line,) = curves._lines(runs).values()
    assert [run.summary["seed"] for run in line] == [0, 1]


def test_a_job_that_repeats_a_seed_counts_once(make_run, tmp_path):
    """A sweeper that adapts may choose a point twice."""
    for name, seed, score in (("0", 0, 0.1), ("1", 0, 0.1), ("2", 1, 0.5)):
        path = make_run(name, seed=seed, overrides=[f"seed={seed}"]).folder / "summary.json"
        summary = json.loads(path.read_text())
        summary["metric"]["final"] = score
        path.write_text(json.dumps(summary))
    (line,) = sweep_table.table(tmp_path).splitlines()[1:]
    assert line.split()[:2] == ["0-2", "2"] and "0.3000 ± 0.2828" in line


def test_a_seed_that_is_there_twice_is_refused(project, capsys, monkeypatch):
    monkeypatch.setenv("FIRST", "0")
    assert cli.command(["-m", *VFL, *SHORT, "seed=0,${oc.env:FIRST}"]) == 1
    assert "has 0 twice" in capsys.readouterr().err
    assert cli.command(["-m", *VFL, *SHORT, "seed=range(0,3),1"]) == 1
    assert (
        "seed=range(0,3),1: range(...), interval(...), choice(...) and glob(...) stand alone" in capsys.readouterr().err
    )
    assert cli.command(["-m", *VFL, *SHORT, "seed=0,0,1"]) == 1
    assert "seed=0,0,1: has 0 twice: list each value once" in capsys.readouterr().err
    assert cli.command(["-m", *VFL, *SHORT, "algorithm.lr=0.1,1e-1", "seed=0"]) == 1
    assert "algorithm.lr=0.1,1e-1: has 0.1 twice" in capsys.readouterr().err


# --- from the command line --------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_sweep_is_not_extended_over_changed_data(project, capsys):
    sweep_words = ["-m", *VFL, *SHORT, "hydra.sweep.dir=sw"]
    assert cli.command([*sweep_words, "seed=0,1"]) == 0
    assert cli.command([*sweep_words, "seed=0,1,2"]) == 0, "with the same data it goes on"
    assert "kept" in capsys.readouterr().out
    flip(project / "a.csv")
    assert cli.command([*sweep_words, "seed=0,1,2,3"]) == 1
    told = capsys.readouterr().err
    assert "sw/0 holds a run of another experiment" in told and "file a.csv: " in told and "b.csv" not in told
    assert not (project / "sw/3").exists()


@pytest.mark.slow
def test_a_run_is_not_continued_on_changed_data(project, capsys):
    words = [*VFL, *SHORT, "hydra.run.dir=run"]
    assert cli.command(words) == 0
    flip(project / "a.csv")
    assert cli.command([*words, "resume=true"]) == 1
    assert "run holds a run of another experiment" in capsys.readouterr().err
    assert cli.command([*VFL, *SHORT]) == 0
    dated = next((project / "outputs/runs").iterdir())
    flip(project / "a.csv")
    assert cli.command([*VFL, *SHORT, "resume=true"]) == 0
    assert f"not considered: {dated.relative_to(project)} is another experiment" in capsys.readouterr().err


@pytest.mark.slow
def test_two_projects_with_files_of_one_name_stay_apart(tmp_path, monkeypatch, capsys):
    for number, name in enumerate(("north", "south")):
        write_tables(tmp_path / name, seed=number)
        monkeypatch.chdir(tmp_path / name)
        assert cli.command(["-m", *VFL, *SHORT, "seed=0,1"]) == 0
    monkeypatch.chdir(tmp_path)
    capsys.readouterr()
    assert cli.command(["report", "north", "south", "--out", "page.html"]) == 0
    told = capsys.readouterr()
    assert "left out" not in told.err
    made = vflbench.report(["north", "south"])
    assert made.table.runs.tolist() == [2, 2]
    titles = [panel.title for panel in made.found.panels]
    assert len(set(titles)) == 2 and "north" in titles[0] and "south" in titles[1]
    assert all(f"{title}: " in told.out for title in titles)
    loaded = vflbench.load(tmp_path)
    assert {name for name in loaded.table.columns if name.startswith("data.")} == {"data.a.csv", "data.b.csv"}


def test_real_files_that_come_after_a_stand_in_are_told(tmp_path, monkeypatch):
    row = SimpleNamespace(option="cora", found="real")
    manifest = {"data": {"kind": "synthetic", "files": []}, "semantics": experiment.SEMANTICS}
    values = {"dataset": {"name": "cora", "source": "auto"}, "data_root": None}
    monkeypatch.setattr(provenance.sources, "status", lambda root: [row])
    assert provenance.changed_since(manifest, values) == "data source: synthetic there, real here"
    row.found = "missing"
    assert provenance.changed_since(manifest, values) == ""


def test_what_changed_is_told_without_reading_the_data(project):
    files = [["a.csv", "0" * 64], ["gone.csv", "1" * 64]]
    manifest = {"data": {"kind": "real", "files": files}, "semantics": experiment.SEMANTICS}
    values = {"dataset": {"name": "tabular_files", "files": [{"path": "a.csv"}, "b.csv"]}, "data_root": None}
    assert provenance.changed_since(manifest, values).startswith("file a.csv: 000000000000 there, ")
    manifest["data"]["files"][0][1] = provenance.sources.stamp(project / "a.csv")
    assert provenance.changed_since(manifest, values) == ""
    assert (
        provenance.changed_since({**manifest, "semantics": 0}, values)
        == f"semantics version: 0 there, {experiment.SEMANTICS} here"
    )
