"""DP-SGD as a run applies it: noise, batches and what is accounted of workers that have unequal numbers of rows."""

from __future__ import annotations

import itertools
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy import stats

from tests.algorithms.small_joins import Result
from tests.algorithms.small_shards import config, models, run, task
from tests.every import few_fast
from tests.options import privacy_config
from vflbench import seeding
from vflbench.algorithms.gossip import allreduce_sgd, d_psgd, easgd, leasgd, leasgd_async, local_sgd
from vflbench.algorithms.gossip.worker_sgd import LocalSgd
from vflbench.data.tasks import Shard, ShardedTask
from vflbench.models import classifiers
from vflbench.privacy import accountant
from vflbench.privacy.examples import ExamplePrivacy

ROWS = (40, 16, 70)  # of workers, as a Dirichlet deal gives them


def uneven(rows: tuple[int, ...] = ROWS) -> ShardedTask:
    whole = task(len(rows), rows=max(rows))
    shards = [Shard(shard.features[:n], shard.labels[:n]) for shard, n in zip(whole.shards, rows, strict=True)]
    return ShardedTask(**{**vars(whole), "shards": tuple(shards)})


class Recorded:
    """The batches that a run computes gradients on, by worker: indices of rows, in the order of steps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.batches: dict[int, list[np.ndarray]] = {}
        take = LocalSgd.random_batch

        def recorded(sgd: LocalSgd, chosen: np.ndarray) -> Any:
            x, y, counts = take(sgd, chosen)
            in_it = np.flatnonzero(
                (sgd.x[:, None] == x[counts > 0]).all(dim=2).any(dim=1).numpy()
            )  # what is computed on, not what was asked
            self.batches.setdefault(sgd.rows, []).append(in_it)
            assert len(in_it) == int(counts.sum())
            return x, y, counts

        monkeypatch.setattr(LocalSgd, "random_batch", recorded)


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    return Recorded(monkeypatch)


def steps_of(result: Result) -> int:
    return int(max(values["iterations"] for _, _, values in result.reports))


@pytest.mark.parametrize("unit", ["example", "batch"])
@pytest.mark.parametrize("model", few_fast(["logistic", "mlp3"]))
def test_a_run_is_the_slow_reference_with_noise_redrawn_from_each_workers_stream(
    unit: str, model: str, recorded: Recorded
) -> None:
    """w <- w - eta (mean of clipped gradients + noise + decay w), by autograd row by row: noise of standard deviation
    sigma C / b (unit batch: sigma C) from the stream noise/worker_i, on the batches recorded, divided by the expected
    size b."""
    data, eta, clip, sigma, decay, b = uneven(), 0.3, 0.2, 0.7, 0.05, 8
    secret = privacy_config("dp_sgd", clip=clip, noise_multiplier=sigma, clip_unit=unit)
    cfg = config(local_sgd, 1, "star", secret, workers=3, model=model, batch_size=b, lr=eta, weight_decay=decay, seed=3)
    result = run(local_sgd, data, cfg)
    assert steps_of(result) == 5  # 42 rows on average, 8 a batch
    net = classifiers.build(cfg.model, (3,), 3, seeding.torch_stream(3, "init"))
    start, after, draws = classifiers.flat(net), models(result), []
    for i, shard in enumerate(data.shards):
        w, generator = start.clone(), seeding.torch_stream(3, f"noise/worker_{i}")
        x, y = torch.tensor(shard.features, dtype=torch.float64), torch.tensor(shard.labels)
        for chosen in recorded.batches[len(y)]:
            torch.nn.utils.vector_to_parameters(w, net.parameters())
            net.requires_grad_(True)
            rows = [torch.autograd.grad(F.cross_entropy(net(x[[r]]), y[[r]]), list(net.parameters())) for r in chosen]
            gradients = [torch.cat([part.flatten() for part in row]) for row in rows]
            if unit == "example":
                total = sum((g / max(1.0, float(g.norm()) / clip) for g in gradients), torch.zeros_like(w)) / b
            else:
                total = sum(gradients, torch.zeros_like(w)) / b
                total = total / max(1.0, float(total.norm()) / clip)
            draws.append(torch.randn(w.shape, dtype=torch.float64, generator=generator))
            w = w - eta * (total + sigma * clip / (b if unit == "example" else 1) * draws[-1] + decay * w)
        torch.testing.assert_close(after[i], w, rtol=1e-9, atol=1e-11)
    assert len(draws) == 15
    for one, other in itertools.combinations(draws, 2):  # workers' and steps' draws have nothing in common
        assert not bool((one == other).any())


@pytest.mark.parametrize("module", [leasgd, d_psgd, easgd, allreduce_sgd, leasgd_async])
def test_workers_noise_is_their_own_and_new_in_every_step(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every method draws from `noise/worker_i`, step after step."""
    drawn: dict[int, list[torch.Tensor]] = {}
    draw = ExamplePrivacy.noise

    def recorded(self: ExamplePrivacy, like: torch.Tensor) -> torch.Tensor:
        drawn.setdefault(self.rows, []).append(found := draw(self, like))
        return found

    monkeypatch.setattr(ExamplePrivacy, "noise", recorded)
    secret = privacy_config("dp_sgd", clip=0.5, noise_multiplier=2.0)
    graph = {d_psgd: "ring", easgd: "star"}.get(module, "complete")
    run(module, uneven(), config(module, 1, graph, secret, workers=3))
    for i, n in enumerate(ROWS):
        generator = seeding.torch_stream(0, f"noise/worker_{i}")
        for one in drawn[n]:
            torch.testing.assert_close(one, torch.randn(one.shape, dtype=one.dtype, generator=generator))  # sigma C = 1
    every = [one for found in drawn.values() for one in found]
    assert not any(torch.equal(one, other) for one, other in itertools.combinations(every, 2))


