"""ModelNet10 and CIFAR-10 as far as they are there: VFLBENCH_DATA, else the folder shared/data beside the checkout."""

from pathlib import Path

import numpy as np
import pytest

from tests.conftest import absent
from vflbench.cards.data.images import cifar10 as cifar10_card
from vflbench.cards.data.shapes import modelnet as modelnet_card
from vflbench.data import sources
from vflbench.data.images import cifar10
from vflbench.data.shapes import modelnet, views
from vflbench.data.shapes.off import parse_off
from vflbench.types import DataError

pytestmark = pytest.mark.realdata


@pytest.fixture
def root(shared_data, monkeypatch, tmp_path) -> Path:
    """The real data, no downloads, and a cache of the test's own."""

    def refuse(url, seconds):
        raise OSError("no network in tests")

    monkeypatch.setattr(sources, "_connect", refuse)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return shared_data


@pytest.mark.slow
def test_modelnet10s_voxels(root, caplog):
    if not (root / "modelnet10_voxels").is_dir():
        absent("no ModelNet10 voxels here")
    config = modelnet_card.Config(variant="voxels", size=16, validation=0.0)
    task = modelnet.load(config, "aligned", 12, 0, root)
    # The official counts, less 27 empty training grids and 7 empty test grids.
    assert np.bincount(task.labels).tolist() == [94, 514, 889, 200, 200, 465, 200, 680, 379, 343]
    assert np.bincount(task.truth("test")).tolist() == [50, 100, 100, 85, 86, 100, 86, 100, 94, 100]
    assert len(task.labels) == 3991 - 27 and "34 of 4899 voxel grids are empty" in caplog.text
    assert (task.source.kind, task.source.variant) == ("real", "voxels")
    # Objects stand upright: of a table most is seen in the upper half of every view, of a bed in the lower half.
    for block in task.features:
        for label, low, high in ((8, 1.5, 4), (1, 0.2, 0.75)):
            rows = (block[task.labels == label][:, 0] > 0).sum(axis=(0, 2))
            assert low < rows[:8].sum() / rows[8:].sum() < high


@pytest.mark.slow
def test_modelnet10s_meshes(root):
    folder = root / "modelnet10_off_samples" / "ModelNet10" / "bathtub" / "train"
    if not folder.is_dir():
        absent("no OFF samples here")
    counts, faces = [], []
    for i in range(1, 6):
        path = folder / f"bathtub_000{i}.off.gz"
        vertices, triangles = parse_off(sources.content(path, path.name), path.name)
        counts.append(len(vertices))
        faces.append(len(triangles))
        pictures = views.mesh_views(vertices, triangles, 32, path.name)
        assert ((pictures > 0).mean(axis=(1, 2)) > 0.1).all()
    assert counts == [3514, 700, 14963, 2842, 18472] and faces[0] == 3546
    with pytest.raises(DataError, match="incomplete ModelNet10: 5 of 4,899 objects"):
        modelnet.load(modelnet_card.Config(variant="meshes"), "aligned", 12, 0, root)


def test_cifar10s_sample(root):
    if not (root / "cifar10-sample1000").is_dir():
        absent("no CIFAR-10 sample here")
    task = cifar10.load(cifar10_card.Config(variant="sample1000"), "aligned", 4, 0, root)
    assert len(task.labels) + len(task.truth("val")) == 800 and len(task.truth("test")) == 200
    assert np.bincount(task.truth("test")).tolist() == [20] * 10 and np.bincount(task.labels).tolist() == [72] * 10
    assert (task.source.kind, task.source.variant) == ("partial", "sample1000")
    # Skies and seas: airplanes and ships are bluest above.
    blue = task.features[0][:, 2].mean(axis=(1, 2)) - task.features[0][:, 0].mean(axis=(1, 2))
    assert blue[np.isin(task.labels, (0, 8))].mean() > blue[np.isin(task.labels, (4, 6))].mean()
    shards = cifar10.load(cifar10_card.Config(variant="sample1000"), "sharded", 5, 0, root)
    assert shards.public.rows == (144,) * 5 and shards.public.shape == (3, 32, 32)
    pixels = shards.joined().features
    # by published numbers
    assert np.abs(pixels.mean(axis=(0, 2, 3))).max() < 0.1 and np.abs(pixels.std(axis=(0, 2, 3)) - 1).max() < 0.1
