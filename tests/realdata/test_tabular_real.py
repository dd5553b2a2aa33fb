"""The tabular data sets on their real files: counts as published, the convex forms' minima by their own conditions."""

import gzip
import io
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.conftest import absent
from tests.every import few_fast
from tests.options import card_of
from vflbench.cards.data.tabular import bank as bank_card
from vflbench.cards.data.tabular import blog as blog_card
from vflbench.cards.data.tabular import criteo as criteo_card
from vflbench.cards.data.tabular import energy as energy_card
from vflbench.cards.data.tabular import tabular_files as tabular_files_card
from vflbench.data.divide.splits import split_rows
from vflbench.data.readers import csv_files
from vflbench.data.tabular import bank, blog, convex, criteo, energy, sets, tabular_files

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
        io.BytesIO(gzip.decompress((root / "appliances_energy/energydata_complete.csv.gz").read_bytes())),
        skipinitialspace=True,
    )
    made = energy.read(
        [(gzip.decompress((root / "appliances_energy/energydata_complete.csv.gz").read_bytes()), "energy")]
    )
    np.testing.assert_allclose(made.values, frame.drop(columns=["date", "Appliances"]).astype(float), rtol=1e-12)
    np.testing.assert_array_equal(made.labels, frame["Appliances"].astype(float))
    task = energy.load(energy_card.Config(), "aligned", 2, 0, root)
    assert task.source.kind == "real" and [len(task.labels), len(task.truth("val")), len(task.truth("test"))] == [
        11841,
        1974,
        5920,
    ]
    rows, labels = everything(task)
    assert rows.shape == (19735, 27) and labels.mean() == pytest.approx(97.695, abs=0.001)


def test_the_minimum_of_energys_ridge_form(root):
    needs(root, "appliances_energy/energydata_complete.csv.gz")
    task = energy.load(energy_card.Config(problem="ridge"), "aligned", 27, 0, root)
    features = np.concatenate(task.features, axis=1)
    theta = convex.minimiser(task.objective, features, task.labels)
    gradient = features.T @ (features @ theta - task.labels) + 0.1 * theta
    assert np.abs(gradient).max() < 1e-12 and task.optimum == convex.value(task.objective, features, task.labels, theta)
    assert task.optimum == pytest.approx(0.4414866811643677, rel=1e-9)


@pytest.mark.parametrize(
    ("variant", "rows", "columns", "yes"), few_fast([("additional", 41188, 20, 4640), ("full", 45211, 16, 5289)])
)
def test_bank(root, variant, rows, columns, yes):
    needs(root, bank.EDITIONS[variant].archive.path)
    task = bank.load(bank_card.Config(variant=variant), "aligned", columns, 0, root)
    features, labels = everything(task)
    assert task.source.variant == variant and task.parties == columns and len(features) == rows and labels.sum() == yes
    numbers = [i for i, name in enumerate(bank.EDITIONS[variant].columns) if name not in bank.EDITIONS[variant].levels]
    np.testing.assert_allclose([task.features[i].mean(dtype=np.float64) for i in numbers], 0, atol=1e-5)
    assert all((task.features[i].sum(axis=1) == 1).all() for i in range(columns) if i not in numbers)


@pytest.mark.slow
def test_the_minimum_of_banks_sparse_form(root):
    needs(root, bank.EDITIONS["full"].archive.path)
    task = bank.load(bank_card.Config(variant="full", problem="sparse_logistic"), "aligned", 16, 0, root)
    features, signs = np.concatenate(task.features, axis=1), 2 * task.labels - 1
    theta = convex.minimiser(task.objective, features, task.labels)
    gradient = -(features.T @ (signs / (1 + np.exp(signs * (features @ theta))))) / len(signs)
    assert np.abs(gradient).max() <= 0.001 * (1 + 1e-7) and 10 < np.count_nonzero(theta) < features.shape[1]
    assert task.optimum == pytest.approx(0.25512735988045626, rel=1e-9)


@pytest.mark.slow
def test_blog(root):
    needs(root, "blogfeedback/BlogFeedback.zip")
    task = blog.load(blog_card.Config(), "aligned", 10, 0, root)
    features, labels = everything(task)
    assert features.shape == (60021, 280) and [block.shape[1] for block in task.features] == [28] * 10
    assert labels.max() == 1424 and (labels == 0).mean() == pytest.approx(0.64, abs=0.02)


