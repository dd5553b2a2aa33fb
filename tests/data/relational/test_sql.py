"""dataset=sql on small made tables in every kind of source, a real PostgreSQL server among them."""

import contextlib
import copy
import datetime
import re
import sqlite3
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from tests.data.relational.conftest import PASSWORD
from tests.every import few_fast
from vflbench import config as configuration
from vflbench.cards.data.readers.table_sources import redacted
from vflbench.cards.data.relational.sql import Config, Table
from vflbench.config.typed import convert_value
from vflbench.data.columns import inspection
from vflbench.data.readers import table_sources
from vflbench.data.readers.cells import Column, as_type, concatenate, infer, of_arrow, of_objects
from vflbench.data.readers.table_sources import Source
from vflbench.data.relational import sql
from vflbench.data.relational.sql import load
from vflbench.types import ConfigError, DataError

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
KINDS = ("csv", "csv.gz", "tsv", "parquet", "sqlite", "duckdb")
RNG = np.random.default_rng(0)
SHOPS = ["A", "B", "C", "D"]
# Sorted by its keys, which are unique: a database's rows come in this order too.
PURCHASES = pd.DataFrame([(c, s) for c in range(1, 16) for s in SHOPS], columns=["customer", "shop"])
PURCHASES["hour"] = RNG.integers(8, 20, 60)
PURCHASES["weight"] = RNG.normal(size=60).round(3)
PURCHASES["amount"] = RNG.normal(20, 5, 60).round(2)
CUSTOMERS = pd.DataFrame(
    {"id": range(1, 13), "age": RNG.integers(18, 80, 12), "city": ["Basel", "Bern", "Chur"] * 4}
)  # 13 to 15 are unknown
SECTIONS = pd.DataFrame({"shop": ["A", "A", "B", "C", "E"], "metres": [2.0, 5.5, 3.25, 7.0, 1.0]})  # A twice, D never
FRAMES = {"purchases": PURCHASES, "customers": CUSTOMERS, "sections": SECTIONS}


def write(frame, kind, name, table="t") -> dict:
    """`frame` in the current folder; what a Table needs to find it."""
    file = f"{name}.{kind}"
    if kind == "parquet":
        frame.to_parquet(file, index=False)
    elif kind == "sqlite":
        with contextlib.closing(sqlite3.connect(file)) as connection:
            frame.to_sql(table, connection, index=False)
        return {"url": f"sqlite:///{file}", "table": table}
    elif kind == "duckdb":
        import duckdb

        with duckdb.connect(file) as connection:
            connection.execute(f"CREATE TABLE {table} AS SELECT * FROM frame")
        return {"url": f"duckdb:///{file}", "table": table}
    else:
        frame.to_csv(file, index=False, sep="\t" if kind == "tsv" else ",")
    return {"url": file}


def world(kind="csv", **changes) -> Config:
    """Purchases joined with who bought and with the sections of the shop; all files of one kind."""
    where = {name: write(frame, kind, name) for name, frame in FRAMES.items()}
    tables = {
        "purchases": Table(**where["purchases"], keys=["customer", "shop"], label="amount"),
        "customers": Table(**where["customers"], organisation="the bank", features=["age"], categories=["city"]),
        "sections": Table(**where["sections"], keys=["shop"]),
    }
    joins = ["purchases.customer = customers.id", "purchases.shop=sections.shop"]
    return Config(**{"tables": tables, "joins": joins, **changes})


def run(config, layout="relational", parties=1, seed=0):
    return load(config, layout, parties, seed, None)


def assert_equal(task, expected):
    assert [part.table for part in task.clients] == [part.table for part in expected.clients]
    for part, other in zip(task.clients, expected.clients, strict=True):
        np.testing.assert_array_equal(part.features, other.features)
        assert part.keys.keys() == other.keys.keys()
        for key in part.keys:
            np.testing.assert_array_equal(part.keys[key], other.keys[key])
            assert part.keys[key].dtype == other.keys[key].dtype
        if part.labels is not None:
            np.testing.assert_array_equal(part.labels, other.labels)


# --- what it gives ----------------------------------------------------------------------------------------------------


def test_the_join_is_that_of_a_database(here):
    task = run(world(), "aligned", seed=3)
    # 12 customers x (2 + 1 + 1)
    joined = PURCHASES.merge(CUSTOMERS, left_on="customer", right_on="id").merge(SECTIONS, on="shop")
    assert len(joined) == 48
    splits = {"train": task.labels, **task.held_out_labels}
    assert sorted(np.concatenate(list(splits.values()))) == pytest.approx(sorted(joined.amount))
    # Undo the standardisation of purchases: by its training rows alone; of the others by all rows.
    kept = {name: pd.DataFrame({"amount": labels}) for name, labels in splits.items()}
    blocks = {"train": task.features, **task.held_out_features}
    for name, frame in kept.items():
        frame["age"] = blocks[name][1][:, 0] * CUSTOMERS.age.std(ddof=0) + CUSTOMERS.age.mean()
        frame["metres"] = blocks[name][2][:, 0] * SECTIONS.metres.std(ddof=0) + SECTIONS.metres.mean()
        assert blocks[name][1].shape[1] == 4  # age and three cities
    found = pd.concat(kept.values()).sort_values(["amount", "metres"])
    wanted = joined.sort_values(["amount", "metres"])
    np.testing.assert_allclose(found[["amount", "age", "metres"]], wanted[["amount", "age", "metres"]], rtol=1e-4)


def test_parts_and_record_of_files(here):
    task = run(world(), parties=2)
    assert [(part.table, part.rows) for part in task.clients] == [
        ("purchases", 21), ("purchases", 21), ("customers", 6), ("customers", 6), ("sections", 3), ("sections", 2),
    ]  # fmt: skip
    assert [name for name, _ in task.source.files] == ["purchases.csv", "customers.csv", "sections.csv"]
    assert task.source.kind == "real" and "table customers of the bank: CSV" in task.source.note
    assert task.metric.name == "rmse" and task.label_table == "purchases" and task.classes == 0
    assert task.clients[0].features.shape[1] == 2  # hour and weight: keys and label are no features


@pytest.mark.parametrize("kind", KINDS[1:])
def test_every_kind_of_source_gives_the_same_task(here, kind):
    assert_equal(run(world(kind)), run(world("csv")))


def test_one_join_over_unlike_sources(here):
    config = world()
    config.tables["customers"] = Table(**write(CUSTOMERS, "sqlite", "bank"), features=["age"], categories=["city"])
    config.tables["sections"] = Table(**write(SECTIONS, "parquet", "town"), keys=["shop"])
    assert_equal(run(config), run(world()))


