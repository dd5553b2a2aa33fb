"""Made batches in CIFAR-10's two formats, 20 images each."""

import io
import pickle
import tarfile

import numpy as np
import pytest

from vflbench.cards.data.images.cifar10 import Config
from vflbench.config import convert
from vflbench.data.images import cifar, cifar10
from vflbench.data.images.cifar10 import divide, load
from vflbench.types import ConfigError, DataError

TRAIN = [f"data_batch_{i}" for i in range(1, 6)]


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(cifar, "_BATCH", 20)


def batches() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(0)
    return {
        name: (rng.integers(0, 256, (20, 3072), dtype=np.uint8), np.arange(20) % 10) for name in (*TRAIN, "test_batch")
    }


def binary(pixels: np.ndarray, labels: np.ndarray) -> bytes:
    return np.concatenate([labels[:, None].astype(np.uint8), pixels], axis=1).tobytes()


def write_binary(root):
    folder = root / "cifar10" / "cifar-10-batches-bin"
    folder.mkdir(parents=True)
    for name, batch in batches().items():
        (folder / f"{name}.bin").write_bytes(binary(*batch))
    return folder


def write_python(root, made, names=(*TRAIN, "test_batch"), place="cifar10"):
    folder = root / place / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    for i, name in enumerate(names):
        pixels, labels = batches()[name]
        held = {
            b"batch_label": name.encode(),
            b"labels": labels.tolist(),
            b"data": pixels,
            b"filenames": [b"x.png"] * 20,
        }
        # As the original files, of Python 2, and as Python 3 writes them for it.
        (folder / name).write_bytes(made.python2_pickle(held) if i % 2 else pickle.dumps(held, protocol=2))
    return folder


def test_both_formats_and_the_archive_are_the_same_images(tmp_path, made):
    folder = write_binary(tmp_path / "bin")
    write_python(tmp_path / "py", made)
    (tmp_path / "tar" / "cifar10").mkdir(parents=True)
    with tarfile.open(tmp_path / "tar" / "cifar10" / "cifar-10-binary.tar.gz", "w:gz") as archive:
        archive.add(folder, "cifar-10-batches-bin")
    pixels = np.concatenate([batches()[name][0] for name in TRAIN]).reshape(100, 3, 32, 32)
    for name in ("bin", "py", "tar"):
        images = cifar.read("auto", "auto", True, tmp_path / name)
        np.testing.assert_array_equal(images.train, pixels)
        np.testing.assert_array_equal(images.test_labels, np.arange(20) % 10)
        # there are fewer made images than published ones
        assert (images.source.kind, images.source.variant) == ("partial", "full") and images.source.files
        assert images.source.lacks == "100 of 50,000 training images; 20 of 10,000 test images"


def test_quadrants_by_hand(tmp_path):
    image = np.arange(3 * 32 * 32).reshape(1, 3, 32, 32)
    four, two, one = (divide(image, parties) for parties in (4, 2, 1))
    # Top left, top right, bottom left, bottom right: their first pixels are at (0, 0), (0, 16), (16, 0), (16, 16) of
    # the red channel.
    assert [part[0, 0, 0, 0] for part in four] == [0, 16, 16 * 32, 16 * 32 + 16] and four[0].shape == (1, 3, 16, 16)
    assert [part.shape for part in two] == [(1, 3, 16, 32)] * 2 and two[1][0, 0, 0, 0] == 16 * 32
    np.testing.assert_array_equal(one[0], image)
    halves = [np.concatenate(four[i : i + 2], axis=3) for i in (0, 2)]
    np.testing.assert_array_equal(np.concatenate(halves, axis=2), image)


def test_a_task(tmp_path):
    write_binary(tmp_path)
    task = load(Config(validation=0.2), "aligned", 4, 0, tmp_path)
    assert task.parties == 4 and task.classes == 10 and [b.shape for b in task.features] == [(80, 3, 16, 16)] * 4
    assert {name: len(labels) for name, labels in task.held_out_labels.items()} == {"val": 20, "test": 20}
    assert np.bincount(task.labels).tolist() == [8] * 10 and task.features[0].dtype == np.uint8
    pixels = batches()["test_batch"][0].reshape(20, 3, 32, 32)
    np.testing.assert_array_equal(task.held_out_features["test"][2], pixels[:, :, 16:, :16])


