import gzip

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from vflbench.cards.data.graph.graph_files import Config
from vflbench.config import convert
from vflbench.data.graph.graph_files import load
from vflbench.types import ConfigError, DataError

NODES = 30
RNG = np.random.default_rng(0)
FEATURES = RNG.normal(size=(NODES, 6)).round(3)
NAMES = ["age", "income", "a", "b", "c", "d"]
EDGES = np.array([(i, (i + 1) % NODES) for i in range(NODES)])
LABELS = np.arange(NODES) % 3


@pytest.fixture
def folder(tmp_path):
    pd.DataFrame(FEATURES, columns=NAMES).to_csv(tmp_path / "x.csv", index=False)
    pd.DataFrame(EDGES, columns=["from", "to"]).to_csv(tmp_path / "e.csv", index=False)
    pd.DataFrame({"label": LABELS}).to_csv(tmp_path / "y.csv", index=False)
    return tmp_path


def config(**changes) -> Config:
    return Config(**{"features": "x.csv", "edges": "e.csv", "labels": "y.csv", **changes})


def run(folder, parties=2, **changes):
    return load(config(**changes), "graph", parties, 0, folder)


def test_reads_csv(folder):
    task = run(folder)
    np.testing.assert_allclose(task.joined().features, FEATURES, rtol=1e-5)
    np.testing.assert_array_equal(task.labels, LABELS)
    assert task.all_edges.shape == (2, 2 * NODES) and task.classes == 3 and task.source.kind == "real"
    assert [len(task.splits[name]) for name in ("train", "val", "test")] == [6, 9, 15]
    assert [name for name, _ in task.source.files] == ["x.csv", "y.csv", "e.csv"]


def write_all(folder, kind):
    if kind == "parquet":
        pd.DataFrame(FEATURES, columns=NAMES).to_parquet(folder / "x.parquet")
        pd.DataFrame(EDGES, columns=["from", "to"]).to_parquet(folder / "e.parquet")
        pd.DataFrame({"label": LABELS}).to_parquet(folder / "y.parquet")
    elif kind == "npz":
        np.savez(folder / "x.npz", features=FEATURES, other=1)
        np.savez(folder / "e.npz", edge_index=EDGES.T)  # (2, E), under a name of the user's own
        np.savez(folder / "y.npz", labels=LABELS)
    elif kind == "npy":
        np.save(folder / "x.npy", FEATURES)
        np.save(folder / "e.npy", EDGES)
        np.save(folder / "y.npy", LABELS)
    elif kind == "sparse.npz":
        sparse.save_npz(folder / "x.sparse.npz", sparse.csr_matrix(FEATURES))
        sparse.save_npz(folder / "e.sparse.npz", sparse.coo_matrix((np.ones(NODES), EDGES.T), shape=(NODES, NODES)))
        np.savez(folder / "y.sparse.npz", labels=LABELS)
    else:
        for name in "xey":
            (folder / f"{name}.csv.gz").write_bytes(gzip.compress((folder / f"{name}.csv").read_bytes()))


@pytest.mark.parametrize("kind", ["parquet", "npz", "npy", "sparse.npz", "csv.gz"])
def test_the_other_formats_give_the_same_task(folder, kind):
    write_all(folder, kind)
    expected, task = run(folder), run(folder, features=f"x.{kind}", edges=f"e.{kind}", labels=f"y.{kind}")
    for a, b in zip(
        (*task.features, *task.edges, task.labels), (*expected.features, *expected.edges, expected.labels), strict=True
    ):
        np.testing.assert_array_equal(a, b)


def test_an_archive_may_have_the_names_of_torch_geometric(folder):
    np.savez(folder / "g.npz", x=FEATURES, y=LABELS, edge_index=EDGES.T)
    expected, task = run(folder), run(folder, features="g.npz", edges="g.npz", labels="g.npz")
    np.testing.assert_array_equal(task.labels, expected.labels)
    np.testing.assert_array_equal(task.all_edges, expected.all_edges)
    np.testing.assert_array_equal(task.features[0], expected.features[0])


def test_csv_of_numbers_without_a_header(folder):
    np.savetxt(folder / "e.csv", EDGES, fmt="%d", delimiter=",")
    np.savetxt(folder / "y.csv", LABELS, fmt="%d")
    assert run(folder).all_edges.shape == (2, 2 * NODES)


def test_empty_and_minus_one_labels_are_nodes_without_one(folder):
    (folder / "y.csv").write_text(
        "label\n" + "".join("\n" if i == 4 else "-1\n" if i == 7 else f"{i % 3}\n" for i in range(NODES))
    )
    task = run(folder)
    assert np.flatnonzero(task.labels < 0).tolist() == [4, 7]
    assert not {4, 7} & set(np.concatenate(list(task.splits.values())))


