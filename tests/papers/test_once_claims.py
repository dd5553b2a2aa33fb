"""What is sent once, on real data: the figures that were measured before the methods were written.

They were measured with throw-away programs: trees on Bank over seeds 0 to 2, and heads on propagated features of Cora
over seeds 5 to 9. One seed of each is trained here, so that bounds on Cora are 2.5 points wider than those on means.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import vflbench
from vflbench.results.reader import Run

pytestmark = [pytest.mark.slow, pytest.mark.realdata]
ROWS, COLUMNS, BITS = 24_713, 12, 42  # of Bank's training rows, the passive party's columns, and a row in 32 bins


@pytest.fixture
def train(shared_data: Path, tmp_path: Path):
    def run(*words: str) -> Run:
        common = ["dataset.source=real", f"data_root={shared_data}", "engine.threads=1", "plot=none", "floor=none"]
        return vflbench.run([*words, *common, f"hydra.run.dir={tmp_path / 'run'}"])

    return run


@pytest.mark.parametrize(
    ("words", "auroc", "within", "size"),
    [
        (["algorithm.form=bins"], 0.9487, 0.004, COLUMNS + -(-ROWS * BITS // 8)),
        # about the upper quartile of the rows' norms
        (["algorithm.form=raw", "privacy=gdp_embedding", "privacy.mu=4", "privacy.clip=3.2"], 0.908, 0.015, None),
    ],
    ids=["bins", "noise"],
)
def test_bank(train, words: list[str], auroc: float, within: float, size: int | None) -> None:
    summary = train("algorithm=send_once", "dataset=bank", "seed=0", *words).summary
    assert abs(summary["metric"]["selected"] - auroc) <= within and summary["one_shot"]["chosen"] == "joint"
    assert size is None or summary["bytes"]["total"] == size
    assert size is None or summary["messages"] == 1


def test_propagated_features_of_cora(train) -> None:
    head = ["algorithm.schedule=none", "algorithm.weight_decay=0.001", "model.dropout=0.3"]
    words = ["algorithm=graph_once", "algorithm.form=propagated", "dataset=cora", "seed=5", *head]
    summary = train(*words, "rounds=200", "eval_every=1").summary
    assert abs(summary["metric"]["selected"] - 0.812) <= 0.015 + 0.025
    features = 4 * 3 * 2708 * 16  # three clients, sixteen components of every node
    assert summary["bytes"]["by_tag"] == {"features": features, "labels": 2 * 7 * 60}


def test_raw_features_and_edges_of_cora(train) -> None:
    summary = train("algorithm=graph_once", "dataset=cora", "seed=5").summary
    assert abs(summary["metric"]["selected"] - 0.838) <= 0.015 + 0.025
    assert abs(summary["bytes"]["total"] - 0.181e6) < 0.003e6
