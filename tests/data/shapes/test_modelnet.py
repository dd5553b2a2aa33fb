"""Made data sets in the original formats, 16 pixels a view."""

import gzip
import re
import zipfile

import numpy as np
import pytest

from vflbench.cards.data.shapes.modelnet import Config
from vflbench.config import convert
from vflbench.data import sources
from vflbench.data.shapes import modelnet, solids, views
from vflbench.data.shapes.modelnet import CLASSES, load
from vflbench.types import ConfigError, DataError

NAMES = CLASSES["modelnet10"]


def off(seed: int) -> bytes:
    """A tetrahedron of its own, with the counts on the first line for some."""
    corners = np.random.default_rng(seed).normal(size=(4, 3))
    lines = [f"OFF{'' if seed % 2 else chr(10)}4 4 6", *(" ".join(f"{x:.6f}" for x in corner) for corner in corners)]
    return "\n".join([*lines, "3 0 1 2", "3 0 1 3", "3 0 2 3", "3 1 2 3", ""]).encode()


def meshes(train: int = 3, test: int = 1) -> dict[str, bytes]:
    """File names below ModelNet10 and contents."""
    found, seed = {}, 0
    for kind in NAMES:
        for split, count in (("train", train), ("test", test)):
            for i in range(count):
                seed += 1
                found[f"{kind}/{split}/{kind}_{i + 1:04d}.off"] = off(seed)
    return found


def unpack(root, files, suffix=""):
    for name, data in files.items():
        path = root / "ModelNet10" / (name + suffix)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(data) if suffix else data)


def voxels(root, train=4, test=2, empty=()):
    """modelnet10.npz with random grids; numbers in `empty` are those of training objects without a cell."""
    rng = np.random.default_rng(0)
    arrays = {}
    for split, per_class in (("train", train), ("test", test)):
        grids = (rng.random((10 * per_class, 32, 32, 32)) < 0.1).astype(np.int32)
        grids[list(empty) if split == "train" else []] = 0
        arrays |= {f"X_{split}": grids, f"y_{split}": np.repeat(np.arange(10), per_class)}
    (root / "modelnet10_voxels").mkdir(parents=True)
    np.savez_compressed(root / "modelnet10_voxels" / "modelnet10.npz", **arrays)
    return arrays


def loaded(root, parties=12, seed=0, **options):
    return load(Config(size=16, verify=False, **options), "aligned", parties, seed, root)


def test_meshes_unpacked(tmp_path):
    unpack(tmp_path, meshes())
    task = loaded(tmp_path, validation=0.34)
    assert task.parties == 12 and task.classes == 10 and task.metric.name == "accuracy"
    assert [len(task.labels), *map(len, task.held_out_labels.values())] == [10, 20, 10]  # floor(0.66 * 3) of each class
    assert all(block.shape == (10, 1, 16, 16) and block.dtype == np.uint8 for block in task.features)
    assert sorted(task.held_out_labels["test"]) == list(range(10)) == sorted(task.labels)
    assert (task.source.kind, task.source.variant) == (
        "partial",
        "meshes_sample",
    ) and "40 of 4,899 meshes" in task.source.note
    # The test objects are the official ones: the first one is bathtub's, the fourth file.
    from vflbench.data.shapes.off import parse_off

    expected = views.mesh_views(*parse_off(off(4), ""), 16, "")
    np.testing.assert_array_equal(np.stack([block[0, 0] for block in task.held_out_features["test"]]), expected)


def test_gzipped_and_zipped_meshes_are_the_same_objects(tmp_path):
    files = meshes()
    for name in ("plain", "gz", "zip"):
        (tmp_path / name).mkdir()
    unpack(tmp_path / "plain", files)
    unpack(tmp_path / "gz" / "modelnet10", files, ".gz")
    with zipfile.ZipFile(tmp_path / "zip" / "ModelNet10.zip", "w") as archive:
        for name, data in (files | {"README.txt": b"", "__MACOSX/._x.off": b""}).items():
            archive.writestr(f"ModelNet10/{name}", data)
    tasks = [loaded(tmp_path / name) for name in ("plain", "gz", "zip")]
    for task in tasks[1:]:
        for a, b in zip(tasks[0].features, task.features, strict=True):
            np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(tasks[0].labels, task.labels)
    assert tasks[2].source.files[0][0] == "ModelNet10.zip"


