"""The ensemble: networks of clients alone, whose log-probabilities are added up."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import vflbench
from tests.algorithms import small_graphs
from tests.algorithms.small_graphs import assert_same
from vflbench.algorithms.graph import standalone_gnn
from vflbench.algorithms.oneshot import ensemble

KEYS = {"optimizer": "adam", "lr": 0.01, "rounds": 4, "fanout": 2}


@pytest.mark.slow
def test_its_networks_are_those_of_clients_alone_and_their_votes_are_added_up() -> None:
    task = small_graphs.task(3)
    cfg, alone = (
        small_graphs.config(module, {"dropout": 0.5}, parties=3, **KEYS) for module in (ensemble, standalone_gnn)
    )
    together, apart = small_graphs.run(ensemble, task, cfg), small_graphs.run(standalone_gnn, task, alone)
    assert sorted(together.losses) == sorted(apart.losses)
    for client in apart.clients:
        assert_same(together.parameters(client), apart.parameters(client))
    for split in ("val", "test"):
        votes = [apart.predictions(client)[0][split].log_softmax(dim=1) for client in apart.clients]
        torch.testing.assert_close(together.predictions("server")[0][split], sum(votes[1:], votes[0]))
    assert together.ledger() == []


def test_one_client_is_standalone_training() -> None:
    task = small_graphs.task(1)
    cfg, alone = (small_graphs.config(module, parties=1, **KEYS) for module in (ensemble, standalone_gnn))
    together, apart = small_graphs.run(ensemble, task, cfg), small_graphs.run(standalone_gnn, task, alone)
    assert together.losses == apart.losses
    for split in ("val", "test"):
        assert torch.equal(
            together.predictions("server")[0][split].argmax(dim=1),
            apart.predictions("client_0")[0][split].argmax(dim=1),
        )


def test_a_prediction_takes_a_number_of_each_class_from_each_client(tmp_path: Path) -> None:
    """rivals.md 12: 4 M C bytes a prediction, and nothing in training."""
    words = ["algorithm=ensemble", "dataset=digits_graph", "rounds=2", "algorithm.parties=3"]
    run = vflbench.run([*words, f"hydra.run.dir={tmp_path / 'run'}", "floor=none", "plot=none"])
    classes = 10
    assert run.summary["phases"]["predict"]["bytes"] == 4 * 3 * classes * 1000
    assert run.summary["bytes"]["total"] == 0
