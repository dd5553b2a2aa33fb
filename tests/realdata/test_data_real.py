"""The data room on real files: VFLBENCH_DATA, else the folder shared/data beside the checkout."""

import os
from pathlib import Path

import numpy as np
import pytest

from vflbench.cards.data.graph import herigraph as herigraph_card
from vflbench.cards.data.graph import planetoid as planetoid_card
from vflbench.data import sources
from vflbench.data.graph import herigraph, planetoid
from vflbench.types import DataError

pytestmark = pytest.mark.realdata


@pytest.fixture
def root(monkeypatch) -> Path:
    """The real data. Nothing is ever downloaded into it here."""
    folder = Path(os.environ.get("VFLBENCH_DATA") or Path(__file__).parents[3] / "shared" / "data")
    if not folder.is_dir():
        pytest.skip("no real data: set VFLBENCH_DATA")

    def refuse(url, seconds):
        raise OSError("no network in tests")

    monkeypatch.setattr(sources, "_connect", refuse)
    return folder


def needs(root: Path, option: str, found: str) -> None:
    """Skip where this data_root holds more or less than the test is about."""
    row = next(row for row in sources.status(root) if row.option == option)
    if row.found != found:
        pytest.skip(f"{option} is {row.found} here")


def test_cora_is_cora(root):
    needs(root, "cora", "real")
    task = planetoid.load(planetoid_card.Config(split="public"), "graph", 3, 0, root)
    joined = task.joined()
    assert task.source.kind == "real" and len(task.source.files) == 8
    assert joined.features.shape == (2708, 1433) and task.classes == 7
    assert task.all_edges.shape == (2, 2 * 5278)
    assert [len(task.splits[name]) for name in ("train", "val", "test")] == [140, 500, 1000]
    np.testing.assert_array_equal(task.splits["test"], np.arange(1708, 2708))
    assert np.bincount(task.labels).tolist() == [351, 217, 418, 818, 426, 298, 180]
    assert set(np.unique(joined.features)) == {0, 1} and joined.features.sum() == 49216
    agree = (task.labels[task.all_edges[0]] == task.labels[task.all_edges[1]]).mean()
    assert agree == pytest.approx(0.81, abs=0.005)


def test_coras_random_split_is_the_papers(root):
    needs(root, "cora", "real")
    task = planetoid.load(planetoid_card.Config(), "graph", 3, 0, root)
    assert np.bincount(task.labels[task.splits["train"]]).tolist() == [60] * 7
    assert [len(task.splits[name]) for name in ("val", "test")] == [500, 1000]
    assert [block.shape[1] for block in task.features] == [478, 478, 477]
    for edges in task.edges:
        assert edges.shape[1] / task.all_edges.shape[1] == pytest.approx(0.8, abs=0.03)


def test_coras_nodes_are_in_the_standard_order(root):
    """Test rows stand where test.index puts them, everything else in the order of allx."""
    needs(root, "cora", "real")
    task = planetoid.load(planetoid_card.Config(split="public"), "graph", 1, 0, root)
    degrees = np.bincount(task.all_edges[0], minlength=2708)
    assert degrees.max() == 168 and degrees.argmax() == 1358 and degrees.min() == 1
    assert task.labels[:10].tolist() == [3, 4, 4, 0, 3, 2, 0, 3, 3, 2]


def test_pubmeds_partial_files_are_an_error_that_names_the_missing_one(root):
    needs(root, "pubmed", "missing")
    with pytest.raises(DataError) as error:
        planetoid.load(planetoid_card.Config(name="pubmed"), "graph", 3, 0, root)
    assert "missing planetoid/PubMed/raw/ind.pubmed.allx." in str(error.value) and "dataset.source=synthetic" in str(
        error.value
    )


def test_venice_is_partial(root, caplog):
    needs(root, "venice", "partial")
    task = herigraph.load(herigraph_card.Config(name="venice"), "graph", 3, 0, root)
    assert task.source.kind == "partial" and "MADE UP" in task.source.note and "PARTIAL DATA" in caplog.text
    # without self-loops
    assert [edges.shape[1] for edges in task.edges] == [501191 - 2951, 488103 - 2951, 445779 - 2951]
    assert task.all_edges.shape[1] == 1071977 - 2951  # the union is the repository's own A_simp
    assert [block.shape for block in task.features] == [(2951, 512), (2951, 365), (2951, 102)]
    assert np.bincount(task.labels[task.labels >= 0]).tolist() == [196, 392, 28, 65, 177, 274, 188, 8, 28]
    with pytest.raises(DataError, match=r"Visual_Features\.csv"):
        herigraph.load(herigraph_card.Config(name="venice", source="real"), "graph", 3, 0, root)


@pytest.mark.parametrize("city", ["suzhou", "amsterdam"])
def test_cities_without_graphs_are_an_error_that_names_them(root, city):
    needs(root, city, "missing")
    with pytest.raises(DataError, match=rf"{city.capitalize()}/Edge_List\.csv.*dataset\.source=synthetic"):
        herigraph.load(herigraph_card.Config(name=city), "graph", 3, 0, root)
