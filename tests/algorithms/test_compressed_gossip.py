"""CHOCO-SGD and PowerGossip: what they are without compression, what they conserve, how they agree, and their bytes."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from tests.algorithms.small_joins import Result
from tests.algorithms.small_shards import config, models, run, task
from tests.every import few_fast
from vflbench.algorithms.gossip import choco_sgd, d_psgd, local_sgd, powergossip, worker_sgd
from vflbench.algorithms.gossip.worker_sgd import LocalSgd
from vflbench.cards.algorithms.gossip import choco_sgd as choco_sgd_card
from vflbench.data.tasks import ShardedTask
from vflbench.federation.ledger import COLUMN
from vflbench.models import classifiers


def trained(module: ModuleType, data: ShardedTask, rounds: int = 2, graph: str = "ring", **options: Any) -> Result:
    return run(module, data, config(module, rounds, graph, workers=len(data.shards), **options))


def sizes(result: Result) -> set[int]:
    """Bytes of the messages."""
    return {int(row[COLUMN["bytes"]]) for row in result.engine.ledger.take()}


@pytest.fixture
def scattered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first step of a worker takes it to a place of its own, and the others nowhere: the workers only agree."""
    begun: set[int] = set()

    async def step(self: LocalSgd, me: Any, **_: Any) -> torch.Tensor:
        if id(self) in begun:
            return self.w
        begun.add(id(self))
        return self.w + torch.from_numpy(np.random.default_rng(me.index).normal(size=len(self.w)))

    monkeypatch.setattr(LocalSgd, "step", step)


def spread(w: torch.Tensor) -> float:
    return float((w - w.mean(dim=0)).norm())


# --- CHOCO-SGD --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("graph", few_fast(["ring", "path", "complete"]))
def test_without_compression_it_is_d_psgd_that_mixes_after_the_step(graph: str) -> None:
    data = task()
    ours = models(trained(choco_sgd, data, graph=graph, compression="none", gamma=1.0))
    # Not to the last bit: it has sums of changes where d_psgd has models. See the next test.
    torch.testing.assert_close(ours, models(trained(d_psgd, data, graph=graph, mixing="after")), rtol=0, atol=1e-13)


