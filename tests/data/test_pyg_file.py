"""`dataset.pyg`: what torch_geometric saved is the task of the same arrays in files, and nothing of a file runs."""

from __future__ import annotations

import os
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from vflbench.cards.data.graph.graph_files import Config
from vflbench.data.graph import graph_files, pyg_file
from vflbench.data.tasks import GraphTask
from vflbench.types import ConfigError, DataError

NODES = 30
FEATURES = np.random.default_rng(0).normal(size=(NODES, 6)).astype(np.float32)
EDGES = np.array([(i, (i + 1) % NODES) for i in range(NODES)] + [(3, 3), (0, 1)]).T  # directed, a loop, one twice
LABELS = np.arange(NODES) % 3


def data(**changes: Any) -> Any:
    from torch_geometric.data import Data  # seconds, which no other test should wait for

    held = {"x": torch.tensor(FEATURES), "edge_index": torch.tensor(EDGES), "y": torch.tensor(LABELS), **changes}
    return Data(**{key: value for key, value in held.items() if value is not None})


def data_set() -> Any:
    from torch_geometric.data import InMemoryDataset

    return InMemoryDataset


def load(folder: Path, held: Any = None, seed: int = 0, parties: int = 2, **keys: Any) -> GraphTask:
    if held is not None:
        torch.save(held, folder / "data.pt")
    return graph_files.load(Config(**{"pyg": "data.pt", **keys}), "graph", parties, seed, folder)


def as_files(folder: Path, parties: int = 2, **keys: Any) -> GraphTask:
    np.save(folder / "x.npy", FEATURES)
    np.save(folder / "e.npy", EDGES.T)
    np.save(folder / "y.npy", LABELS)
    given = Config(features="x.npy", edges="e.npy", labels="y.npy", **keys)
    return graph_files.load(given, "graph", parties, 0, folder)


def assert_equal(one: GraphTask, other: GraphTask) -> None:
    assert one.classes == other.classes and one.splits.keys() == other.splits.keys()
    for a, b in zip(
        (*one.features, *one.edges, one.all_edges, one.labels, *one.splits.values()),
        (*other.features, *other.edges, other.all_edges, other.labels, *other.splits.values()),
        strict=True,
    ):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


def masks(columns: int | None = None) -> dict[str, torch.Tensor]:
    """Ten nodes each; of several columns the k-th is shifted by k."""
    shape = (NODES,) if columns is None else (NODES, columns)
    found = {f"{name}_mask": torch.zeros(shape, dtype=torch.bool) for name in ("train", "val", "test")}
    for place, mask in enumerate(found.values()):
        for column in range(columns or 1):
            nodes = (np.arange(10) + 10 * place + column) % NODES
            mask[nodes if columns is None else (nodes, np.full(10, column))] = True
    return found


# --- what is read -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_data_object_is_the_task_of_the_same_arrays_in_files(tmp_path: Path) -> None:
    task = load(tmp_path, data(name="mine", edge_label=torch.ones(3), y=torch.tensor(LABELS)[:, None]))
    assert_equal(task, as_files(tmp_path))
    assert task.all_edges.shape == (2, 2 * NODES)  # undirected, each once, no loops
    assert [name for name, _ in task.source.files] == ["data.pt"]


@pytest.mark.parametrize(
    "held",
    [
        lambda: data().to_dict(),
        lambda: (data(), None),  # as torch_geometric 2.0 saved its data sets
        lambda: data(x=torch.tensor(FEATURES).to_sparse()),
        lambda: data(x=torch.tensor(FEATURES).to_sparse_csr()),
        lambda: data(edge_index=torch.tensor(EDGES).int(), y=torch.tensor(LABELS).float()),
    ],
    ids=["dict", "old", "sparse", "csr", "types"],
)
@pytest.mark.filterwarnings("ignore:Sparse CSR")
def test_other_forms_of_the_same_graph(tmp_path: Path, held: Any) -> None:
    assert_equal(load(tmp_path, held()), as_files(tmp_path))


def test_float64_features_and_half_ones(tmp_path: Path) -> None:
    assert_equal(load(tmp_path, data(x=torch.tensor(FEATURES).double())), as_files(tmp_path))
    assert load(tmp_path, data(x=torch.tensor(FEATURES).bfloat16())).features[0].dtype == np.float32


