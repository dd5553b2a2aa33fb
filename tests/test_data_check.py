"""`vflbench data check`: what each column is taken for, what becomes of it, and every problem before a run."""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.every import few_fast
from vflbench.cli import command

N = 200
EXAMPLES = Path(__file__).resolve().parents[1] / "examples/data"


@pytest.fixture
def here(tmp_path, monkeypatch):
    r = np.random.default_rng(0)
    ids = [f"P{i:03d}" for i in range(N)]
    size = (170 + 10 * r.normal(size=N)).round(1)
    first = pd.DataFrame({"id": ids, "größe": size, "ort": r.choice(["Köln", "Bonn"], N)})
    first["tag"] = pd.date_range("2024-01-01", periods=N).strftime("%d.%m.%Y")
    first["leer"] = None
    first["krank"] = np.where(size + 10 * r.normal(size=N) > 170, "ja", "nein")
    first.to_csv(tmp_path / "a.csv", index=False, sep=";", decimal=",", encoding="cp1252")
    second = pd.DataFrame({"id": ids, "laktat": r.gamma(3, 0.6, N).round(2), "notiz": [f"Text {i}" for i in range(N)]})
    second.sample(frac=1, random_state=0).to_csv(tmp_path / "b.csv", index=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def check(capsys, *words: str) -> tuple[int, str]:
    code = command(["data", "check", *words])
    return code, capsys.readouterr().out


def lines_of(text: str, *names: str) -> list[str]:
    return [next(line for line in text.splitlines() if line.startswith(f"{name} ")) for name in names]


def test_each_column_has_a_line(here, capsys):
    code, text = check(capsys, "a.csv", "b.csv", "dataset.id=id", "dataset.label=krank")
    assert code == 0 and "No problem was found." in text
    assert "a.csv: 200 rows, 6 columns; separated by ';', decimal comma, cp1252 (as in 'größe'), with a header" in text
    assert "b.csv: 200 rows, 3 columns; separated by ',', UTF-8, with a header line" in text
    id_, size, town, day, empty, label = lines_of(text, "id", "größe", "ort", "tag", "leer", "krank")
    assert id_.split()[1] == "id" and id_.endswith("matches rows")
    assert size.split()[1] == "number" and size.endswith("1 standardised number")
    assert town.split()[1] == "category" and town.endswith("2 0/1 columns") and " 2 " in town
    assert day.split()[1] == "date" and "the day first" in day
    assert empty.split()[1] == "empty" and " 200 " in empty and empty.endswith("left out")
    assert label.split()[1] == "label" and label.endswith("2 classes")
    assert "Rows are matched by their IDs: 200 are in all files, of 200 of a.csv and 200 of b.csv." in text
    words = "dataset=tabular_files dataset.id=id dataset.label=krank 'dataset.files=[a.csv,b.csv]'"
    assert f"vflbench choose {words} target=0.8 budget=20m" in text
    assert "column notiz: its texts name each row, so it is left out. List it in dataset.categories" in text
    assert not [path for path in here.iterdir() if path.suffix != ".csv"], "nothing is written"


def test_what_a_run_would_refuse(here, capsys):
    text = (here / "b.csv").read_text().splitlines()
    (here / "b.csv").write_text("\n".join([*text[:5], text[5].replace(",", ",", 1) + ",x", *text[6:-1]]))
    code, text = check(capsys, "a.csv", "b.csv", "dataset.id=id", "dataset.label=krnak")
    assert code == 1
    assert "A run would be refused: 2 problems" in text
    assert "dataset.label=krnak: a.csv has no such column (of 6). Did you mean 'krank'?" in text
    assert "b.csv, line 6: 4 cells, but there are 3 columns" in text
    assert "größe" in text, "what can be read is shown"
    code, text = check(capsys, "a.csv", "c.csv", "dataset.label=krank")
    assert code == 1 and "dataset.files=c.csv: there is no such file" in text and "Did you mean '" in text


def test_a_class_of_too_few_rows(here, capsys):
    frame = pd.read_csv(here / "a.csv", sep=";", decimal=",", encoding="cp1252")
    frame["krank"] = ["ja"] * 2 + ["nein"] * (N - 2)
    frame.to_csv(here / "a.csv", index=False)
    code, text = check(capsys, "a.csv", "b.csv", "dataset.id=id", "dataset.label=krank")
    assert code == 1 and "A run would be refused: 1 problem" in text and "of which there is no AUROC" in text


def test_files_alone_are_enough(here, capsys):
    code, text = check(capsys, "a.csv")
    assert code == 0 and "No problem was found." in text
    assert "dataset.label=COLUMN" in text
    code, text = check(capsys, "a.csv", "b.csv")
    assert "dataset.id" in text


def test_json_has_everything(here, capsys):
    code, text = check(capsys, "a.csv", "b.csv", "dataset.id=id", "dataset.label=krank", "--json")
    made = json.loads(text)
    assert code == 0 and made["refused"] is False and made["problems"] == []
    first, second = made["files"]
    assert first["form"]["details"]["encoding"] == "cp1252" and first["form"]["details"]["separator"] == ";"
    columns = {column["column"]: column for column in first["columns"] + second["columns"]}
    assert columns["größe"]["taken_for"] == "number" and columns["größe"]["distinct"] > 50
    assert columns["notiz"]["severity"] == "warning" and columns["notiz"]["remarks"][0]["key"] == "dataset.categories"
    assert set(columns["tag"]) >= {"why", "missing", "distinct", "odd", "odd_at", "becomes", "features"}


def test_a_leak_is_seen_before_anything_trains(here, capsys):
    frame = pd.read_csv("a.csv", sep=";", decimal=",", encoding="cp1252")
    frame["entlassen"] = np.where(frame.krank == "ja", "verlegt", "nach Hause")
    frame.to_csv("a.csv", index=False)
    _, text = check(capsys, "a.csv", "dataset.label=krank")
    assert "warning: column entlassen" in text


def test_odd_cells_of_a_column_with_decimal_commas(here, capsys):
    text = (here / "a.csv").read_bytes().decode("cp1252").splitlines()
    text[3] = text[3].replace(text[3].split(";")[1], "1o5,2")
    (here / "a.csv").write_bytes("\r\n".join(text).encode("cp1252"))
    _, text = check(capsys, "a.csv", "dataset.label=krank")
    assert "1: '1o5,2' in line 4" in text and "most cells are numbers, but not all (1 of 200" in text
    _, text = check(capsys, "a.csv", "dataset.label=krank", "dataset.numbers=['größe']")
    (size,) = lines_of(text, "größe")
    assert size.split()[1] == "number" and "1: '1o5,2' in line 4" in size


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("dataset.lable=x", "a.csv"), "Did you mean 'dataset.label'?"),
        (("epochs=3", "a.csv"), "takes files, dataset.KEY=VALUE and data_root=DIR, not epochs=3"),
        (("dataset=bank", "a.csv"), "is for dataset=tabular_files"),
        (("dataset.label=a,b", "a.csv"), "several values"),
        (("dataset.label=krank",), "dataset.files=[]: must name a file"),
    ],
)
def test_mistakes_in_the_command(here, capsys, words, reason):
    assert command(["data", "check", *words]) == 1
    out, err = capsys.readouterr()
    assert reason in out + err and "Traceback" not in err