def test_rows_of_a_database_do_not_depend_on_their_order_there(here):
    config = world("sqlite")
    expected = run(config)
    for name, frame in FRAMES.items():
        Path(f"{name}.sqlite").unlink()
        write(frame.sample(frac=1, random_state=1), "sqlite", name)
    assert_equal(run(config), expected)


def test_a_database_in_use_is_read_with_what_is_not_yet_in_its_file(here):
    config = world("sqlite")
    with contextlib.closing(sqlite3.connect("customers.sqlite")) as connection:
        connection.execute("PRAGMA journal_mode=wal")
        connection.executemany("INSERT INTO t VALUES (?, 30, 'Bern')", [(number,) for number in range(13, 3000)])
        connection.commit()
        task = run(config)
        assert task.clients[1].rows == 2999
        files = dict(task.source.files)  # the record says of these rows, too
        connection.execute("UPDATE t SET age = 31 WHERE id = 2999")
        connection.commit()
        now = dict(run(config).source.files)
        assert [name for name in files if files[name] != now[name]] == ["customers.sqlite-wal"]


def test_reading_leaves_nothing_beside_a_database(here):
    config = world("sqlite")
    with contextlib.closing(sqlite3.connect("customers.sqlite")) as connection:
        connection.execute("PRAGMA journal_mode=wal")
    before = sorted(Path().iterdir())
    assert run(config).clients[1].rows == 12
    assert sorted(Path().iterdir()) == before


def test_a_query_is_a_table(here):
    config = world("sqlite")
    config.tables["customers"].table = None
    config.tables["customers"].query = "SELECT id, age, city FROM t WHERE id <= 6;"
    assert [part.rows for part in run(config).clients] == [42, 6, 5]


@pytest.mark.parametrize("kind", ["csv", "sqlite"])
def test_declared_parts_are_kept_and_each_client_has_what_its_own_source_has(here, kind, monkeypatch):
    config = world(kind)
    cuts = {"north": CUSTOMERS[:8], "south": CUSTOMERS[8:]}
    where = [write(frame, kind, name) for name, frame in cuts.items()]
    table = where[0].get("table")
    config.tables["customers"] = Table(
        url=[w["url"] for w in where], table=table, features=["age"], categories=["city"]
    )
    opened = []
    read = table_sources.read

    def spy(source, names, types):
        found = read(source, names, types)
        opened.append((source.url, len(next(iter(found.values())).values)))
        return found

    monkeypatch.setattr(table_sources, "read", spy)
    task = run(config, parties=3)
    parts = [part for part in task.clients if part.table == "customers"]
    assert [part.rows for part in parts] == [8, 4], "not cut anew"
    assert [list(part.keys["id"]) for part in parts] == [list(range(1, 9)), list(range(9, 13))]
    assert {rows for url, rows in opened if "north" in url} == {8} and {
        rows for url, rows in opened if "south" in url
    } == {4}
    assert len([part for part in task.clients if part.table == "purchases"]) == 3
    (here / "whole").mkdir()
    monkeypatch.chdir(here / "whole")
    np.testing.assert_array_equal(
        np.concatenate([part.features for part in parts]), run(world(kind)).clients[1].features
    )


def test_categories_are_those_of_all_parts(here):
    config = world()
    write(CUSTOMERS[CUSTOMERS.city != "Chur"], "csv", "north")
    write(CUSTOMERS[CUSTOMERS.city == "Chur"], "csv", "south")
    config.tables["customers"].url = ["north.csv", "south.csv"]
    north, south = (part.features for part in run(config).clients if part.table == "customers")
    assert north.shape[1] == south.shape[1] == 4  # age, Basel, Bern, Chur
    assert (south[:, 3] > 0).all() and (north[:, 3] < 0).all()
    assert len(np.unique(south[:, 1])) == 1


def test_a_missing_category_and_a_missing_number_are_the_mean(here):
    frame = CUSTOMERS.astype({"age": float})
    frame.loc[0, ["age", "city"]] = [np.nan, None]
    config = world()
    frame.to_csv("customers.csv", index=False)
    assert (run(config).clients[1].features[0] == 0).all()


def test_dates_are_features_where_they_are_listed(here):
    frame = CUSTOMERS.assign(since=pd.date_range("2020-01-01", periods=12, freq="30D"))
    config = world("parquet")
    frame.to_parquet("customers.parquet", index=False)
    config.tables["customers"] = Table(url="customers.parquet", features=["since"])
    np.testing.assert_allclose(
        run(config).clients[1].features[:, 0], (np.arange(12) - 5.5) / np.arange(12).std(), atol=1e-5
    )


def test_columns_are_inspected_as_those_of_other_tables(here, caplog):
    """Dates, also as texts, are numbers; constant columns and nameless row numbers are no features."""
    days = pd.date_range("2020-01-01", periods=12, freq="30D")
    frame = CUSTOMERS.assign(since=days.strftime("%d.%m.%Y"), seen=days, same=3.0, nr=range(12))
    config = world()
    config.tables["customers"] = Table(url="customers.csv")
    frame.rename_axis("").reset_index().to_csv("customers.csv", index=False)
    task = run(config)
    _, since, seen, nr = task.clients[1].features.T
    np.testing.assert_array_equal(since, seen)
    np.testing.assert_allclose(since, nr, atol=1e-5)
    told = {column["column"]: column["remarks"][0]["message"] for column in task.source.tables[0]["columns"]}
    assert told["since"] == "read as dates, the day first" and "so it is dropped" in told["same"]
    assert "numbers the rows, so it is left out. dataset.tables.customers.features can list it" in told[""]
    assert "customers, column nr: it numbers the rows in their order" in caplog.text
    assert inspection.in_words(task.source.tables)[0] == "table customers, column since: read as dates, the day first"
    config.tables["customers"].features = ["since", "same"]
    np.testing.assert_array_equal(run(config).clients[1].features, np.stack([since, np.zeros(12)], axis=1))
    config.tables["customers"].features = ["city"]
    with pytest.raises(DataError, match=r"column city: is text, not a number"):
        run(config)


def test_a_table_of_constant_columns_keeps_them(here):
    config = world()
    CUSTOMERS.assign(age=1).drop(columns="city").to_csv("customers.csv", index=False)
    config.tables["customers"] = Table(url="customers.csv")
    assert run(config).clients[1].features.tolist() == [[0]] * 12


