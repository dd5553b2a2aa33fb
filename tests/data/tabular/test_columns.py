"""What a column of a user's table is taken for, and what becomes of it, by the column alone."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import vflbench
from tests.every import few_fast
from vflbench.cards.data.columns.judging import Keys
from vflbench.cards.data.tabular import tabular_files as tabular_files_card
from vflbench.cards.data.tabular.tabular_files import Config
from vflbench.data.columns import inspection
from vflbench.data.columns import judging as columns
from vflbench.data.columns.judging import ColumnReport, Judged
from vflbench.data.readers import table_sources
from vflbench.data.readers.table_sources import Source
from vflbench.data.tabular import tabular_files
from vflbench.data.tabular.tabular_files import load
from vflbench.types import ConfigError, DataError

N = 60
RNG = np.random.default_rng(0)
NOISE = RNG.normal(size=N).round(4)


def judged(folder: Path, cells, name: str = "x", kind: str = "csv", **keys) -> Judged:
    """What becomes of a column, beside another one, in a file."""
    frame = pd.DataFrame({name: cells, "other": NOISE})
    path = folder / f"t.{kind}"
    frame.to_csv(path, index=False) if kind == "csv" else frame.to_parquet(path, index=False)
    source = Source(str(path))
    named = table_sources.columns(source)[0]
    held = table_sources.read(source, [named], {})
    return columns.judge(source, named, held[named], slice(None), Keys(**keys))


def said(found: Judged) -> list[tuple[str, str]]:
    return [(remark.severity, remark.message) for remark in found.report.remarks]


KINDS = ["csv", "parquet"]


# --- missing words ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "word", ["?", "n/a", "null", "-", " ", "NaN", ".", "\u2013", "N.D.", r"\N", "k. A.", "#DIV/0!"]
)
def test_words_for_a_missing_value_among_numbers(tmp_path, kind, word):
    found = judged(tmp_path, [word if i % 3 else str(150 + i) for i in range(N)], kind=kind)
    assert (found.report.taken_for, found.report.missing, found.report.features) == ("number", 40, 1)
    assert np.isnan(found.values).sum() == 40 and np.nanmax(found.values) == 150 + 57
    assert found.report.odd == 40 and said(found)[0][0] == "note"
    where = "in line 3" if kind == "csv" else "in row 1"
    assert f"40 cells count as missing, as the others are numbers: {word!r} (40), first {where}" in said(found)[0][1]


@pytest.mark.parametrize("kind", KINDS)
def test_words_stay_values_among_texts_unless_they_are_named(tmp_path, kind):
    cells = np.array(["+", "-", "NA"])[np.arange(N) % 3]
    found = judged(tmp_path, cells, kind=kind)
    assert found.report.taken_for == "category" and found.report.features == 3 and found.report.missing == 0
    assert [severity for severity, _ in said(found)] == ["note"] and "'-', 'NA' counts as a value" in said(found)[0][1]
    found = judged(tmp_path, cells, kind=kind, missing_words=["na"])
    assert found.report.missing == 20 and found.levels == ("+", "-", "") and "'NA'" not in str(said(found))


@pytest.mark.parametrize("kind", KINDS)
def test_words_that_the_user_names(tmp_path, kind):
    cells = ["perhaps" if i % 2 else str(i / 7) for i in range(N)]
    assert judged(tmp_path, cells, kind=kind).report.taken_for != "number"
    found = judged(tmp_path, cells, kind=kind, missing_words=["Perhaps "])
    assert found.report.taken_for == "number" and np.isnan(found.values).sum() == N // 2
    found = judged(tmp_path, np.where(np.arange(N) % 4, NOISE, -999), kind=kind, missing_words=["-999"])
    assert np.isnan(found.values).sum() == N // 4 and found.report.missing == N // 4


def test_a_column_that_is_called_numbers(tmp_path):
    cells = [f"{i} mg" if i % 5 == 0 else str(i) for i in range(N)]
    found = judged(tmp_path, cells)
    assert found.values is None and said(found)[0][0] == "warning"
    assert "most cells are numbers, but not all (12 of 60, e.g. '0 mg' in line 2), so the column" in said(found)[0][1]
    for key in ("missing_words", "numbers", "categories"):
        assert f"dataset.{key}" in said(found)[0][1]
    found = judged(tmp_path, cells, numbers=["x"])
    assert found.report.taken_for == "number" and found.report.missing == 12 and found.report.odd == 12
    assert judged(tmp_path, ["a", "b"] * 30, numbers=["x"]).report.severity == "error"


# --- dates ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "form", ["%Y-%m-%d", "%d/%m/%Y", "%m/%d/%Y", "%d.%m.%y", "%Y-%m-%dT%H:%M:%SZ", "%b %d, %Y", "%Y%m%d"]
)
@pytest.mark.parametrize("kind", KINDS)
def test_dates_become_days(tmp_path, form, kind):
    dates = pd.date_range("2020-01-15", periods=N)
    found = judged(tmp_path, [None, *dates[1:].strftime(form)], kind=kind)
    if kind == "parquet" and form == "%Y%m%d":
        assert found.report.taken_for == "id"  # the file says that they are texts
        return
    assert found.report.taken_for == "date" and found.report.becomes == "1 standardised number"
    np.testing.assert_allclose(found.values[1:], (dates[1:] - pd.Timestamp(0)).days)
    assert np.isnan(found.values[0]) and found.report.severity in ("ok", "note")


def test_dates_of_a_typed_file(tmp_path):
    dates = pd.date_range("2020-01-15 06:00", periods=N)
    found = judged(tmp_path, dates, kind="parquet")
    assert (
        found.report.taken_for == "date"
        and found.values[0] == (pd.Timestamp("2020-01-15") - pd.Timestamp(0)).days + 0.25
    )


def test_an_unclear_order_is_told_with_its_key(tmp_path):
    cells = [f"{i % 12 + 1}/{i % 11 + 1}/2020" for i in range(N)]
    found = judged(tmp_path, cells)
    assert found.report.severity == "warning" and "read as dates, the day first. Set dataset.dates" in said(found)[0][1]
    assert found.report.remarks[0].key == "dataset.dates"
    other = judged(tmp_path, cells, dates="month_first")
    assert other.report.severity == "note" and not np.array_equal(found.values, other.values)


@pytest.mark.parametrize(
    ("cells", "note"),
    [
        ([f"{i % 12 + 1}.{i % 11 + 1}.2020" for i in range(N)], "the day first, as dates with points are written so"),
        ([f"{i % 12 + 1}.{i % 28 + 1}.2020" for i in range(N)], "the month first, as other orders do not fit"),
        ([f"19{i:02d}-{i % 12 + 1:02d}" for i in range(N)], "read as months, as '1900-01'; list it in"),
        ([f"1:{i:02d}" for i in range(N)], "read as times of day, as '1:00'; list it in dataset.categories"),
    ],
)  # fmt: skip
def test_what_may_be_no_date_or_another_one_is_told(tmp_path, cells, note):
    found = judged(tmp_path, cells)
    assert found.report.taken_for == "date" and said(found)[0][0] == "note" and note in said(found)[0][1]


def test_missing_and_impossible_dates(tmp_path):
    dates = pd.Series(pd.date_range("2020-01-15", periods=N).strftime("%Y-%m-%d"))
    found = judged(tmp_path, dates.where(np.arange(N) % 2 == 0, "n/a"))
    assert found.report.taken_for == "date" and found.report.missing == 30 and "'n/a' (30)" in str(said(found))
    dates[7] = "2020-02-31"
    found = judged(tmp_path, dates)
    assert found.values is None and "most cells are dates, but not all (1 of 60, e.g. '2020-02-31' in line 9)" in str(
        said(found)
    )


# --- texts ------------------------------------------------------------------------------------------------------------


def test_texts_that_cannot_be_learnt_from_are_left_out(tmp_path):
    names = [f"MRN{i}" for i in range(N)]
    cases = {
        "id": names,
        "text": [f"n{i}" for i in [*range(40), *range(20)]],  # most values are distinct
        "category": [f"n{i % 30}" for i in range(N)],
    }
    for kind, cells in cases.items():
        found = judged(tmp_path, cells)
        assert found.report.taken_for == kind
        assert found.report.severity == ("ok" if kind == "category" else "warning")
        if kind != "category":
            assert found.values is None and "List it in dataset.categories to one-hot encode it" in said(found)[0][1]
            assert judged(tmp_path, cells, categories=["x"]).report.features == len(set(cells))
    long = judged(tmp_path, ["no " * 50, "yes " * 50] * 30)
    assert long.values is None and "more than 100 characters" in said(long)[0][1]


def test_at_most_a_thousand_values(tmp_path):
    frame = pd.DataFrame({"x": [f"v{i % 1001}" for i in range(4000)]})
    frame.to_csv(tmp_path / "t.csv", index=False)
    source = Source(str(tmp_path / "t.csv"))
    for names in ([], ["x"]):
        found = columns.judge(
            source, "x", table_sources.read(source, ["x"], {})["x"], slice(None), Keys(categories=names)
        )
        assert found.values is None and found.report.severity == ("error" if names else "warning")
        assert "1,001 distinct" in said(found)[0][1] and "limited to 1,000" in said(found)[0][1]


@pytest.mark.parametrize("kind", KINDS)
def test_writings_of_one_value(tmp_path, kind):
    cells = np.array(["yes", "Yes ", "no", "K\u00f6ln", "Ko\u0308ln", "yes", "K\u00f6ln"])[np.arange(N) % 7]
    found = judged(tmp_path, cells, kind=kind)
    assert found.levels == ("K\u00f6ln", "no", "yes", "") and found.report.features == 3
    assert "differ only in their form of Unicode, and count as one category (and 1 more)" in said(found)[0][1]
    assert "'Ko\\u0308ln' and 'K\\xf6ln'" in said(found)[0][1]
    assert "how letters are written (as ß and ss)" in str(said(judged(tmp_path, ["Straße", "Strasse", "Weg"] * 20)))
    found = judged(tmp_path, np.where(cells == "Yes ", "Yes ", "yes"), kind=kind)
    assert found.levels is None and "differ" not in str(said(found))  # constant


@pytest.mark.parametrize("word", ["Summe:", "TOTAL", "Gesamt ", "Somme"])
def test_a_row_of_sums_is_told(tmp_path, word):
    cells = [f"n{i % 5}" for i in range(N)]
    found = judged(tmp_path, [*cells[1:], word])
    assert (
        said(found)[-1][0] == "warning"
        and "in line 61, the last one, seems to name a row of sums" in said(found)[-1][1]
    )
    assert "sums" in str(said(judged(tmp_path, [*map(str, range(1, N)), word])))  # an ID
    for ordinary in ([*cells[2:], word, word], [word, *cells[1:]], [*cells[1:], "total knee"]):
        assert judged(tmp_path, ordinary).report.severity == "ok"


# --- what is no feature -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "cells", "left_out"),
    [
        ("", np.arange(N), True),
        ("Unnamed: 0", np.arange(N) + 1, True),
        ("Unnamed: 0.1", RNG.permutation(N), True),
        ("", np.arange(N) * 3 + 7, True),  # of rows that were kept
        ("", NOISE, False),
        ("", RNG.integers(0, 9, N), False),
        ("index", np.arange(N), True),
        ("index", np.arange(N) * 3 + 7, False),
        ("column1", RNG.permutation(N), True),
    ],
)
def test_columns_without_a_name_that_number_the_rows(tmp_path, name, cells, left_out):
    found = judged(tmp_path, cells, name)
    assert (found.values is None) == left_out
    if left_out:
        assert found.report.taken_for == "row number" and found.report.severity == "warning"
        asked = judged(tmp_path, cells, name, numbers=[found.report.column])
        assert asked.report.features == 1 and "it has no name and numbers the rows" in said(found)[0][1]


def test_a_named_column_that_counts_is_told_and_kept(tmp_path):
    found = judged(tmp_path, np.arange(N) + 1, "nr")
    assert found.report.features == 1 and said(found)[0][0] == "warning" and "dataset.leave_out" in said(found)[0][1]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("cells", "taken_for"),
    [
        ([None] * N, "empty"),
        ([""] * N, "empty"),
        ([7] * N, "constant"),
        (["a"] * N, "constant"),
        ([7.5, np.nan] * 30, "constant"),
        (["2020-01-01"] * N, "constant"),
    ],
)
def test_constant_and_empty_columns(tmp_path, cells, taken_for, kind):
    found = judged(tmp_path, cells, kind=kind)
    assert (
        found.report.taken_for == taken_for and found.values is None and said(found)[0][1].endswith("so it is dropped")
    )
    assert found.report.severity == "note"


def test_a_text_that_is_there_or_not_is_kept(tmp_path):
    assert judged(tmp_path, ["x", None] * 30).report.features == 2


@pytest.mark.parametrize("number", [1.7e308, -1e31, np.inf, -np.inf])
@pytest.mark.parametrize("kind", KINDS)
def test_huge_numbers_name_the_line(tmp_path, number, kind):
    found = judged(tmp_path, np.where(np.arange(N) == 4, number, NOISE), kind=kind)
    assert found.report.severity == "error" and f"in {'line 6' if kind == 'csv' else 'row 4'} is " in said(found)[0][1]
    assert judged(
        tmp_path, np.where(np.arange(N) == 4, number, NOISE), kind=kind, missing_words=[f"{number:g}"]
    ).report.features


@pytest.mark.parametrize("cell", ["\u221e", "-\u221e", "1.#INF", "-1.#INF00", "Infinity", "9" * 40])
@pytest.mark.parametrize("sign", [".", ","])
def test_numbers_that_are_not_finite_in_any_writing(tmp_path, cell, sign):
    cells = [f"{i}{sign}5" for i in range(N)]
    cells[4] = cell
    found = judged(tmp_path, cells)
    assert found.report.severity == "error" and "in line 6 is " in said(found)[0][1]
    assert judged(tmp_path, cells, missing_words=[cell]).report.missing == 1


def test_long_numbers_are_texts_where_most_are_long_only(tmp_path):
    ages = [str(20 + i) for i in range(N)]
    for cell in ("1234567890123456", "12345678901234567890"):
        found = judged(tmp_path, [*ages[:7], cell, *ages[8:]])
        assert found.report.taken_for == "number" and found.report.severity == "warning"
        assert "in line 9 is far from the other numbers" in said(found)[0][1]
    assert judged(tmp_path, [f"{2**64 + i}" for i in range(N)]).report.taken_for == "id"


@pytest.mark.parametrize(
    "cells",
    [
        RNG.lognormal(10, 4, N),
        np.r_[np.zeros(N - 1), 1e12],
        RNG.integers(0, 2**62, N),
        np.r_[NOISE[1:], 1e9],
        1e16 + RNG.integers(0, 9, N),
        10.0 ** np.linspace(-10, 10, N),
        10.0 ** RNG.uniform(-300, 0, N),  # p-values
    ],
)
def test_ordinary_numbers_far_apart_are_no_warning(tmp_path, cells):
    assert judged(tmp_path, cells).report.severity == "ok"


def test_a_number_too_far_from_the_others_is_an_error(tmp_path):
    found = judged(tmp_path, np.r_[NOISE[:-1] * 1e-12, 1e29])
    assert (
        found.report.severity == "error" and "1e+29 in line 61 is too far from the other numbers" in said(found)[0][1]
    )


def test_a_report_goes_through_json(tmp_path):
    report = judged(tmp_path, ["?", "1.5", "2.5"] * 20).report
    said = report.as_dict()
    assert said["severity"] == "note" and ColumnReport.from_dict(json.loads(json.dumps(said))) == report


# --- files ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path) -> Path:
    """Two parties' files with a column of each kind."""
    y = np.arange(N) % 2
    ids = [f"p{i}" for i in range(N)]
    a = pd.DataFrame({"id": ids, "age": NOISE, "mrn": [f"M{i}" for i in range(N)], "one": 1, "died": y})
    b = pd.DataFrame(
        {"id": ids, "sugar": ["?" if i % 4 == 0 else str(i / 7) for i in range(N)], "sex": ["m", "F", "f"] * 20}
    )
    b["seen"] = pd.date_range("2020-01-15", periods=N).strftime("%d/%m/%Y")
    b["flag"] = np.where(y, "gone", "here")
    a.to_csv(tmp_path / "a.csv")
    b.sample(frac=1, random_state=0).to_csv(tmp_path / "b.csv")
    return tmp_path