@pytest.mark.parametrize("workers", [2, 4])
def test_of_numbers_whose_sums_are_exact_it_is_d_psgd_to_the_last_bit(
    workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Models are multiples of 2^-20 after every step, and all weights are 1/2 or 1/4."""

    def rounded(w: torch.Tensor) -> torch.Tensor:
        return (w * 2**20).round() / 2**20

    begin, step = worker_sgd.initial_model, LocalSgd.step

    def initial(*of: Any) -> torch.nn.Module:
        model = begin(*of)
        torch.nn.utils.vector_to_parameters(rounded(classifiers.flat(model)), model.parameters())
        return model

    async def stepped(self: LocalSgd, me: Any, **how: Any) -> torch.Tensor:
        return rounded(await step(self, me, **how))

    monkeypatch.setattr(worker_sgd, "initial_model", initial)
    monkeypatch.setattr(LocalSgd, "step", stepped)
    data = task(workers)
    ours = models(trained(choco_sgd, data, 4, "complete", compression="none", gamma=1.0))
    assert torch.equal(ours, models(trained(d_psgd, data, 4, "complete", mixing="after")))
    assert spread(ours) == 0 and not torch.equal(ours, rounded(ours))


@pytest.mark.parametrize("module", [choco_sgd, powergossip])
def test_one_worker_and_a_worker_that_never_meets_are_local_sgd(module: ModuleType) -> None:
    for data, more in ((task(1), {}), (task(), {"local_steps": 1000})):
        alone = models(trained(local_sgd, data, graph="star"))
        torch.testing.assert_close(models(trained(module, data, **more)), alone, rtol=0, atol=1e-13)


@pytest.mark.usefixtures("scattered")
@pytest.mark.parametrize(
    ("compression", "gamma"), few_fast([("none", 1.0), ("topk", 0.2), ("int8", 0.5), ("sign", 0.2)])
)
def test_workers_agree_on_their_mean_and_it_stays(compression: str, gamma: float) -> None:
    keys = {"compression": compression, "gamma": gamma, "fraction": 0.3}
    first, later, last = (models(trained(choco_sgd, task(), rounds, **keys)) for rounds in (1, 20, 60))
    mean = first.mean(dim=0)
    for w in (later, last):
        torch.testing.assert_close(w.mean(dim=0), mean, rtol=0, atol=1e-12)
    assert spread(later) < 0.5 * spread(first) and spread(last) < max(0.3 * spread(later), 1e-12)


@pytest.mark.usefixtures("scattered")
def test_too_large_a_gamma_diverges_under_top_k() -> None:
    """Of one entry in twelve."""
    keys: dict[str, Any] = {"compression": "topk", "fraction": 0.08}
    first, small, large = (
        models(trained(choco_sgd, task(), rounds, gamma=gamma, **keys))
        for rounds, gamma in ((1, 0.05), (60, 0.05), (60, 1.0))
    )
    assert spread(small) < 0.5 * spread(first) and spread(large) > 2 * spread(first)


def test_bytes_are_those_of_the_compressor() -> None:
    data = task()
    count = 12  # logistic: 3 classes of 3 features, and 3 biases, in float64
    assert sizes(trained(choco_sgd, data, compression="none")) == {8 * count}
    assert sizes(trained(choco_sgd, data, compression="topk", fraction=0.25)) == {8 * 3}
    assert sizes(trained(choco_sgd, data, compression="int8")) == {count + 4}
    assert sizes(trained(choco_sgd, data, compression="sign")) == {2 + 1 + 2 * 4}


def test_top_k_that_saves_nothing_sends_the_change_itself() -> None:
    change = torch.tensor([3.0, -1, 2])
    for fraction, parts, kept in ((1.0, 1, [3, -1, 2]), (0.3, 2, [3, 0, 0])):
        q = choco_sgd.Compressor(
            choco_sgd_card.Config(compression="topk", fraction=fraction), [3], np.random.default_rng(0)
        )
        sent = q.encode(change)
        assert len(sent) == parts and q.decode(sent, change).tolist() == kept


def test_signs_arrive_with_the_mean_magnitude_of_their_tensor() -> None:
    q = choco_sgd.Compressor(choco_sgd_card.Config(), [3, 2], np.random.default_rng(0))
    change = torch.tensor([1.0, -2.0, 6.0, -0.5, 0.25], dtype=torch.float64)
    arrived = q.decode(q.encode(change), change)
    torch.testing.assert_close(arrived, torch.tensor([3.0, -3.0, 3.0, -0.375, 0.375], dtype=torch.float64))


# --- PowerGossip ------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("scattered")
@pytest.mark.parametrize("model", ["logistic", "mlp3"])
@pytest.mark.parametrize("rank", [1, 100])
def test_two_workers_agree_on_their_mean(rank: int, model: str) -> None:
    first, last = (models(trained(powergossip, task(2), rounds, "path", rank=rank, model=model)) for rounds in (1, 40))
    torch.testing.assert_close(last.mean(dim=0), first.mean(dim=0), rtol=0, atol=1e-12)
    assert spread(last) < 1e-9 * max(1.0, spread(first)) or (rank == 1 and spread(last) < 1e-3)


@pytest.mark.usefixtures("scattered")
def test_of_full_rank_an_exchange_is_the_whole_average() -> None:
    """The first exchange, from the same places: V is a whole basis, so that P V^T is the difference itself."""
    data = task(5)
    ours = models(trained(powergossip, data, 1, rank=100, local_steps=3))
    theirs = models(trained(choco_sgd, data, 1, compression="none", gamma=1.0, local_steps=3))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


@pytest.mark.usefixtures("scattered")
def test_the_mean_stays_in_a_ring() -> None:
    first, last = (models(trained(powergossip, task(5), rounds, rank=1)) for rounds in (1, 60))
    torch.testing.assert_close(last.mean(dim=0), first.mean(dim=0), rtol=0, atol=1e-12)
    assert spread(last) < 0.05 * spread(first)


@pytest.mark.parametrize(
    ("module", "keys"), [(powergossip, {}), (choco_sgd, {"compression": "topk", "gamma": 0.2}), (choco_sgd, {})]
)
def test_equal_models_do_not_move(module: ModuleType, keys: dict[str, Any]) -> None:
    data = task(equal=True)
    w = models(trained(module, data, batch_size=24, **keys))
    torch.testing.assert_close(w, models(trained(local_sgd, data, graph="star", batch_size=24)), rtol=0, atol=1e-13)


def test_bytes_are_rows_and_columns_by_turns() -> None:
    """mlp3 with 4 hidden units: 3 features, 3 classes; in float64."""
    found = sizes(trained(powergossip, task(width=5), model="mlp3", rank=1))
    biases = 4 + 3
    assert found == {8 * (4 + 3 + biases), 8 * (5 + 4 + biases)}