@pytest.mark.parametrize("layout", ["relational", "aligned"])
def test_a_column_of_any_table_that_determines_the_label_is_told(here, caplog, layout):
    ids, kind = RNG.permutation(300), np.arange(300) % 3
    bought = pd.DataFrame({"id": range(300), "kind": kind, "weight": RNG.normal(size=300)})
    known = pd.DataFrame({"id": ids, "code": np.array(["q", "r", "p"])[kind[ids]], "age": RNG.integers(18, 80, 300)})
    known = pd.concat([known, known.assign(age=RNG.integers(18, 80, 300))])  # each row of labels joins two
    tables = {
        "bought": Table(**write(bought, "csv", "bought"), label="kind"),
        "known": Table(**write(known, "csv", "known"), categories=["code"]),
    }
    task = run(Config(tables=tables, joins=["bought.id = known.id"], task="classes"), layout)
    assert [line.split(":")[0] for line in inspection.leaks(task.source.tables)] == ["table known, column code"]
    assert "column code: LEAK: it alone nearly determines the label kind (balanced accuracy 1.0000" in caplog.text
    assert "list only others in dataset.tables.known.features" in caplog.text


def test_what_is_left_out_is_told(here, caplog):
    config = world()
    config.tables["customers"] = Table(url="customers.csv")
    assert run(config).clients[1].features.shape[1] == 1
    assert "table customers: left out, being no numbers: city" in caplog.text


# --- keys -------------------------------------------------------------------------------------------------------------


def joined_rows(left, right, types=None):
    """Rows of the join of two Parquet tables on k; 40 rows of the left table each have a label."""
    pd.DataFrame({"k": left, "y": range(len(left)), "x": 1.0}).to_parquet("left.parquet", index=False)
    pd.DataFrame({"k": right, "z": 2.0}).to_parquet("right.parquet", index=False)
    tables = {"left": Table("left.parquet", label="y"), "right": Table("right.parquet", types=types or {})}
    task = run(Config(tables=tables, joins=["left.k = right.k"]), "aligned")
    return len(task.labels) + sum(map(len, task.held_out_labels.values()))


@pytest.mark.parametrize(
    ("left", "right", "rows"),
    [
        (np.arange(40, dtype=np.int8), np.arange(40, dtype=np.int64), 40),
        (np.arange(40, dtype=np.uint16), np.arange(40.0), 40),
        (np.arange(40), [Decimal(i) for i in range(40)], 40),
        (np.arange(40) + 2**60, pd.array([2**60 + i for i in range(39)] + [None], dtype="Int64"), 39),
        (pd.array([None, *range(39)], dtype="Int64"), [None, *range(39)], 39),  # NULL is not NULL's equal
        (np.arange(40) % 2 == 0, [0, 1], 40),
        ([f"k{i}" for i in range(39)] + [None], [f"k{i}" for i in range(39)] + [None], 39),
        (
            [datetime.date(2024, 1, 1) + datetime.timedelta(i) for i in range(40)],
            pd.date_range("2024-01-01", periods=40),
            40,
        ),
        ([0.5 * i for i in range(40)], [Decimal(i) / 2 for i in range(40)], 40),
        (np.repeat(np.arange(20), 2), np.repeat(np.arange(20), 3), 120),
        (pd.Categorical([f"k{i}" for i in range(40)]), [f"k{i}" for i in range(40)], 40),
    ],
    ids=[
        "widths",
        "unsigned-float",
        "decimal",
        "large-and-null",
        "null",
        "bool",
        "text-null",
        "dates",
        "fractions",
        "many-to-many",
        "dict",
    ],
)
def test_keys_of_every_type_join_as_in_sql(here, left, right, rows):
    assert joined_rows(left, right) == rows


def test_unlike_keys_are_named_and_can_be_declared(here):
    with pytest.raises(
        DataError,
        match=r"left\.k is number and right\.k is text: they cannot be joined; .*dataset\.tables\.left\.types",
    ):
        joined_rows(range(40), [str(i) for i in range(40)])
    assert joined_rows(range(40), [str(i) for i in range(40)], {"k": "number"}) == 40
    assert (
        joined_rows(pd.date_range("2024-01-01", periods=40), [f"2024-01-{i:02d}" for i in range(1, 32)], {"k": "date"})
        == 31
    )
    with pytest.raises(DataError, match=r"right\.parquet, row 1, column k: 'x' is not a number"):
        joined_rows(range(40), ["0", "x"], {"k": "number"})


def test_parts_with_unlike_keys_are_named(here):
    config = world()
    write(CUSTOMERS[:6], "csv", "north")
    write(CUSTOMERS[6:].astype({"id": str}).assign(id=lambda f: "c" + f.id), "csv", "south")
    config.tables["customers"].url = ["north.csv", "south.csv"]
    with pytest.raises(
        DataError,
        match=r"table customers of the bank, key column id: its parts have unlike keys \(number in north\.csv, text in "
        r"s",
    ):
        run(config)


def test_padded_numbers_in_a_csv_are_text(here):
    Path("left.csv").write_text("k,x,y\n" + "".join(f"{i:03d},1.5,{i}\n" for i in range(40)))
    Path("right.csv").write_text("k,z\n" + "".join(f"{i:03d},1.5\n{i}x,1.5\n" for i in range(40)))
    tables = {"left": Table("left.csv", label="y"), "right": Table("right.csv")}
    task = run(Config(tables=tables, joins=["left.k = right.k"]))
    assert task.clients[0].keys["k"][0] == f"{int(task.clients[0].labels[0]):03d}"


def test_composite_keys(here):
    frame = pd.DataFrame({"c": PURCHASES.customer, "s": PURCHASES.shop, "z": range(60)})[:30]
    config = world()
    config.tables = {"purchases": config.tables["purchases"], "visits": Table(**write(frame, "parquet", "visits"))}
    config.joins = ["purchases.customer = visits.c", "visits.s = purchases.shop"]
    task = run(config, "aligned")
    assert len(task.labels) + sum(map(len, task.held_out_labels.values())) == 30


# --- labels -----------------------------------------------------------------------------------------------------------


def classed(labels, kind="csv", **changes):
    frame = PURCHASES.assign(amount=labels)
    config = world(kind, task="classes", **changes)
    if kind == "sqlite":
        Path("purchases.sqlite").unlink()
    config.tables["purchases"] = Table(**write(frame, kind, "purchases"), keys=["customer", "shop"], label="amount")
    return config