def config(**keys) -> Config:
    return Config(files=["a.csv", "b.csv"], **{"label": "died", "id": "id", **keys})


def test_a_run_is_told_of_every_column(files, caplog):
    task = load(config(), "aligned", 2, 0, files)
    assert [block.shape[1] for block in task.features] == [1, 1 + 2 + 1 + 2]
    a, b = task.source.tables
    assert {own["column"]: own["taken_for"] for own in a["columns"]} == {
        "": "row number",
        "mrn": "id",
        "one": "constant",
    }
    assert {own["column"] for own in b["columns"]} == {"", "sugar", "sex", "seen", "flag"}
    said = caplog.text.replace(f"{files}/", "")
    assert "a.csv, the column without a name: it has no name and numbers the rows" in said
    assert (
        "b.csv, column flag: LEAK: it alone nearly determines the label died (AUROC 1.0000 on 60 held-out rows" in said
    )
    words = inspection.in_words(task.source.tables)
    assert "a.csv, column one: all cells have the same value, so it is dropped" in words
    assert not any("mrn" in line for line in words), "warnings are said once"
    assert inspection.leaks(task.source.tables) == [
        "b.csv, column flag: AUROC 1.0000 on 60 held-out rows, 30 of the rarest class"
    ]


def test_a_party_comes_to_the_same_columns(files):
    """From its own file alone, which has no label."""
    task = load(config(), "aligned", 2, 0, files)
    for index in range(2):
        own = tabular_files.load_own(config(), "aligned", 2, 0, files, task, index)
        np.testing.assert_array_equal(own.features[index], task.features[index])


