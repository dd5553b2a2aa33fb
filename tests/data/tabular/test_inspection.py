"""All problems of a user's files at once; what was matched, imputed and encoded; rows that not all parties have."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from vflbench.cards.data.tabular.tabular_files import Config
from vflbench.data.columns import inspection
from vflbench.data.tabular import tabular_files
from vflbench.data.tabular.tabular_files import load
from vflbench.types import ConfigError, DataError

N = 40


@pytest.fixture
def tables() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Two hospitals' tables without a fault."""
    rng = np.random.default_rng(3)
    city = pd.DataFrame({"patient": [f"p{i:02d}" for i in range(N)], "age": rng.normal(60, 9, N).round(1)})
    city["smoker"], city["died"] = rng.choice(["no", "yes"], N), np.arange(N) % 2
    clinic = pd.DataFrame({"patient": city.patient[::-1], "sugar": rng.normal(6, 1, N).round(2), "stay": np.arange(N)})
    return city, clinic


def config(**keys) -> Config:
    return Config(files=["city.csv", "clinic.csv"], **{"label": "died", "id": "patient", **keys})


def told(folder: Path, **keys) -> str:
    with pytest.raises((ConfigError, DataError)) as caught:
        load(config(**keys), "aligned", 2, 0, folder)
    return str(caught.value).replace(f"{folder}/", "")


def test_every_problem_of_two_broken_files_is_told_at_once(tmp_path, tables):
    city, clinic = tables
    city["died"] = city.died.astype(object)
    city.loc[[2, 5, 6, 8, 11], "died"] = None
    city.loc[[4, 9], "patient"] = "p00"
    city["note"] = None
    clinic = clinic.rename(columns={"patient": "pat_id"})
    clinic["text"] = [f"text {i}" for i in range(N)]
    clinic["sugar"] = clinic.sugar.astype(object)
    clinic.iloc[3, 1] = "inf"
    city.to_csv(tmp_path / "city.csv", index=False)
    clinic.to_csv(tmp_path / "clinic.csv", index=False)
    lines = told(tmp_path, leave_out=["nothing"]).splitlines()
    assert lines == [
        "5 problems in your files:",
        "  dataset.id=patient: clinic.csv has no such column (of 4). Did you mean 'pat_id'?",
        "  dataset.leave_out=nothing: no file has such a column.",
        "  city.csv, line 4, column died: no label; remove the row (also line 7, line 8, line 10 and 1 more)",
        "  city.csv, line 6, column patient: the ID 'p00' is there twice (also line 11)",
        "  clinic.csv, column sugar: inf in line 5 is not finite; correct it, or list it in dataset.missing_words",
    ]


