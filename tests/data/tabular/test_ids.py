"""Rows of several files belong together: by exact IDs, or by an order that nothing disproves."""

import unicodedata
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from vflbench.cards.data.tabular.tabular_files import Config, Entry
from vflbench.data.tabular import tabular_files
from vflbench.types import ConfigError, DataError

N = 40
ORDER = np.random.default_rng(1).permutation(N)


@pytest.fixture
def frames() -> tuple[pd.DataFrame, pd.DataFrame]:
    """A bank's and a shop's table of the same customers; y is known by x, z = 2 x."""
    x = np.random.default_rng(0).normal(size=N).round(4)
    ids = 5000 + 7 * np.arange(N)
    bank = pd.DataFrame({"id": ids, "x": x, "y": (x > 0).astype(int)})
    return bank, pd.DataFrame({"id": ids, "z": 2 * x, "w": np.arange(N) % 3})


def write(folder: Path, *tables: pd.DataFrame, index: bool = False) -> list[str]:
    names = [f"{name}.csv" for name in "abc"[: len(tables)]]
    for name, table in zip(names, tables, strict=True):
        table.to_csv(folder / name, index=index)
    return names


def load(folder: Path, *tables: pd.DataFrame, **how):
    files = how.pop("files", None) or write(folder, *tables)
    return tabular_files.load(Config(files=files, label="y", **how), "aligned", len(files), 0, folder)


def told(folder: Path, *tables: pd.DataFrame, **how) -> str:
    with pytest.raises((ConfigError, DataError)) as error:
        load(folder, *tables, **how)
    return str(error.value).replace(f"{folder}/", "")


def together(task) -> bool:
    """Whether the z of every row is that of its x: both are scaled alike."""
    return all(np.allclose(a[:, 0], b[:, 0], atol=1e-5) for a, b in [task.features, *task.held_out_features.values()])


# --- by IDs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("alignment", ["given", "hashed"])
def test_floats_that_round_ids_are_refused_in_each_file(tmp_path, frames, kind, alignment):
    bank, shop = frames
    bank["id"] = 2**53 + np.arange(N)
    bank.to_csv(tmp_path / "a.csv", index=False)
    rounded = shop.assign(id=bank.id.astype(float))
    getattr(rounded, f"to_{kind}")(tmp_path / f"b.{kind}", index=False)
    text = told(tmp_path, files=["a.csv", f"b.{kind}"], id="id", alignment=alignment)
    assert text.startswith(f"b.{kind}, {'line 2' if kind == 'csv' else 'row 0'}, column id: ")
    assert "2**53 on, where IDs are rounded" in text or "scientific notation" in text
    getattr(shop.assign(id=bank.id), f"to_{kind}")(tmp_path / f"b.{kind}", index=False)
    assert together(load(tmp_path, files=["a.csv", f"b.{kind}"], id="id", alignment=alignment))


@pytest.mark.parametrize("alignment", ["given", "psi", "hashed"])
def test_writings_that_look_alike_are_one_id(tmp_path, frames, alignment):
    pytest.importorskip("private_set_intersection") if alignment == "psi" else None
    bank, shop = frames
    bank["id"] = [f"Müller {i}" for i in range(N)]
    shop["id"] = [unicodedata.normalize("NFD", name) for name in bank.id]
    shop.loc[3, "id"], shop.loc[4, "id"], bank.loc[5, "id"] = "'Müller 3", "\ufeffMüller\u200b 4 ", "Müller 5\u00a0"
    task = load(tmp_path, bank, shop.iloc[ORDER], id="id", alignment=alignment)
    assert together(task) and task.source.tables[0]["matched"] == N