@pytest.mark.slow
def test_criteo(root, monkeypatch):
    """The sample's lines as pandas reads them; the first ones are read with a small block, too."""
    needs(root, "criteo_sample/train.txt")
    frame = pd.read_csv(
        root / "criteo_sample/train.txt", sep="\t", header=None, dtype=dict.fromkeys(range(14, 40), str)
    )
    task = criteo.load(criteo_card.Config(variant="sample"), "aligned", 2, 0, root)
    assert (task.source.kind, task.source.variant) == ("partial", "sample") and "not the benchmark" in task.source.note
    assert [block.shape[1] for block in task.features] == [13 + 128, 128]
    splits = split_rows(8000, 0.1, 0.3, 0)
    order = np.concatenate([splits[split] for split in ("train", "val", "test")])
    rows, labels = everything(task)
    np.testing.assert_array_equal(labels, frame[0].to_numpy()[order])
    assert labels.sum() == 1728
    logs = frame[range(1, 14)].apply(lambda x: np.sign(x) * np.log1p(x.abs())).to_numpy()
    fitted = logs[splits["train"]]
    expected = np.nan_to_num((logs - np.nanmean(fitted, axis=0)) / np.nanstd(fitted, axis=0))[order]
    np.testing.assert_allclose(rows[:, :13], expected, atol=1e-4)
    assert (rows[:, 13:141].sum(axis=1) == 7).all() and (rows[:, 141:].sum(axis=1) == 19).all()  # C1 to C7; C8 to C26
    rare = frame[14].map(frame[14].value_counts())[order].to_numpy()
    tokens = pd.Series(frame[14][order].to_numpy())
    alone = criteo.load(criteo_card.Config(variant="sample", columns=[13, 1, 25], hashed=4096), "aligned", 3, 0, root)
    first = np.concatenate([alone.features[1], *(blocks[1] for blocks in alone.held_out_features.values())])
    assert tokens.groupby(first.argmax(axis=1)).nunique().max() <= 3 and first[rare > 1].sum() == (rare > 1).sum()
    monkeypatch.setattr(csv_files, "BLOCK", 100_000)
    again = criteo.load(criteo_card.Config(variant="sample", samples=7999), "aligned", 2, 0, root)
    assert again.public.samples == 4799 and sum(map(len, [again.labels, *again.held_out_labels.values()])) == 7999


@pytest.mark.parametrize("parties", few_fast([2, 10]))
@pytest.mark.parametrize(
    ("module", "columns"),
    [(energy, 27), pytest.param(blog, 280, marks=pytest.mark.slow), (bank, 20)],
    ids=["energy", "blog", "bank"],
)
def test_two_and_ten_parties_have_all_columns_between_them(root, module, columns, parties):
    needs(root, {energy: "appliances_energy", blog: "blogfeedback", bank: "bank_marketing/bank-additional.zip"}[module])
    given = [1] * (parties - 1) + [columns - parties + 1]
    alone = module.load(card_of(module).Config(), "aligned", 1, 0, root)
    for config in (card_of(module).Config(), card_of(module).Config(columns=given)):
        task = module.load(config, "aligned", parties, 0, root)
        assert task.parties == parties and task.source.kind == "real"
        np.testing.assert_array_equal(np.concatenate(task.features, axis=1), alone.features[0])
        np.testing.assert_array_equal(
            np.concatenate(task.held_out_features["test"], axis=1), alone.held_out_features["test"][0]
        )
    assert module is bank or [block.shape[1] for block in task.features] == given


@pytest.mark.slow
def test_the_users_own_file(root, tmp_path):
    """Bank's file read as a stranger's: the same columns, levels and numbers as its own reader gives."""
    needs(root, bank.EDITIONS["full"].archive.path)
    edition = bank.EDITIONS["full"]
    text = sets.member((root / edition.archive.path).read_bytes(), "bank", edition.member)
    pd.read_csv(io.BytesIO(text), sep=";").to_csv(tmp_path / "calls.csv", index=False)
    mine = tabular_files.load(
        tabular_files_card.Config(files=["calls.csv"], label="y", stratify="none"), "aligned", 2, 0, tmp_path
    )
    theirs = bank.load(bank_card.Config(variant="full"), "aligned", 2, 0, root)
    np.testing.assert_array_equal(mine.labels, theirs.labels)
    assert mine.metric == theirs.metric and [block.shape for block in mine.features] == [
        block.shape for block in theirs.features
    ]
    for own, other in zip(mine.features, theirs.features, strict=True):  # levels stand in another order
        np.testing.assert_allclose(np.sort(own.sum(axis=0)), np.sort(other.sum(axis=0)), atol=0.05)
        np.testing.assert_allclose(np.sort(own, axis=1), np.sort(other, axis=1), atol=1e-6)
