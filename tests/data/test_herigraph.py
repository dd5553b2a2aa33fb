import gzip
import pickle

import numpy as np
import pytest
from scipy import sparse

from vflbench.cards.data.graph.herigraph import Config
from vflbench.data.graph import herigraph
from vflbench.data.graph.herigraph import load
from vflbench.types import ConfigError, DataError

NODES = 40
IDS = [str(50_000_000_000 + 7 * i) for i in range(NODES)]


@pytest.fixture
def city(tmp_path):
    """A made Suzhou in the original tables: 40 posts, 2 of 3 labelled; its graphs are a path, steps of two, and a star
    around post 0."""
    rng = np.random.default_rng(0)
    folder = tmp_path / "root" / "herigraph" / "dataset" / "Suzhou"
    folder.mkdir(parents=True)
    soft, labelled = rng.dirichlet(np.ones(9), NODES), np.arange(NODES) % 3 > 0
    names = [f"attribute {i}" for i in range(9)]
    lines = [
        "\t".join(
            [
                "",
                "ID",
                *names,
                *[
                    "category",
                    "category_id",
                    "category_vote",
                    "cat_id_vote",
                    "category_stack",
                    "cat_id_stack",
                    "conf",
                    "same",
                    "labelled",
                ],
            ]
        )
    ]
    for i in range(NODES):
        lines.append(
            "\t".join(
                [
                    str(i),
                    IDS[i],
                    *map(str, soft[i]),
                    "form",
                    "1",
                    "form",
                    "1",
                    "form",
                    "1",
                    "0.7",
                    "True",
                    str(labelled[i]),
                ]
            )
        )
    (folder / "Attribute_Labels.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")

    visual = rng.normal(size=(NODES, 982)).round(4)
    order = rng.permutation(NODES)  # the tables need not agree in their order
    lines = ["\t".join(["", "ID", "IO_Type", *(f"f{j}" for j in range(982))])]
    lines += ["\t".join([str(n), IDS[i], "indoor", *map(str, visual[i])]) for n, i in enumerate(order)]
    (folder / "Visual_Features.csv").write_text("\n".join(lines) + "\n")

    pairs = {(i, i + 1): (1.0, 0, 0) for i in range(NODES - 1)}
    pairs |= {(i, i + 2): (0, 0.5, 0) for i in range(NODES - 2)}
    # (0, 0): a self-loop, as the real ones have
    pairs |= {(0, i): (1.0 if i == 1 else 0, 0.5 if i == 2 else 0, 0.1) for i in range(NODES)}
    lines = ["\t".join(["", "0", "1", "Temporal_Similarity", "Social_Similarity", "Spatial_Similarity"])]
    lines += ["\t".join([str(n), IDS[a], IDS[b], *map(str, s)]) for n, ((a, b), s) in enumerate(pairs.items())]
    (folder / "Edge_List.csv").write_text("\n".join(lines) + "\n")
    return {"root": tmp_path / "root", "folder": folder, "soft": soft, "labelled": labelled, "visual": visual}


def config(**changes):
    return Config(**{"name": "suzhou", "verify": False, **changes})


def test_each_client_has_its_graph_and_its_image_block(city):
    task = load(config(), "graph", 3, 0, city["root"])
    blocks = city["visual"][:, :512], city["visual"][:, 515:880], city["visual"][:, 880:]
    for held, expected in zip(task.features, blocks, strict=True):
        np.testing.assert_allclose(held, expected, rtol=1e-6)
    assert [edges.shape[1] for edges in task.edges] == [2 * 39, 2 * 38, 2 * 39]  # path, steps of two, star
    assert task.all_edges.shape[1] == 2 * (39 + 38 + 37)  # the star shares two edges with the others
    np.testing.assert_array_equal(task.joined().features, np.concatenate(task.features, axis=1))
    assert task.source.kind == "partial" and "of 3,137 posts" in task.source.lacks


def test_labels_are_the_strongest_attribute_and_only_labelled_posts_are_split(city):
    task = load(config(), "graph", 3, 0, city["root"])
    np.testing.assert_array_equal(task.labels, np.where(city["labelled"], city["soft"].argmax(axis=1), -1))
    everyone = np.concatenate(list(task.splits.values()))
    assert sorted(everyone) == np.flatnonzero(city["labelled"]).tolist()