@pytest.mark.parametrize(
    ("labels", "classes", "expected"),
    [
        (np.arange(60) % 3, None, np.arange(60) % 3),
        (np.arange(60) % 3, 5, np.arange(60) % 3),
        (1 + np.arange(60) % 3, [1, 2, 3], np.arange(60) % 3),
        (["no", "yes"] * 30, None, np.arange(60) % 2),
        (["no", "yes"] * 30, ["yes", "no"], 1 - np.arange(60) % 2),
        ([False, True] * 30, None, np.arange(60) % 2),
        ([0.5, 1.0] * 30, [0.5, 1.0], np.arange(60) % 2),
    ],
)
def test_classes(here, labels, classes, expected):
    task = run(classed(labels, classes=classes))
    assert (
        task.classes == (classes if isinstance(classes, int) else len(set(expected))) and task.metric.name == "accuracy"
    )
    rows = {
        pair: label
        for *pair, label in zip(PURCHASES.customer, PURCHASES.shop, expected, strict=True)
        for pair in [tuple(pair)]
    }
    part = task.clients[0]
    wanted = [rows[pair] for pair in zip(part.keys["customer"], part.keys["shop"], strict=True)]
    np.testing.assert_array_equal(part.labels, wanted)
    assert part.labels.dtype == np.int64


def test_auroc_is_for_two_classes(here):
    assert run(classed(["a", "b"] * 30, metric="auroc")).metric.name == "auroc"
    with pytest.raises(ConfigError, match=r"dataset\.metric=auroc: is for two classes; table purchases has 3"):
        run(classed(np.arange(60) % 3, metric="auroc"))
    with pytest.raises(DataError, match=r"the (val|test) rows that join have class 0 only, and auroc needs two"):
        run(classed(np.arange(60) == 30, metric="auroc"))


# --- splits -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["csv", "sqlite"])
def test_rare_classes_are_in_all_splits(here, kind):
    config = classed(np.isin(np.arange(60), [8, 21, 40]).astype(int), kind, metric="auroc")
    config.joins = config.joins[:1]
    del config.tables["sections"]
    for seed in range(3):
        task = run(config, seed=seed)
        (owner,) = (number for number, part in enumerate(task.clients) if part.labels is not None)
        assert task.clients[owner].labels.sum() == 1
        assert [truth.labels.sum() for truth in task.held_out.values()] == [1, 1]
        alone = sql.load_own(config, "relational", 1, seed, None, task.without_features(), owner)
        np.testing.assert_array_equal(alone.clients[owner].labels, task.clients[owner].labels)
        for split, block in task.clients[owner].held_out.items():
            np.testing.assert_array_equal(alone.clients[owner].held_out[split], block)


@pytest.mark.parametrize("features", [None, ["hour"]])
def test_purchases_are_divided_by_customer_and_by_time(here, features):
    days = np.random.default_rng(1).permutation(60)
    frame = PURCHASES.assign(day=days, weight=days)
    config = world(split="time", time="day")
    owner = Table(**write(frame, "csv", "purchases"), keys=["customer", "shop"], features=features, label="amount")
    config.tables["purchases"] = owner
    task = run(config)
    part = task.clients[0]
    assert part.features.shape[1] == (2 if features is None else 1), "the time is no feature"
    if features is None:
        last, first = part.features[:, 1].max(), part.held_out["test"][:, 1].min()
        assert last < part.held_out["val"][:, 1].min() and part.held_out["val"][:, 1].max() < first
    config.split, config.time, config.entity = "group", None, "customer"  # also a key
    task = run(config)
    train = {*task.clients[0].keys["customer"].tolist()}
    assert 0 < len(train) < 15 and len(task.clients[0].labels) == 4 * len(train), "all purchases of a customer"
    config.entity = "custommer"
    with pytest.raises(ConfigError, match=r"dataset.entity=custommer: table purchases: .* Did you mean 'customer'"):
        run(config)


@pytest.mark.parametrize(
    ("labels", "changes", "message"),
    [
        (
            [0, 1, 2, 7] * 15,
            {"classes": 3},
            r"table purchases, label column amount: purchases\.csv, line 5: label '7' is out of range.* 0, 1, 2$",
        ),
        ([0, -1] * 30, {"classes": 3}, r"purchases\.csv, line 3: label '-1' is out of range"),
        (
            [1, 2, 5] * 20,
            {},
            r"labels 1, 2, 5; classes are numbered without a gap from 0, or listed: dataset\.classes=\[1, 2, 5\]",
        ),
        (["a"] * 60, {}, r"a single label, 'a'"),
        ([0, 1, None] * 20, {}, r"purchases\.csv, line 4: 20 labels are missing or not finite"),
        (["a", "b", "c"] * 20, {"classes": ["a", "b"]}, r"line 4: label 'c' is out of range; the classes are a, b"),
    ],
)
def test_labels_that_are_no_classes(here, labels, changes, message):
    with pytest.raises(DataError, match=message):
        run(classed(labels, **changes))


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        (
            "",
            r"table purchases, label column amount: purchases\.csv, line 4: a label is missing or not finite; leave "
            r"such rows out",
        ),
        ("inf", r"purchases\.csv, line 4: a label is missing or not finite"),
        ("cheap", r"purchases\.csv, line 4: 'cheap'; labels of task=regression are number"),
    ],
)
def test_targets_that_are_no_numbers(here, cell, message):
    config = world()
    edit("purchases.csv", 4, "1,C,9,0.5," + cell)
    with pytest.raises(DataError, match=message):
        run(config)


# --- the configuration ------------------------------------------------------------------------------------------------


def test_everything_that_is_wrong_is_told_at_once(here):
    wrong = {
        "task": "regresion",
        "source": "synthetic",
        "variant": "big",
        "query_timeout": 0,
        "tables": {"a": {"url": "a.csv", "types": {"b": "numbr"}}},
    }
    found = {problem.key: problem.closest for problem in configuration.convert(Config, wrong)[1]}
    assert found == {
        "task": "regression",
        "source": None,
        "variant": None,
        "query_timeout": None,
        "tables.a.types.b": "number",
    }
    config = world(validation=0.9)
    config.tables["purchases"].url = "purchase.csv"
    config.tables["customers"].url = "postgres//me@host/db"
    config.tables["sections"].url = "sqlit:///sections.db"
    config.tables["sections"].label = "metres"
    config.tables["sections"].features = ["metres"]
    config.tables["extra"] = Table(url="customers.csv", table="t", keys=["id"], password_env="X")
    config.joins += ["purchases.costumer = customers.id", "customer.id = extra.id", "a = b", "extra.id = extra.id"]
    with pytest.raises(ConfigError) as error:
        run(config)
    told = {(problem.key, problem.closest) for problem in error.value.problems}
    assert told == {
        ("dataset.validation, dataset.test", None),
        ("dataset.tables.purchases.url", "purchases.csv"),
        ("dataset.tables.customers.url", None),
        ("dataset.tables.sections.url", "sqlite://"),
        ("dataset.tables.sections.features", None),
        ("dataset.tables.extra.table", None),
        ("dataset.tables.extra.password_env", None),
        ("dataset.tables.*.label", None),
        ("dataset.joins", "customer"),
        ("dataset.joins", "customers"),
        ("dataset.joins", None),
    }


