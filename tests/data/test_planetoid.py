import gzip
import logging
import pickle
from pathlib import Path

import numpy as np
import pytest

from vflbench.cards.data.graph.planetoid import Config
from vflbench.config import convert
from vflbench.data.graph import planetoid as module
from vflbench.data.graph.planetoid import load
from vflbench.types import ConfigError, DataError


def config(**changes) -> Config:
    values = {"name": "citeseer", "verify": False, "train_per_class": 5, "validation": 10, "test": 20, **changes}
    return Config(**values)


def test_reads_the_original_files(planetoid):
    task = load(config(), "graph", 3, 0, planetoid["root"])
    joined = task.joined()
    assert task.source.kind == "partial" and len(task.source.files) == 8  # accepted, although not as published
    assert joined.features.shape == (64, 12) and task.classes == 3 and joined.features.dtype == np.float32
    np.testing.assert_array_equal(joined.features[:40], planetoid["allx"].toarray())
    np.testing.assert_array_equal(joined.features[planetoid["test"]], planetoid["tx"].toarray())
    np.testing.assert_array_equal(task.labels[planetoid["test"]], planetoid["ty"].argmax(axis=1))


def test_edges_are_symmetric_without_loops_and_duplicates(planetoid):
    task = load(config(), "graph", 3, 0, planetoid["root"])
    expected = {(a, b) for a, near in planetoid["graph"].items() for b in near if a != b}
    expected |= {(b, a) for a, b in expected}
    assert [tuple(edge) for edge in task.all_edges.T] == sorted(expected)


@pytest.mark.parametrize("split", ["random", "public"])
def test_isolated_test_nodes_have_zero_features_no_label_and_no_split(planetoid, split):
    task = load(config(split=split), "graph", 1, 0, planetoid["root"])
    assert not task.features[0][[45, 50]].any()
    assert (task.labels[[45, 50]] == -1).all() and (task.labels == -1).sum() == 2
    assert not set(np.concatenate(list(task.splits.values()))) & {45, 50}


def test_public_split_is_planetoids(planetoid):
    splits = load(config(split="public"), "graph", 3, 0, planetoid["root"]).splits
    np.testing.assert_array_equal(splits["train"], np.arange(6))
    np.testing.assert_array_equal(splits["val"], np.arange(6, 40))  # the next 500, as far as there are
    np.testing.assert_array_equal(splits["test"], np.sort(planetoid["test"]))


def test_random_split_depends_on_the_seed_only(planetoid):
    a, b, c = (load(config(), "graph", parties, seed, planetoid["root"]) for parties, seed in ((3, 0), (2, 0), (3, 1)))
    assert np.bincount(a.labels[a.splits["train"]]).tolist() == [5, 5, 5]
    assert [len(a.splits[name]) for name in ("train", "val", "test")] == [15, 10, 20]
    np.testing.assert_array_equal(a.splits["test"], b.splits["test"])
    assert not np.array_equal(a.splits["test"], c.splits["test"])


def test_gzipped_files_are_read(planetoid):
    for path in list(planetoid["raw"].iterdir()):
        path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    task = load(config(), "graph", 3, 0, planetoid["root"])
    assert len(task.labels) == 64 and task.source.files[0][0].endswith("ind.citeseer.x.gz")


def test_a_file_that_is_not_the_published_one_is_a_wrong_checksum(planetoid):
    with pytest.raises(DataError, match=r"ind\.citeseer\.x: wrong checksum: sha256 expected d20de191.*verify=false"):
        load(config(verify=True), "graph", 3, 0, planetoid["root"])


@pytest.mark.parametrize("suffix", ["x", "allx", "ty", "graph"])
@pytest.mark.parametrize("keep", [0.0, 0.3, 0.98])
def test_a_truncated_file_is_named(planetoid, suffix, keep):
    path = planetoid["raw"] / f"ind.citeseer.{suffix}"
    data = path.read_bytes()
    path.write_bytes(data[: int(keep * len(data))])
    with pytest.raises(DataError, match=rf"planetoid/CiteSeer/raw/ind\.citeseer\.{suffix}: "):
        load(config(), "graph", 3, 0, planetoid["root"])


