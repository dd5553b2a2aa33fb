"""Defaults that do not fit the data are adapted, with a word and in the manifest; what was typed never is."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import vflbench
from vflbench import config
from vflbench.results.reader import Run
from vflbench.types import ConfigError

SMALL = ["dataset=breast_cancer", "dataset.problem=learning", "dataset.samples=100"]
CONVEX = ["dataset=ridge", "dataset.samples=40", "dataset.features=24"]


def run(folder: Path, *words: str) -> Run:
    return vflbench.run([*words, "plot=none", "rounds=1", f"hydra.run.dir={folder}"])


@pytest.mark.slow
def test_more_parties_than_columns(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """These data have 24 columns, and svfl wants 40 parties."""
    with caplog.at_level(logging.WARNING):
        adapted = run(tmp_path / "default", "algorithm=svfl", *CONVEX)
    assert adapted.manifest["adapted"] == {"algorithm.parties": {"default": 40, "used": 24}}
    assert adapted.summary["adapted"] == adapted.manifest["adapted"]
    assert adapted.manifest["layers"]["algorithm.parties"] == {"layer": "adapted", "from": "the data"}
    assert adapted.manifest["layers"]["algorithm"] == {"layer": "typed", "from": "the command line"}
    assert "algorithm.parties=24: its default, 40, does not fit ridge" in caplog.text
    typed = run(tmp_path / "typed", "algorithm=svfl", "algorithm.parties=24", *CONVEX)
    assert "adapted" not in typed.manifest
    for name in ("curve.csv", "ledger.parquet"):
        assert (tmp_path / "default" / name).read_bytes() == (tmp_path / "typed" / name).read_bytes()
    with pytest.raises(ConfigError, match=r"algorithm\.parties=40: must lie between 1 and 24"):
        run(tmp_path / "refused", "algorithm=svfl", "algorithm.parties=40", *CONVEX)


@pytest.mark.slow
def test_a_batch_larger_than_the_rows_and_more_workers_than_batches(tmp_path: Path) -> None:
    small = [*SMALL, "model.width=4", "model.depth=2"]
    adapted = run(tmp_path / "default", "algorithm=vfl_ps", *small)
    assert adapted.manifest["adapted"] == {
        "algorithm.batch_size": {"default": 256, "used": 60},
        "algorithm.workers": {"default": 8, "used": 1},
    }
    typed = run(tmp_path / "typed", "algorithm=vfl_ps", "algorithm.batch_size=60", "algorithm.workers=1", *small)
    assert (tmp_path / "default/ledger.parquet").read_bytes() == (tmp_path / "typed/ledger.parquet").read_bytes()
    assert typed.curve.equals(adapted.curve)
    with pytest.raises(ConfigError, match=r"algorithm\.batch_size=256: there are 60 training rows"):
        run(tmp_path / "refused", "algorithm=vfl_ps", "algorithm.batch_size=256", *small)


@pytest.mark.slow
def test_rows_that_are_sent_once_are_a_networks_batch_at_most(tmp_path: Path) -> None:
    small = ["algorithm=send_once", *SMALL, "floor=none"]
    adapted = run(tmp_path / "model", *small, "algorithm.learner=model", "model.width=4", "model.depth=2")
    assert adapted.manifest["adapted"] == {"algorithm.batch_size": {"default": 256, "used": 60}}
    assert "adapted" not in run(tmp_path / "trees", *small).manifest  # which have no batches


@pytest.mark.slow
def test_the_number_of_files_is_the_number_of_parties(tmp_path: Path) -> None:
    """Also where the default is too small, and where one file has fewer features."""
    rng, files = np.random.default_rng(0), []
    for i in range(3):
        table = pd.DataFrame(rng.normal(size=(40, 2)), columns=[f"a{i}", f"b{i}"])
        if i == 0:
            table["y"] = np.arange(40) % 2
        files.append(tmp_path / f"{i}.csv")
        table.to_csv(files[-1], index=False)
    small = ["dataset=tabular_files", "dataset.label=y", "model.width=4", "model.depth=2"]
    named = f"dataset.files=[{','.join(map(str, files))}]"
    made = run(tmp_path / "several", "algorithm=vfl", *small, named)
    assert made.manifest["adapted"]["algorithm.parties"] == {"default": 2, "used": 3}
    one = run(tmp_path / "one", "algorithm=svfl", *small[:2], f"dataset.files=[{files[0]}]")
    assert one.manifest["adapted"] == {"algorithm.parties": {"default": 40, "used": 2}}
    table = pd.read_csv(files[0]).assign(same=1, note=[f"note {i}" for i in range(40)])  # neither is a feature
    table.to_csv(files[0], index=False)
    one = run(tmp_path / "others", "algorithm=svfl", *small[:2], f"dataset.files=[{files[0]}]")
    assert one.manifest["adapted"] == {"algorithm.parties": {"default": 40, "used": 2}}


def test_what_a_file_of_the_user_or_a_command_says_is_no_default(tmp_path: Path) -> None:
    (tmp_path / "algorithm").mkdir()
    (tmp_path / "algorithm" / "svfl.yaml").write_text(
        "defaults:\n  - override /model@_global_.model: auto\nname: svfl\nparties: 40\n"
    )
    for folder, words, expected in (
        (None, [], {"algorithm.parties", "algorithm.batch_size"}),
        (None, ["algorithm.parties=40"], {"algorithm.batch_size"}),
        (tmp_path, [], set()),
    ):
        typed = ["algorithm=svfl", "dataset=ridge", *words]
        with config.session(typed, folder) as hydra:
            assert config.layers.untyped(config.compose(hydra, typed).hydra) == expected
