"""Every mechanism spends what was asked: at the end of a planned run within 1 % of its target, and never above it."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

import vflbench
from tests.every import few_fast
from vflbench.cli import command
from vflbench.privacy import mechanisms

GRAPH = ["dataset=digits_graph", "model.hidden=8", "rounds=6", "eval_every=6"]
COLUMNS = ["dataset=digits", "dataset.problem=learning", "rounds=2", "algorithm.learner=linear", "dataset.samples=300"]
SPLIT = ["dataset=bank", "dataset.source=synthetic", "dataset.samples=600", "epochs=2", "model.depth=2"]
WORKERS = ["algorithm.workers=2", "algorithm.passive_workers=2"]
TABLES = [
    *("dataset=star_schema", "dataset.rows=200", "dataset.dimension_rows=20", "dataset.width=3"),
    *("dataset.task=classes", "epochs=2", "algorithm.batch_size=64"),
]
TOKENS = [
    "dataset=breast_cancer",
    "dataset.problem=sparse_logistic",
    "algorithm.parties=3",
    "algorithm.lr=0.1",
    "rounds=5",
]
SHARDS = ["dataset=digits", "model.widths=[4]", "epochs=1"]

CASES = {
    "glasu gaussian_embedding": GRAPH,
    "glasu_exact gaussian_embedding": GRAPH,  # up, and back
    "simulated_centralized gaussian_embedding": GRAPH,
    "graph_once gaussian_embedding": GRAPH,
    "send_once gaussian_embedding": COLUMNS,
    "send_once gdp_embedding": COLUMNS,
    "send_once rr_bins": COLUMNS,
    "pubsub_vfl gdp_embedding": [*SPLIT, *WORKERS],
    "vfl_ps gdp_embedding": [*SPLIT, "algorithm.workers=3"],  # the workers' releases of a row add up
    "vfl gaussian_gradient": SPLIT,
    "avfl label_rr": SPLIT,
    "vfl embedding_and_label": SPLIT,
    "svfl gaussian_embedding": TOKENS,
    "mtcd gaussian_embedding": TOKENS,  # a client's releases are those of its own walk
    "stcd gaussian_embedding": TOKENS,
    "rfl_sgd_v label_dp": TABLES,
    "rfl_sgd_v dp_sgd": TABLES,
    "rfl_admm_v tablepuppet": TABLES,
    "vfl_sgd dp_sgd": [*TABLES, "privacy.split=[0.5,0.5]"],
    "gd_join tablepuppet": [*TABLES[:-1], "privacy.split=[0.3,0.7]"],
    "leasgd dp_sgd": [*SHARDS, "algorithm.workers=3"],
    **{f"{name} dp_sgd": [*SHARDS, "algorithm.workers=3"] for name in ("d_psgd", "choco_sgd", "powergossip")},
    # a worker's steps are those of the rounds in which it is sampled, or of its own clock
    "fedavg dp_sgd": [*SHARDS[:-1], "algorithm.workers=4", "rounds=6"],
    "leasgd_async dp_sgd": [*SHARDS[:-1], "algorithm.workers=3", "epochs=4"],
    "fedbuff dp_sgd": [*SHARDS[:-1], "algorithm.workers=3", "epochs=2"],  # all get as many models
}

FAST = {"send_once rr_bins", "vfl embedding_and_label"}
EVERY = [pytest.param(case, marks=[] if case in FAST else [pytest.mark.slow]) for case in CASES]


def spent(folder: Path, case: str, *more: str) -> dict:
    algorithm, mechanism = case.split()
    words = [f"algorithm={algorithm}", f"privacy={mechanism}", *CASES[case], *more]
    ended = vflbench.run([*words, "plot=none", "floor=none", "engine.threads=1", f"hydra.run.dir={folder}"])
    assert ended.summary["status"] == "completed"
    return ended.summary["privacy"]


@pytest.mark.parametrize("case", EVERY)
def test_what_was_asked_is_spent(case: str, tmp_path: Path) -> None:
    found = spent(tmp_path, case, "privacy.epsilon=2")
    assert found["target"] == {"epsilon": 2.0} and 1.98 <= found["epsilon"] <= 2 * (1 + 1e-12)
    assert found["spent_of_target"] == pytest.approx(found["epsilon"] / 2, rel=1e-12)
    assert found["releases"]["planned"] == found["releases"]["done"] > 0
    assert found["not_covered"][-1] == mechanisms.TIMES and found["covers"] in ("model", "transcript")
    always = ("delta", "mu", "unit", "neighbouring", "accountant", "noise_multiplier", "clip")
    assert found.keys() >= set(always) and "clipped_share" not in found


@pytest.mark.slow
@pytest.mark.parametrize("case", ["glasu gaussian_embedding", "pubsub_vfl gdp_embedding"])
def test_a_target_mu_is_spent(case: str, tmp_path: Path) -> None:
    found = spent(tmp_path, case, "privacy.mu=1", "privacy.delta=1e-5")
    assert found["target"] == {"mu": 1.0} and found["mu"] == pytest.approx(1, rel=1e-12)
    assert found["epsilon"] == pytest.approx(4.377, abs=1e-3)


@pytest.mark.slow
def test_two_epochs_of_bank_need_noise_for_two_publications(tmp_path: Path) -> None:
    """Retries cost nothing: 2 sqrt(2) C_z, where four publications needed 4 C_z."""
    found = spent(tmp_path, "pubsub_vfl gdp_embedding", "privacy.mu=1")
    assert found["noise_multiplier"] == pytest.approx(2 * math.sqrt(2)) and found["noise_multiplier"] <= 2.83
    assert found["releases"] == {"planned": 2, "done": 2} and found["spent_of_target"] == pytest.approx(1, abs=0.01)


@pytest.mark.slow
def test_a_dry_run_says_how_loud_the_noise_is(capsys: pytest.CaptureFixture[str]) -> None:
    """Noise of s sqrt(d) / C, over the longest row; on Cora it was above 100."""
    words = [*COLUMNS, "algorithm=send_once", "algorithm.form=raw", "dry_run=true", "privacy=gaussian_embedding"]
    for noise, loud in ((1, False), (2, True)):  # rows of 32 numbers
        assert command([*words, f"privacy.noise_multiplier={noise}"]) == 0
        said = capsys.readouterr().out
        assert f"gets noise {noise * math.sqrt(32):.3g} times as long as the longest row" in said
        assert ("warning: above 10 little can be learnt" in said) == loud
    assert command([*words[:-1]]) == 0
    assert "noise to signal" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "case", few_fast({case.split()[1]: case for case in reversed(CASES)}.values())
)  # one of each mechanism
def test_an_infinite_budget_clips_and_guarantees_nothing(case: str, tmp_path: Path) -> None:
    found = spent(tmp_path, case, "privacy.epsilon=inf")
    assert (
        found["epsilon"] == math.inf and found["target"] == {"epsilon": math.inf} and found["spent_of_target"] is None
    )
    if found["noise_multiplier"] is not None:
        assert found["noise_multiplier"] == 0


@pytest.mark.slow
def test_the_default_is_epsilon_8_at_a_delta_below_one_over_the_rows(tmp_path: Path) -> None:
    found = spent(tmp_path, "graph_once gaussian_embedding")
    assert found["target"] == {"epsilon": 8.0} and found["epsilon"] == pytest.approx(8, rel=1e-6)
    assert found["delta"] == 1e-4  # 1,797 nodes: 10^-ceil(log10(1.1 * 1797))
    given = spent(tmp_path / "given", "graph_once gaussian_embedding", "privacy.noise_multiplier=3")
    assert given["target"] is None and given["spent_of_target"] is None and given["mu"] == pytest.approx(2 / 3)
    assert given["noise_multiplier"] == 3 and math.isfinite(given["epsilon"])