def test_a_file_of_which_nothing_is_left_is_refused(files):
    with pytest.raises(
        DataError, match=r"b\.csv: no column is left to learn from \(the column without a name: it has no"
    ):
        load(config(leave_out=["sugar", "sex", "seen", "flag"]), "aligned", 2, 0, files)
    with pytest.raises(ConfigError, match=r"must lie between 1 and 1, the number of columns"):
        load(Config(files=["a.csv"], label="died", id="id", columns=[2, 1]), "aligned", 2, 0, files)


def test_problems_of_all_columns_are_told_at_once(files):
    b = pd.read_csv(files / "b.csv", index_col=0)
    b.loc[3, "huge"], b["list"] = 1e308, RNG.integers(0, 3, N)
    b.to_csv(files / "b.csv")
    with pytest.raises(DataError) as caught:
        load(config(categories=["lists"]), "aligned", 2, 0, files)
    assert "dataset.categories=lists: no file has such a column. Did you mean 'list'?" in str(caught.value)
    assert "column huge: 1e+308 in line" in str(caught.value)


@pytest.mark.slow
def test_a_leak_stands_in_the_summary_and_the_headline(files, tmp_path):
    words = [
        f"dataset.files=[{files}/a.csv,{files}/b.csv]",
        "dataset.label=died",
        "dataset.id=id",
        "plot=none",
        "floor=none",
    ]
    run = vflbench.run(
        ["algorithm=vfl", "dataset=tabular_files", *words, "rounds=2", f"hydra.run.dir={tmp_path / 'run'}"]
    )
    assert len(run.summary["leaks"]) == 1 and "b.csv, column flag: AUROC 1.0000" in run.summary["leaks"][0]
    from vflbench.results import texts

    assert "LABEL LEAK: b.csv, column flag" in texts.result_line(run.summary)


