"""Small trained runs that the tests of reports share."""

from __future__ import annotations

from pathlib import Path

import pytest

import vflbench

CONVEX = [
    "dataset=ridge",
    "dataset.samples=40",
    "dataset.features=24",
    "algorithm.parties=4",
    "topology=path",
    "engine.threads=1",
]


@pytest.fixture(scope="session")
def convex_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with SVFL (all through the server), STCD (a token among clients), MTCD (both), two seeds of each."""
    root = tmp_path_factory.mktemp("convex")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vflbench.plots.curves.draw_run", lambda folder, summary: None)
        for algorithm in ("svfl", "stcd", "mtcd"):
            for seed in (0, 1):
                folder = root / f"{algorithm}_{seed}"
                length = ["rounds=12", "eval_every=2"]
                vflbench.run([f"algorithm={algorithm}", *CONVEX, *length, f"seed={seed}", f"hydra.run.dir={folder}"])
    return root