def test_an_option_of_the_user_can_be_checked(here, capsys):
    folder = here / "own" / "dataset"
    folder.mkdir(parents=True)
    (folder / "mine.yaml").write_text(
        "defaults: [tabular_files]\nname: tabular_files\nlabel: krank\nid: id\n"
        "files: [{path: a.csv, separator: ';'}, b.csv]\n"
    )
    code, text = check(capsys, "dataset=mine", "--config-dir", "own")
    assert code == 0 and "separated by ';'" in text and Path("own").is_dir()


def test_files_that_share_an_id_under_two_names(here, capsys):
    """What the first command says is what the next one needs."""
    frame = pd.read_csv("b.csv").rename(columns={"id": "Pat.-Nr."})
    frame[:150].to_csv("b.csv", index=False)
    code, text = check(capsys, "a.csv", "b.csv", "dataset.label=krank")
    assert code == 1 and "id: Pat.-Nr." in text
    files = "dataset.files=[{path: a.csv, id: id}, {path: b.csv, id: Pat.-Nr.}]"
    code, text = check(capsys, files, "dataset.label=krank")
    assert code == 1 and "use dataset.alignment=psi or hashed" in text
    assert "150 are in all files, of 200 of a.csv and 150 of b.csv" in text
    code, text = check(capsys, files, "dataset.label=krank", "dataset.alignment=hashed")
    assert code == 0 and f"vflbench choose dataset=tabular_files '{files}'" in text