@pytest.mark.parametrize("form", few_fast(["{0}-{1:05}", "{0}{1}", "{1:05}/{0}", "x {0} {1}", "{2}-{1}"], 2))
def test_a_part_of_texts_that_are_left_out_may_give_the_label_away(files, caplog, form):
    a = pd.read_csv(files / "a.csv", index_col=0)
    a["code"] = [form.format(("NEG", "POS")[y], i, 8 - y) for i, y in enumerate(a.died)]
    a["free"] = [f"seen on day {i}, {('no', 'new')[i % 7 > 3]} finding" for i in range(N)]
    a.to_csv(files / "a.csv")
    load(config(), "aligned", 2, 0, files)
    assert "column code: LEAK: a part of its texts nearly determines the label died (AUROC 1.0000" in caplog.text
    assert "column free: LEAK" not in caplog.text and "column mrn: LEAK" not in caplog.text


def test_a_part_of_categories_may_give_the_label_away(files, caplog):
    a = pd.read_csv(files / "a.csv", index_col=0)
    a["code"] = [f"{'DL'[y]}{i}" for i, y in enumerate(a.died)]
    a["ward"] = [f"{'DL'[i % 3 > 0]}{i}" for i in range(N)]
    a.to_csv(files / "a.csv")
    load(config(categories=["code", "ward"]), "aligned", 2, 0, files)
    assert "column code: LEAK: " in caplog.text and "column ward: LEAK" not in caplog.text


