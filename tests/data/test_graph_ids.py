"""Nodes of the user's own graph: IDs, headers and splits are what the files say, or are refused."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from tests.every import few_fast
from vflbench.cards.data.graph.graph_files import Config
from vflbench.data.columns.inspection import in_words, leaks
from vflbench.data.graph import graph_files
from vflbench.data.tasks import GraphTask
from vflbench.types import ConfigError, DataError

NODES = 30
RNG = np.random.default_rng(0)
FEATURES = pd.DataFrame(RNG.normal(size=(NODES, 6)).round(3), columns=list("abcdef"))
EDGES = np.array([(i, (i * 7 + 1) % NODES) for i in range(NODES)])
LABELS = np.arange(NODES) % 3
ORDER = RNG.permutation(NODES)


def load(
    folder: Path, x: pd.DataFrame, e: pd.DataFrame, y: pd.DataFrame, header=True, index=False, **keys
) -> GraphTask:
    for name, frame in (("x", x), ("e", e), ("y", y)):
        frame.to_csv(folder / f"{name}.csv", index=index, header=header)
    return again(folder, **keys)


def again(folder: Path, **keys) -> GraphTask:
    named = {"features": "x.csv", "edges": "e.csv", "labels": "y.csv", **keys}
    return graph_files.load(Config(**named), "graph", 2, 0, folder)


@pytest.fixture
def plain(tmp_path: Path) -> GraphTask:
    """The task without any ID."""
    (tmp_path / "plain").mkdir()
    return load(tmp_path / "plain", *tables())


def tables(ids=None, **columns) -> list[pd.DataFrame]:
    """Features, edges and labels; with `ids` each names the nodes by them."""
    x, y = FEATURES.assign(**columns), pd.DataFrame({"y": LABELS})
    named = EDGES if ids is None else np.asarray(ids, dtype=object)[EDGES]
    if ids is not None:
        x.insert(0, "id", ids)
        y.insert(0, "id", ids)
    return [x, pd.DataFrame(named, columns=["from", "to"]), y]


def assert_equal(task: GraphTask, other: GraphTask) -> None:
    for a, b in zip(
        (*task.features, *task.edges, task.all_edges, task.labels, *task.splits.values()),
        (*other.features, *other.edges, other.all_edges, other.labels, *other.splits.values()),
        strict=True,
    ):
        np.testing.assert_array_equal(a, b)


def told(folder: Path, *frames, **keys) -> str:
    with pytest.raises((ConfigError, DataError)) as error:
        load(folder, *frames, **keys) if frames else again(folder, **keys)
    return str(error.value)


# --- IDs --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "ids",
    few_fast(
        [
            [*range(NODES)],
            [f"P{i}" for i in range(NODES)],
            [2**53 + i for i in range(NODES)],
            [*range(1, NODES + 1)],
            [5000 + 7 * i for i in range(NODES)],
            [f"{i:03d}" for i in range(NODES)],
        ],
        3,
    ),
)
def test_edges_and_labels_name_nodes_by_their_ids(tmp_path, plain, ids, caplog):
    caplog.set_level("INFO")
    assert_equal(load(tmp_path, *tables(ids)), plain)
    assert "x.csv: column id has the IDs of the nodes: it is no feature" in caplog.text
    x, e, y = tables(ids)
    assert_equal(load(tmp_path, x, e, y[["y"]]), plain)  # labels in the order of the features
    assert_equal(load(tmp_path, x, e, y.iloc[ORDER], id="id"), plain)
    text = told(tmp_path, x, e, y.iloc[ORDER])
    assert "x.csv and y.csv have the same IDs in column id, but in another order (y.csv, line " in text
    assert "dataset.id=id" in text


def test_shuffled_features_are_matched_only_by_a_named_column(tmp_path, plain):
    x, e, y = tables([*range(NODES)])
    text = told(tmp_path, x.iloc[ORDER], e, y)
    assert text.startswith("x.csv, line 2: column id says node 2") or "says node" in text
    assert "Type dataset.id=id if edges and labels mean this column" in text
    task = load(tmp_path, x.iloc[ORDER], e, y, id="id")
    np.testing.assert_array_equal(task.labels, LABELS[ORDER])
    np.testing.assert_allclose(task.joined().features, FEATURES.to_numpy()[ORDER], rtol=1e-5)
    assert {tuple(sorted(ORDER[edge])) for edge in task.all_edges.T} == {
        tuple(sorted(edge)) for edge in plain.all_edges.T.tolist()
    }


@pytest.mark.parametrize("first", [0, 1])
def test_the_index_of_a_frame_is_the_node_number(tmp_path, plain, first, caplog):
    caplog.set_level("INFO")
    frames = [frame.set_axis(range(first, first + NODES)) for frame in tables()]
    frames[1] += first
    assert_equal(load(tmp_path, *frames, index=True), plain)
    assert "x.csv: the first column, which has no name, is the node number: it is no feature" in caplog.text
    moved = [frame.iloc[ORDER] for frame in frames]
    if first:  # edges cannot mean rows, which begin with 0
        np.testing.assert_array_equal(load(tmp_path, *moved, index=True).labels, LABELS[ORDER])
    else:
        assert "dataset.id=''" in told(tmp_path, *moved, index=True)
    frames[2] = frames[2].iloc[ORDER]
    assert "but in another order" in told(tmp_path, *frames, index=True)
    assert_equal(load(tmp_path, *frames, index=True, id=""), plain)


def test_labels_alone_have_node_numbers(tmp_path, plain, caplog):
    x, e, y = tables()
    caplog.set_level("INFO")
    assert_equal(load(tmp_path, x, e, y.assign(node=range(NODES)).iloc[ORDER]), plain)
    assert "y.csv: column node is the row number in x.csv: labels are matched by it" in caplog.text
    assert_equal(load(tmp_path, x, e, y.assign(node=range(1, NODES + 1))), plain)
    assert "but x.csv has no column of IDs" in told(tmp_path, x, e, y.assign(node=[f"P{i}" for i in range(NODES)]))
    assert "2 columns; labels are one column; dataset.id names" in told(tmp_path, x, e, y.assign(z=1))


def test_nodes_without_a_label_need_no_row(tmp_path, plain, caplog):
    x, e, y = tables([f"P{i}" for i in range(NODES)])
    task = load(tmp_path, x, e, y[3:])
    np.testing.assert_array_equal(task.labels, [-1] * 3 + LABELS[3:].tolist())
    assert "27 nodes of 30 have a label" in caplog.text


def test_ids_that_no_node_has_are_named(tmp_path):
    x, e, y = tables([f"P{i}" for i in range(NODES)])
    e.iloc[3, 1] = "p4"
    text = told(tmp_path, x, e, y)
    assert text.startswith("e.csv, line 5: node 'p4'; x.csv has no such ID in column id, but 'P4', which differs in")
    e.iloc[3, 1] = None
    assert "e.csv, line 5: node None" in told(tmp_path, x, e, y)
    x, e, y = tables([f"P{i}" for i in range(NODES)])
    y.loc[5, "id"] = "Q"
    assert "y.csv, line 7: node 'Q'" in told(tmp_path, x, e, y)
    x.loc[5, "id"] = "P2"
    assert "x.csv, line 7, column id: the ID 'P2' is there twice" in told(tmp_path, x, e, y, id="id")
    assert "dataset.id=di: x.csv has no such column" in told(tmp_path, x, e, y, id="di")


def test_writings_that_look_alike_name_one_node(tmp_path, plain):
    x, e, y = tables([f"Müller{i}" for i in range(NODES)])
    e["from"] = [unicodedata.normalize("NFD", name) + "\u200b" for name in e["from"]]
    assert_equal(load(tmp_path, x, e, y), plain)
    x.loc[4, "id"], x.loc[5, "id"] = "Müller", unicodedata.normalize("NFD", "Müller")
    assert "U+0308" in told(tmp_path, x, e, y, id="id")


def test_rounded_ids_are_refused(tmp_path):
    x, e, y = tables([2**53 + i for i in range(NODES)])
    e["to"] = e["to"].astype(float)
    assert "save the IDs as whole numbers or as text" in told(tmp_path, x, e, y)


def test_what_a_column_of_ids_is_not(tmp_path):
    """Numbers that repeat, other distinct numbers, ranks by several columns, and a typing error among numbers."""
    years, members = 1990 + np.arange(NODES), ORDER * 7
    ranks = {"rank by a": ORDER, "rank by b": np.argsort(ORDER)}
    x, e, y = tables(index=np.arange(NODES) // 2, valid=years, grid=ORDER + 2, members=members, **ranks)
    assert load(tmp_path, x, e, y).joined().features.shape[1] == 12
    x["b"] = x.b.astype(object)
    x.loc[5, "b"] = "three"
    assert "x.csv, line 7, column 'b': 'three' is not a number" in told(tmp_path, x, e, y)


@pytest.mark.parametrize("name", few_fast(["userid", "PatientID", "paper", "key", "nr", "paper_id", "plain words"], 3))
def test_a_column_that_numbers_the_rows_is_no_feature(tmp_path, plain, name):
    x, e, y = tables()
    assert_equal(load(tmp_path, x.assign(**{name: range(NODES)}), e, y), plain)
    assert_equal(load(tmp_path, x.assign(**{name: range(1, NODES + 1)}), e + 1, y), plain)
    for first in (0, 1) if name == "plain words" else (0,):
        text = told(tmp_path, x.assign(**{name: ORDER + first}), e, y)
        assert f"column {name} says node {ORDER[0] + first}, but this is row {first}" in text
        assert f"Type dataset.id={name} if" in text
    shuffled = x.assign(**{name: ORDER})
    assert load(tmp_path, shuffled, e, y, numbers=[name]).joined().features.shape[1] == 7
    assert_equal(load(tmp_path, shuffled, e, y, leave_out=[name]), plain)
    assert "dataset.leave_out=nam: x.csv has no such column" in told(tmp_path, shuffled, e, y, leave_out=["nam"])


@pytest.mark.parametrize("name", ["userid", "PatientID", "paper", "key", "nr"])
def test_distinct_whole_numbers_are_ids_if_the_name_says_so(tmp_path, plain, name):
    ids = 5000 + 7 * ORDER
    x, e, y = tables(ids)
    assert_equal(load(tmp_path, x.rename(columns={"id": name}), e, y.rename(columns={"id": name})), plain)
    text = told(tmp_path, x.rename(columns={"id": name}), pd.DataFrame(EDGES), y[["y"]])
    assert f"type dataset.leave_out=[{name}] if edges and labels mean row numbers" in text


def test_r_writes_a_counter_as_three_dots(tmp_path, plain):
    x, e, y = (frame.set_axis(range(1, NODES + 1)).rename_axis("...1").reset_index() for frame in tables())
    assert_equal(load(tmp_path, x, e.assign(**{"from": e["from"] + 1, "to": e["to"] + 1}), y), plain)


def test_features_are_inspected_as_columns_of_tables(tmp_path, plain, caplog):
    x, e, y = tables()
    task = load(tmp_path, x.assign(same=1), e, y)
    assert_equal(task, plain)
    assert in_words(task.source.tables) == ["x.csv, column same: all cells have the same value, so it is dropped"]
    own = graph_files.load(
        Config(features="x.csv", edges="e.csv", labels="y.csv", blocks=[["0:3"], ["3:7"]]), "graph", 2, 0, tmp_path
    )
    assert own.features[1].shape[1] == 4  # whoever numbers columns means those of the file
    assert load(tmp_path, x[["a"]].assign(a=1, b=2), e, y).joined().features.shape[1] == 2
    assert "LEAK" not in caplog.text
    task = load(tmp_path, x.assign(code=[[7, 2, 5][label] for label in LABELS]), e, y)
    assert "x.csv, column code: LEAK: it alone nearly determines the label in y.csv" in caplog.text
    assert len(leaks(task.source.tables)) == 1
    assert_equal(load(tmp_path, x.assign(code=LABELS), e, y, leave_out=["code"]), plain)


def test_an_array_may_number_the_nodes(tmp_path, plain, caplog):
    def load(edges=EDGES, features=FEATURES, id=None, **arrays):
        np.savez(tmp_path / "g.npz", features=features, edges=edges, labels=LABELS, **arrays)
        config = Config(features="g.npz", edges="g.npz", labels="g.npz", id=id)
        return graph_files.load(config, "graph", 2, 0, tmp_path)

    assert_equal(load(features=FEATURES.assign(n=range(NODES))), plain)
    assert_equal(load(EDGES + 1, node_ids=np.arange(1, NODES + 1)), plain)
    assert_equal(load(ids=[f"P{i}" for i in range(NODES)]), plain)
    assert "g.npz: ids is not used: nodes are named by their row numbers, unless you type dataset.id=ids" in caplog.text
    assert_equal(load(5 * EDGES, ids=5 * np.arange(NODES), id="ids"), plain)
    for arrays in ({"features": FEATURES.assign(n=ORDER)}, {"features": FEATURES.assign(n=ORDER + 1)}, {"ids": ORDER}):
        with pytest.raises(DataError, match=r"column (6|ids) says node .* Type dataset.id=(6|ids) if"):
            load(**arrays)


def test_each_client_reads_its_own_edges_by_ids(tmp_path):
    x, e, y = tables([f"P{i}" for i in range(NODES)])
    e[:12].to_csv(tmp_path / "e0.csv", index=False)
    e[9:].to_csv(tmp_path / "e1.csv", index=False)
    task = load(tmp_path, x, e, y, edges=None, client_edges=["e0.csv", "e1.csv"])
    config = Config(features="x.csv", labels="y.csv", client_edges=["e0.csv", "e1.csv"])
    own = graph_files.load_own(config, "graph", 2, 0, tmp_path, task, 1)
    np.testing.assert_array_equal(own.edges[1], task.edges[1])
    np.testing.assert_array_equal(own.features[1], task.features[1])


def test_a_split_file_names_nodes_by_ids(tmp_path):
    x, e, y = tables([f"P{i}" for i in range(NODES)])
    split = pd.DataFrame({"node": x.id, "split": ["train", "valid", "test"] * 10})
    split.to_csv(tmp_path / "s.csv", index=False)
    task = load(tmp_path, x, e, y, split="s.csv")
    assert task.splits["val"].tolist() == [*range(1, NODES, 3)]


# --- headers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("names", ["none", "none in edges", "numbers", "numbers in features", "numbers in labels"])
def test_headers_are_found_or_missed_in_each_file(tmp_path, plain, names, caplog):
    caplog.set_level("INFO")
    x, e, y = tables()
    numbered = [frame.set_axis(range(frame.shape[1]), axis=1) for frame in (x, e, y)]
    headers = {"none": (0, 0, 0), "none in edges": (1, 0, 1), "numbers": (2, 0, 2), "numbers in features": (2, 0, 0)}
    for name, frame, number, how in zip("xey", (x, e, y), numbered, headers.get(names, (0, 0, 2)), strict=True):
        (number if how == 2 else frame).to_csv(tmp_path / f"{name}.csv", index=False, header=how > 0)
    assert_equal(again(tmp_path), plain)
    assert "e.csv: separated by ',', UTF-8, without a header line" in caplog.text


def test_a_first_edge_that_may_be_a_header_is_told(tmp_path, caplog):
    caplog.set_level("INFO")
    x, e, y = tables()
    task = load(tmp_path, x, e.set_axis([0, 1], axis=1), y)
    assert task.all_edges.shape[1] == 2 * NODES and "its first line, 0 and 1, is read as an edge" in caplog.text


def test_numbers_of_edges_and_of_columns_are_no_nodes(tmp_path, plain):
    x, e, y = tables([*range(1, NODES + 1)])
    assert_equal(load(tmp_path, x, e.set_axis([0, 1], axis=1), y), plain)  # node 0 is none: the line is a header
    for numbered in (e.assign(id=ORDER)[["id", "from", "to"]], e.assign(edge_id=range(1, NODES + 1))):
        assert_equal(load(tmp_path, x, numbered, y), plain)
    assert "e.csv: 3 columns; edges are two columns" in told(tmp_path, x, e.assign(weight=1), y)


def test_files_as_people_have_them(tmp_path, plain):
    x, e, y = tables([f"Zürich {i}" for i in range(NODES)])
    x.to_csv(tmp_path / "x.csv", sep=";", decimal=",", index=False, encoding="cp1252")
    e.to_csv(tmp_path / "e.tsv", sep="\t", index=False, encoding="utf-16")
    y.to_csv(tmp_path / "y.csv.bz2", index=False)
    assert_equal(again(tmp_path, edges="e.tsv", labels="y.csv.bz2"), plain)
    e.assign(row=range(NODES))[["row", "from", "to"]].rename(columns={"row": ""}).to_csv(
        tmp_path / "e.csv", index=False
    )
    assert_equal(again(tmp_path, labels="y.csv.bz2"), plain)


# --- splits beside the graph ------------------------------------------------------------------------------------------

SPLIT = {"train": np.arange(20), "val": np.arange(20, 24), "test": np.arange(24, NODES)}
FORMS = {
    "masks": {f"{name}_mask": np.isin(np.arange(NODES), nodes) for name, nodes in SPLIT.items()},
    "train_idx": {"train_idx": SPLIT["train"], "valid_idx": SPLIT["val"], "test_idx": SPLIT["test"]},
    "idx_train": {f"idx_{name}": nodes for name, nodes in SPLIT.items()},
    "indices": {f"{name}_indices": nodes[:, None] for name, nodes in SPLIT.items()},
}


@pytest.mark.parametrize("kind", ["pt", "npz"])
@pytest.mark.parametrize("form", [*FORMS, "split_idx"])
def test_split_indices_are_used_or_named(tmp_path, kind, form, caplog):
    held = dict(FORMS.get(form, FORMS["train_idx"]))
    files = {"pyg": "g.pt"} if kind == "pt" else dict.fromkeys(("features", "edges", "labels"), "g.npz")
    if kind == "pt":
        graph = {"x": FEATURES.to_numpy(), "edge_index": EDGES.T, "y": LABELS}
        tensors = {name: torch.tensor(array) for name, array in {**graph, **held}.items()}
        if form == "split_idx":  # as OGB has it
            tensors = {name: torch.tensor(array) for name, array in graph.items()}
            tensors["split_idx"] = {name.removesuffix("_idx"): torch.tensor(array) for name, array in held.items()}
        torch.save(tensors, tmp_path / "g.pt")
    elif form == "split_idx":
        pytest.skip("an archive has no dicts")
    else:
        np.savez(tmp_path / "g.npz", features=FEATURES, edges=EDGES, labels=LABELS, **held)

    def load(**keys):
        return graph_files.load(Config(**{**files, **keys}), "graph", 2, 0, tmp_path)

    task = load()
    assert {name: nodes.tolist() for name, nodes in task.splits.items()} == {
        name: nodes.tolist() for name, nodes in SPLIT.items()
    }
    assert len(load(masks=False).splits["train"]) == 6 and "not used: dataset.masks=false" in caplog.text
    pd.DataFrame({"node": [0, 1], "split": ["train", "test"]}).to_csv(tmp_path / "s.csv", index=False)
    assert load(split="s.csv").splits["train"].tolist() == [0]
    assert (
        f"{files.get('pyg', 'g.npz')}: " in caplog.text
        and "not used: dataset.split=s.csv says the splits" in caplog.text
    )


def test_what_else_may_be_splits_is_named(tmp_path, caplog):
    def load(**held):
        np.savez(tmp_path / "g.npz", features=FEATURES, edges=EDGES, labels=LABELS, **held)
        return graph_files.load(Config(features="g.npz", edges="g.npz", labels="g.npz"), "graph", 2, 0, tmp_path)

    assert load(**FORMS["masks"], train_idx=[0], fold=[1]).splits["train"].tolist() == SPLIT["train"].tolist()
    assert "g.npz: fold, train_idx not used: train_mask, val_mask, test_mask are the splits" in caplog.text
    caplog.clear()
    others = ["folds", "split", "splits", "train_rows"]
    load(**{name: [0, 1] for name in (*others, "latest", "constraint")})
    assert f"g.npz: {', '.join(others)} not used: dataset.split names a file of splits" in caplog.text


def test_split_indices_that_cannot_be_are_refused(tmp_path):
    def told(**held):
        np.savez(tmp_path / "g.npz", features=FEATURES, edges=EDGES, labels=LABELS, **held)
        with pytest.raises(DataError) as error:
            graph_files.load(Config(features="g.npz", edges="g.npz", labels="g.npz"), "graph", 2, 0, tmp_path)
        return str(error.value)

    assert (
        told(train_idx=[0, 1]) == "g.npz: has train_idx, but no indices for test; dataset.masks=false draws the splits."
    )
    assert "g.npz, indices, row 1: node 30; nodes are whole numbers from 0 to 29" in told(
        train_idx=[0, 30], test_idx=[2]
    )
    assert "node 1 is in the splits twice" in told(train_idx=[0, 1], test_idx=[1])
    assert "train_idx: shape (1, 1, 2)" in told(train_idx=[[[0, 1]]], test_idx=[1])