@pytest.mark.parametrize("file", ["processed/data.pt", "data.pt", "processed/geometric_data_processed.pt"])
def test_the_folder_of_a_data_set(tmp_path: Path, file: str) -> None:
    place = tmp_path / "set" / file
    place.parent.mkdir(parents=True)
    data_set().save([data()], str(place))
    (place.parent / "pre_transform.pt").write_bytes(b"never read")
    assert_equal(load(tmp_path, pyg="set"), as_files(tmp_path))
    assert_equal(load(tmp_path, pyg=str(place)), as_files(tmp_path))


def test_a_folder_without_a_graph_is_told(tmp_path: Path) -> None:
    (tmp_path / "set" / "processed").mkdir(parents=True)
    with pytest.raises(DataError, match=r"^set: a data set's folder has the file processed/data.pt; this one has none"):
        load(tmp_path, pyg="set")
    for name in ("a.pt", "b.pt"):
        torch.save(data(), tmp_path / "set" / "processed" / name)
    with pytest.raises(DataError, match=r"this one has a\.pt, b\.pt: name one of them"):
        load(tmp_path, pyg="set")


def test_masks_are_the_splits_where_there_are_any(tmp_path: Path) -> None:
    task = load(tmp_path, data(**masks()))
    assert {name: nodes.tolist() for name, nodes in task.splits.items()} == {
        "train": [*range(10)],
        "val": [*range(10, 20)],
        "test": [*range(20, 30)],
    }
    drawn = load(tmp_path, masks=False)
    assert_equal(drawn, as_files(tmp_path))
    without = masks()
    del without["val_mask"]
    assert load(tmp_path, data(**without)).splits["val"].size == 0


def test_of_several_masks_the_seed_takes_its_own(tmp_path: Path) -> None:
    held = data(**masks(3))
    for seed in range(5):
        nodes = (np.arange(10) + seed % 3) % NODES
        assert load(tmp_path, held, seed=seed).splits["train"].tolist() == sorted(nodes.tolist())


def test_nodes_without_a_label(tmp_path: Path) -> None:
    labels = torch.tensor(LABELS).float()
    labels[4], labels[7] = float("nan"), -1
    task = load(tmp_path, data(y=labels))
    assert np.flatnonzero(task.labels < 0).tolist() == [4, 7]
    with pytest.raises(DataError, match=r"data\.pt, masks, row 4: node 4 has no label"):
        load(tmp_path, data(y=labels, **masks()))


