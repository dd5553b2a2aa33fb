"""FedAvg: steps worked by hand, reductions, who takes part, what is sent."""

from __future__ import annotations

import copy
from dataclasses import replace
from types import ModuleType

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tests.algorithms.small_shards import config, models, run, task
from tests.options import codec_config, privacy_config
from vflbench.algorithms.gossip import allreduce_sgd, centralized_sgd, fedavg, leasgd, local_sgd
from vflbench.cards.data.divide import Sharding
from vflbench.data.divide import partition
from vflbench.data.tasks import Shard
from vflbench.federation.ledger import COLUMN
from vflbench.models import classifiers
from vflbench.models.metrics import METRICS
from vflbench.runner.models import WholeModels

EXACT = {"rtol": 1e-9, "atol": 1e-11}


def server_model(result) -> torch.Tensor:
    return classifiers.flat(result.engine.parties["server"].state.model)


def test_a_round_by_hand() -> None:
    """All rows of a worker in its batch, two local epochs: two steps of gradient descent each, then the mean weighted
    by rows."""
    full = task(3)
    shards = [Shard(s.features[: 6 + 6 * k], s.labels[: 6 + 6 * k]) for k, s in enumerate(full.shards)]
    data = replace(full, shards=tuple(shards))
    cfg = config(fedavg, 1, "star", workers=3, fraction=1.0, local_epochs=2, batch_size=100, lr=0.2, weight_decay=0.05)
    start = run(fedavg, data, replace(cfg, algorithm=replace(cfg.algorithm, lr=1e-300)))
    net = copy.deepcopy(start.engine.parties["server"].state.model).requires_grad_(True)
    total = torch.zeros(())
    for shard in shards:
        x, y = torch.tensor(shard.features, dtype=torch.float64), torch.tensor(shard.labels)
        w = server_model(start).clone()
        for _ in range(2):
            torch.nn.utils.vector_to_parameters(w.clone(), net.parameters())
            gradients = torch.autograd.grad(F.cross_entropy(net(x), y), list(net.parameters()))
            w = w - 0.2 * (torch.cat([g.flatten() for g in gradients]) + 0.05 * w)
        total = total + len(y) / 36 * w
    torch.testing.assert_close(server_model(run(fedavg, data, cfg)), total, **EXACT)


def test_a_server_step_of_nothing_changes_nothing() -> None:
    data, keys = task(2), {"workers": 2, "fraction": 1.0, "local_epochs": 2, "lr": 0.2}
    cfg = config(fedavg, 3, "star", server_lr=0.0, **keys)
    start = run(fedavg, data, replace(cfg, algorithm=replace(cfg.algorithm, lr=1e-300, server_lr=1.0)))
    after = run(fedavg, data, cfg)
    assert torch.equal(server_model(after), server_model(start))
    sent = [result.engine.ledger.take()[:, COLUMN["bytes"]].sum() for result in (after, start)]
    assert sent[0] == sent[1] > 0


def test_prox_and_momentum_by_hand() -> None:
    """Two rounds of two steps: every step also goes back to the server's model, and the server moves on as before."""
    data, keys = task(2), {"workers": 2, "fraction": 1.0, "local_epochs": 2, "batch_size": 100, "lr": 0.2}
    cfg = config(fedavg, 2, "star", server_lr=0.7, server_momentum=0.9, prox=0.5, weight_decay=0.0, **keys)
    start = run(fedavg, data, replace(cfg, algorithm=replace(cfg.algorithm, lr=1e-300)))
    net = copy.deepcopy(start.engine.parties["server"].state.model).requires_grad_(True)
    w, velocity = server_model(start).clone(), torch.zeros(())
    for _ in range(2):
        moved = []
        for shard in data.shards:
            x, y, w_k = torch.tensor(shard.features, dtype=torch.float64), torch.tensor(shard.labels), w
            for _ in range(2):
                torch.nn.utils.vector_to_parameters(w_k.clone(), net.parameters())
                gradients = torch.autograd.grad(F.cross_entropy(net(x), y), list(net.parameters()))
                w_k = w_k - 0.2 * (torch.cat([g.flatten() for g in gradients]) + 0.5 * (w_k - w))
            moved.append(len(y) * (w_k - w))
        velocity = 0.9 * velocity + sum(moved) / sum(len(shard.labels) for shard in data.shards)
        w = w + 0.7 * velocity
    torch.testing.assert_close(server_model(run(fedavg, data, cfg)), w, **EXACT)