@pytest.mark.parametrize(
    ("writing", "count"),
    [
        (lambda i: f"{i:,}", N), (lambda i: f"{i}.0", N), (lambda i: f"{i:,}".replace(",", "\u202f"), N),
        (lambda i: f"{i}.0" if i % 2 else str(i), N // 2), (lambda i: f"0{i}" if i % 2 else str(i), N // 2),
        (lambda i: f"{i:,}" if i % 2 else str(i), N // 2),
    ],
)  # fmt: skip
def test_only_a_whole_column_changes_its_writing(tmp_path, frames, writing, count, caplog):
    bank, shop = frames
    caplog.set_level("INFO")
    shop["id"] = [writing(number) for number in shop.id]
    task = load(tmp_path, bank, shop, id="id", alignment="hashed")
    assert together(task) and task.source.tables[0]["matched"] == count
    if count < N:
        assert f"{N - count} IDs of" in caplog.text and "differ only in" in caplog.text
        assert f"{N - count} IDs of a.csv, the first of them '5007', are not in b.csv" in told(
            tmp_path, bank, shop, id="id"
        )
    else:
        assert "ignored, as" in caplog.text


def test_capitals_and_compatibility_forms_are_named_and_not_joined(tmp_path, frames, caplog):
    bank, shop = frames
    bank["id"] = [f"A{i}" for i in range(N)]
    shop["id"] = [f"Ａ{i}" if i < 3 else f"a{i}" if i < 8 else f"A{i}" for i in range(N)]
    task = load(tmp_path, bank, shop, id="id", alignment="hashed")
    assert task.source.tables[0]["matched"] == N - 8
    said = caplog.text.replace(f"{tmp_path}/", "")
    assert (
        "5 IDs of a.csv and b.csv differ only in blanks, capitals, leading zeros or a final .0, as 'A3' and 'a3'"
        in said
    )
    assert "3 IDs of a.csv and b.csv differ only in Unicode's compatibility forms (NFKC), as 'A0' (U+0041) and" in said


@pytest.mark.parametrize("layout", ["aligned", "sharded"])
def test_two_writings_of_one_id_in_a_file_are_refused(tmp_path, frames, layout):
    bank, _ = frames
    bank["id"] = [f"Müller {i}" for i in range(N)]
    bank.loc[8, "id"] = unicodedata.normalize("NFD", "Müller 2")
    write(tmp_path, bank)
    with pytest.raises(DataError, match=r"a\.csv, line 10, column id: the ID 'Müller 2' is there twice: .*U\+0308"):
        tabular_files.load(Config(files=["a.csv"], label="y", id="id"), layout, 1, 0, tmp_path)


def test_several_columns_are_one_id(tmp_path, frames):
    bank, shop = frames
    for own in frames:
        own.insert(1, "visit", [f"{i % 4},{i % 2}" for i in range(N)])
        own["id"] = np.arange(N) // 4
    task = load(tmp_path, bank, shop.iloc[ORDER], id=["id", "visit"])
    assert together(task) and [block.shape[1] for block in task.features] == [1, 2]
    assert "aligned by id, visit" in task.source.note
    assert "the ID '0' is there twice" in told(tmp_path, bank, shop, id="id")
    assert "dataset.id=visits: " in told(tmp_path, bank, shop, id=["id", "visits"])
    # 1 and 2,3 are not 1,2 and 3
    bank["id"], bank["visit"], shop["id"], shop["visit"] = "1", "2,3", "1,2", "3"
    assert "is there twice" in told(tmp_path, bank, shop, id=["id", "visit"])
    bank.loc[0, "visit"] = None
    assert "a.csv, line 2, column id, visit: no ID" in told(tmp_path, bank, shop, id=["id", "visit"])


def test_each_file_may_name_its_own_columns(tmp_path, frames):
    bank, shop = frames
    bank["branch"], other = 1, shop.assign(branch=1).rename(columns={"id": "patient", "branch": "place"}).iloc[ORDER]
    write(tmp_path, bank, other)
    named = [Entry("a.csv"), Entry("b.csv", id=["patient", "place"])]
    task = load(tmp_path, files=named, id=["id", "branch"])
    assert together(task) and "aligned by id, branch and patient, place" in task.source.note
    assert [block.shape[1] for block in task.features] == [1, 2]
    assert "dataset.files[1].id=patent: " in told(tmp_path, files=["a.csv", Entry("b.csv", id="patent")], id="id")
    assert "every file needs as many columns" in told(tmp_path, files=["a.csv", named[1]], id="id")
    assert "every file needs as many columns" in told(tmp_path, files=["a.csv", named[1]])
    with pytest.raises(ConfigError, match=r"dataset\.id=null: alignment=hashed needs the column"):
        load(tmp_path, files=["a.csv", named[1]], alignment="hashed")


# --- by position ------------------------------------------------------------------------------------------------------


def test_an_id_in_another_order_disproves_matching_by_position(tmp_path, frames):
    bank, shop = frames
    text = told(tmp_path, bank, shop.iloc[ORDER])
    assert text.startswith(
        "a.csv and b.csv have the same values in column id, but in another order (a.csv, line 2: 5000"
    )
    assert "dataset.id=id" in text and "dataset.leave_out" in text
    assert together(load(tmp_path, bank, shop.iloc[ORDER], id="id"))
    load(tmp_path, bank, shop.iloc[ORDER], leave_out=["id"])  # the user says that it names no rows


@pytest.mark.parametrize("kind", ["numbers", "texts", "dates", "permutation", "unlike types"])
def test_ids_of_other_names_and_kinds_disprove_it_too(tmp_path, frames, kind):
    bank, shop = frames
    days = pd.Timestamp("2020-01-01") + pd.to_timedelta(np.arange(N), unit="D")
    made = {"texts": [f"P{i:03d}" for i in range(N)], "dates": days, "permutation": np.arange(N)}
    bank["id"] = shop["id"] = made.get(kind, bank.id)
    if kind == "unlike types":
        shop["id"] = [f"'{i}" for i in bank.id]
    text = told(tmp_path, bank, shop.rename(columns={"id": "patient"}).iloc[ORDER])
    assert "have the same values in columns id and patient, but in another order" in text
    assert "dataset.files=[{path: a.csv, id: id}, {path: b.csv, id: patient}]" in text


def test_the_same_order_confirms_it_and_the_column_is_no_feature(tmp_path, frames):
    task = load(tmp_path, *frames)
    assert together(task) and [block.shape[1] for block in task.features] == [1, 2]
    assert "which column id confirms" in task.source.note
    assert task.source.tables[1]["columns"][0]["taken_for"] == "id"
    assert [block.shape[1] for block in load(tmp_path, *frames, numbers=["id"]).features] == [2, 3]
    own = tabular_files.load_own(
        Config(files=["a.csv", "b.csv"], label="y"), "aligned", 2, 0, tmp_path, task, 1
    )  # as a party of its own
    assert np.array_equal(own.features[1], task.features[1])


def test_rows_of_which_some_differ_are_refused_as_well(tmp_path, frames):
    bank, shop = frames
    shop.loc[N - 1, "id"] = 4  # the last row is another customer's
    assert "line 41: 5273; b.csv, line 41: 4" in told(tmp_path, bank, shop)
    assert "perhaps dataset.id=id" in told(tmp_path, bank, shop.iloc[:-2])


def test_a_third_file_is_compared_with_both(tmp_path, frames):
    bank, shop = frames
    third = shop.iloc[ORDER].rename(columns={"z": "v", "w": "u"})
    assert "b.csv and c.csv have the same values in column id" in told(tmp_path, bank.drop(columns="id"), shop, third)


def test_the_index_of_a_frame_is_evidence(tmp_path, frames):
    bank, shop = (own.drop(columns="id") for own in frames)
    bank.iloc[ORDER].to_parquet(tmp_path / "a.parquet")
    shop.iloc[ORDER[::-1]].to_parquet(tmp_path / "b.parquet")
    assert "in column __index_level_0__, but in another order" in told(tmp_path, files=["a.parquet", "b.parquet"])
    shop.iloc[ORDER].to_parquet(tmp_path / "b.parquet")
    task = load(tmp_path, files=["a.parquet", "b.parquet"])
    assert together(task) and [block.shape[1] for block in task.features] == [1, 2]


def test_what_proves_nothing(tmp_path, frames):
    """Measurements, ranks, counters, and whole numbers that both have by chance."""
    bank, shop = (own.drop(columns="id") for own in frames)
    rng = np.random.default_rng(2)
    bank["age"], shop["age"] = rng.permutation(np.arange(20, 90))[:N], rng.permutation(np.arange(20, 90))[:N]
    for k in range(2):
        bank[f"rank{k}"], shop[f"place{k}"] = rng.permutation(N), rng.permutation(N)
        bank[f"quantile{k}"], shop[f"part{k}"] = (rng.permutation(N) / N for _ in range(2))
    bank["row"], shop["number"] = np.arange(N), 1 + np.arange(N)
    task = load(tmp_path, bank, shop)
    assert together(task) and task.source.note.startswith("the user's own files; aligned by the order of their rows;")
    assert task.features[0].shape[1] == bank.shape[1] - 1


def test_equal_measurements_confirm_the_order_and_stay_features(tmp_path, frames):
    bank, shop = (own.drop(columns="id") for own in frames)
    shop["x"] = bank.x
    assert [block.shape[1] for block in load(tmp_path, bank, shop).features] == [1, 3]
    shop["x"] = bank.x[::-1].to_numpy()
    assert "have the same values in column x, but in another order" in told(tmp_path, bank, shop)