def test_clients_may_have_edges_of_their_own(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", EDGES.T[:5])
    np.save(tmp_path / "b.npy", EDGES.T[3:12])
    given = {"client_edges": ["a.npy", "b.npy"]}
    assert_equal(load(tmp_path, data(), **given), as_files(tmp_path, **given))
    alone = load(tmp_path, data(edge_index=None), **given)
    assert [edges.shape[1] for edges in alone.edges] == [10, 18] and alone.all_edges.shape[1] == 24
    own = graph_files.load_own(Config(pyg="data.pt", **given), "graph", 2, 0, tmp_path, alone.facts_for(1, True), 1)
    np.testing.assert_array_equal(own.features[1], alone.features[1])
    np.testing.assert_array_equal(own.edges[1], alone.edges[1])
    assert not own.features[0].size and not own.edges[0].size


def test_weights_of_edges_are_said_not_to_be_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    load(tmp_path, data(edge_attr=torch.ones(EDGES.shape[1], 2)))
    assert "data.pt: edge_attr is not used: edges have no weights here" in caplog.text


# --- what is not ------------------------------------------------------------------------------------------------------


class Evil:
    """Its pickle makes a file where it is loaded."""

    def __init__(self, call: Any, *arguments: Any) -> None:
        self.call = (call, arguments)

    def __reduce__(self) -> Any:
        return self.call


@pytest.mark.parametrize("within", ["alone", "attribute", "dict", "plain pickle"])
def test_a_malicious_pickle_is_refused_and_not_executed(tmp_path: Path, within: str) -> None:
    proof = tmp_path / "executed"
    evil = Evil(os.system, f"touch {proof}")
    held = {"alone": evil, "attribute": data(z=evil), "dict": {**data().to_dict(), "z": evil}}.get(within)
    if within == "plain pickle":
        (tmp_path / "data.pt").write_bytes(pickle.dumps(evil, protocol=2))
    else:
        torch.save(held, tmp_path / "data.pt")
    with pytest.raises(DataError, match=r"^data\.pt: names posix\.system, which no graph needs: refused, nothing was"):
        load(tmp_path)
    assert not proof.exists()
    if within == "alone":  # the file is what it is meant to be
        torch.load(tmp_path / "data.pt", weights_only=False)
        assert proof.exists()


@pytest.mark.parametrize("call", [eval, getattr, torch.load, torch.hub.load, np.load])
def test_no_other_name_is_looked_up(tmp_path: Path, call: Any) -> None:
    torch.save(data(z=Evil(call, "1")), tmp_path / "data.pt")
    with pytest.raises(DataError, match=r"which no graph needs: refused"):
        load(tmp_path)


def test_what_others_allow_torch_to_load_is_not_allowed_here_and_stays_theirs(tmp_path: Path) -> None:
    from torch_geometric.data import HeteroData

    before = torch.serialization.get_safe_globals()
    with torch.serialization.safe_globals([Evil]):
        assert Evil in torch.serialization.get_safe_globals()
        with pytest.raises(DataError, match="HeteroData, which no graph needs"):
            load(tmp_path, HeteroData(paper={"x": torch.ones(2, 2)}))
        assert Evil in torch.serialization.get_safe_globals()
    assert set(torch.serialization.get_safe_globals()) == set(before)


def test_a_newer_pickle_is_refused_unread(tmp_path: Path) -> None:
    (tmp_path / "data.pt").write_bytes(pickle.dumps(Evil(os.system, f"touch {tmp_path / 'executed'}"), protocol=4))
    with pytest.raises(DataError, match=r"^data\.pt: cut short or not saved by torch\.save"):
        load(tmp_path)
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize("cut", [0, 10, 200, -200, -1])
def test_a_file_that_is_cut_short_is_told(tmp_path: Path, cut: int) -> None:
    torch.save(data(), tmp_path / "data.pt")
    whole = (tmp_path / "data.pt").read_bytes()
    (tmp_path / "data.pt").write_bytes(whole[:cut])
    with pytest.raises(DataError, match=r"^data\.pt: cut short or not saved by torch\.save \(.*\)\. Save it with"):
        load(tmp_path)


def test_damaged_bytes_are_told_or_change_a_number(tmp_path: Path) -> None:
    torch.save(data(), tmp_path / "data.pt")
    whole, rng = (tmp_path / "data.pt").read_bytes(), np.random.default_rng(0)
    for _ in range(60):
        damaged = bytearray(whole)
        for at in rng.integers(0, len(whole), 8):
            damaged[at] = rng.integers(256)
        (tmp_path / "data.pt").write_bytes(damaged)
        try:
            load(tmp_path)
        except DataError as error:
            assert str(error).startswith("data.pt") and "weights_only" not in str(error)


def mask_of(nodes: Any) -> torch.Tensor:
    mask = torch.zeros(NODES, dtype=torch.bool)
    mask[nodes] = True
    return mask


TENSOR = torch.tensor
BAD = [
    ({"x": None}, r"data\.pt: has no x, the features \(it has edge_index, y\)"),
    ({"y": None}, r"data\.pt: has no y, the labels \(it has x, edge_index\)"),
    ({"edge_index": None}, r"data\.pt: has no edge_index, the edges"),
    ({"x": torch.ones(NODES)}, r"data\.pt, x: shape \(30,\) and type float32; numbers of shape \(nodes, features\)"),
    ({"x": torch.ones(NODES, 2, 2)}, r"data\.pt, x: shape \(30, 2, 2\)"),
    ({"x": torch.ones(NODES, 0)}, r"data\.pt, x: holds no features"),
    ({"x": torch.ones(NODES, 3) * 1j}, r"data\.pt, x: shape \(30, 3\) and type complex64; numbers"),
    ({"x": torch.full((NODES, 6), float("nan"))}, r"data\.pt, x, row 0, column '0': nan where a finite number belongs"),
    ({"x": torch.full((NODES, 6), float("inf"))}, r"inf where a finite number belongs \(180 such cells"),
    ({"edge_index": TENSOR(EDGES.T.copy())}, r"data\.pt, edge_index: shape \(32, 2\).* shape \(2, edges\) are needed"),
    ({"edge_index": TENSOR([[0, 1], [1, 30]])}, r"edge_index, row 1: node 30; nodes are whole numbers from 0 to 29"),
    ({"edge_index": TENSOR([[0, -1], [1, 2]])}, r"edge_index, row 1: node -1"),
    ({"edge_index": TENSOR([[0.5], [1]])}, r"edge_index, row 0: node 0\.5"),
    ({"edge_index": TENSOR([[0], [0]])}, r"data\.pt: no edge between two different nodes"),
    ({"y": torch.ones(NODES, 3)}, r"data\.pt, y: shape \(30, 3\) and type float32; numbers of shape \(nodes,\)"),
    ({"y": torch.ones(7)}, r"data\.pt, y: 7 labels, but the features have 30 rows"),
    ({"y": torch.full((NODES,), float("nan"))}, r"data\.pt, y: 0 class\(es\); at least two are needed"),
    ({"y": TENSOR(LABELS) * 2}, r"data\.pt, y, row 2: label 4, but class 1 has no node"),
    ({"y": TENSOR(LABELS) + 0.5}, r"data\.pt, y, row 0: label 0\.5; labels are whole numbers"),
    ({"train_mask": mask_of([0])}, r"data\.pt: has masks, but no test_mask; dataset\.masks=false draws the splits"),
    ({"train_mask": mask_of([0]), "test_mask": mask_of([0])}, r"data\.pt, masks, row 1: node 0 is in the splits twice"),
    ({"train_mask": mask_of([]), "test_mask": mask_of([0])}, r"data\.pt, masks: no node in split train"),
    ({"train_mask": torch.ones(NODES), "test_mask": mask_of([0])}, r"train_mask: shape \(30,\) and type float32; \(30"),
    ({"train_mask": mask_of([0])[:9], "test_mask": mask_of([0])}, r"train_mask: shape \(9,\) and type bool; \(30,\)"),
]


@pytest.mark.parametrize(("changes", "message"), BAD)
def test_malformed_tensors_are_told(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        load(tmp_path, data(**changes))


@pytest.mark.parametrize(
    ("held", "message"),
    [
        (lambda: torch.ones(3), r"holds a Tensor where a graph belongs"),
        (lambda: [data()], r"holds a list where a graph belongs"),
        (lambda: {1: torch.ones(3)}, r"holds a dict where a graph belongs"),
        (lambda: {"name": "mine"}, r"has no x, the features \(it has no tensor\)"),
        (lambda: data(x=None, edge_index=None, y=None), r"has no x, the features \(it has no tensor\)"),
        (lambda: data_set().collate([data(), data()]), r"holds 2 graphs; one graph is needed"),
    ],
    ids=["tensor", "list", "dict", "empty dict", "empty", "two"],
)
def test_what_is_no_graph_is_told(tmp_path: Path, held: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        load(tmp_path, held())


def test_a_file_that_is_not_there_and_a_key_too_many(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"^none\.pt: cannot be read \(No such file or directory\)\. Looked below"):
        load(tmp_path, pyg="none.pt")
    with pytest.raises(ConfigError) as refused:
        load(tmp_path, data(), features="x.csv", labels="y.csv")
    assert str(refused.value) == (
        "dataset.features=x.csv: dataset.pyg has it already: give one of the two.\n"
        "dataset.labels=y.csv: dataset.pyg has it already: give one of the two."
    )
    with pytest.raises(DataError, match=r"format not known.*dataset\.pyg is the key of a torch_geometric Data"):
        graph_files.load(Config(features="data.pt", edges="e", labels="y"), "graph", 2, 0, tmp_path)


def test_torch_geometric_is_not_needed() -> None:
    source = Path(pyg_file.__file__).read_text(encoding="utf-8") + Path(graph_files.__file__).read_text(
        encoding="utf-8"
    )
    assert not re.search(r"import torch_geometric|from torch_geometric", source)


@pytest.mark.parametrize("store", [5, {"x": 1}, None])
def test_a_data_object_without_its_storage_is_told(tmp_path: Path, store: Any) -> None:
    broken = data()
    vars(broken)["_store"] = store
    with pytest.raises(DataError, match=r"^data\.pt: has no x, the features"):
        load(tmp_path, broken)


def test_slices_that_are_none_are_told(tmp_path: Path) -> None:
    slices = {"x": torch.tensor(3), "y": 7}
    assert_equal(load(tmp_path, (data().to_dict(), slices)), as_files(tmp_path))
