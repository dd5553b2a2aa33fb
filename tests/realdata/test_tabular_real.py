"""The tabular data sets on their real files: counts as published, the convex forms' minima by their own conditions."""

import gzip
import io
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.conftest import absent
from vflbench.data.tabular import bank, blog, convex, energy

pytestmark = pytest.mark.realdata


@pytest.fixture
def root(shared_data, monkeypatch, tmp_path) -> Path:
    """The real data; minima are solved anew."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return shared_data


def needs(root: Path, name: str) -> None:
    if not (root / name).exists():
        absent(f"no {name}")


def everything(task) -> tuple[np.ndarray, np.ndarray]:
    """All rows of all splits, and their labels."""
    blocks = [np.concatenate(split, axis=1) for split in (task.features, *task.held_out_features.values())]
    return np.concatenate(blocks), np.concatenate([task.labels, *task.held_out_labels.values()])


def test_energy(root):
    needs(root, "appliances_energy/energydata_complete.csv.gz")
    frame = pd.read_csv(
        io.BytesIO(gzip.decompress((root / "appliances_energy/energydata_complete.csv.gz").read_bytes())), skipinitialspace=True
    )
    made = energy.read(gzip.decompress((root / "appliances_energy/energydata_complete.csv.gz").read_bytes()), "energy")
    np.testing.assert_allclose(made.values, frame.drop(columns=["date", "Appliances"]).astype(float), rtol=1e-12)
    np.testing.assert_array_equal(made.labels, frame["Appliances"].astype(float))
    task = energy.load(energy.Config(), "aligned", 2, 0, root)
    assert task.source.kind == "real" and [len(task.labels), len(task.truth("val")), len(task.truth("test"))] == [11841, 1974, 5920]
    rows, labels = everything(task)
    assert rows.shape == (19735, 27) and labels.mean() == pytest.approx(97.695, abs=0.001)


def test_the_minimum_of_energys_ridge_form(root):
    needs(root, "appliances_energy/energydata_complete.csv.gz")
    task = energy.load(energy.Config(problem="ridge"), "aligned", 27, 0, root)
    features = np.concatenate(task.features, axis=1)
    theta = convex.minimiser(task.objective, features, task.labels)
    gradient = features.T @ (features @ theta - task.labels) + 0.1 * theta
    assert np.abs(gradient).max() < 1e-12 and task.optimum == convex.value(task.objective, features, task.labels, theta)
    assert task.optimum == pytest.approx(0.4414866811643677, rel=1e-9)


@pytest.mark.parametrize(("variant", "rows", "columns", "yes"), [("additional", 41188, 20, 4640), ("full", 45211, 16, 5289)])
def test_bank(root, variant, rows, columns, yes):
    needs(root, bank.EDITIONS[variant].archive.path)
    task = bank.load(bank.Config(variant=variant), "aligned", columns, 0, root)
    features, labels = everything(task)
    assert task.source.variant == variant and task.parties == columns and len(features) == rows and labels.sum() == yes
    numbers = [i for i, name in enumerate(bank.EDITIONS[variant].columns) if name not in bank.EDITIONS[variant].levels]
    np.testing.assert_allclose([task.features[i].mean(dtype=np.float64) for i in numbers], 0, atol=1e-5)
    assert all((task.features[i].sum(axis=1) == 1).all() for i in range(columns) if i not in numbers)


def test_the_minimum_of_banks_sparse_form(root):
    needs(root, bank.EDITIONS["full"].archive.path)
    task = bank.load(bank.Config(variant="full", problem="sparse_logistic"), "aligned", 16, 0, root)
    features, signs = np.concatenate(task.features, axis=1), 2 * task.labels - 1
    theta = convex.minimiser(task.objective, features, task.labels)
    gradient = -(features.T @ (signs / (1 + np.exp(signs * (features @ theta))))) / len(signs)
    assert np.abs(gradient).max() <= 0.001 * (1 + 1e-7) and 10 < np.count_nonzero(theta) < features.shape[1]
    assert task.optimum == pytest.approx(0.25512735988045626, rel=1e-9)


def test_blog(root):
    needs(root, "blogfeedback/BlogFeedback.zip")
    task = blog.load(blog.Config(), "aligned", 10, 0, root)
    features, labels = everything(task)
    assert features.shape == (60021, 280) and [block.shape[1] for block in task.features] == [28] * 10
    assert labels.max() == 1424 and (labels == 0).mean() == pytest.approx(0.64, abs=0.02)