def test_missing_columns_are_told_at_once_with_what_was_meant(here):
    config = world()
    config.tables["purchases"].keys = ["customers", "shop"]
    config.tables["purchases"].label = "amnt"
    config.tables["customers"].features = ["aeg"]
    config.joins[0] = "purchases.customers = customers.ids"
    with pytest.raises(ConfigError) as error:
        run(config)
    assert [(problem.key, problem.value, problem.closest) for problem in error.value.problems] == [
        ("dataset.tables.purchases.keys", "customers", "customer"),
        ("dataset.tables.purchases.label", "amnt", "amount"),
        ("dataset.joins", "ids", "id"),
        ("dataset.tables.customers.features", "aeg", "age"),
    ]
    assert "table customers of the bank: customers.csv has no such column; it has id, age, city" in str(error.value)


def test_tables_that_nothing_joins(here):
    with pytest.raises(ConfigError, match=r"no predicate connects sections with purchases, customers"):
        run(world(joins=["purchases.customer = customers.id"]))


def test_no_tables_at_all_points_to_the_example():
    with pytest.raises(ConfigError, match=r"dataset\.tables=\{\}: names no tables.*examples/dataset/sql\.yaml"):
        run(Config())


def test_unlike_columns_of_parts(here):
    config = world()
    write(CUSTOMERS[:6], "csv", "north")
    write(CUSTOMERS[6:].assign(income=1), "csv", "south")
    config.tables["customers"] = Table(url=["north.csv", "south.csv"])
    with pytest.raises(
        ConfigError, match=r"parts of table customers have unlike columns \(income in north\.csv or south\.csv alone\)"
    ):
        run(config)


def composed(values):
    """The problems of converting a dataset node, and the Config."""
    problems = []
    return problems, convert_value(Config, values, "dataset", problems)


def test_an_unknown_key_in_a_table_is_an_error_with_what_was_meant():
    problems, _ = composed({"tables": {"a": {"url": "a.csv", "feature": ["x"]}, "b": {"key": ["x"]}}})
    assert [(problem.key, problem.closest) for problem in problems] == [
        ("dataset.tables.a.feature", "features"),
        ("dataset.tables.b.key", "keys"),
        ("dataset.tables.b.url", None),
    ]


# --- passwords --------------------------------------------------------------------------------------------------------

SECRETS = [
    "postgresql://me:hunter2@host/db",
    "postgres://me:hunter2@host:5432/db?sslmode=require",
    "postgresql://host/db?user=me&password=hunter2",
    "postgresql://host/db?sslpassword=hunter2",
    "postgresql://me:hun/ter2@host/db",
    "mysql://me:hunter2@host/db",
]


@pytest.mark.parametrize("url", SECRETS)
def test_a_password_in_a_url_is_refused_before_anything_else_and_not_shown(url):
    with pytest.raises(ConfigError, match=r"password_env") as error:
        composed({"tables": {"a": {"url": ["a.csv", url]}}})
    assert "hunter2" not in str(error.value) and "ter2" not in str(error.value)


def test_a_password_key_is_refused_and_not_shown():
    with pytest.raises(
        ConfigError, match=r"dataset\.tables\.a\.password=\*\*\*: .*dataset\.tables\.a\.password_env"
    ) as error:
        composed({"tables": {"a": {"url": "postgresql://me@host/db", "table": "t", "password": "hunter2"}}})
    assert "hunter2" not in str(error.value)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://me@host:5432/db?sslmode=require", "postgresql://me@host:5432/db"),
        ("postgresql://me@[::1]:5432,other/db", "postgresql://me@[::1]:5432,other/db"),
        ("postgresql:///db?host=/run", "postgresql:///db"),
        ("postgresql://u:p?w@host/db", "postgresql://***"),
        ("postgresql://u:pw", "postgresql://***"),
        ("mysql://u@host/db", "mysql://***"),
        ("postgresql://" + "a" * 5000 + "@@", "postgresql://***"),
        ("shops.csv", "shops.csv"),
        ("sqlite:///a:b@c.db", "sqlite:///a:b@c.db"),
    ],
)
def test_what_is_shown_of_a_url(url, expected):
    assert redacted(url) == expected


def test_a_password_in_the_place_of_its_variable_is_not_shown(here):
    config = world()
    config.tables["customers"] = Table(url="postgresql://me@host/db", table="t", password_env="hunter2-secret")
    with pytest.raises(ConfigError, match=r"password_env=\(not shown\): there is no environment variable") as error:
        run(config)
    assert "hunter2" not in str(error.value)


def test_a_variable_that_is_not_set_is_named(here, monkeypatch):
    monkeypatch.setenv("SHOP_PASSWORD", "x")
    config = world()
    config.tables["customers"] = Table(url="postgresql://me@host/db", table="t", password_env="SHOP_PASSWORT")
    with pytest.raises(
        ConfigError, match=r"password_env=SHOP_PASSWORT: there is no environment variable.*Did you mean 'SHOP_PASSWORD'"
    ):
        run(config)


@pytest.mark.parametrize(
    ("kind", "package", "extra"), [("postgresql", "psycopg", "postgres"), ("duckdb", "duckdb", "duckdb")]
)
def test_a_package_that_is_missing_is_named(here, monkeypatch, kind, package, extra):
    find = table_sources.importlib.util.find_spec
    monkeypatch.setattr(table_sources.importlib.util, "find_spec", lambda name: None if name == package else find(name))
    Path("a.db").touch()
    config = world()
    url = "postgresql://me@host/db" if kind == "postgresql" else "duckdb:///a.db"
    config.tables["customers"] = Table(url=url, table="t")
    with pytest.raises(ConfigError, match=rf"needs the package {package}: pip install 'vflbench\[{extra}\]'"):
        run(config)


# --- files that are not what they should be ---------------------------------------------------------------------------