def test_how_files_are_written_is_told_and_a_missing_file_is_named(tmp_path, tables):
    city, clinic = tables
    city.to_csv(tmp_path / "city.csv", index=False, sep=";", decimal=",")
    assert told(tmp_path).startswith("dataset.files=clinic.csv: there is no such file")
    clinic["sugar"] = ["süß", "bitter"] * (len(clinic) // 2)
    clinic.to_csv(tmp_path / "clinic.csv", index=False, encoding="latin-1")
    task = load(config(), "aligned", 2, 0, tmp_path)
    lines = inspection.in_words(task.source.tables)
    assert lines[0].startswith("city.csv: separated by ';', ")
    assert "clinic.csv: separated by ',', cp1252 (as in 'süß'), with a header line" in lines
    assert task.source.tables[1]["written"]["details"]["encoding"] == "cp1252"
    (tmp_path / "clinic.csv").write_bytes(b"patient,sugar,stay\np00,\x81,1\n")
    text = told(tmp_path)
    assert "clinic.csv, line 2: neither UTF-8 nor Windows-1252" in text
    assert "has no such column" not in text, "a file that cannot be read is not blamed for its columns"


def test_labels_that_are_no_numbers_and_ids_that_do_not_match(tmp_path, tables):
    city, clinic = tables
    city["died"] = city.died.astype(object)
    city.loc[[1, 7], "died"] = "perhaps"
    city.to_csv(tmp_path / "city.csv", index=False)
    clinic[:-2].to_csv(tmp_path / "clinic.csv", index=False)
    text = told(tmp_path, task="regression")
    assert "column died: holds text, not numbers, as 'perhaps' in line 3, line 9; use dataset.task=classes" in text
    assert "2 IDs of city.csv, the first of them 'p00', are not in clinic.csv" in text


def test_the_problem_that_stopped_loading_is_told_beside_those_that_are_found_later(tmp_path, tables):
    """Columns without a value stop nothing; an ID that no other has does."""
    city, clinic = tables
    city.assign(note=None, more=None).to_csv(tmp_path / "city.csv", index=False)
    clinic.assign(patient=clinic.patient + "x").to_csv(tmp_path / "clinic.csv", index=False)
    lines = told(tmp_path, alignment="hashed").splitlines()
    assert len(lines) == 1 and "have no ID in common in column patient" in lines[0]
    city.assign(note=None, died=None).to_csv(tmp_path / "city.csv", index=False)
    clinic[:0].to_csv(tmp_path / "clinic.csv", index=False)
    lines = told(tmp_path).splitlines()
    assert lines[1] == "  clinic.csv: has no rows" and "column died: no label" in lines[2]


def test_each_file_has_its_own_separator(tmp_path, tables):
    city, clinic = tables
    city.to_csv(tmp_path / "city.csv", index=False)
    clinic.to_csv(tmp_path / "clinic.csv", index=False, sep=";")
    task = load(config(), "aligned", 2, 0, tmp_path)
    assert [own["written"]["details"]["separator"] for own in task.source.tables] == [",", ";"]
    clinic[["stay"]].set_axis(["stay, days"], axis=1).to_csv(tmp_path / "clinic.csv", index=False)
    assert len(load(config(id=None, leave_out=["patient"]), "aligned", 2, 0, tmp_path).features) == 2


def test_texts_that_are_mostly_numbers_and_ids_that_are_written_otherwise(tmp_path, tables, caplog):
    city, clinic = tables
    city.loc[[2, 5], "patient"] = ["P02 ", "0p05"]
    city.to_csv(tmp_path / "city.csv", index=False)
    clinic["sugar"], clinic["stay"] = clinic.sugar.astype(object), [f"{day:03d}" for day in clinic.stay // 3]
    clinic.iloc[[3, 7], 1] = ["6,1", "7o"]
    clinic.iloc[9, 1] = None
    clinic.to_csv(tmp_path / "clinic.csv", index=False)
    task = load(config(alignment="hashed"), "aligned", 2, 0, tmp_path)
    assert task.source.tables[0]["matched"] == N - 2
    said = caplog.text.replace(f"{tmp_path}/", "")
    assert (
        "column sugar: most cells are numbers, but not all (2 of 40, e.g. '6,1' in line 5), so the column is left out"
        in said
    )
    assert "column stay" not in said and "column smoker" not in said  # 007 is a code, yes and no are words
    differ = "differ only in blanks, capitals, leading zeros or a final .0"
    assert f"2 IDs of city.csv and clinic.csv {differ}, as 'P02 ' and 'p02'" in said
    caplog.clear()
    load(config(alignment="hashed", categories=["sugar"]), "aligned", 2, 0, tmp_path)
    assert "mostly numbers" not in caplog.text


def test_what_hides_nothing_else_and_is_told_once(tmp_path, tables, caplog):
    """A row without an ID beside IDs that are there twice; a typing error in a number; IDs that differ in capitals."""
    city, clinic = tables
    city.loc[[3, 8], "patient"] = None
    city.loc[9, "patient"] = "p00"
    city["age"] = city.age.astype(object)
    city.loc[20, "age"] = "6o"
    city.to_csv(tmp_path / "city.csv", index=False)
    clinic.assign(patient=clinic.patient.str.upper()).to_csv(tmp_path / "clinic.csv", index=False)
    text = told(tmp_path, alignment="hashed")
    for line in (
        "city.csv, line 5, column patient: no ID (also line 10)",
        "city.csv, line 11, column patient: the ID 'p00' is there twice",
    ):
        assert f"\n  {line}" in text
    tables[0].assign(age=60.0, patient=[f"p{i:02d}" for i in range(N)]).to_csv(tmp_path / "city.csv", index=False)
    assert "have no ID in common" in told(tmp_path, alignment="hashed")
    assert caplog.text.count("differ only in blanks, capitals") == 1


def test_quoted_empty_cells_are_missing(tmp_path, tables):
    """As csv.QUOTE_ALL and most databases write them."""
    city, clinic = tables
    city.loc[[6, 8], "age"], city.loc[7, "smoker"] = np.nan, None
    tasks = []
    for quoting in (csv.QUOTE_MINIMAL, csv.QUOTE_ALL):
        city.to_csv(tmp_path / "city.csv", index=False, quoting=quoting)
        clinic.to_csv(tmp_path / "clinic.csv", index=False, quoting=quoting)
        tasks.append(load(config(), "aligned", 2, 0, tmp_path))
    assert tasks[1].source.tables[0]["imputed"] == {"age": 2}
    np.testing.assert_array_equal(tasks[0].features[0], tasks[1].features[0])
    city.assign(died=["", *city.died[1:]]).to_csv(tmp_path / "city.csv", index=False, quoting=csv.QUOTE_ALL)
    assert told(tmp_path) == "city.csv, line 2, column died: no label; remove the row"


def test_classes_that_may_be_typing_errors_are_told(tmp_path, tables, caplog):
    city, clinic = tables
    city["died"] = np.where(city.died == 1, "yes", "no")
    city.loc[[3, 8], "died"] = ["Yes ", "NA"]
    city.to_csv(tmp_path / "city.csv", index=False)
    clinic.to_csv(tmp_path / "clinic.csv", index=False)
    assert load(config(), "aligned", 2, 0, tmp_path).classes == 3
    assert "city.csv, column died: 'NA' is a class; if it means that there is no label, empty the cells" in caplog.text
    assert "column died: 'Yes ' and 'yes' differ only in spaces or capitals, and count as one class" in caplog.text
    assert told(tmp_path, missing_words=["na"]) == "city.csv, line 10, column died: no label; remove the row"


def test_one_problem_keeps_its_text_and_its_kind(tmp_path, tables):
    city, clinic = tables
    city.to_csv(tmp_path / "city.csv", index=False)
    clinic.to_csv(tmp_path / "clinic.csv", index=False)
    with pytest.raises(ConfigError) as caught:
        load(config(label="dyed"), "aligned", 2, 0, tmp_path)
    assert [problem.key for problem in caught.value.problems] == ["dataset.label"]


def write_overlapping(folder: Path, tables: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    """Patients 5 to 34 are in both; the first file has three gaps, one row of the second has no value."""
    city, clinic = tables
    city.loc[[6, 8, 20], "age"] = np.nan
    city[:35].to_csv(folder / "city.csv", index=False)
    clinic = clinic.astype({"sugar": float, "stay": float})
    clinic.loc[10, ["sugar", "stay"]] = np.nan
    clinic[:35].to_csv(folder / "clinic.csv", index=False)


def test_what_was_matched_imputed_and_encoded(tmp_path, tables):
    pytest.importorskip("private_set_intersection")
    write_overlapping(tmp_path, tables)
    task = load(config(alignment="psi"), "aligned", 2, 0, tmp_path)
    city, clinic = task.source.tables
    assert (city["file"], city["rows"], city["matched"], city["not_in_all"], city["labelled_not_in_all"]) == (
        *("city.csv", 35, 30, 5, 5),
    )
    assert city["imputed"] == {"age": 3} and city["encoded"] == {"smoker": 2} and city["blank"] == []
    assert (clinic["not_in_all"], clinic["labelled_not_in_all"]) == (5, 0)
    assert clinic["imputed"] == {"sugar": 1, "stay": 1} and "no value in any column to learn from in line" in str(
        clinic["blank"]
    )
    lines = inspection.in_words(task.source.tables)
    assert lines[0] == (
        "city.csv: 35 rows; 30 of them in all files; 5 rows have no match in the other files and are dropped "
        "(own_rows=ignore); 5 of them have labels; first: line 2, line 3, line 4 and 2 more; "
        "missing, replaced by the mean: age (3); "
        "one 0/1 column for each value: smoker (2)"
    )


def test_rows_that_not_all_have_count_for_means_and_scales_where_asked(tmp_path, tables):
    pytest.importorskip("private_set_intersection")
    write_overlapping(tmp_path, tables)
    same = load(config(alignment="psi"), "aligned", 2, 0, tmp_path)
    more = load(config(alignment="psi", own_rows="fit"), "aligned", 2, 0, tmp_path)
    assert (same.labels == more.labels).all() and not np.array_equal(same.features[1], more.features[1])
    # by hand: the training rows of the clinic and its own five
    clinic = pd.read_csv(tmp_path / "clinic.csv").set_index("patient")
    shared = [f"p{i:02d}" for i in range(5, 35)]
    own = clinic.drop(shared)
    train = clinic.loc[shared].iloc[more.splits["train"]]
    assert len(own) == 5
    known = np.concatenate([train.stay.dropna(), own.stay])
    by_hand = ((train.stay - known.mean()) / known.std()).fillna(0).to_numpy()
    np.testing.assert_allclose(more.features[1][:, 1], by_hand, rtol=1e-5)
    alone = tabular_files.load_own(config(alignment="psi", own_rows="fit"), "aligned", 2, 0, tmp_path, more, 1)
    np.testing.assert_array_equal(alone.features[1], more.features[1])


def test_own_labelled_rows_by_hand(tmp_path, tables):
    """Patients 0 to 4 are the city's alone: the third has no label and counts for means and scales only."""
    write_overlapping(tmp_path, tables)
    city = pd.read_csv(tmp_path / "city.csv")
    city["died"] = city.died.astype(object)
    city.loc[2, "died"] = None
    city.to_csv(tmp_path / "city.csv", index=False)
    keys = {"alignment": "hashed", "own_rows": "train"}
    task = load(config(**keys), "aligned", 2, 0, tmp_path)
    train = city.loc[5:].iloc[task.splits["train"]]
    known = np.concatenate([train.age.dropna(), city.age[:5]])
    chosen = city.loc[[0, 1, 3, 4]]
    assert task.own is not None and task.own.places.tolist() == [0, 1, 3, 4]
    assert task.own.labels.tolist() == chosen.died.astype(int).tolist()
    np.testing.assert_allclose(task.own.features[:, 0], (chosen.age - known.mean()) / known.std(), rtol=1e-5)
    np.testing.assert_array_equal(task.own.features[:, 2], chosen.smoker == "yes")
    table = task.table("own")
    assert table is not None and table.blocks[0] is not None and np.isnan(table.blocks[1]).all()
    assert table.blocks[1].shape == (4, task.features[1].shape[1]) and (table.labels == task.own.labels).all()
    assert task.part(0).own is task.own and task.part(1).own is None
    # who has another part is told nothing of them; the owner reads them from its own file
    assert task.facts_for(1, True).own is None
    facts = task.facts_for(0, True)
    assert facts.own is not None and facts.own.features.shape == (0, 3)
    again = tabular_files.load_own(config(**keys), "aligned", 2, 0, tmp_path, facts, 0)
    np.testing.assert_array_equal(again.own.features, task.own.features)
    np.testing.assert_array_equal(facts.with_part(again, 0).own.features, task.own.features)
    assert load(config(alignment="hashed", own_rows="fit"), "aligned", 2, 0, tmp_path).own is None


def test_only_rows_that_all_have_need_a_label(tmp_path, tables):
    city, clinic = tables
    city["died"] = city.died.astype(object)
    city.loc[[2, 7], "died"] = None
    city[:35].to_csv(tmp_path / "city.csv", index=False)
    clinic[:35].to_csv(tmp_path / "clinic.csv", index=False)  # patients 5 to 39
    assert told(tmp_path, alignment="hashed") == "city.csv, line 9, column died: no label; remove the row"
    city.loc[7, "died"] = 1
    city[:35].to_csv(tmp_path / "city.csv", index=False)
    about, _ = load(config(alignment="hashed"), "aligned", 2, 0, tmp_path).source.tables
    assert (about["not_in_all"], about["labelled_not_in_all"]) == (5, 4)
    lines = [inspection.in_words((about,), "train", trains)[0] for trains in (True, False, None)]
    use = "5 rows have no match in the other files and count for means and scales of its own columns; "
    use += "4 of them have labels, and train the local-only baseline"
    assert f"{use} and this method; first: line 2" in lines[0]
    assert f"{use}, but not this method; first: line 2" in lines[1]
    assert f"{use} and methods that can use them; first: line 2, line 3, line 4 and" in lines[2]


def test_own_rows_need_a_file_per_party_that_is_matched(tmp_path):
    one = Config(files=["city.csv"], label="died", own_rows="fit")
    (problem,) = tabular_files.check(one, "aligned", 2)
    assert str(problem) == (
        "dataset.own_rows=fit: is for a file per party with alignment=psi or hashed: else all have all rows."
    )
    assert any(
        problem.key == "dataset.own_rows" for problem in tabular_files.check(config(own_rows="train"), "aligned", 2)
    )


@pytest.mark.slow
def test_the_hospitals_own_rows_are_counted(tmp_path):
    import vflbench

    examples = Path(__file__).resolve().parents[3] / "examples"
    files = f"dataset.files=[{examples}/data/city.csv,{examples}/data/clinic.csv]"
    words = ["dataset=hospitals", files, "dataset.own_rows=train", "algorithm=send_once", "plot=none", "rounds=2"]
    words += ["floor=none", "engine.threads=1", f"hydra.run.dir={tmp_path / 'run'}"]
    run = vflbench.run(words, config_dir=str(examples))
    assert run.summary["one_shot"]["own_rows"] == 300
