"""The answer of choose and the values of tune, from Python and on DataFrames."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import vflbench
from vflbench.config import tuned
from vflbench.types import ConfigError, VflbenchError

EXAMPLES = Path(__file__).resolve().parents[2] / "examples/data"
SMALL = ["trials=1", "rounds=3", "engine.threads=1", "network=us_us"]


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    read = {name: pd.read_csv(EXAMPLES / f"{name}.csv") for name in ("hospital", "laboratory")}
    return vflbench.tables(read, "died", id="patient")


@pytest.mark.slow
def test_choose(data: Any, capsys: pytest.CaptureFixture[str]) -> None:
    found = vflbench.choose(["target=0.7", "algorithm=vfl_sgd", *SMALL], data=data)
    assert capsys.readouterr().out == "", "progress is told on stderr"
    assert found.answer == json.loads((found.folder / "answer.json").read_text()) and found.answer["reached"]
    assert found.table.name.tolist() == [found.answer["winner"]] == ["vfl_sgd"]
    first, second = repr(found).splitlines()
    assert first.startswith("Use VFL-SGD: auroc 0.7 with ") and second == str(found.folder)
    assert found.command is not None and "algorithm=vfl_sgd dataset=tabular_files" in found.command
    assert len(found.runs) == 3 and set(found.runs.table.status) == {"target_reached"}
    assert found.html().startswith("<!doctype html>") and "Use VFL-SGD" in found._repr_html_()
    with pytest.raises(VflbenchError):
        vflbench.choose(["target=0.7", "algorithm=vfl_sgd", *SMALL, f"out={found.folder}"], data=data)
    with pytest.raises(ConfigError) as caught:
        vflbench.choose(["targt=0.7", "trials=x"], data=data)
    assert [problem.key for problem in caught.value.problems][:3] == ["targt", "target", "trials"]
    with pytest.raises(ConfigError, match="dataset=cora: is set by data=: leave it out"):
        vflbench.choose(["target=0.7", "dataset=cora"], data=data)


@pytest.mark.slow
def test_tune(data: Any, tmp_path: Path) -> None:
    words = ["algorithm=vfl_sgd", *SMALL]
    found = vflbench.tune(words, out=tmp_path / "mine", data=data)
    assert found.file == tmp_path / "mine/tuned/vfl_sgd.yaml"
    assert tuned.read(found.file)["tabular_files"]["algorithm.lr"] == found.values["algorithm.lr"]
    assert found.table.best.sum() == 1 and set(found.values) <= set(found.table.columns)
    first, second = repr(found).splitlines()
    assert first.startswith("Tuned vfl_sgd on tabular_files, best of ") and second == str(found.file)
    assert "<table" in found._repr_html_()
    with pytest.raises(VflbenchError, match="already exists"):
        vflbench.tune(words, out=tmp_path / "mine", data=data)