def test_an_interrupted_rendering_goes_on_where_it_stopped(tmp_path, monkeypatch):
    unpack(tmp_path, meshes())
    render, calls = views.mesh_views, []

    def interrupted(*args):
        calls.append(args[-1])
        if len(calls) == 8:
            raise KeyboardInterrupt
        return render(*args)

    monkeypatch.setattr(views, "mesh_views", interrupted)
    with pytest.raises(KeyboardInterrupt):
        loaded(tmp_path)
    first = loaded(tmp_path)
    assert len(calls) == 8 + 33 and calls[8] == calls[7]  # seven were kept
    again = loaded(tmp_path)
    assert len(calls) == 41
    np.testing.assert_array_equal(first.features[5], again.features[5])
    # Another content is rendered anew, and another size.
    (tmp_path / "ModelNet10" / "bed" / "test" / "bed_0001.off").write_bytes(off(999))
    changed = loaded(tmp_path)
    assert calls[41:] == ["ModelNet10/bed/test/bed_0001.off"]
    assert changed.source.files != first.source.files
    assert not list(sources.cache_folder().rglob("*.part"))


@pytest.mark.slow
def test_several_processes_render_the_same(tmp_path, monkeypatch):
    unpack(tmp_path, meshes())
    several = loaded(tmp_path, processes=2)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
    for a, b in zip(several.features, loaded(tmp_path).features, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_broken_mesh_is_named_with_its_line(tmp_path):
    unpack(tmp_path, meshes())
    path = tmp_path / "ModelNet10" / "sofa" / "train" / "sofa_0002.off"
    path.write_bytes(path.read_bytes().replace(b"3 0 2 3", b"3 0 2 7"))
    line = path.read_text().split("\n").index("3 0 2 7") + 1
    with pytest.raises(DataError, match=rf"^ModelNet10/sofa/train/sofa_0002.off, line {line}: vertex 7"):
        loaded(tmp_path)
    path.write_bytes(b"OFF\n1 0 0\n0 0 0\n")
    with pytest.raises(DataError, match=r"sofa_0002.off: the mesh has no faces"):
        loaded(tmp_path)


def test_a_damaged_cache_is_named(tmp_path):
    unpack(tmp_path, meshes())
    loaded(tmp_path)
    victim = next(sources.cache_folder().rglob("*.npz"))
    victim.write_bytes(victim.read_bytes()[:100])
    with pytest.raises(DataError, match=r"the cache file .*: cut short"):
        loaded(tmp_path)


def test_missing_packages_are_named(tmp_path, monkeypatch):
    unpack(tmp_path, meshes())
    monkeypatch.setattr(modelnet.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DataError, match=re.escape("trimesh and embreex: pip install 'vflbench[shapes]'")):
        loaded(tmp_path)


def test_empty_voxel_grids_are_left_out_and_counted(tmp_path, caplog):
    arrays = voxels(tmp_path, empty=(0, 5, 6))
    task = loaded(tmp_path, validation=0.25)
    total = len(task.labels) + sum(map(len, task.held_out_labels.values()))
    assert total == 60 - 3 and len(task.held_out_labels["test"]) == 20
    assert "3 of 60 voxel grids are empty" in caplog.text and "3 empty ones are left out" in task.source.note
    assert task.source.variant == "voxels"
    # Class 1 had objects 4 to 7, of which 5 and 6 are gone: floor(0.75 * 2) = 1 is left for training.
    assert np.bincount(task.labels, minlength=10).tolist() == [2, 1, 3, 3, 3, 3, 3, 3, 3, 3]
    expected = views.voxel_view(views.side_by_side(arrays["X_test"]), 16, 7)
    np.testing.assert_array_equal(task.held_out_features["test"][7][:, 0], expected)


def test_voxel_views_are_kept(tmp_path, monkeypatch):
    voxels(tmp_path)
    first = loaded(tmp_path)
    monkeypatch.setattr(views, "voxel_view", None)
    np.testing.assert_array_equal(first.features[0], loaded(tmp_path).features[0])


def test_the_twin_is_kept(monkeypatch):
    config = Config(source="synthetic", size=16)
    first = load(config, "aligned", 12, 0, None)
    monkeypatch.setattr(solids, "made_up", None)
    np.testing.assert_array_equal(first.features[0], load(config, "aligned", 12, 0, None).features[0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"X_test": np.zeros((3, 32, 32, 32), np.int32)}, "array X_test: 20 grids of 32 x 32 x 32"),
        ({"X_train": np.full((40, 32, 32, 32), 2, np.int8)}, "array X_train: 40 grids"),
        ({"y_train": np.full(40, 10)}, "labels y_train and y_test must be numbers from 0 to 9"),
        ({"y_train": np.array([{}] * 40)}, "holds Python objects where numbers belong"),
    ],
)
def test_a_wrong_voxel_file_is_named(tmp_path, change, message):
    arrays = voxels(tmp_path)
    np.savez(tmp_path / "modelnet10_voxels" / "modelnet10.npz", **(arrays | change))
    with pytest.raises(DataError, match=f"^modelnet10_voxels/modelnet10.npz.*{message}"):
        loaded(tmp_path)