def test_the_numpy_variant_gives_the_same_task(city):
    expected = load(config(), "graph", 3, 0, city["root"])
    numpy_folder = city["root"] / "herigraph" / "dataset_np" / "Suzhou"
    numpy_folder.mkdir(parents=True)
    for name, edges in zip(("TEM", "SOC", "SPA"), expected.edges, strict=True):
        matrix = sparse.coo_matrix((np.ones(edges.shape[1]), edges), shape=(NODES, NODES)) + sparse.eye(NODES)
        sparse.save_npz(numpy_folder / f"A_{name}.npz", matrix.tocsc())
    rows = [
        [int(IDS[i]), *city["soft"][i].tolist(), "form", 1, "form", 1, "form", 1, 0.7, True, bool(city["labelled"][i])]
        for i in range(NODES)
    ]
    np.savez(numpy_folder / "labels.npz", ATT_LAB=np.array(rows, dtype=object))
    visual = np.array([[int(IDS[i]), "indoor", *city["visual"][i].tolist()] for i in range(NODES)], dtype=object)
    np.save(city["folder"] / "Visual_Features.npy", visual)
    for name in ("Attribute_Labels", "Visual_Features", "Edge_List"):
        (city["folder"] / f"{name}.csv").unlink()
    task = load(config(), "graph", 3, 0, city["root"])
    for a, b in zip(
        (*task.features, *task.edges, task.labels), (*expected.features, *expected.edges, expected.labels), strict=True
    ):
        np.testing.assert_array_equal(a, b)


def test_labels_that_run_code_are_refused(city, made, tmp_path):
    header = b"{'descr': '|O', 'fortran_order': False, 'shape': (40, 19), }".ljust(117) + b"\n"
    array = (
        b"\x93NUMPY\x01\x00"
        + len(header).to_bytes(2, "little")
        + header
        + pickle.dumps(made.Malicious(tmp_path / "ran"))
    )
    import zipfile

    folder = city["root"] / "herigraph" / "dataset_np" / "Suzhou"
    folder.mkdir(parents=True)
    with zipfile.ZipFile(folder / "labels.npz", "w") as archive:
        archive.writestr("ATT_LAB.npy", array)
    (city["folder"] / "Attribute_Labels.csv").unlink()
    with pytest.raises(DataError, match=r"labels\.npz, array ATT_LAB: this pickle tries to load (posix|nt)\.system"):
        load(config(), "graph", 3, 0, city["root"])
    assert not (tmp_path / "ran").exists()


def test_without_image_blocks_the_data_is_partial_and_says_so(city, caplog):
    (city["folder"] / "Visual_Features.csv").unlink()
    task = load(config(), "graph", 3, 0, city["root"])
    assert task.source.kind == "partial" and "MADE UP" in task.source.note and "PARTIAL DATA" in caplog.text
    assert [block.shape for block in task.features] == [(NODES, 512), (NODES, 365), (NODES, 102)]
    with pytest.raises(DataError, match=r"missing herigraph/dataset/Suzhou/Visual_Features\.csv"):
        load(config(source="real"), "graph", 3, 0, city["root"])


def test_graphs_that_were_read_are_kept(city, monkeypatch):
    first = load(config(), "graph", 3, 0, city["root"])
    monkeypatch.setattr(herigraph, "read", None)
    again = load(config(), "graph", 3, 0, city["root"])
    for mine, theirs in zip((*first.edges, *first.features), (*again.edges, *again.features), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_missing_graphs_are_named(city):
    (city["folder"] / "Edge_List.csv").unlink()
    with pytest.raises(DataError, match=r"herigraph/dataset/Suzhou/Edge_List\.csv.*dataset\.source=synthetic"):
        load(config(), "graph", 3, 0, city["root"])


@pytest.mark.parametrize("parties", [1, 2, 4])
def test_other_than_three_clients_are_refused(city, parties):
    with pytest.raises(ConfigError, match=f"algorithm.parties={parties}: must be 3"):
        load(config(), "graph", parties, 0, city["root"])


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        (
            "Attribute_Labels.csv",
            lambda text: text[: len(text) - 3],
            r"Attribute_Labels\.csv, line 41: 'Fal' in column `labelled`",
        ),
        ("Attribute_Labels.csv", lambda text: text.replace("\tform", "", 1), r"Attribute_Labels\.csv, line 2"),
        (
            "Visual_Features.csv",
            lambda text: text.replace("\tindoor\t", "\tindoor\tx", 1),
            r"Visual_Features\.csv, line 2: 'x",
        ),
        ("Visual_Features.csv", lambda text: text.rsplit("\n", 2)[0], r"Visual_Features\.csv: has no row for post"),
        ("Edge_List.csv", lambda text: text.replace(IDS[5], "123", 1), r"Edge_List\.csv, line \d+: edge from post"),
        (
            "Edge_List.csv",
            lambda text: text.replace("Social_Similarity", "Social", 1),
            r"Edge_List\.csv: has no column Social_Similarity",
        ),
    ],
)
def test_malformed_tables_are_named_with_their_line(city, file, change, message):
    path = city["folder"] / file
    path.write_text(change(path.read_text(encoding="utf-8")), encoding="utf-8")
    with pytest.raises(DataError, match=message):
        load(config(), "graph", 3, 0, city["root"])


def test_a_truncated_gzip_is_named(city):
    path = city["folder"] / "Attribute_Labels.csv"
    packed = gzip.compress(path.read_bytes())
    path.unlink()
    path.with_suffix(".csv.gz").write_bytes(packed[: len(packed) // 2])
    with pytest.raises(DataError, match=r"Attribute_Labels\.csv\.gz: cannot be read"):
        load(config(), "graph", 3, 0, city["root"])
