"""What randomised labels cost and what they hide, on real Bank rows: the AUROC, and the labels that gradients tell."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

import vflbench
from tests.conftest import absent
from vflbench.data.sources import data_root

pytestmark = [pytest.mark.realdata, pytest.mark.slow]
BANK = [
    *("algorithm=vfl", "dataset=bank", "dataset.source=real", "dataset.samples=12000", "epochs=3"),
    *("algorithm.batch_size=256", "attack=label_inference", "attack.rows=7200", "plot=none", "floor=none", "seed=0"),
    "tuned/private@_global_=none",
]
# epsilon -> test AUROC, and how far another draw of labels may be from it
AUROC = {math.inf: (0.935, 0.01), 4.0: (0.936, 0.015), 2.0: (0.928, 0.015), 1.0: (0.883, 0.04)}


@pytest.fixture(autouse=True)
def bank() -> None:
    root = data_root(None)
    if root is None or not (root / "bank_marketing").is_dir():
        absent("Bank's files are not there")


@pytest.mark.parametrize("epsilon", AUROC)
def test_the_gradients_tell_as_many_labels_as_epsilon_allows(epsilon: float, tmp_path: Path) -> None:
    """The share that stayed, e^eps / (1 + e^eps): below epsilon 2 it is less than guessing the frequent class."""
    private = ["privacy=label_rr", f"privacy.epsilon={epsilon:g}"]
    found = vflbench.run([*BANK, *private, "engine.threads=1", f"hydra.run.dir={tmp_path / 'run'}"])
    attack, (expected, within) = found.summary["attack"], AUROC[epsilon]
    assert attack["rows"] == 7200 and attack["floor"] == pytest.approx(0.887, abs=0.001)
    assert attack["success_rate"] == pytest.approx(1 / (1 + math.exp(-epsilon)), abs=0.01)
    assert found.curve["test_auroc"].iloc[-1] == pytest.approx(expected, abs=within)
    assert (attack["success_rate"] < attack["floor"]) == (epsilon <= 2)
