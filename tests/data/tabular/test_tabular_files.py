"""The user's own tables: CSV and Parquet, one file or one per party, aligned as given or by private set
intersection."""

import builtins
import gzip
import importlib.util
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from vflbench.cards.data.tabular.tabular_files import Config
from vflbench.config import convert
from vflbench.data.divide.splits import by_class
from vflbench.data.matching import psi_bytes
from vflbench.data.tabular import alignment
from vflbench.data.tabular.tabular_files import check, load
from vflbench.types import ConfigError, DataError

N = 60


@pytest.fixture
def customers() -> pd.DataFrame:
    """An ID, a number with gaps, a category, a date, three numbers, a label of two classes, a target."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "customer": [f"{i:03d}" for i in range(N)],
            "age": rng.integers(18, 90, N).astype(float),
            "city": rng.choice(["Oslo", "Rome", "Lima"], N),
            "since": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, N), unit="D"),
            **{name: rng.normal(3, 2, N).round(3) for name in ("a", "b", "c")},
            "bought": rng.choice(["no", "yes"], N),
            "spent": rng.normal(0, 1, N).round(3),
        }
    )
    frame.loc[[3, 17], "age"] = np.nan
    frame.loc[9, "city"] = None
    return frame


def config(*files: str, **keys) -> Config:
    return Config(files=list(files), **{"label": "bought", "id": "customer", "leave_out": ["spent"], **keys})


def whole(task) -> np.ndarray:
    """All blocks of all splits side by side, then the labels."""
    blocks = [np.concatenate(split, axis=1) for split in (task.features, *task.held_out_features.values())]
    return np.column_stack([np.concatenate(blocks), np.concatenate([task.labels, *task.held_out_labels.values()])])


def test_one_file_in_all_its_formats(tmp_path, customers):
    customers.to_csv(tmp_path / "x.csv", index=False)
    customers.to_csv(tmp_path / "x.tsv", index=False, sep="\t")
    customers.to_parquet(tmp_path / "x.parquet")
    (tmp_path / "x.csv.gz").write_bytes(gzip.compress((tmp_path / "x.csv").read_bytes()))
    how = {"leave_out": ["spent", "since"]}  # in a CSV a date is text, of up to 60 levels
    tasks = [
        load(config(file, **how), "aligned", 2, 0, tmp_path) for file in ("x.csv", "x.tsv", "x.parquet", "x.csv.gz")
    ]
    for task in tasks:
        np.testing.assert_array_equal(whole(task), whole(tasks[0]))
    task = tasks[0]
    # age, city of three levels and perhaps the missing one, a; b, c
    assert [block.shape[1] for block in task.features] == [
        2 + len(set(customers.city)) - (1 if 9 not in train_rows(customers) else 0),
        2,
    ]
    assert (task.classes, task.metric.name, task.parties, task.features[0].dtype) == (2, "auroc", 2, np.float32)
    assert task.source.kind == "real" and "class 1 is yes, class 0 no" in task.source.note
    assert [name for name, _ in task.source.files] == ["x.csv"] and len(task.source.files[0][1]) == 64
    assert [len(task.labels), len(task.truth("val")), len(task.truth("test"))] == [36, 6, 18]
    dated = load(config("x.parquet", columns=[5, 1]), "aligned", 2, 0, tmp_path)
    assert dated.features[0].shape[1] == task.features[0].shape[1] + 2 and dated.features[1].shape[1] == 1
    workers = load(config("x.csv", **how), "sharded", 5, 0, tmp_path)
    assert workers.public.samples == 36 and workers.public.shape == (whole(task).shape[1] - 1,)


def train_rows(customers: pd.DataFrame) -> np.ndarray:
    return by_class((customers.bought == "yes").to_numpy().astype(int), 0.1, 0.3, 0)["train"]


def test_kinds_of_task(tmp_path, customers):
    customers.to_csv(tmp_path / "x.csv", index=False)
    target = load(config("x.csv", label="spent", task="regression", leave_out=["bought"]), "aligned", 3, 0, tmp_path)
    assert (target.classes, target.metric.name, target.labels.dtype) == (0, "rmse", np.float64)
    np.testing.assert_allclose(
        np.sort(np.concatenate([target.labels, *target.held_out_labels.values()])), np.sort(customers.spent)
    )
    customers["size"] = np.arange(N) % 3 + 5
    customers.to_csv(tmp_path / "x.csv", index=False)
    sizes = load(config("x.csv", label="size"), "aligned", 2, 0, tmp_path)
    assert (sizes.classes, sizes.metric.name) == (3, "accuracy") and set(sizes.labels.tolist()) == {0, 1, 2}
    coded = load(
        config("x.csv", categories=["size"], leave_out=["spent", "since"], columns=[5, 1]), "aligned", 2, 0, tmp_path
    )
    assert coded.features[1].shape[1] == 3 and (coded.features[1].sum(axis=1) == 1).all()


def two_files(tmp_path: Path, customers: pd.DataFrame, first: np.ndarray, second: np.ndarray) -> Config:
    """The owner's file as CSV, the other's as Parquet; each has the rows that are asked for, in that order."""
    customers.loc[first, ["customer", "age", "bought", "a"]].to_csv(tmp_path / "bank.csv", index=False)
    customers.loc[second, ["b", "city", "customer", "c"]].to_parquet(tmp_path / "shop.parquet")
    return config("bank.csv", "shop.parquet", leave_out=[])


def reference(customers: pd.DataFrame, rows: np.ndarray, tmp_path: Path) -> np.ndarray:
    """The same samples in one file."""
    customers.loc[rows, ["customer", "age", "a", "b", "city", "c", "bought"]].to_csv(tmp_path / "one.csv", index=False)
    return whole(load(config("one.csv", leave_out=[], columns=[2, 3]), "aligned", 2, 0, tmp_path))


def test_files_with_the_same_ids_in_another_order(tmp_path, customers):
    how = two_files(tmp_path, customers, np.arange(N), np.random.default_rng(1).permutation(N))
    task = load(how, "aligned", 2, 0, tmp_path)
    np.testing.assert_array_equal(whole(task), reference(customers, np.arange(N), tmp_path))
    assert task.source.note.startswith("the user's own files; aligned by customer") and len(task.source.files) == 2
    how.id, how.leave_out = None, ["customer"]  # row i of both, which is wrong here, as pandas' index tells
    with pytest.raises(DataError, match=r"shop.parquet, column __index_level_0__: it numbers the rows, but in another"):
        load(how, "aligned", 2, 0, tmp_path)
    how.leave_out += ["__index_level_0__"]
    assert not np.array_equal(whole(load(how, "aligned", 2, 0, tmp_path)), whole(task))
    how = two_files(tmp_path, customers, np.arange(N), np.arange(N))
    how.id, how.leave_out = None, ["customer"]
    by_row = load(how, "aligned", 2, 0, tmp_path)
    np.testing.assert_array_equal(whole(by_row), whole(task))
    assert "aligned by the order of their rows" in by_row.source.note


needs_psi = pytest.mark.skipif(
    importlib.util.find_spec("private_set_intersection") is None and not os.environ.get("CI"),
    reason="needs openmined-psi",
)


@needs_psi
def test_private_set_intersection_keeps_what_all_have(tmp_path, customers):
    rng = np.random.default_rng(2)
    first, second = rng.permutation(N)[:50], rng.permutation(N)[:48]
    how = two_files(tmp_path, customers, first, second)
    with pytest.raises(
        DataError,
        match=r"IDs of .*bank\.csv, the first of them '\d+', are not in .*shop\.parquet; use dataset\.alignment=psi",
    ):
        load(how, "aligned", 2, 0, tmp_path)
    how.alignment = "psi"
    task = load(how, "aligned", 2, 0, tmp_path)
    common = first[np.isin(first, second)]
    np.testing.assert_array_equal(whole(task), reference(customers, common, tmp_path))
    # 33 bytes of a point of the curve and 2 around it, of 48 IDs and twice of 50, and less than 10 around each of three
    # messages
    kept, sizes, size = (
        task.source.note.split("kept ")[1].split(" IDs of ")[0],
        "50, 48",
        int(task.source.note.split("with ")[1].split()[0]),
    )
    assert kept == str(len(common)) and f"IDs of {sizes}," in task.source.note
    told = 32 * len(common)  # which IDs are kept
    assert 148 * 35 <= size - told < 148 * 35 + 30 and size == sum(nbytes for *_, nbytes in task.source.alignment)
    assert [nbytes for *_, nbytes in task.source.alignment] == [*psi_bytes(50, 48), told]
    assert load(how, "aligned", 2, 0, tmp_path).source == task.source  # keys are fresh each time, what comes out is not


@needs_psi
@pytest.mark.parametrize(("client", "server"), [(1, 1), (3, 7), (130, 100), (5, 700)])
def test_the_bytes_of_an_intersection_are_the_librarys(client, server):
    import private_set_intersection.python as psi

    asks, answers = psi.client.CreateWithNewKey(True), psi.server.CreateWithNewKey(True)
    request = asks.CreateRequest([f"a{i}" for i in range(client)])
    setup = answers.CreateSetupMessage(1e-9, client, [f"b{i}" for i in range(server)], psi.DataStructure.RAW)
    messages = setup, request, answers.ProcessRequest(request)
    assert psi_bytes(client, server) == tuple(len(message.SerializeToString()) for message in messages)


def test_hashes_keep_what_all_have(tmp_path, customers, caplog):
    how = two_files(tmp_path, customers, np.arange(50), np.arange(5, N))
    customers.loc[np.arange(0, N, 2), ["customer", "spent"]].to_csv(tmp_path / "third.csv", index=False)
    how.files.append("third.csv")
    how.alignment = "hashed"
    task = load(how, "aligned", 3, 0, tmp_path)
    assert len(whole(task)) == 22 and "hashed IDs kept 22 IDs of 50, 55, 30, with 3072 bytes" in task.source.note
    fewer = load(replace(how, samples=15), "aligned", 3, 0, tmp_path)
    assert len(whole(fewer)) == 15 and fewer.source.alignment == task.source.alignment != ()  # matched before rows go
    # 32 bytes of each hash, 8 of each place
    assert task.source.alignment == (
        (1, 0, "hashes", 1760),
        (2, 0, "hashes", 960),
        (0, 1, "kept", 176),
        (0, 2, "kept", 176),
    )
    assert "can find it by trying hashes" in caplog.text


@needs_psi
def test_three_parties_keep_what_all_three_have(tmp_path, customers):
    how = two_files(tmp_path, customers, np.arange(50), np.arange(5, N))
    customers.loc[np.arange(0, N, 2), ["customer", "spent"]].to_csv(tmp_path / "third.csv", index=False)
    how.files.append("third.csv")
    how.alignment = "psi"
    task = load(how, "aligned", 3, 0, tmp_path)
    rows = [i for i in range(50) if i >= 5 and i % 2 == 0]
    assert task.parties == 3 and len(whole(task)) == len(rows) and "kept 22 IDs of 50, 55, 30" in task.source.note
    codes = sorted(customers.bought[rows])
    assert whole(task)[:, -1].sum() == codes.count("yes")


@pytest.mark.parametrize("alignment", ["given", pytest.param("psi", marks=needs_psi)])
def test_ids_without_overlap_name_both_files(tmp_path, customers, alignment):
    how = two_files(tmp_path, customers, np.arange(30), np.arange(30, N))
    how.alignment = alignment
    with pytest.raises(
        DataError, match=r"bank\.csv and .*shop\.parquet have no ID in common in column customer.*'000' and '030'"
    ):
        load(how, "aligned", 2, 0, tmp_path)


def test_the_missing_package_is_named(tmp_path, customers, monkeypatch):
    how = two_files(tmp_path, customers, np.arange(N), np.arange(N))
    how.alignment = "psi"
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "private_set_intersection" else found(name)
    )
    (problem,) = check(how, "aligned", 2)
    assert str(problem) == "dataset.alignment=psi: needs the package openmined-psi: pip install 'vflbench[psi]'."
    original = builtins.__import__

    def refuse(name, *rest):
        if name.startswith("private_set_intersection"):
            raise ImportError("built for another system")
        return original(name, *rest)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(
        DataError, match=r"cannot be used here \(built for another system\): pip install 'vflbench\[psi\]'"
    ):
        alignment._intersect([["a"], ["a"]])


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("bank", "\n007,", "\n,", r"bank\.csv, line 9, column customer: no ID"),
        ("bank", "\n007,", "\n006,", r"bank\.csv, line 9, column customer: the ID '006' is there twice"),
        ("shop", "\n007,", "\n007,1,", r"shop\.csv, line 9: 4 cells, but there are 3 columns"),
        ("shop", "\n059,", "\n059,1\n060,", r"shop\.csv, line 61: 2 cells, but there are 3 columns"),
        ("bank", ",yes\n", ",\n", r"bank\.csv, line \d+, column bought: no label; remove the row"),
        ("bank", ",no\n", ",yes\n", r"column bought: all labels are 'yes'; there is nothing to learn"),
    ],
)
def test_a_malformed_line_is_named(tmp_path, customers, file, old, new, message):
    customers[["customer", "age", "bought"]].to_csv(tmp_path / "bank.csv", index=False)
    customers[["customer", "b", "c"]].to_csv(tmp_path / "shop.csv", index=False)
    text = (tmp_path / f"{file}.csv").read_text()
    assert old in text
    (tmp_path / f"{file}.csv").write_text(text.replace(old, new) if old == ",no\n" else text.replace(old, new, 1))
    with pytest.raises(DataError, match=message):
        load(config("bank.csv", "shop.csv", leave_out=[]), "aligned", 2, 0, tmp_path)


def test_rows_of_unequal_number_cannot_be_aligned_by_their_order(tmp_path, customers):
    how = two_files(tmp_path, customers, np.arange(N), np.arange(N - 1))
    how.id, how.leave_out = None, ["customer"]
    with pytest.raises(
        DataError, match=r"bank\.csv has 60 rows and .*shop\.parquet has 59: .*name the column of the IDs"
    ):
        load(how, "aligned", 2, 0, tmp_path)


def test_a_column_that_cannot_be_learnt_from_is_named(tmp_path, customers):
    customers.loc[4, "a"] = np.inf
    customers.to_csv(tmp_path / "x.csv", index=False)
    with pytest.raises(DataError, match=r"x\.csv, column a: inf in line 6 is not finite"):
        load(config("x.csv"), "aligned", 2, 0, tmp_path)
    customers[:8].to_csv(tmp_path / "x.csv", index=False)
    with pytest.raises(DataError, match=r"x\.csv: 8 samples; at least 10 are needed"):
        load(config("x.csv", leave_out=["a"]), "aligned", 2, 0, tmp_path)


def test_every_wrong_key_is_named_before_anything_is_read():
    def said(how, layout="aligned", parties=2):
        return [str(problem) for problem in check(how, layout, parties)]

    assert [text.partition("=")[0] for text in said(Config())] == ["dataset.files", "dataset.label"]
    assert not said(config("x.csv")) and not said(config("x.csv", "y.csv")) and not said(config("x.csv"), "sharded", 9)
    assert [text.partition(":")[0] for text in said(config("x.docx"))] == ["dataset.files=x.docx"]
    _, problems = convert(Config, {"source": "synthetic", "problem": "ridge", "task": "class", "alignment": "psy"})
    assert [problem.key for problem in problems] == ["source", "problem", "task", "alignment"] and problems[
        2
    ].closest == "classes"
    assert "one for each of the 3 parties" in said(config("x.csv", "y.csv"), parties=3)[0]
    assert "workers share one file" in said(config("x.csv", "y.csv"), "sharded")[0]
    assert "leave it null" in said(config("x.csv", "y.csv", columns=[1, 1]))[0]
    assert [text.partition(":")[0] for text in said(config("x.csv", alignment="psi", id=None))][:2] == [
        "dataset.alignment=psi",
        "dataset.id=null",
    ]
    assert "has 2 numbers, but there are 3 parties" in said(config("x.csv", columns=[1, 2]), parties=3)[0]


def test_what_only_the_headers_tell(tmp_path, customers):
    customers.to_csv(tmp_path / "x.csv", index=False)
    customers.to_csv(tmp_path / "y.csv", index=False)

    def said(how, parties=2):
        with pytest.raises(ConfigError) as error:
            load(how, "aligned", parties, 0, tmp_path)
        return str(error.value)

    assert "dataset.columns=[2, 5]: adds up to 7, but there are 6 columns to divide" in said(
        config("x.csv", columns=[2, 5])
    )
    assert "algorithm.parties=7: must lie between 1 and 6" in said(config("x.csv"), 7)
    assert "there is no such file below data_root" in said(config("z.csv"))
    text = said(config("x.csv", label="bougth", id="costumer", leave_out=["spend"], categories=["cityy"]))
    for hint in ("'bought'", "'customer'", "'spent'", "'city'"):
        assert f"Did you mean {hint}?" in text
    assert "y.csv, another party's file, has a column of this name, too" in said(config("x.csv", "y.csv"))
    customers[["customer"]].to_csv(tmp_path / "y.csv", index=False)
    assert "has no column to learn from" in said(config("x.csv", "y.csv"))


@pytest.mark.parametrize("layout", ["aligned", "sharded"])
@pytest.mark.parametrize(("new", "message"), [("\n006,", "the ID '006' is there twice"), ("\n,", "no ID")])
def test_ids_of_a_single_file_are_looked_at_too(tmp_path, customers, layout, new, message):
    customers[["customer", "age", "b", "bought"]].to_csv(tmp_path / "x.csv", index=False)
    text = (tmp_path / "x.csv").read_text()
    (tmp_path / "x.csv").write_text(text.replace("\n007,", new, 1))
    with pytest.raises(DataError, match=rf"x\.csv, line 9, column customer: {message}"):
        load(config("x.csv", leave_out=[]), layout, 2, 0, tmp_path)


def test_labels_that_differ_from_row_to_row_are_no_classes(tmp_path, customers):
    customers.to_csv(tmp_path / "x.csv", index=False)
    with pytest.raises(
        DataError, match=r"column customer: 60 different labels in 60 rows are no classes; .*dataset\.task=regression"
    ):
        load(config("x.csv", label="customer", id=None), "aligned", 2, 0, tmp_path)


def test_a_feature_that_is_the_label_is_said(tmp_path, customers, caplog):
    customers["copy"] = customers.bought
    customers.to_csv(tmp_path / "x.csv", index=False)
    load(config("x.csv"), "aligned", 2, 0, tmp_path)
    assert "column copy: LEAK: it alone nearly determines the label bought (AUROC 1.0000 on 60" in caplog.text
    caplog.clear()
    load(config("x.csv", leave_out=["spent", "copy"]), "aligned", 2, 0, tmp_path)
    assert "leave_out" not in caplog.text


def test_numbers_too_large_for_a_spread_are_refused_by_column(tmp_path, customers):
    customers.loc[[1, 2], "b"] = [1e308, -1e308]
    customers.to_csv(tmp_path / "x.csv", index=False)
    with pytest.raises(DataError, match=r"x\.csv, column b: 1e\+308 in line 3 is too large"):
        load(config("x.csv"), "aligned", 2, 0, tmp_path)