@pytest.mark.slow
@pytest.mark.parametrize("module", [local_sgd, leasgd])
def test_batches_of_a_run_are_poisson_samples_at_the_rate_accounted(module: ModuleType, recorded: Recorded) -> None:
    """Sizes binomial, every row equally often, and pairs of rows as often together as independent ones."""
    secret = privacy_config("dp_sgd", clip=0.5, noise_multiplier=2.0)
    result = run(
        module,
        uneven(),
        config(module, 120, graph="star" if module is local_sgd else "complete", privacy=secret, workers=3),
    )
    parties = {p.privacy.rows: p.privacy for p in result.engine.order}
    assert sorted(recorded.batches) == sorted(parties) == sorted(ROWS)
    for n, batches in recorded.batches.items():
        q, count = parties[n].sample_rate, len(batches)
        assert q == 8 / n and count == steps_of(result) == 600
        member = np.zeros((count, n))
        for t, chosen in enumerate(batches):
            member[t, chosen] = 1
        sizes = member.sum(axis=1)
        assert abs(sizes.mean() - 8) < 4.5 * np.sqrt(n * q * (1 - q) / count)
        assert sizes.var() == pytest.approx(n * q * (1 - q), rel=0.3)  # 0 of batches of one size
        often = member.sum(axis=0)
        assert stats.chi2.sf(((often - count * q) ** 2).sum() / (count * q * (1 - q)), n) > 1e-4
        together = (member.T @ member)[np.triu_indices(n, 1)]
        assert together.mean() == pytest.approx(count * q * q, rel=0.1)
        again = (member[1:] * member[:-1]).sum(axis=1).mean()  # rows that come twice running
        assert again == pytest.approx(n * q * q, rel=0.25)