def edit(file, line, text):
    lines = Path(file).read_text().splitlines()
    lines[line - 1] = text
    Path(file).write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize(
    ("line", "text", "message"),
    [
        (5, "4,30", r"customers\.csv, line 5: 2 cells, but there are 3 columns"),
        (5, "4,30,Bern,x", r"customers\.csv, line 5: 4 cells, but there are 3 columns"),
        (5, '4,30,"Bern', r"customers\.csv, line 5: malformed, a quotation mark"),
        (5, "4,thirty,Bern", r"column age: customers\.csv, line 5: 'thirty' is not a number"),
        (1, "id,age,age", r"customers\.csv: several columns are called age"),
        (5, "4,1e400,Bern", r"table customers of the bank: customers\.csv, line 5, column age: a value is not finite"),
        (5, "4,1e35,Bern", r"customers\.csv, line 5, column age: a value is too large \(at most 1e\+30\)"),
    ],
)
def test_malformed_lines_are_named(here, line, text, message):
    config = world()
    edit("customers.csv", line, text)
    with pytest.raises(DataError, match=message):
        run(config)


def test_lines_are_counted_as_an_editor_does(here):
    config = world()
    edit("customers.csv", 3, '2,40,"Chur\n(GR)"\n\n')  # a cell of two lines, then a blank one
    lines = Path("customers.csv").read_text().splitlines()
    assert lines[7].startswith("4,")
    edit("customers.csv", 8, "4,x,Bern")
    with pytest.raises(DataError, match=r"customers\.csv, line 8: 'x' is not a number"):
        run(config)


def test_bytes_that_are_no_text_are_named(here):
    config = world()
    data = Path("customers.csv").read_bytes().splitlines()
    data[6] = b"6,40,Z\x81rich"
    Path("customers.csv").write_bytes(b"\n".join(data))
    with pytest.raises(DataError, match=r"customers\.csv, line 7: neither UTF-8 nor Windows-1252"):
        run(config)


def test_a_file_as_excel_writes_it_is_read_alike_and_reported(here, caplog):
    config = world()
    before = run(config)
    frame = pd.read_csv("customers.csv")
    frame.to_csv("customers.csv", index=False, sep=";", decimal=",", encoding="utf-16")
    with caplog.at_level("INFO"):
        after = run(config)
    assert "customers.csv: separated by ';'" in caplog.text and "UTF-16" in caplog.text
    for one, other in zip(before.clients, after.clients, strict=True):
        np.testing.assert_array_equal(one.features, other.features)
    config.tables["customers"].separator = ","
    with pytest.raises((ConfigError, DataError)):
        run(config)


def test_a_misspelt_number_is_not_left_out_in_silence(here, caplog):
    """As in other own tables: a warning, with the line."""
    config = world()
    width = run(config).clients[0].features.shape[1]
    edit("purchases.csv", 9, "2,D,9,o.5,21")
    told = (
        r"purchases\.csv, line 9, column weight: 'o\.5' where nearly all cells are numbers, so the column is left out"
    )
    assert run(config).clients[0].features.shape[1] == width - 1 and re.search(told, caplog.text)


def test_text_among_the_features(here):
    config = world()
    config.tables["customers"].features, config.tables["customers"].categories = ["age", "city"], []
    with pytest.raises(
        DataError,
        match=r"table customers of the bank, column city: is text, not a number \(customers\.csv\).*categories",
    ):
        run(config)


@pytest.mark.parametrize(
    ("content", "message"),
    [("", "empty, without even a line"), ("id,age,city\n", "key column id: the table has no rows")],
)
def test_empty_tables(here, content, message):
    config = world()
    Path("customers.csv").write_text(content)
    with pytest.raises(DataError, match=message):
        run(config)


def test_an_empty_part_is_named(here):
    config = world()
    Path("south.csv").write_text("id,age,city\n")
    config.tables["customers"].url = ["customers.csv", "south.csv"]
    with pytest.raises(DataError, match=r"table customers of the bank: south\.csv has no rows"):
        run(config)


def test_keys_that_are_all_null_and_keys_that_meet_nowhere(here):
    config = world()
    CUSTOMERS.assign(id=None).to_csv("customers.csv", index=False)
    with pytest.raises(DataError, match=r"key column id: every key is NULL"):
        run(config)
    CUSTOMERS.assign(id=CUSTOMERS.id + 100).to_csv("customers.csv", index=False)
    with pytest.raises(DataError, match=r"the join is empty: .*purchases\.customer = customers\.id"):
        run(config)


def test_too_many_categories_are_a_key(here):
    config = world()
    frame = pd.DataFrame({"id": range(1, 1202), "age": 1.5, "city": [f"c{i}" for i in range(1201)]})
    frame.to_csv("customers.csv", index=False)
    with pytest.raises(DataError, match=r"column city: 1201 different values, more than 1000"):
        run(config)


@pytest.mark.parametrize("kind", few_fast(["csv.gz", "parquet", "sqlite", "duckdb"]))
@pytest.mark.parametrize("keep", [0.0, 0.5, 0.95])
def test_truncated_files_are_named(here, kind, keep):
    config = world(kind)
    data = Path(f"customers.{kind}").read_bytes()
    Path(f"customers.{kind}").write_bytes(data[: int(keep * len(data))])
    with pytest.raises(DataError, match=rf"customers\.{kind}"):
        run(config)


def test_a_table_that_a_database_has_not(here):
    config = world("sqlite")
    config.tables["customers"].table = "customer"
    with pytest.raises(
        DataError, match=r"sqlite:///customers\.sqlite, table customer: cannot be read \(no such table: customer\)"
    ):
        run(config)


def test_columns_of_unlike_cells_and_types_that_are_no_keys(here):
    with contextlib.closing(sqlite3.connect("k.db")) as connection:
        connection.execute("CREATE TABLE t (id, age)")
        connection.executemany("INSERT INTO t VALUES (?, ?)", [(1, 2), ("two", 3), (b"3", 4)])
        connection.commit()
    config = world()
    config.tables["customers"] = Table(url="sqlite:///k.db", table="t")
    with pytest.raises(
        DataError,
        match=r"table customers, key column id \(sqlite:///k\.db, table t\): a key cannot be bytes and int and str",
    ):
        run(config)


# --- tables that change -----------------------------------------------------------------------------------------------


def change_between(monkeypatch, change):
    """Do `change` once, when the keys of all tables have been read."""
    check = sql._check_kinds

    def then(*args):
        check(*args)
        change()

    monkeypatch.setattr(sql, "_check_kinds", then)


def execute(file, statement):
    with contextlib.closing(sqlite3.connect(file)) as connection:
        connection.execute(statement)
        connection.commit()


@pytest.mark.parametrize(
    ("statement", "rows"),
    [
        ("INSERT INTO t VALUES (99, 30, 'Bern')", "12, 13"),
        ("DELETE FROM t WHERE id = 3", "12, 11"),
        ("UPDATE t SET id = 98 WHERE id = 3", "12, 12"),
        ("UPDATE t SET id = 3 WHERE id = 4", "12, 12"),
    ],
)
def test_a_database_whose_keys_change_between_mapping_and_training(here, monkeypatch, statement, rows):
    config = world("sqlite")
    change_between(monkeypatch, lambda: execute("customers.sqlite", statement))
    message = (
        r"table customers of the bank: sqlite:///customers\.sqlite, table t changed between .*rows then and "
        rf"now: {rows}\)"
    )
    with pytest.raises(DataError, match=message):
        run(config)