@pytest.mark.parametrize("sharding", ["iid", "dirichlet"])
def test_whole_images_are_dealt_to_workers(tmp_path, sharding):
    write_binary(tmp_path)
    config = Config(validation=0.2, sharding=sharding, dirichlet_alpha=5.0)
    task, whole = load(config, "sharded", 6, 0, tmp_path), load(config, "aligned", 1, 0, tmp_path)
    assert len(task.shards) == 6 and task.public.samples == 80 and task.public.shape == (3, 32, 32)
    assert {name: len(part.labels) for name, part in task.held_out.items()} == {"val": 20, "test": 20}
    dealt, mean, deviation = (
        task.joined(),
        np.reshape(cifar10.MEAN, (3, 1, 1)),
        np.reshape(cifar10.DEVIATION, (3, 1, 1)),
    )
    pixels = np.rint((dealt.features * deviation + mean) * 255).astype(np.uint8)
    assert dealt.features.dtype == np.float32
    assert {(y, x.tobytes()) for y, x in zip(dealt.labels, pixels, strict=True)} == {
        (y, x.tobytes()) for y, x in zip(whole.labels, whole.features[0], strict=True)
    }
    np.testing.assert_array_equal(task.truth("test"), whole.truth("test"))


def test_crops_and_flips_are_of_whole_images_and_in_training_only(tmp_path):
    write_binary(tmp_path)
    plain = load(Config(verify=False), "aligned", 4, 0, tmp_path)
    task, again, other = (load(Config(verify=False, augment=3), "aligned", 4, seed, tmp_path) for seed in (0, 0, 1))
    np.testing.assert_array_equal(task.labels, np.tile(plain.labels, 3))
    assert task.shipped() == plain.shipped()  # who sends the data sends no copies
    for split in ("val", "test"):
        np.testing.assert_array_equal(task.held_out_features[split], plain.held_out_features[split])

    def whole(quadrants):
        return np.concatenate([np.concatenate(quadrants[at : at + 2], axis=3) for at in (0, 2)], axis=2)

    before, after = whole(plain.features), whole(task.features)
    assert after.dtype == np.uint8 and np.array_equal(after, whole(again.features))
    assert not np.array_equal(after, whole(other.features))
    seen = set()
    for row, image in enumerate(after):
        padded = np.pad(before[row % len(before)], ((0, 0), (4, 4), (4, 4)))
        ways = [
            (down, right, flip)
            for down in range(9)
            for right in range(9)
            for flip in (1, -1)
            if np.array_equal(padded[:, down : down + 32, right : right + 32][:, :, ::flip], image)
        ]
        assert len(ways) == 1
        seen |= set(ways)
    assert {flip for _, _, flip in seen} == {1, -1} and len({(down, right) for down, right, _ in seen}) > 60
    with pytest.raises(ConfigError, match=r"dataset.augment=3: is for images that are divided by quadrants: 0"):
        load(Config(augment=3), "sharded", 4, 0, tmp_path)


def test_the_sample_is_named(tmp_path, made):
    write_python(tmp_path, made, ("data_batch_1", "test_batch"), "cifar10-sample1000")
    task = load(Config(verify=False), "aligned", 4, 0, tmp_path)
    assert task.source.variant == "sample1000" and "no test image" in task.source.note
    with pytest.raises(DataError, match=r"missing cifar10/cifar-10-binary\.tar\.gz"):
        load(Config(variant="full"), "aligned", 4, 0, tmp_path)
    write_binary(tmp_path)
    assert load(Config(verify=False), "aligned", 4, 0, tmp_path).source.variant == "full"