@pytest.mark.slow
@pytest.mark.parametrize("module", [local_sgd, leasgd, d_psgd, easgd, allreduce_sgd])
def test_what_is_accounted_is_what_was_done(module: ModuleType, recorded: Recorded) -> None:
    """Steps are iterations, the rate is b / n_i, epsilon that of both: also where shards are uneven, and one smaller
    than a batch."""
    graph = {d_psgd: "ring", easgd: "star", local_sgd: "star"}.get(module, "complete")
    secret = privacy_config("dp_sgd", clip=0.5, noise_multiplier=2.0)
    result = run(module, uneven((40, 5, 70)), config(module, 2, graph, secret, workers=3))
    for p, n in zip([p for p in result.engine.order if p.role == "worker"], (40, 5, 70), strict=True):
        spent, q = p.privacy.spent(), min(8, n) / n
        assert (spent["steps"], spent["sample_rate"]) == (steps_of(result), q) and spent["steps"] == len(
            recorded.batches[n]
        ) == 8
        assert spent["epsilon"] == accountant.spent_epsilon([(2.0, q, 8)], 1e-5)


@pytest.mark.slow
def test_asynchronous_workers_account_for_their_own_steps(recorded: Recorded) -> None:
    secret = privacy_config("dp_sgd", clip=0.5, noise_multiplier=2.0)
    result = run(leasgd_async, uneven(), config(leasgd_async, 3, privacy=secret, workers=3))
    steps = [p.privacy.spent()["steps"] for p in result.engine.order]
    assert (
        steps == [p.state.wakes for p in result.engine.order] == [len(recorded.batches[n]) for n in ROWS]
        and len(set(steps)) > 1
    )


def test_rows_kept_for_ranking_are_in_no_batch_and_count_in_no_rate(recorded: Recorded) -> None:
    secret = privacy_config("dp_sgd", clip=0.5, noise_multiplier=2.0)
    cfg = config(leasgd, 20, privacy=secret, workers=3, ranking="validation", validation_fraction=0.25)
    result = run(leasgd, uneven(), cfg)
    trained = [30, 12, 53]
    assert [p.privacy.sample_rate for p in result.engine.order] == [8 / n for n in trained]
    assert sorted(recorded.batches) == sorted(trained) and all(
        max(map(max, filter(len, recorded.batches[n]))) == n - 1 for n in trained
    )


def test_an_empty_batch_is_a_step_of_noise_that_has_no_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is accounted, moves the model, and enters neither the running loss nor the round's mean."""
    data, secret = task(3), privacy_config("dp_sgd", clip=0.5, noise_multiplier=2.0)

    def with_batches(*sizes: int) -> tuple[list[torch.Tensor], list[float | None], Result]:
        left: dict[int, list[int]] = {}
        monkeypatch.setattr(
            ExamplePrivacy, "sample", lambda self, rng: np.arange(left.setdefault(id(self), list(sizes)).pop(0))
        )
        running, end = [], LocalSgd.end

        def ended(sgd: LocalSgd, *args: Any) -> dict[str, Any]:
            running.append(sgd.running)
            return end(sgd, *args)

        with monkeypatch.context() as patch:
            patch.setattr(LocalSgd, "end", ended)
            result = run(local_sgd, data, config(local_sgd, 1, "star", secret, workers=3, lr=1e-300))
        return running, [values.get("train_loss") for _, _, values in result.reports], result

    (full, losses, _), (some, same, result) = with_batches(9, 9, 9), with_batches(9, 0, 0)
    torch.testing.assert_close(torch.stack(some), torch.stack(full))
    assert same == pytest.approx(losses)
    assert {p.privacy.spent()["steps"] for p in result.engine.order} == {3}
    none, nothing, _ = with_batches(0, 0, 0)
    assert torch.stack(none).isnan().all() and nothing == [None] * 3


def test_a_worker_that_was_not_prepared_has_spent_nothing() -> None:
    """What the summary asks after Ctrl-C in the first moment."""
    spent = ExamplePrivacy(privacy_config("dp_sgd", epsilon=1.0)).spent()
    assert (spent["epsilon"], spent["classical_epsilon"], spent["steps"]) == (0.0, 0.0, 0)
