"""The figures of the attacks on real data, without privacy: what EXPOSES calls implied is found whole, or nearly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import vflbench

pytestmark = [pytest.mark.slow, pytest.mark.realdata]


def attacked(data: Path, folder: Path, *words: str) -> dict[str, Any]:
    where = [f"data_root={data}", "dataset.source=real", "engine.threads=1", "plot=none", "floor=none"]
    run = vflbench.run([*words, *where, f"hydra.run.dir={folder}"])
    found: dict[str, Any] = run.summary["attack"]
    assert run.summary["data_source"] in ("real", "partial") and found["interval"][0] > 0
    return found


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_labels_of_bank_from_the_first_epoch(shared_data: Path, tmp_path: Path, seed: int) -> None:
    own = ["attack=label_inference", "attack.epochs=1", "attack.rows=20000", "epochs=1", f"seed={seed}"]
    paper = "tuned@_global_=none"  # a larger tuned rate leaves labels a little less plain: 0.98
    found = attacked(shared_data, tmp_path, "algorithm=vfl", "dataset=bank", paper, *own)
    assert found["success"] >= 0.99 and found["auroc"] >= 0.99 and found["floor"] < 0.9


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(
    ("algorithm", "dataset"), [("rfl_admm_v", "movielens"), ("gd_join", "movielens"), ("rfl_admm_v", "mimic3")]
)
def test_all_sums_of_labels(algorithm: str, dataset: str, shared_data: Path, tmp_path: Path, seed: int) -> None:
    words = [f"algorithm={algorithm}", f"dataset={dataset}", "attack=residual_labels", "rounds=1", f"seed={seed}"]
    found = attacked(shared_data, tmp_path, *words)
    assert found["success"] == 1.0 and len(found["clients"]) == (3 if dataset == "movielens" else 5)
    for client in found["clients"].values():  # every table, that with the labels, too
        assert client["success"] == 1.0 and client["singles"]["success"] in (1.0, None)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_all_rows_of_energy(shared_data: Path, tmp_path: Path, seed: int) -> None:
    words = ["algorithm=svfl", "algorithm.parties=4", "dataset=energy", "dataset.problem=ridge", "rounds=1"]
    found = attacked(shared_data, tmp_path, *words, "attack=gram_recovery", f"seed={seed}")
    assert found["success"] >= 0.999 and found["rows"] > 19_000
    assert all(client["r2"] >= 0.999 for client in found["clients"].values())


@pytest.mark.parametrize(("source", "rounds", "least"), [("ids", 250, 0.93), ("embeddings", 400, 0.8)])
def test_edges_of_cora(source: str, rounds: int, least: float, shared_data: Path, tmp_path: Path) -> None:
    words = ["algorithm=glasu", "dataset=cora", f"rounds={rounds}", f"eval_every={rounds}", "attack=edge_inference"]
    found = attacked(shared_data, tmp_path, *words, f"attack.source={source}", "seed=0")
    assert found["success"] >= least


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_shares_of_digits(shared_data: Path, tmp_path: Path, seed: int) -> None:
    shards = ["dataset=digits", "dataset.sharding=dirichlet", "dataset.dirichlet_alpha=0.5"]
    words = ["algorithm=allreduce_sgd", *shards, "attack=label_histogram", "rounds=1", f"seed={seed}"]
    found = attacked(shared_data, tmp_path, *words)
    assert len(found["clients"]) == 4
    assert all(client["distance"] <= 0.5 * client["uniform"] for client in found["clients"].values())
