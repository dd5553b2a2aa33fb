"""What int8 costs on real data, one seed of each preset in conf/experiment/codecs/; by validation, as everything that
is chosen.

Measured over seeds 5, 6, 7: GLASU on Cora loses 0.5 to 1.7 points of validation accuracy at 27% of the bytes. Over
seeds 0, 1, 2: RFL-ADMM-V on MovieLens loses 0.0000 of RMSE at 25% of the rounds' bytes.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import vflbench
from vflbench.results.reader import Run

pytestmark = [pytest.mark.slow, pytest.mark.minutes, pytest.mark.realdata]


def pair(folder: Path, data: Path, *words: str) -> tuple[Run, Run]:
    common = [*words, "dataset.source=real", f"data_root={data}", "engine.threads=1", "plot=none"]
    plain, coded = (
        vflbench.run([*common, f"codec={codec}", f"hydra.run.dir={folder / codec}"]) for codec in ("none", "int8")
    )
    assert plain.summary["data_source"] == coded.summary["data_source"] != "synthetic"
    lacks = "100,000 of 1,000,209 ratings" if plain.summary["dataset"] == "movielens" else None
    assert plain.summary.get("data_lacks") == lacks
    return plain, coded


def rounds_bytes(run: Run) -> int:
    """Without the hand-over of keys and labels before the first round, which no codec touches."""
    return int(run.ledger.query("round > 0")["bytes"].sum())


def validation(run: Run) -> float:
    value: float = run.summary["metric"]["selected_validation"]
    return value


def test_glasu_on_cora_within_three_points_at_27_percent_of_the_bytes(shared_data: Path, tmp_path: Path) -> None:
    plain, coded = pair(tmp_path, shared_data, "algorithm=glasu", "dataset=cora", "seed=5", "rounds=40")
    assert validation(coded) >= validation(plain) - 0.03
    assert 0.25 < rounds_bytes(coded) / rounds_bytes(plain) < 0.28  # ids of nodes stay 8 bytes


def test_learning_over_joins_within_a_thousandth_at_a_quarter_of_the_bytes(shared_data: Path, tmp_path: Path) -> None:
    plain, coded = pair(tmp_path, shared_data, "algorithm=rfl_admm_v", "dataset=movielens", "seed=0")
    assert validation(coded) <= validation(plain) + 0.001
    assert rounds_bytes(coded) / rounds_bytes(plain) == pytest.approx(0.25, abs=0.001)