def test_a_truncated_batch_is_named_with_its_size(tmp_path, made):
    folder = write_binary(tmp_path / "bin")
    path = folder / "data_batch_3.bin"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(
        DataError, match=r"cifar-10-batches-bin/data_batch_3.bin: 61,459 bytes; 61,460 are expected, 20 images"
    ):
        load(Config(), "aligned", 4, 0, tmp_path / "bin")
    path = write_python(tmp_path / "py", made) / "data_batch_2"
    path.write_bytes(path.read_bytes()[:-500])
    with pytest.raises(DataError, match="cifar-10-batches-py/data_batch_2: cut short or not a pickle"):
        load(Config(), "aligned", 4, 0, tmp_path / "py")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda held: held | {"data": held["data"][:19]},
            r"data \(19, 3072\) and 20 labels; \(20, 3072\) are expected",
        ),
        (lambda held: held | {"labels": [10] * 20}, "label 10 of image 0: labels are 0 to 9"),
        (lambda held: held | {"labels": ["0"] * 20}, "labels must be whole numbers"),
        (lambda held: {"data": held["data"]}, "no batch of CIFAR-10"),
        (lambda held: [held], "no batch of CIFAR-10"),
    ],
)
def test_a_wrong_pickle_is_named(tmp_path, made, change, message):
    folder = write_python(tmp_path, made)
    pixels, labels = batches()["data_batch_1"]
    (folder / "data_batch_1").write_bytes(pickle.dumps(change({"data": pixels, "labels": labels.tolist()}), protocol=2))
    with pytest.raises(DataError, match=f"data_batch_1: {message}"):
        load(Config(), "aligned", 4, 0, tmp_path)


def test_a_pickle_that_would_run_something_is_refused(tmp_path, made):
    folder = write_python(tmp_path, made)
    mark = tmp_path / "ran"
    (folder / "test_batch").write_bytes(pickle.dumps({"data": made.Malicious(mark)}, protocol=2))
    with pytest.raises(DataError, match="refused, nothing was run"):
        load(Config(), "aligned", 4, 0, tmp_path)
    assert not mark.exists()
    # The one function that pickles of bytes call does nothing but what they need.
    (folder / "test_batch").write_bytes(b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00xX\x05\x00\x00\x00rot13\x86R.")
    with pytest.raises(DataError, match="bytes in the encoding 'rot13'"):
        load(Config(), "aligned", 4, 0, tmp_path)


def test_a_broken_archive_is_named(tmp_path):
    (tmp_path / "cifar10").mkdir()
    path = tmp_path / "cifar10" / "cifar-10-binary.tar.gz"
    path.write_bytes(b"no gzip")
    with pytest.raises(DataError, match=r"cifar-10-binary.tar.gz: cannot be read"):
        load(Config(), "aligned", 4, 0, tmp_path)
    with tarfile.open(path, "w:gz") as archive:
        archive.addfile(tarfile.TarInfo("cifar-10-batches-bin/data_batch_1.bin"), io.BytesIO())
    with pytest.raises(DataError, match=r"data_batch_1.bin: 0 bytes; 61,460 are expected"):
        load(Config(), "aligned", 4, 0, tmp_path)


@pytest.mark.slow
def test_the_twin_is_labelled_learnable_and_always_the_same(caplog):
    task = load(Config(source="synthetic"), "aligned", 4, 3, None)
    assert (
        task.source.kind == "synthetic" and "SYNTHETIC TWIN" in caplog.text and len(task.held_out_labels["test"]) == 500
    )
    x, new = (
        np.concatenate(blocks, axis=1).reshape(len(blocks[0]), -1) / 255
        for blocks in (task.features, task.held_out_features["test"])
    )
    centres = np.stack([x[task.labels == c].mean(axis=0) for c in range(10)])
    nearest = ((new[:, None] - centres) ** 2).sum(axis=2).argmin(axis=1)
    assert 0.3 < (nearest == task.held_out_labels["test"]).mean() < 0.97
    drawn = cifar._drawn_twin()
    np.testing.assert_array_equal(drawn["test_labels"], task.held_out_labels["test"])
    np.testing.assert_array_equal(divide(drawn["test"], 4)[3], task.held_out_features["test"][3])


@pytest.mark.slow
def test_the_twin_is_kept(monkeypatch):
    first = cifar.twin()
    monkeypatch.setattr(cifar, "_drawn_twin", None)
    np.testing.assert_array_equal(first.train, cifar.twin().train)


def test_wrong_values_are_configuration_errors():
    with pytest.raises(ConfigError) as error:
        load(Config(source="synthetic", variant="sample1000"), "aligned", 3, 0, None)
    assert [problem.key for problem in error.value.problems] == ["dataset.variant", "algorithm.parties"]
    _, wrong = convert(Config, {"validation": 1, "dirichlet_alpha": 0, "variant": "sample"})
    assert {problem.key: problem.closest for problem in wrong} == {
        "validation": None,
        "dirichlet_alpha": None,
        "variant": "sample1000",
    }
