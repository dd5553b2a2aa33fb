"""scripts/gpu_check and `scripts/bench.py gpu`: refused by name without a GPU; what they do with one, on the CPU."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.pretended_gpu import PretendedGpu

ROOT = Path(__file__).resolve().parent.parent
TABLES = ["dataset=star_schema", "dataset.rows=300", "dataset.dimension_rows=60", "dataset.width=3"]
SMALL: dict[str, dict[str, Any]] = {
    "graph": {"rounds": 2, "words": ["dataset=digits_graph", "model.hidden=24", "algorithm.parties=2"]},
    "joins": {"rounds": 2, "words": TABLES},
    "tokens": {"rounds": 2, "words": TABLES},
    "split": {"rounds": 1, "words": [*TABLES, "model.width=8", "model.depth=3", "algorithm.batch_size=64"]},
    "gossip": {"count": 3, "batch": 4, "width": 5},
}


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    return importlib.import_module("benchmarks.gpu")


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script, with the pages of a copy."""
    loader = SourceFileLoader("gpu_check", str(ROOT / "scripts" / "gpu_check"))
    spec = importlib.util.spec_from_loader("gpu_check", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    shutil.copytree(ROOT / "docs" / "results", tmp_path / "docs" / "results")
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(sys, "path", [str(ROOT / "scripts"), *sys.path])
    return module


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "told"),
    [
        pytest.param(["gpu_check"], "gpu_check: no CUDA device: torch", id="gpu_check"),
        pytest.param(
            ["bench.py", "gpu"],
            "left out, as torch finds no CUDA device here: gpu",
            id="bench",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_without_a_gpu_they_refuse_by_name(command: list[str], told: str) -> None:
    page = ROOT / "docs" / "results" / "gpu.md"
    before = page.read_bytes(), page.stat().st_mtime_ns
    script = [sys.executable, str(ROOT / "scripts" / command[0]), *command[1:]]
    hidden = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}  # also where there is a GPU
    found = subprocess.run(script, capture_output=True, text=True, check=False, env=hidden)
    assert found.returncode == 1 and found.stderr.startswith(told) and not found.stdout
    assert (page.read_bytes(), page.stat().st_mtime_ns) == before


@pytest.mark.slow
@pytest.mark.parametrize("family", SMALL)
def test_every_family_is_timed(family: str, benchmark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(benchmark.FAMILIES) == set(SMALL)
    _, _, whole, bare = benchmark.FAMILIES[family]("cpu", **SMALL[family])
    assert whole > 0 and bare > 0
    with PretendedGpu() as gpu:
        _, _, whole, bare = benchmark.FAMILIES[family]("cuda", **SMALL[family])
    assert whole > 0 and bare > 0 and gpu.waits > 0
    assert gpu.products["cuda"] > 0 and gpu.products["cpu"] == 0


def test_what_was_found_becomes_the_page(
    check: Any, benchmark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "docs" / "results" / "gpu.md"
    assert "**Not measured on a GPU.**" in page.read_text()
    timing = benchmark.Timing("graph", "glasu", "cora (real)", 0.2, 0.05, 0.04)
    monkeypatch.setattr(benchmark, "gpu", lambda: [timing])
    tests, others = {"code": 1, "calls": 0}, subprocess.run

    def run(command: list[str], **options: Any) -> Any:
        if "pytest" not in command:
            return others(command, **options)
        assert command[command.index("pytest") :][2:4] == ["-m", "gpu"]
        tests["calls"] += 1
        return SimpleNamespace(returncode=tests["code"])

    before = page.read_bytes()
    with PretendedGpu():
        monkeypatch.setattr(check.subprocess, "run", run)
        assert check.main() == 1 and page.read_bytes() == before  # a test failed
        tests["code"] = 0
        monkeypatch.setattr(check, "driver", lambda: "999.1")
        assert check.main() == 0 and tests["calls"] == 2
    text = page.read_text()
    assert "Not measured" not in text and "| driver, CUDA | 999.1, " in text
    assert "| graph | GLASU | cora (real) | 200.00 | 50.00 | 40.00 | 4.00 | 1.25 |" in text