@pytest.mark.parametrize("module", [fedavg, leasgd, local_sgd])
def test_the_unit_of_a_regressions_targets_does_not_matter(module: ModuleType) -> None:
    """Else one step size would suit targets of 1, and diverge on those of 100."""
    plain, found = task(3, classes=0), []
    for unit, start in ((1, 0), (100, 1000)):
        train, held_out = (
            Shard(part.features, (unit * part.labels + start).astype(np.float32))
            for part in (plain.joined(), plain.held_out["val"])
        )
        about = (plain.source, plain.metric, Sharding())
        data = partition.shard("toy", train, {"val": held_out}, *about, classes=0, workers=3, seed=0)
        result = run(module, data, config(module, 3, "star" if module is fedavg else "complete", workers=3))
        ends = [server_model(result)] if module is fedavg else list(models(result))
        rmse = WholeModels(data, config(module).model, METRICS["rmse"]).score(3, ends)
        found.append((rmse["val_rmse"] / unit, rmse["train_loss"]))
    assert found[0] == pytest.approx(found[1], rel=1e-4)  # targets are float32


def test_what_int8_rounds_is_the_difference() -> None:
    """A step too small for an eighth bit of the model still arrives."""
    data = task(1)
    cfg = config(fedavg, 1, "star", workers=1, batch_size=100, lr=1e-6, weight_decay=0.0)
    exact, start = run(fedavg, data, cfg), run(fedavg, data, replace(cfg, algorithm=replace(cfg.algorithm, lr=1e-300)))
    moved = server_model(exact) - server_model(start)
    coded = run(fedavg, data, cfg, codec=codec_config("int8"))
    arrived = server_model(coded) - server_model(start)
    assert torch.nn.functional.cosine_similarity(arrived, moved, dim=0) > 0.9 and not torch.equal(arrived, moved)


@pytest.mark.parametrize("model", ["logistic", "mlp3"])
@pytest.mark.parametrize("fraction", [0.4, 1.0])
def test_int8_sends_a_byte_a_number_and_a_scale_each_way(model: str, fraction: float) -> None:
    """rivals.md 9.1 has it for updates alone; here the model is rounded, too. All tensors are one array."""
    cfg = config(fedavg, 3, "star", workers=5, fraction=fraction, model=model)
    result = run(fedavg, task(5), cfg, codec=codec_config("int8"))
    size = len(server_model(result)) + 4
    sent = result.engine.ledger.take()[:, COLUMN["bytes"]].tolist()
    assert sent == [size] * (3 * 2 * int(5 * fraction))


def test_a_local_epoch_whose_batches_are_all_empty_has_no_loss() -> None:
    """Poisson batches of two rows on average: one in seven is empty."""
    secret = privacy_config("dp_sgd", clip=1.0, noise_multiplier=1.0)
    cfg = config(fedavg, 30, "star", workers=4, fraction=1.0, batch_size=2, privacy=secret)
    result = run(fedavg, task(4, rows=3), cfg)
    assert torch.isfinite(server_model(result)).all()


def test_one_worker_is_local_sgd() -> None:
    data = task(1)
    keys = {"batch_size": 8, "lr": 0.2}
    alone = run(local_sgd, data, config(local_sgd, 6, "star", workers=1, **keys))
    shared = run(fedavg, data, config(fedavg, 3, "star", workers=1, local_epochs=2, **keys))
    torch.testing.assert_close(server_model(shared), models(alone)[0], **EXACT)


def test_one_worker_with_all_rows_in_a_batch_is_centralized_sgd() -> None:
    """Smaller batches are drawn by each party's name."""
    data, keys = task(1), {"batch_size": 100, "lr": 0.2}
    alone = run(centralized_sgd, data, config(centralized_sgd, 4, "star", **keys))
    shared = run(fedavg, data, config(fedavg, 4, "star", workers=1, fraction=1.0, local_epochs=1, **keys))
    torch.testing.assert_close(server_model(shared), models(alone)[0], **EXACT)