def test_an_entitys_own_column_is_no_leak_where_entities_are_held_out_whole(files, caplog):
    a = pd.read_csv(files / "a.csv", index_col=0)
    a["ward"], a["room"] = [f"w{i // 3}" for i in range(N)], np.arange(N) // 3 * 7 % 20
    a["died"] = a.room % 2
    a.to_csv(files / "a.csv", index=False)
    keys = {"leave_out": ["mrn"], "categories": ["room"]}
    load(config(**{**keys, "leave_out": ["mrn", "ward"]}), "aligned", 2, 0, files)
    assert "column room: LEAK" in caplog.text
    caplog.clear()
    load(config(**keys, split="group", entity="ward"), "aligned", 2, 0, files)
    assert "column room: LEAK" not in caplog.text


@pytest.mark.parametrize("cell", [[1, 2], {"a": 1}], ids=["lists", "dictionaries"])
def test_cells_that_hold_several_values_are_refused_by_name(tmp_path: Path, cell: object) -> None:
    frame = pd.DataFrame({"x": range(0, 90, 3), "y": [0, 1] * 15, "held": [cell] * 30})
    frame.to_parquet(tmp_path / "a.parquet")
    config = tabular_files_card.Config(files=[str(tmp_path / "a.parquet")], label="y")
    with pytest.raises(DataError, match=r"a.parquet, column held: holds \w+, not numbers or texts; list it in dataset"):
        tabular_files.load(config, "aligned", 2, 0, None)
