"""Rows dealt to workers: IID and by Dirichlet proportions; MNIST's idx files and what is wrong with them."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import absent
from vflbench.cards.data.divide import Sharding
from vflbench.cards.data.images import mnist as mnist_card
from vflbench.config import convert
from vflbench.data.divide import partition
from vflbench.data.images import mnist
from vflbench.data.tasks import Shard, ShardedTask
from vflbench.types import ConfigError, DataError, DataSource, Metric


def rows(count: int, classes: int = 4) -> Shard:
    rng = np.random.default_rng(1)
    return Shard(np.arange(count, dtype=np.float32)[:, None], rng.integers(0, classes, count))


def deal(
    workers: int, count: int = 103, sharding: Any = "iid", alpha: float = 0.5, classes: int = 4, seed: int = 0
) -> ShardedTask:
    held_out, how = {"val": rows(0), "test": rows(5)}, Sharding(sharding, alpha)
    parts = rows(count), held_out, DataSource("real"), Metric("accuracy", "max")
    return partition.shard("toy", *parts, how, classes=classes, workers=workers, seed=seed)


@pytest.mark.parametrize("sharding", ["iid", "dirichlet"])
def test_every_row_is_dealt_once_with_its_label(sharding: str) -> None:
    task, whole = deal(5, sharding=sharding), rows(103)
    assert sorted(np.concatenate([s.features[:, 0] for s in task.shards]).tolist()) == list(range(103))
    assert all((whole.labels[s.features[:, 0].astype(int)] == s.labels).all() for s in task.shards)
    assert task.public.samples == 103 and len(task.joined().labels) == 103
    assert task.truth("val") is None and task.truth("test") is not None
    again, other = deal(5, sharding=sharding), deal(5, sharding=sharding, seed=1)
    assert np.array_equal(again.shards[0].labels, task.shards[0].labels)
    assert not np.array_equal(other.shards[0].features, task.shards[0].features)
    assert len(task.probe(12).labels) == 15  # three of each


def test_iid_parts_differ_by_one_row_at_most() -> None:
    assert set(deal(5).public.rows) == {20, 21}


def test_smaller_alpha_skews_labels_more() -> None:
    """Mean over workers of the share of the commonest class."""

    def skew(alpha: float) -> float:
        found = [deal(5, 4000, sharding="dirichlet", alpha=alpha, seed=s) for s in range(3)]
        return float(np.mean([np.bincount(s.labels).max() / len(s.labels) for task in found for s in task.shards]))

    assert skew(100.0) < 0.35 < 0.5 < skew(0.3)


def test_what_cannot_be_dealt_is_told() -> None:
    with pytest.raises(
        ConfigError, match=r"algorithm.workers=104: 103 rows of toy dealt to 104 workers leave worker 103 without a row"
    ):
        deal(104)
    with pytest.raises(ConfigError, match=r"dataset.dirichlet_alpha=0.001: .* without a row"):
        deal(20, sharding="dirichlet", alpha=0.001)
    with pytest.raises(ConfigError, match=r"dataset\.sharding=dirichlet: deals classes, and a regression has none"):
        deal(2, sharding="dirichlet", classes=0)
    _, problems = convert(Sharding, {"sharding": "dirchlet", "dirichlet_alpha": 0.0})
    assert [p.key for p in problems] == ["sharding", "dirichlet_alpha"]


# --- MNIST ------------------------------------------------------------------------------------------------------------


def idx(values: np.ndarray, kind: int = 8) -> bytes:
    return (
        bytes((0, 0, kind, values.ndim))
        + struct.pack(f">{values.ndim}I", *values.shape)
        + values.astype(np.uint8).tobytes()
    )


def test_idx_files_are_read_and_their_faults_named() -> None:
    images = np.arange(24).reshape(2, 3, 4)
    assert np.array_equal(mnist.read_idx(idx(images), 3, "f"), images)
    for broken, message in (
        (idx(images, kind=9), r"f: wrong magic number: .* begins 00 00 08 03, this one 00 00 09 03"),
        (idx(images)[:-1], "f: cut short: 23 values where its header announces 24"),
        (idx(images)[:9], "f: cut short within its header"),
        (b"", "f: wrong magic number: .* this one nothing"),
        (idx(images) + b"x", "f: too long: 25 values"),
    ):
        with pytest.raises(DataError, match=message):
            mnist.read_idx(broken, 3, "f")


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """30 and 10 made images in MNIST's format, one file of four gzipped."""
    monkeypatch.setattr(mnist, "TRAIN", 30)
    monkeypatch.setattr(mnist, "TEST", 10)
    rng = np.random.default_rng(0)
    folder = tmp_path / "mnist" / "MNIST" / "raw"
    folder.mkdir(parents=True)
    for part, count in (("train", 30), ("t10k", 10)):
        (folder / f"{part}-images-idx3-ubyte").write_bytes(idx(rng.integers(0, 256, (count, 28, 28))))
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(idx(rng.integers(0, 10, count)))
    (folder / "train-images-idx3-ubyte.gz").write_bytes(
        gzip.compress((folder / "train-images-idx3-ubyte").read_bytes())
    )
    (folder / "train-images-idx3-ubyte").unlink()
    return tmp_path