def test_local_steps_are_those_of_epochs() -> None:
    """Four batches of 8 are an epoch of 32 rows, and eight are two: each epoch has an order of its own."""
    data, keys = task(3, rows=32), {"workers": 3, "fraction": 1.0, "batch_size": 8}
    found = [
        run(fedavg, data, config(fedavg, 3, "star", **keys, **often))
        for often in (
            {"local_epochs": 1},
            {"local_steps": 4},
            {"local_epochs": 2},
            {"local_steps": 8},
            {"local_steps": 6},
        )
    ]
    one, four, two, eight, _ = (server_model(result) for result in found)
    assert torch.equal(one, four) and torch.equal(two, eight)
    epochs = [result.engine.parties["server"].state.rows / 96 for result in found]
    assert epochs == [3, 3, 6, 6, 4.5]


@pytest.mark.slow
def test_private_local_steps_spend_what_was_asked() -> None:
    """Noise is planned for the steps that are made, also by a worker with fewer rows than a batch."""
    full = task(3, rows=32)
    few = Shard(full.shards[0].features[:5], full.shards[0].labels[:5])
    secret = privacy_config("dp_sgd", epsilon=4.0)
    cfg = config(fedavg, 3, "star", workers=3, fraction=1.0, batch_size=8, local_steps=6, privacy=secret)
    result = run(fedavg, replace(full, shards=(few, *full.shards[1:])), cfg)
    spent = [result.engine.parties[f"worker_{k}"].privacy.spent() for k in range(3)]
    assert all(3.9 < one["epsilon"] <= 4.0 for one in spent)
    assert result.engine.parties["server"].state.rows == 3 * 6 * (5 + 8 + 8)


def test_one_step_of_everybody_is_allreduce() -> None:
    """C = 1, H = 1, whole shards of equal size as batches."""
    data, keys = task(3), {"workers": 3, "batch_size": 100, "lr": 0.2}
    together = run(allreduce_sgd, data, config(allreduce_sgd, 4, "complete", **keys))
    averaged = run(fedavg, data, config(fedavg, 4, "star", fraction=1.0, local_steps=1, **keys))
    torch.testing.assert_close(server_model(averaged), models(together)[0], **EXACT)


def test_one_round_is_the_average_of_workers_alone() -> None:
    """H = all steps, equal shards."""
    data, keys = task(3, rows=32), {"workers": 3, "batch_size": 8, "lr": 0.2}
    alone = run(local_sgd, data, config(local_sgd, 1, "star", **keys))
    averaged = run(fedavg, data, config(fedavg, 1, "star", fraction=1.0, local_steps=4, **keys))
    torch.testing.assert_close(server_model(averaged), sum(models(alone)) / 3, **EXACT)


@pytest.mark.parametrize(("fraction", "count"), [(0.4, 2), (0.01, 1), (1.0, 5)])
def test_who_is_sampled_trains_and_nobody_else_hears_of_it(fraction: float, count: int) -> None:
    data, rounds = task(5), 4
    cfg = config(fedavg, rounds, "star", workers=5, fraction=fraction, batch_size=8)
    result = run(fedavg, data, cfg)
    ledger = result.engine.ledger.take()
    size = 8 * len(server_model(result))  # float64
    assert len(ledger) == 2 * count * rounds and set(ledger[:, COLUMN["bytes"]]) == {size}
    names = list(result.engine.parties)
    for t in range(1, rounds + 1):
        chosen = {f"worker_{k}" for k in fedavg.sampled(cfg, t)}
        met = ledger[ledger[:, COLUMN["round"]] == t][:, [COLUMN["src"], COLUMN["dst"]]].astype(int)
        assert len(chosen) == count and {names[i] for i in met.ravel()} == chosen | {"server"}


def test_everybody_is_sampled_sooner_or_later() -> None:
    cfg = config(fedavg, 1, "star", workers=10, fraction=0.2)
    counts = np.bincount(np.concatenate([fedavg.sampled(cfg, t) for t in range(1, 501)]), minlength=10)
    assert counts.sum() == 1000 and counts.min() > 70 and counts.max() < 130  # 100 in the mean, sd 9