def test_labels_that_are_words_are_classes_in_alphabetical_order(folder, caplog):
    words = np.array(["theory", "Biology", "physics"])[LABELS].tolist()
    words[4], words[7] = "", "biology "
    pd.DataFrame({"subject": words}).to_csv(folder / "y.csv", index=False)
    with caplog.at_level("INFO"):
        task = run(folder)
    expected = np.array([2, 0, 1])[LABELS]
    expected[4] = -1
    assert task.labels.tolist() == expected.tolist() and task.classes == 3
    assert "the classes are, from 0 on, Biology, physics, theory" in caplog.text
    assert "'biology' and 'Biology' differ only in spaces or capitals, and count as one class" in caplog.text
    words[9] = "3"
    pd.DataFrame({"subject": words}).to_csv(folder / "y.csv", index=False)
    with pytest.raises(DataError, match=r"y.csv, line 2, column 'subject': 'theory' is not a number"):
        run(folder)


def test_blocks_by_name_number_and_range(folder):
    task = run(folder, blocks=[["income", 0], ["3:5"]])
    assert [columns.tolist() for columns in task.columns] == [[0, 1], [3, 4]]  # columns 2 and 5 belong to nobody
    np.testing.assert_allclose(task.features[1], FEATURES[:, 3:5], rtol=1e-5)


def test_each_client_can_bring_its_own_edges(folder):
    pd.DataFrame(EDGES[:5]).to_csv(folder / "e0.csv", index=False, header=False)
    pd.DataFrame(EDGES[3:12], columns=["a", "b"]).to_csv(folder / "e1.csv", index=False)
    task = run(folder, edges=None, client_edges=["e0.csv", "e1.csv"])
    assert [edges.shape[1] for edges in task.edges] == [10, 18] and task.all_edges.shape[1] == 24


@pytest.mark.parametrize("kind", ["csv", "npz"])
def test_the_users_own_split(folder, kind):
    wanted = {"train": np.arange(0, 10), "val": np.arange(10, 12), "test": np.arange(20, 30)}
    if kind == "csv":
        rows = [(node, name) for name, nodes in wanted.items() for node in nodes]
        pd.DataFrame(rows, columns=["node", "split"]).to_csv(folder / "s.csv", index=False)
    else:
        np.savez(folder / "s.npz", **wanted)
    task = run(folder, split=f"s.{kind}")
    assert all(np.array_equal(task.splits[name], nodes) for name, nodes in wanted.items())


def edit(path, line, text):
    lines = path.read_text().splitlines()
    lines[line - 1] = text
    path.write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize(
    ("file", "line", "text", "message"),
    [
        ("e.csv", 5, "3,30", r"e\.csv, line 5: node 30; nodes are whole numbers from 0 to 29"),
        ("e.csv", 5, "-1,3", r"e\.csv, line 5: node -1"),
        ("e.csv", 31, "7", r"e\.csv: cannot be read.*line 31: 1 cells"),
        ("e.csv", 9, "a,3", r"e\.csv, line 9, column 'from': 'a' is not a number"),
        ("e.csv", 9, "1.5,3", r"e\.csv, line 9: node 1\.5"),
        ("e.csv", 9, "1,2,3", r"e\.csv: cannot be read.*line 9"),
        ("x.csv", 7, "1,2,,4,5,6", r"x\.csv, line 7, column 'a': nan where a finite number belongs \(1 such"),
        ("x.csv", 7, "1,2,inf,4,5,6", r"x\.csv, line 7, column 'a': inf"),
        ("x.csv", 7, "1,2,1e39,4,5,6", r"x\.csv, line 7, column 'a': 1e\+39 .*Numbers are at most 3\.4e38"),
        ("x.csv", 31, "1,2", r"x\.csv: cannot be read.*line 31: 2 cells"),
        ("x.csv", 7, "1,2,three,4,5,6", r"x\.csv, line 7, column 'a': 'three' is not a number"),
        ("y.csv", 4, "2.5", r"y\.csv, line 4: label 2\.5; labels are whole numbers"),
        ("y.csv", 4, "-2", r"y\.csv, line 4: label -2"),
        ("y.csv", 4, "cat", r"y\.csv, line 4, column 'label': 'cat' is not a number"),
        ("y.csv", 4, "900", r"y\.csv, line 4: label 900, but class 3 has no node"),
        ("y.csv", 4, "1,1", r"y\.csv, line 4: label 1\.1"),
    ],
)
def test_malformed_lines_are_named(folder, file, line, text, message):
    edit(folder / file, line, text)
    with pytest.raises(DataError, match=message):
        run(folder)