def test_a_database_whose_rows_only_move_has_not_changed(here, monkeypatch):
    config = world("sqlite")
    expected = run(config)
    statements = ("CREATE TABLE u AS SELECT * FROM t ORDER BY age", "DROP TABLE t", "ALTER TABLE u RENAME TO t")
    change_between(monkeypatch, lambda: [execute("customers.sqlite", statement) for statement in statements])
    assert_equal(run(config), expected)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_file_that_is_replaced_between_mapping_and_training(here, monkeypatch, kind):
    config = world(kind)
    change_between(monkeypatch, lambda: write(CUSTOMERS.assign(age=1), kind, "customers"))  # the keys are the same
    with pytest.raises(
        DataError, match=rf"table customers of the bank: customers\.{kind} changed between mapping and training"
    ):
        run(config)


# --- columns ----------------------------------------------------------------------------------------------------------


def test_blocks_and_parts_of_a_column_unite():
    def of(*cells):
        return of_objects(cells)

    whole = concatenate([of(1, 2), of(None), of(2.0, None)])
    assert whole.kind == "number" and whole.values.tolist()[:2] == [1, 2] and np.isnan(whole.values[[2, 4]]).all()
    large = concatenate([of(2**60 + 1), of(None)])
    assert large.values.tolist() == [2**60 + 1, None]
    assert concatenate([of("a"), of(None)]).values.tolist() == ["a", None]
    assert concatenate([of(1), of("a")]).kind == "number and text"
    day = datetime.datetime(2024, 1, 1, 1, tzinfo=datetime.timezone(datetime.timedelta(hours=1)))
    dates = concatenate([of(day), of(None), of(datetime.date(2024, 1, 1))])
    assert dates.values[0] == dates.values[2] == np.datetime64("2024-01-01") and np.isnat(dates.values[1])
    assert of(2**70).kind == "integers beyond 64 bits" and of(Decimal(2**70)).kind == "integers beyond 64 bits"
    assert of(Decimal("NaN"), Decimal("1.5")).values.tolist()[1] == 1.5


def test_arrow_columns():
    import pyarrow as pa

    assert of_arrow(pa.chunked_array([pa.array([2**63], pa.uint64())])).kind == "integers beyond 64 bits"
    stamps = pa.chunked_array([pa.array([0, None], pa.timestamp("ms", tz="Europe/Zurich"))])
    assert of_arrow(stamps).values[0] == np.datetime64("1970-01-01") and of_arrow(stamps).kind == "date"
    assert of_arrow(pa.chunked_array([pa.array([[1]])])).kind == "list"


@pytest.mark.parametrize(
    ("cells", "kind", "values"),
    [
        (["1", " 2 ", "+3", None], "number", [1, 2, 3, None]),
        (["1", "2.5", "1e3", ".5"], "number", [1, 2.5, 1000, 0.5]),
        (["true", "False", None], "number", [1, 0, None]),
        (["007", "8"], "text", ["007", "8"]),
        (["0x1F", "8"], "text", ["0x1F", "8"]),
        (["12345678901234567890", "1"], "text", ["12345678901234567890", "1"]),
        (["12345678901234567890", "1", "2"], "number", [12345678901234567890.0, 1, 2]),
        (["9007199254740993", None], "number", [9007199254740993, None]),
        (["0", "-0.5"], "number", [0, -0.5]),
        (["true", "maybe"], "text", ["true", "maybe"]),
        ([None, None], "empty", [None, None]),
        (["NA", None], "empty", [None, None]),
        (["1", "NA", "n/a"], "number", [1, None, None]),
        (["DE", "NA", None], "text", ["DE", "NA", None]),  # Namibia
    ],
)
def test_what_a_csv_column_looks_like(cells, kind, values):
    import pyarrow as pa

    found = infer(pa.chunked_array([pa.array(cells, pa.string())]))
    assert found.kind == kind
    assert [None if null else value for value, null in zip(found.values.tolist(), found.null, strict=True)] == values


def test_numbers_and_dates_as_text():
    assert as_type(Column("number", np.array([1.0, np.nan, 2.5])), "text").values.tolist() == ["1", None, "2.5"]
    assert as_type(Column("date", np.array(["2024-01-31"], "datetime64[us]")), "text").values.tolist() == ["2024-01-31"]
    assert as_type(Column("text", np.array([" 7 ", None], object)), "number").values[0] == 7


# --- PostgreSQL -------------------------------------------------------------------------------------------------------

TYPES = {
    "purchases": "customer integer, shop varchar(5), hour smallint, weight double precision, amount numeric(8,2)",
    "customers": "id bigint, age integer, city text",
    "sections": "shop text, metres real",
}


@pytest.fixture
def database(server, here, monkeypatch):
    """A Config whose three tables lie on the server, in a shuffled order; the server is up again afterwards."""
    monkeypatch.setenv("SHOP_PASSWORD", PASSWORD)
    with server.connect() as connection:
        for name, frame in FRAMES.items():
            connection.execute(f"DROP TABLE IF EXISTS {name} CASCADE")
            connection.execute(f"CREATE TABLE {name} ({TYPES[name]})")
            with connection.cursor() as cursor, cursor.copy(f"COPY {name} FROM STDIN") as copied:
                for row in frame.sample(frac=1, random_state=0).itertuples(index=False):
                    copied.write_row(row)
    config = world()
    for name, table in config.tables.items():
        table.url, table.table, table.password_env = server.url, f"public.{name}", "SHOP_PASSWORD"
    yield config
    if server.process is None or server.process.poll() is not None:
        server.start()


@pytest.mark.slow
def test_postgresql_gives_the_same_task_as_files(database):
    task = run(database)
    assert_equal(task, run(world()))
    assert [name for name, _ in task.source.files] == [f"{name} (rows in PostgreSQL)" for name in FRAMES]
    assert task.source == run(database).source
    assert PASSWORD not in repr(task.source) and "127.0.0.1" not in repr(task.source)


