"""The registry: names found by listing the rooms and by entry points, whose modules are imported."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest

from vflbench import registry
from vflbench.types import AlgorithmInfo, DatasetInfo, VflbenchError


def test_the_first_common_layout_is_the_algorithms() -> None:
    algorithm = AlgorithmInfo("a", "", "", layouts=("aligned", "graph"), divided_by=None, reports=())
    assert registry.fit(algorithm, DatasetInfo("d", "", layouts=("graph", "aligned"))) == "aligned"
    assert registry.fit(algorithm, DatasetInfo("d", "", layouts=("relational",))) is None


@pytest.mark.usefixtures("toy")
def test_a_plugin_of_one_module_is_listed_and_is_its_own_card() -> None:
    assert registry.algorithms()["toy"].layouts == ("graph",)
    assert {"toy_graph", "toy_rows"} < set(registry.datasets())
    module = registry.load_algorithm("toy")
    assert registry.card("algorithm", "toy") is module and registry.option_config("algorithm", "toy")().parties == 3


@pytest.mark.usefixtures("toy")
def test_an_unknown_name_is_told_with_the_closest() -> None:
    with pytest.raises(VflbenchError, match="did you mean 'toy'"):
        registry.load_algorithm("toyy")
    with pytest.raises(VflbenchError, match="did you mean 'toy'"):
        registry.load_algorithm("TOY")


def test_packages_that_name_us_are_those_that_importlib_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without any, importlib.metadata is not asked: that would take a third of the time of `vflbench list`."""
    named = any(group.startswith("vflbench.") for group in importlib.metadata.entry_points().groups)
    assert registry._announced() == named
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.syspath_prepend("x" * 5000)  # importlib.metadata passes over it
    metadata = tmp_path / "other-1.0.dist-info"
    metadata.mkdir()
    (metadata / "entry_points.txt").write_text("[console_scripts]\nother = vflbench.cli:main\n")
    assert registry._announced() == named
    (metadata / "entry_points.txt").write_text("[console_scripts]\nother = o:o\n[vflbench.codecs]\nother = other\n")
    assert registry._announced()


def test_a_broken_plugin_is_left_out_and_a_name_taken_twice_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = registry.dataset_entries()
    monkeypatch.syspath_prepend(str(tmp_path))
    metadata = tmp_path / "other-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    points = metadata / "entry_points.txt"
    points.write_text("[vflbench.datasets]\nx = no_such_package.data\n")
    registry.entry_points.cache_clear()
    assert registry.dataset_entries.__wrapped__() == found
    assert "no_such_package.data is left out" in caplog.text
    points.write_text("[vflbench.datasets]\nx = half_written\ny = computed\n")
    (tmp_path / "half_written.py").write_text("DATASETS = (\n")
    (tmp_path / "computed.py").write_text("DATASETS = make()\n")
    registry.entry_points.cache_clear()
    assert registry.dataset_entries.__wrapped__() == found
    assert "half_written is left out" in caplog.text and "computed is left out" in caplog.text
    points.write_text("[vflbench.datasets]\nx = licensed\n")
    (tmp_path / "licensed.py").write_text("print('looking for a licence')\nraise SystemExit('there is no licence')\n")
    registry.entry_points.cache_clear()
    assert registry.dataset_entries.__wrapped__() == found
    assert "licensed is left out: there is no licence" in caplog.text and not capsys.readouterr().out
    (tmp_path / "other_data.py").write_text(
        "from vflbench.types import DatasetInfo\n\n"
        'DATASETS = (DatasetInfo(name="cora", summary="", layouts=("graph",)),)\n'
    )
    points.write_text("[vflbench.datasets]\nx = other_data\n")
    registry.entry_points.cache_clear()
    with pytest.raises(VflbenchError, match="'cora' is taken twice"):
        registry.dataset_entries.__wrapped__()
    monkeypatch.undo()
    registry.entry_points.cache_clear()