def test_mnist_comes_from_plain_and_gzipped_files(small: Path) -> None:
    task = mnist.load(mnist_card.Config(verify=False, validation=6), "sharded", 4, 0, small)
    assert task.public.rows == (6, 6, 6, 6) and task.public.shape == (1, 28, 28)
    assert task.source.kind == "partial" and task.source.lacks.startswith("30 of 60,000 training images")
    assert [len(task.held_out[split].labels) for split in ("val", "test")] == [6, 10]
    grey = task.joined().features * mnist.DEVIATION + mnist.MEAN
    assert grey.dtype == np.float32 and -1e-5 < grey.min() < 0.01 and 0.99 < grey.max() < 1.00001
    with pytest.raises(DataError, match=r"train-images-idx3-ubyte\.gz: wrong checksum"):
        mnist.load(mnist_card.Config(validation=6), "sharded", 4, 0, small)


def test_a_damaged_mnist_names_its_file(small: Path) -> None:
    path = small / "mnist/MNIST/raw/t10k-labels-idx1-ubyte"
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(DataError, match="raw/t10k-labels-idx1-ubyte: cut short"):
        mnist.load(mnist_card.Config(verify=False, validation=6), "sharded", 4, 0, small)


@pytest.mark.slow
def test_the_twin_has_mnists_sizes_and_never_changes() -> None:
    train, test = mnist.twin()
    assert train.features.shape == (60_000, 1, 28, 28) and test.features.shape == (10_000, 1, 28, 28)
    assert set(np.unique(train.labels)) == set(range(10))
    assert int(train.labels[:100].sum()) == 401
    means = np.stack([train.features[train.labels == c].mean(axis=0).ravel() for c in range(10)])
    distance = ((test.features[:500].reshape(500, 1, -1) - means[None]) ** 2).sum(axis=2)
    assert 0.5 < (distance.argmin(axis=1) == test.labels[:500]).mean() < 0.999  # learnable, and not trivial


@pytest.mark.slow
@pytest.mark.realdata
def test_real_mnist(shared_data: Path) -> None:
    if not (shared_data / "mnist").is_dir():
        absent("MNIST is not there")
    task = mnist.load(mnist_card.Config(source="real"), "sharded", 5, 0, shared_data)
    train = task.joined()
    assert np.bincount(np.concatenate([train.labels, task.held_out["val"].labels])).tolist() == [
        *(5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949),
    ]
    # the published mean and deviation
    assert abs(float(train.features.mean())) < 0.01 and abs(float(train.features.std()) - 1) < 0.01