def test_labels_out_of_the_given_range(folder):
    with pytest.raises(DataError, match=r"y\.csv, line 4: label 2; labels are whole numbers from -1 to 1"):
        run(folder, classes=2)


def test_labels_of_another_length(folder):
    (folder / "y.csv").write_text("label\n1\n0\n")
    with pytest.raises(DataError, match=r"y\.csv: 2 labels, but the features have 30 rows"):
        run(folder)


@pytest.mark.parametrize("kind", ["parquet", "npz", "npy", "sparse.npz", "csv.gz"])
@pytest.mark.parametrize("name", ["x", "e", "y"])
@pytest.mark.parametrize("keep", [0.0, 0.4, 0.9])
def test_truncated_files_are_named(folder, kind, name, keep):
    write_all(folder, kind)
    path = folder / f"{name}.{kind}"
    data = path.read_bytes()
    path.write_bytes(data[: int(keep * len(data))])
    with pytest.raises(DataError, match=rf"{name}\.{kind}"):
        run(folder, features=f"x.{kind}", edges=f"e.{kind}", labels=f"y.{kind}")


def test_array_edges_to_a_missing_node_name_the_row(folder):
    np.save(folder / "e.npy", np.array([[0, 1], [1, 2], [2, 99]]))
    with pytest.raises(DataError, match=r"e\.npy, row 2: node 99"):
        run(folder, edges="e.npy")


def test_an_array_of_objects_is_not_unpickled(folder, made, tmp_path):
    np.save(folder / "x.npy", np.array([made.Malicious(tmp_path / "ran")], dtype=object), allow_pickle=True)
    with pytest.raises(DataError, match=r"x\.npy: holds Python objects"):
        run(folder, features="x.npy")
    assert not (tmp_path / "ran").exists()


def test_missing_files_and_unknown_formats_are_named(folder):
    with pytest.raises(DataError, match=r"nowhere\.csv: cannot be read"):
        run(folder, features="nowhere.csv")
    (folder / "x.json").write_bytes(b"")
    with pytest.raises(DataError, match=r"x\.json: format not known"):
        run(folder, features="x.json")


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        ([["age"], ["incomes"]], r"dataset\.blocks=incomes: x\.csv has no such column.*Did you mean 'income'"),
        ([["age"], ["4:9"]], r"dataset\.blocks=4:9: x\.csv has no such column \(of 6\)"),
        ([["age", "b"], ["0"]], r"client 0 has column 'age' already, client 1 cannot"),
        ([["age"]], r"must have one for each of the 2 clients"),
        ([["age"], []], r"must be a list of lists"),
    ],
)
def test_blocks_that_cannot_be_are_configuration_errors(folder, blocks, message):
    with pytest.raises(ConfigError, match=message):
        run(folder, blocks=blocks)


def test_what_is_not_given_is_asked_for_together():
    with pytest.raises(ConfigError) as error:
        load(Config(), "graph", 2, 0, None)
    assert [problem.key for problem in error.value.problems] == ["dataset.features", "dataset.labels", "dataset.edges"]
    _, problems = convert(Config, {"source": "synthetic", "classes": 1})
    assert [problem.key for problem in problems] == ["source", "classes"]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["0,train", "1,tests"], r"s\.csv, line 3: split 'tests'"),
        (["0,train", "99,test"], r"s\.csv, line 3: node 99"),
        (["0,train", "1,test", "0,val"], r"s\.csv, line 4: node 0 is in the splits twice"),
        (["0,train", "1,val"], r"s\.csv: no node in split test"),
    ],
)
def test_malformed_splits_are_named(folder, rows, message):
    (folder / "s.csv").write_text("node,split\n" + "\n".join(rows) + "\n")
    with pytest.raises(DataError, match=message):
        run(folder, split="s.csv")


@pytest.mark.parametrize("rows", [[], [(i, i) for i in range(NODES)]])
def test_a_graph_without_an_edge_is_refused(folder, rows):
    pd.DataFrame(rows, columns=["from", "to"]).to_csv(folder / "e.csv", index=False)
    with pytest.raises(DataError, match=r"e\.csv: no edge between two different nodes"):
        run(folder)
    with pytest.raises(DataError, match=r"e\.csv, e\.csv: no edge"):
        run(folder, edges=None, client_edges=["e.csv", "e.csv"])


def test_clients_without_an_edge_are_said(folder, caplog):
    pd.DataFrame([], columns=["from", "to"]).to_csv(folder / "none.csv", index=False)
    run(folder, edges=None, client_edges=["e.csv", "none.csv"])
    run(folder, keep_edges=0)
    run(folder)
    assert [record.getMessage() for record in caplog.records] == [
        "dataset graph_files: Client 1 of 2 has not a single edge.",
        "dataset graph_files: No client has a single edge.",
    ]