def test_postgresql_types(database, server):
    with server.connect() as connection:
        connection.execute(
            "CREATE VIEW odd AS SELECT id, age::numeric(20,3) AS age, age > 40 AS old, NULLIF(id, 3) + "
            "1152921504606846976 AS big, "
            "city::char(8) AS city, md5(id::text)::uuid AS code, now()::date + id::int AS day, now() AS stamp, "
            "ARRAY[id] AS list "
            "FROM customers"
        )
    source = Source(server.url, "odd", None, "SHOP_PASSWORD")
    found = table_sources.read(source, table_sources.columns(source), {})
    kinds = {name: column.kind for name, column in found.items()}
    numbers = dict.fromkeys(("id", "age", "old", "big"), "number")
    assert kinds == {**numbers, "city": "text", "code": "text", "day": "date", "stamp": "date", "list": "list"}
    assert found["big"].values.tolist().count(None) == 1 and 2**60 + 5 in found["big"].values.tolist()
    database.tables["customers"] = Table(
        source.url, query="SELECT * FROM odd", password_env="SHOP_PASSWORD", categories=["city"]
    )
    assert run(database).clients[1].features.shape[1] == 6  # age, old, big and three cities


def test_a_join_over_postgresql_sqlite_and_parquet(database):
    database.tables["customers"] = Table(**write(CUSTOMERS, "sqlite", "bank"), features=["age"], categories=["city"])
    database.tables["sections"] = Table(**write(SECTIONS, "parquet", "town"), keys=["shop"])
    assert_equal(run(database), run(world()))


@pytest.mark.parametrize("password", ["wr0ng-secret", None])
def test_wrong_credentials_are_told_and_never_printed(database, monkeypatch, password):
    if password is None:
        for table in database.tables.values():
            table.password_env = None
    else:
        monkeypatch.setenv("SHOP_PASSWORD", password)
    with pytest.raises(
        DataError,
        match=r"postgresql://owner@127\.0\.0\.1:\d+/postgres, table public\.purchases: cannot be read \(.*password",
    ) as e:
        run(database)
    assert str(password) not in str(e.value) and PASSWORD not in str(e.value) and e.value.__cause__ is None
    assert (
        "Check the user, and the password in SHOP_PASSWORD"
        if password
        else "name the password's variable as password_env"
    ) in str(e.value)


def test_a_password_that_the_server_repeats_is_blotted_out(database, monkeypatch, server):
    with server.connect() as connection:
        connection.execute("DROP TABLE customers")
    monkeypatch.setenv("SHOP_PASSWORD", PASSWORD)
    database.tables["customers"].table = PASSWORD  # a name that comes back in the server's message
    with pytest.raises(DataError) as error:
        table_sources.columns(Source(server.url, None, f'SELECT * FROM "{PASSWORD}"', "SHOP_PASSWORD"))
    assert PASSWORD not in str(error.value) and '"***" does not exist' in str(error.value)


def test_a_server_that_is_not_there(database, server):
    server.stop()
    with pytest.raises(DataError, match=r"table public\.purchases: cannot be read \(.*[Cc]onnection refused") as error:
        run(database)
    assert PASSWORD not in str(error.value)


def test_a_connection_that_drops_in_the_middle(database, server, monkeypatch):
    monkeypatch.setattr(table_sources, "BLOCK", 10)
    blocks = []

    def dropped(cells):
        blocks.append(len(cells))
        if len(blocks) == 3:  # the second block of the purchases' keys
            with server.connect() as connection:
                connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'vflbench'"
                )
        return of_objects(cells)

    monkeypatch.setattr(table_sources, "of_objects", dropped)
    with pytest.raises(DataError, match=r"table public\.purchases: cannot be read \(.*(terminat|closed|lost)") as error:
        run(database)
    assert blocks and max(blocks) == 10 and PASSWORD not in str(error.value)


def test_a_server_that_stops_between_mapping_and_training(database, server, monkeypatch):
    change_between(monkeypatch, server.stop)
    with pytest.raises(DataError, match=r"table public\.purchases: cannot be read"):
        run(database)


def test_a_postgresql_table_that_changes_between_mapping_and_training(database, server, monkeypatch):
    def change():
        with server.connect() as connection:
            connection.execute("UPDATE customers SET id = id + 1 WHERE id = 12")

    change_between(monkeypatch, change)
    with pytest.raises(
        DataError,
        match=r"table customers of the bank: .*table public\.customers changed between .*then and now: 12, 12",
    ):
        run(database)


def test_the_connection_only_reads(database, server):
    source = Source(server.url, None, "SELECT nextval('s') AS id", "SHOP_PASSWORD")
    with server.connect() as connection:
        connection.execute("DROP SEQUENCE IF EXISTS s")
        connection.execute("CREATE SEQUENCE s")
    with pytest.raises(DataError, match=r"read-only transaction"):
        table_sources.read(source, ["id"], {})


# --- the example ------------------------------------------------------------------------------------------------------


def example() -> Config:
    problems, config = composed(yaml.safe_load((EXAMPLES / "dataset" / "sql.yaml").read_text()))
    assert not problems
    return config


def test_the_example_is_learnable(monkeypatch):
    monkeypatch.chdir(EXAMPLES.parent)
    task = run(example(), "aligned")
    train, test = (
        np.concatenate(blocks, axis=1).astype(float) for blocks in (task.features, task.held_out_features["test"])
    )
    mean, labels = task.labels.mean(), task.held_out_labels["test"]
    solution = np.linalg.lstsq(train, task.labels - mean, rcond=None)[0]
    assert np.sqrt(np.mean((test @ solution + mean - labels) ** 2)) < 0.6 * labels.std()
    relational = run(example())
    assert [part.table for part in relational.clients] == ["purchases", "customers", "departments"]
    assert len(task.labels) > 1.5 * relational.clients[0].rows, "a shop has several departments"


@pytest.mark.slow
def test_the_examples_data_are_what_its_script_makes(tmp_path):
    subprocess.run([sys.executable, EXAMPLES / "make_data.py", tmp_path], check=True)
    for name, source in (
        ("customers.parquet", pd.read_parquet),
        ("departments.csv", pd.read_csv),
        ("grocer.sqlite", rows_of),
    ):
        pd.testing.assert_frame_equal(source(EXAMPLES / "data" / name), source(tmp_path / name))


def rows_of(path):
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return pd.read_sql("SELECT * FROM purchases", connection)


def test_the_example_takes_the_place_of_the_packages_option(monkeypatch):
    monkeypatch.chdir(EXAMPLES.parent)
    with configuration.session(["dataset=sql"], EXAMPLES) as hydra:
        values = configuration.plain(configuration.compose(hydra, ["dataset=sql"]))
    assert list(values["dataset"]["tables"]) == ["purchases", "customers", "departments"]


def test_checking_leaves_the_configuration_as_it_is(here):
    config = world()
    before = copy.deepcopy(config)
    run(config)
    assert config == before