def test_another_file_than_the_known_one_fails_its_checksum(tmp_path):
    voxels(tmp_path)
    with pytest.raises(DataError, match="wrong checksum"):
        load(Config(size=16), "aligned", 12, 0, tmp_path)


def test_auto_takes_the_fullest(tmp_path, monkeypatch):
    voxels(tmp_path)
    unpack(tmp_path, meshes())
    assert loaded(tmp_path).source.variant == "voxels"  # 40 meshes are not all
    assert loaded(tmp_path, variant="meshes").source.variant == "meshes_sample"
    monkeypatch.setitem(modelnet.OBJECTS, "modelnet10", 40)
    assert loaded(tmp_path).source.variant == "meshes"
    assert loaded(tmp_path, variant="voxels").source.variant == "voxels"


def test_meshes_that_are_no_data_set(tmp_path):
    unpack(tmp_path, {name: data for name, data in meshes().items() if name.startswith("bathtub/train")})
    with pytest.raises(DataError, match="incomplete ModelNet10: 3 of 4,899 objects, none in bathtub/test, bed/train"):
        loaded(tmp_path, variant="meshes")
    with pytest.raises(DataError, match="not complete below data_root"):
        loaded(tmp_path)


def test_fewer_parties_have_neighbouring_views_as_channels(tmp_path):
    voxels(tmp_path)
    twelve, four = loaded(tmp_path), loaded(tmp_path, parties=4)
    assert [block.shape for block in four.features] == [(len(four.labels), 3, 16, 16)] * 4
    np.testing.assert_array_equal(four.features[1], np.concatenate(twelve.features[3:6], axis=1))
    np.testing.assert_array_equal(
        four.held_out_features["val"][3], np.concatenate(twelve.held_out_features["val"][9:], axis=1)
    )


def test_validation_is_drawn_by_the_seed_and_may_be_none(tmp_path):
    voxels(tmp_path)
    one, same, other = (loaded(tmp_path, seed=seed, validation=0.5) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one.features[0], same.features[0])
    assert not np.array_equal(one.features[0], other.features[0])
    np.testing.assert_array_equal(one.held_out_features["test"][0], other.held_out_features["test"][0])
    together = np.concatenate([one.features[0], one.held_out_features["val"][0]])
    assert len(np.unique(together.reshape(len(together), -1), axis=0)) == 40
    none = loaded(tmp_path, validation=0.0)
    assert none.truth("val") is None and len(none.labels) == 40


def test_wrong_values_are_configuration_errors():
    config = Config("modelnet40", variant="voxels")
    with pytest.raises(ConfigError) as error:
        load(config, "aligned", 5, 0, None)
    assert [problem.key for problem in error.value.problems] == ["dataset.variant", "algorithm.parties"]
    _, problems = convert(Config, {"variant": "voxel", "size": 8, "validation": 1.0, "processes": 0})
    assert [problem.key for problem in problems] == ["variant", "size", "validation", "processes"]
    assert "1, 2, 3, 4, 6, 12" in str(error.value)


@pytest.mark.parametrize(
    ("name", "counts"),
    [("modelnet10", (400, 100)), pytest.param("modelnet40", (800, 200), marks=pytest.mark.slow)],
)
def test_the_twin_is_labelled_learnable_and_always_the_same(name, counts, caplog):
    task = load(Config(name, source="synthetic", size=16, validation=0.0), "aligned", 12, 3, None)
    assert task.source.kind == "synthetic" and "SYNTHETIC TWIN" in caplog.text
    assert (len(task.labels), len(task.held_out_labels["test"])) == counts and task.classes == len(CLASSES[name])
    x, new = (
        np.concatenate(blocks, axis=1).reshape(len(blocks[0]), -1) / 255
        for blocks in (task.features, task.held_out_features["test"])
    )
    centres = np.stack([x[task.labels == c].mean(axis=0) for c in range(task.classes)])
    nearest = ((new[:, None] - centres) ** 2).sum(axis=2).argmin(axis=1)
    assert 0.5 < (nearest == task.held_out_labels["test"]).mean() < 0.99
    grids, labels = solids.made_up(name, task.classes, counts[1] // task.classes, "test")
    assert grids.any(axis=(1, 2, 3)).all()
    np.testing.assert_array_equal(labels, task.held_out_labels["test"])


def test_status_knows_an_unpacked_folder(tmp_path):
    rows = {row.option: row.found for row in sources.status(tmp_path)}
    assert rows["modelnet10"] == rows["modelnet40"] == rows["cifar10"] == "missing"
    unpack(tmp_path, meshes())
    assert {row.option: row.found for row in sources.status(tmp_path)}["modelnet10"] == "partial"