def test_a_pickle_that_runs_code_is_refused_and_not_run(planetoid, made, tmp_path):
    for protocol in (0, 2, 4):
        (planetoid["raw"] / "ind.citeseer.ally").write_bytes(
            pickle.dumps(made.Malicious(tmp_path / "ran"), protocol=protocol)
        )
        with pytest.raises(
            DataError, match=r"ind\.citeseer\.ally: this pickle tries to load (posix|nt)\.system.* refused"
        ):
            load(config(), "graph", 3, 0, planetoid["root"])
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("suffix", "change", "message"),
    [
        ("graph", {0: [1, 999]}, "node 0 lists neighbour 999, but nodes are 0 to 63"),
        ("graph", [1, 2], "not a dictionary"),
        ("graph", {0: ["a"]}, "not a number"),
        ("ty", np.full((22, 3), 1), "row 0 is not a one-hot label"),
        ("ty", np.eye(3)[[0] * 21], "22 rows, but .*ind.citeseer.ty has 21"),
        ("ally", np.array([[object()] * 3]), "tries to load|not a matrix"),
        ("allx", np.ones((40, 12)), "not a sparse feature matrix"),
    ],
)
def test_malformed_content_is_named(planetoid, made, suffix, change, message):
    change = (
        made.python2_pickle(change)
        if not (isinstance(change, np.ndarray) and change.dtype.hasobject)
        else pickle.dumps(change)
    )
    (planetoid["raw"] / f"ind.citeseer.{suffix}").write_bytes(change)
    with pytest.raises(DataError, match=message):
        load(config(), "graph", 3, 0, planetoid["root"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("40\nx1\n", "line 2: 'x1' is no node id"),
        ("", "line 1: '' is no node id"),
        ("40\n40\n", "twice"),
        ("40\n", "1 lines"),
    ],
)
def test_malformed_test_index_is_named(planetoid, text, message):
    (planetoid["raw"] / "ind.citeseer.test.index").write_text(text)
    with pytest.raises(DataError, match=rf"ind\.citeseer\.test\.index.*{message}"):
        load(config(), "graph", 3, 0, planetoid["root"])


def test_a_csr_matrix_with_indices_out_of_range_never_reaches_compiled_code(planetoid, made):
    bad = planetoid["allx"].copy()
    bad.indices[0] = 10**6
    (planetoid["raw"] / "ind.citeseer.allx").write_bytes(made.python2_pickle(bad))
    with pytest.raises(DataError, match=r"ind\.citeseer\.allx: not a sparse feature matrix"):
        load(config(), "graph", 3, 0, planetoid["root"])


def test_with_a_data_root_a_missing_file_is_an_error_that_suggests_the_twin(planetoid):
    (planetoid["raw"] / "ind.citeseer.allx").unlink()
    with pytest.raises(DataError) as error:
        load(config(), "graph", 3, 0, planetoid["root"])
    for part in (
        "(7 other files",
        "planetoid/CiteSeer/raw/ind.citeseer.allx",
        "no network in tests",
        "dataset.source=synthetic",
    ):
        assert part in str(error.value)


def test_a_data_root_that_does_not_exist_is_an_error_that_suggests_the_twin(tmp_path):
    with pytest.raises(DataError, match=r"no such folder.*dataset\.source=synthetic"):
        load(config(), "graph", 3, 0, tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()


def test_without_a_data_root_the_twin_is_built_and_loudly_said_so(caplog):
    with caplog.at_level(logging.WARNING):
        task = load(Config(name="cora"), "graph", 3, 0, None)
    assert task.source.kind == "synthetic" and "SYNTHETIC TWIN" in caplog.text and "no network in tests" in caplog.text
    assert len(task.labels) == 2708 and [block.shape[1] for block in task.features] == [478, 478, 477]
    assert [len(task.splits[name]) for name in ("train", "val", "test")] == [420, 500, 1000]


def test_source_real_refuses_the_twin():
    with pytest.raises(DataError, match="not complete below the cache folder"):
        load(Config(name="cora", source="real"), "graph", 3, 0, None)


def test_source_synthetic_looks_for_nothing(planetoid, caplog):
    task = load(Config(name="citeseer", source="synthetic"), "graph", 3, 0, Path("/nowhere"))
    assert task.source.kind == "synthetic" and "MADE UP" in caplog.text
    assert (task.labels == -1).sum() == 15 and len(task.labels) == 3327


def test_all_wrong_values_are_reported_together():
    _, problems = convert(
        Config, {"source": "reel", "variant": "x", "split": "publik", "keep_edges": 2, "validation": 0}
    )
    assert {problem.key: problem.closest for problem in problems} == {
        "source": "real", "variant": None, "split": "public", "keep_edges": None, "validation": None,
    }  # fmt: skip


def test_more_nodes_than_there_are_is_a_configuration_error(planetoid):
    with pytest.raises(ConfigError, match=r"train_per_class=50.*labelled nodes"):
        load(config(train_per_class=50), "graph", 3, 0, planetoid["root"])
    with pytest.raises(ConfigError, match=r"leave a party none"):
        load(config(), "graph", 11, 0, planetoid["root"])


def test_the_papers_training_sizes_are_the_default():
    assert module.TRAIN_PER_CLASS == {"cora": 60, "citeseer": 84, "pubmed": 320}


def test_a_damaged_pickle_cannot_take_all_memory(planetoid):
    # "remember this under index 2^32 - 1": the C unpickler would reserve 64 GB for it
    (planetoid["raw"] / "ind.citeseer.graph").write_bytes(b"\x80\x02}r\xff\xff\xff\xff.")
    with pytest.raises(DataError, match=r"ind\.citeseer\.graph: cut short or not a pickle"):
        load(config(), "graph", 3, 0, planetoid["root"])