def test_ids_that_only_seem_equal_are_named(here, capsys):
    frame = pd.read_csv("b.csv")
    frame["id"] = frame.id.replace({"P003": "\uff30003", "P004": "p004"})
    frame.to_csv("b.csv", index=False)
    keys = ["a.csv", "b.csv", "dataset.id=id", "dataset.label=krank", "dataset.alignment=hashed"]
    code, text = check(capsys, *keys)
    assert code == 0 and "198 are in all files" in text
    assert "'P003' (U+0050) and '\uff30003' (U+FF30); they are not matched." in text
    assert "differ only in blanks, capitals, leading zeros or a final .0, as 'P004' and 'p004'" in text


@pytest.mark.parametrize("label", few_fast([[], ["dataset.label=krank"]]), ids=["no label", "label"])
def test_an_id_that_a_file_lacks_is_a_problem(here, capsys, label):
    code, text = check(capsys, "a.csv", "b.csv", "dataset.id=ort", *label)
    assert code == 1 and "dataset.id=ort: b.csv has no such column" in text and "are matched by" not in text


def test_cells_are_counted_in_the_rows_that_all_files_have(here, capsys):
    frame = pd.read_csv("a.csv", sep=";", decimal=",", encoding="cp1252")
    frame.loc[:9, "ort"] = "Ulm"
    frame.loc[:9, "größe"] = np.nan
    frame.to_csv("a.csv", index=False)
    pd.read_csv("b.csv").query("id > 'P009'").to_csv("b.csv", index=False)
    keys = ["a.csv", "b.csv", "dataset.id=id", "dataset.label=krank", "dataset.alignment=hashed"]
    size, town = lines_of(check(capsys, *keys)[1], "größe", "ort")
    assert " numbers   0  " in size and town.endswith("2 0/1 columns")


@pytest.mark.slow
def test_how_rows_are_matched_without_an_id(here, capsys):
    _, text = check(capsys, "a.csv", "b.csv", "dataset.label=krank")
    assert "No ID is named, and rows cannot be matched by their order: dataset.id=COLUMN" in text
    pd.read_csv("b.csv").sort_values("id").to_csv("b.csv", index=False)
    code, text = check(capsys, "a.csv", "b.csv", "dataset.label=krank")
    assert code == 0 and "so rows are aligned by the order of their rows, which column id confirms.\n" in text
    _, text = check(capsys, "a.csv", "b.csv", "dataset.label=krank", "dataset.leave_out=[id]")
    assert "so rows are aligned by the order of their rows. dataset.id=COLUMN matches them by an ID." in text


@pytest.mark.parametrize(
    ("name", "advice"),
    few_fast([
        ("kranke.db", "dataset=sql reads"), ("sqlite:///kranke.db", "dataset=sql reads"),
        ("graph.npz", "dataset=graph_files reads"), ("graph", "It is a folder: name the files in it"),
    ], 2),
)  # fmt: skip
def test_what_is_no_table(here, capsys, name, advice):
    sqlite3.connect(here / "kranke.db").execute("create table t (id, x)").connection.close()
    np.savez(here / "graph.npz", x=np.ones(3))
    (here / "graph").mkdir()
    for words in ([name], ["a.csv", name, "dataset.label=krank"]):
        code, text = check(capsys, *words)
        assert code == 1 and f"dataset.files={name}: must be a text file" in text and advice in text


@pytest.mark.slow
def test_two_files_of_a_european_hospital_are_three_commands_from_an_answer(tmp_path, monkeypatch, capsys):
    """Without editing a file: one is in Windows-1252, the other in UTF-8 and calls the ID otherwise."""
    for name in ("klinik.csv", "labor.csv"):
        shutil.copy(EXAMPLES / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    _, text = check(capsys, "klinik.csv", "labor.csv")
    assert "separated by ';', decimal comma, thousands sign '.', cp1252 (as in 'Größe')" in text and "UTF-8" in text
    assert "40 0/1 columns" in text and "dates, the day first" in text
    files = "[{path: klinik.csv, id: Patient}, {path: labor.csv, id: Pat.-Nr.}]"
    assert files in text
    keys = [f"dataset.files={files}", "dataset.label=verstorben", "dataset.alignment=hashed"]
    code, text = check(capsys, *keys)
    assert code == 0 and "800 are in all files" in text
    search = ["algorithm=vfl_sgd,send_once", "target=0.75", "trials=1", "dataset=tabular_files"]
    assert command(["choose", *search, *keys, "out=found"]) == 0
    assert "auroc 0.75 with" in capsys.readouterr().out
    answer = json.loads((tmp_path / "found/answer.json").read_text(encoding="utf-8"))
    assert answer
