"""LEASGD and the decentralized family: hand-worked steps, reductions, who meets whom, what is sent."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from dataclasses import replace
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy import stats

from tests.algorithms.small_joins import Result
from tests.algorithms.small_shards import config, models, run, task
from tests.every import few_fast
from tests.options import card_of, privacy_config
from vflbench import seeding
from vflbench.algorithms.gossip import allreduce_sgd, centralized_sgd, d_psgd, easgd, leasgd, leasgd_async, local_sgd
from vflbench.algorithms.gossip.worker_sgd import LocalSgd, ranked
from vflbench.cards.algorithms.gossip import easgd as easgd_card
from vflbench.cards.algorithms.gossip import leasgd as leasgd_card
from vflbench.config import convert
from vflbench.data.tasks import Shard, ShardedTask
from vflbench.federation.ledger import COLUMN
from vflbench.federation.links import LINK_KINDS
from vflbench.models import classifiers
from vflbench.privacy.examples import NoisyScalars
from vflbench.types import ConfigError

EXACT = {"rtol": 1e-11, "atol": 1e-13}
FAMILY = [leasgd, d_psgd, easgd, local_sgd, allreduce_sgd]


def graph_of(module: ModuleType) -> str:
    return {d_psgd: "ring", easgd: "star", local_sgd: "star", centralized_sgd: "star"}.get(module, "complete")


def trained(module: ModuleType, data: ShardedTask, rounds: int = 2, **options: Any) -> Result:
    graph = options.pop("graph", graph_of(module))
    return run(module, data, config(module, rounds, graph, workers=len(data.shards), **options))


def sent(result: Result) -> Counter[str]:
    """Arrays sent, by tag."""
    tags, rows = list(result.engine.tags), result.engine.ledger.take()
    counts: Counter[str] = Counter()
    for row in rows:
        counts[tags[int(row[COLUMN["tag"]])]] += int(row[COLUMN["vectors"]])
    return counts


def ranks(read: list[tuple[str, str, Any]], names: list[str]) -> list[tuple[dict[str, float], str]]:
    """Of every recategorisation: the losses sent, by sender, and the roles announced."""
    found: list[tuple[dict[str, float], str]] = []
    for src, tag, payload in read:
        if tag == "loss":
            if not found or found[-1][1]:
                found.append(({}, ""))
            found[-1][0][src] = payload
        elif tag == "roles":
            found[-1] = found[-1][0], payload
    assert all(len(losses) == len(names) - 1 and len(roles) == len(names) for losses, roles in found)
    return found


# --- hand-worked ------------------------------------------------------------------------------------------------------


def test_one_iteration_by_hand() -> None:
    """Half squared error of w x + b at two rows a worker, all of them in the batch; equal starts, so the first exchange
    moves nobody.

    The second one does: w^i_2 = w^i_1 - eta g^i(w^i_1) + alpha (w^f_1 - w^i_1), by autograd and by matching as drawn.
    """
    data = task(3, rows=2, width=1, classes=0)
    cfg = config(leasgd, 2, workers=3, batch_size=2, lr=0.1, alpha=0.3, weight_decay=0.01)
    result = run(leasgd, data, cfg)
    start = run(leasgd, data, replace(cfg, algorithm=replace(cfg.algorithm, lr=1e-300)))
    w = list(models(start))

    def gradient(theta: torch.Tensor, shard: Shard) -> torch.Tensor:
        theta = theta.clone().requires_grad_()
        z = torch.tensor(shard.features, dtype=torch.float64)[:, 0] * theta[0] + theta[1]
        loss = (z - torch.tensor(shard.labels, dtype=torch.float64)).square().mean() / 2 + 0.005 * theta.square().sum()
        return torch.autograd.grad(loss, theta)[0]

    roles = result.engine.parties["worker_0"].state.roles
    for i in range(2):
        met = leasgd.meetings(roles, "matching", cfg.seed, i)
        steps = [-0.1 * gradient(w[m], data.shards[m]) for m in range(3)]
        w = [w[m] + steps[m] + sum((0.3 * (w[j] - w[m]) for j in met[m]), torch.zeros(2)) for m in range(3)]
    torch.testing.assert_close(models(result), torch.stack(w), **EXACT)
    assert sum(map(len, met)) == 2  # one pair


@pytest.mark.parametrize("model", ["logistic", "mlp3"])
def test_a_step_is_autograds_step_on_the_batch(model: str) -> None:
    """Centralized SGD with all rows in the batch is gradient descent."""
    data = task(1, rows=20)
    cfg = config(centralized_sgd, 3, "star", model=model, batch_size=20, lr=0.2, weight_decay=0.05)
    result = run(centralized_sgd, data, cfg)
    first = run(centralized_sgd, data, replace(cfg, algorithm=replace(cfg.algorithm, lr=1e-300)))
    net = first.engine.parties["central"].state.model.requires_grad_(True)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.2, weight_decay=0.05)
    x, y = torch.tensor(data.shards[0].features, dtype=torch.float64), torch.tensor(data.shards[0].labels)
    for _ in range(3):
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimizer.step()
    torch.testing.assert_close(models(result)[0], classifiers.flat(net), rtol=1e-9, atol=1e-11)


# --- reductions -------------------------------------------------------------------------------------------------------


def test_without_elastic_force_it_is_local_sgd() -> None:
    data = task()
    alone = models(trained(local_sgd, data))
    torch.testing.assert_close(models(trained(leasgd, data, rho=0.0)), alone, **EXACT)
    torch.testing.assert_close(models(trained(easgd, data, beta=0.0)), alone, **EXACT)
    assert not torch.allclose(models(trained(leasgd, data, rho=1.0)), alone, rtol=1e-3)


def test_equal_workers_stay_equal() -> None:
    """The same rows, all in every batch: the elastic term is zero."""
    data = task(equal=True)
    w = models(trained(leasgd, data, batch_size=24))
    torch.testing.assert_close(w, w[:1].expand_as(w), **EXACT)
    torch.testing.assert_close(w, models(trained(local_sgd, data, batch_size=24)), **EXACT)


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> torch.Tensor:
    """Worker m starts with all parameters m."""
    starts = LocalSgd.__init__

    def shifted(self: LocalSgd, me: Any, *args: Any, **options: Any) -> None:
        starts(self, me, *args, **options)
        for parameter in self.model.parameters():
            parameter.fill_(float(me.clients.index(me.name)))

    monkeypatch.setattr(LocalSgd, "__init__", shifted)
    return torch.arange(5.0, dtype=torch.float64)


@pytest.mark.parametrize("alpha", [0.2, 0.5, 0.7, 1.2])
def test_pairs_contract_by_1_minus_2_alpha_and_keep_their_sum(alpha: float, apart: torch.Tensor) -> None:
    """Without gradients, after an exchange a pair's difference is 1 - 2 alpha of what it was; above 1 it grows."""
    result = run(leasgd, task(5), config(leasgd, 1, workers=5, batch_size=24, lr=1e-300, alpha=alpha, weight_decay=0.0))
    after, met = models(result)[:, 0], leasgd.meetings(result.engine.parties["worker_0"].state.roles, "matching", 0, 0)
    for a, partners in enumerate(met):
        if not partners:
            assert after[a] == apart[a]
            continue
        b = partners[0]
        assert float(after[a] - after[b]) == pytest.approx((1 - 2 * alpha) * float(apart[a] - apart[b]), rel=1e-12)
        assert float(after[a] + after[b]) == pytest.approx(float(apart[a] + apart[b]), rel=1e-12)
        assert bool(abs(after[a] - after[b]) > abs(apart[a] - apart[b])) == (alpha > 1)


@pytest.mark.parametrize("m", [1, 3, 5])
@pytest.mark.parametrize("times", [0.6, 0.99, 1.01])
def test_easgds_centre_and_mean_come_together_below_2m_over_m_plus_1(m: int, times: float, apart: torch.Tensor) -> None:
    """Without gradients an exchange makes 1 - beta (1 + 1 / m) of the distance between the workers' mean and the
    centre."""
    beta = times * 2 * m / (m + 1)
    cfg = config(easgd, 1, "star", workers=m, batch_size=24, lr=1e-300, weight_decay=0.0, beta=beta)
    result = run(easgd, task(m), cfg)
    start = classifiers.flat(classifiers.build(cfg.model, (3,), 3, seeding.torch_stream(0, "init")))
    before, after = apart[:m].mean() - start, models(result).mean(dim=0) - result.engine.parties["server"].state.centre
    torch.testing.assert_close(after, (1 - beta * (1 + 1 / m)) * before, **EXACT)
    assert bool((after.abs() > before.abs()).all()) == (times > 1) == bool(easgd_card.check(cfg))


def test_star_with_a_still_follower_is_easgd(monkeypatch: pytest.MonkeyPatch) -> None:
    """Section 9, 4: the follower without gradient steps is EASGD's centre, beta = p alpha."""
    data = task(4)
    monkeypatch.setattr(leasgd, "ranked", lambda losses, followers: "LLLF")

    async def still(me: Any, own: Any, public: Any, cfg: Any) -> None:
        await leasgd.worker(me, own, public, replace(cfg, algorithm=replace(cfg.algorithm, lr=0.0)))

    how = {"lr": 0.1, "local_steps": 2, "weight_decay": 0.01}
    star = run(leasgd, data, config(leasgd, workers=4, mode="star", alpha=0.25, **how), {"worker_3": still})
    three = ShardedTask(**{**vars(data), "shards": data.shards[:3]})
    centre = trained(easgd, three, beta=0.75, **how)
    torch.testing.assert_close(models(star)[:3], models(centre), **EXACT)
    torch.testing.assert_close(models(star)[3], centre.engine.parties["server"].state.centre, **EXACT)
    moving = run(leasgd, data, config(leasgd, workers=4, mode="star", alpha=0.25, **how))
    assert not torch.allclose(models(moving)[:3], models(centre), rtol=1e-4)


def test_d_psgd_with_w_of_ones_is_all_reduce_and_with_the_identity_local_sgd(monkeypatch: pytest.MonkeyPatch) -> None:
    data = task()
    together = models(trained(allreduce_sgd, data))
    torch.testing.assert_close(models(trained(d_psgd, data, graph="complete", mixing="after")), together, **EXACT)
    torch.testing.assert_close(together, together[:1].expand_as(together), **EXACT)
    # As printed, models differ by one step; on a quadratic with one Hessian (equal rows x, unequal targets) the means
    # are the same.
    same_x = [Shard(data.shards[0].features, np.float32(s.features.sum(axis=1))) for s in data.shards]
    quadratic = ShardedTask(**{**vars(task(classes=0)), "shards": tuple(same_x)})
    printed = models(trained(d_psgd, quadratic, graph="complete", batch_size=24))
    mean = models(trained(allreduce_sgd, quadratic, batch_size=24))[0]
    torch.testing.assert_close(printed.mean(dim=0), mean, **EXACT)
    assert not torch.allclose(printed[0], mean, rtol=1e-3)
    monkeypatch.setattr("vflbench.federation.topology.Topology.mixing", lambda self, rule: np.eye(5))
    torch.testing.assert_close(models(trained(d_psgd, data)), models(trained(local_sgd, data)), **EXACT)


def test_all_reduce_is_centralized_sgd_with_the_batches_together() -> None:
    data = task(batch := 3, rows=8)
    all_rows = ShardedTask(**{**vars(data), "shards": (data.joined(),)})
    whole = trained(centralized_sgd, all_rows, rounds=4, batch_size=8 * batch)
    torch.testing.assert_close(
        models(trained(allreduce_sgd, data, rounds=4, batch_size=8))[0], models(whole)[0], **EXACT
    )


@pytest.mark.parametrize("rule", ["metropolis", "uniform"])
def test_d_psgd_is_w_times_the_models_minus_the_gradients(rule: str) -> None:
    """Two full-batch iterations against the matrix formula, on a path, where the rules differ."""
    data = task(4, classes=0)
    cfg = config(d_psgd, 2, "path", workers=4, batch_size=24, lr=0.1, weight_decay=0.0, weights=rule)
    still = models(run(d_psgd, data, replace(cfg, algorithm=replace(cfg.algorithm, lr=1e-300), rounds=1)))
    degree = np.array([1, 2, 2, 1])
    matrix = np.zeros((4, 4))
    for i, j in ((0, 1), (1, 2), (2, 3)):
        matrix[i, j] = matrix[j, i] = 1 / (1 + (max(degree[i], degree[j]) if rule == "metropolis" else 2))
    matrix += np.diag(1 - matrix.sum(axis=1))
    assert np.allclose(matrix.sum(axis=0), 1) and np.allclose(matrix.sum(axis=1), 1)
    w = still.numpy()
    for _ in range(2):
        ones = [np.column_stack([s.features, np.ones(24)]).astype(np.float64) for s in data.shards]
        gradients = [x.T @ (x @ w[i] - s.labels) / 24 for i, (x, s) in enumerate(zip(ones, data.shards, strict=True))]
        w = matrix @ w - 0.1 * np.array(gradients)
    torch.testing.assert_close(models(run(d_psgd, data, cfg)), torch.from_numpy(w), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("module", FAMILY, ids=lambda m: m.__name__.rpartition(".")[2])
@pytest.mark.parametrize("private", [False, True])
def test_batched_is_looped(module: ModuleType, private: bool) -> None:
    secret = privacy_config("dp_sgd", clip=0.5, noise_multiplier=0.7) if private else None
    cfg = config(module, 2, graph_of(module), secret, workers=5, model="mlp3")
    batched, looped = (models(run(module, task(), cfg, batch_compute=how)) for how in (True, False))
    torch.testing.assert_close(batched, looped, rtol=1e-9, atol=1e-12)


# --- who meets whom ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("m", [3, 4, 5, 15])
def test_pools_follow_the_losses_and_leaders_outnumber_followers(m: int) -> None:
    losses = np.random.default_rng(m).permutation(m).astype(float).tolist()
    roles = ranked(losses, (m - 1) // 2)
    lead, follow = ([x for x, role in zip(losses, roles, strict=True) if role == kind] for kind in "LF")
    assert len(lead) > len(follow) == (m - 1) // 2 and max(lead) <= min(follow)


def test_roles_given_are_those_of_the_losses_sent() -> None:
    """What crosses at a recategorisation ranks the workers as everybody is then told."""
    read: list[tuple[str, str, Any]] = []
    data = task()
    cfg = config(leasgd, 2, workers=5, recategorise_every=2)
    result = run(leasgd, data, cfg, on_read=lambda src, dst, tag, round, payload: read.append((src, tag, payload)))
    for losses, roles in (found := ranks(read, list(result.engine.parties))):  # the elected worker's own is not sent
        by_name = dict(zip(result.engine.parties, roles, strict=True))
        lead, follow = ([loss for name, loss in losses.items() if by_name[name] == kind] for kind in "LF")
        assert roles.count("F") == 2 and max(lead) <= min(follow)
    assert len(found) == 3 and len({p.state.roles for p in result.engine.order}) == 1


def test_matchings_are_injective_and_uniform() -> None:
    """12 injective maps from 2 followers to 4 leaders, 6,000 draws: chi-square with 11 degrees of freedom."""
    counts: Counter[tuple[int, ...]] = Counter()
    for i in range(6000):
        met = leasgd.meetings("LFLLFL", "matching", 1, i)
        chosen = met[1][0], met[4][0]
        assert len(set(chosen)) == 2 and all(met[j] == (f,) for f, j in zip((1, 4), chosen, strict=True))
        assert sum(map(len, met)) == 4
        counts[chosen] += 1
    assert set(counts) == set(itertools.permutations((0, 2, 3, 5), 2))
    assert stats.chisquare(list(counts.values())).pvalue > 0.001


@pytest.mark.parametrize("m", [3, 5, 6])
@pytest.mark.parametrize("tau", [1, 3])
def test_messages_are_those_of_the_table(m: int, tau: int) -> None:
    """2 F models an exchange; every k tau iterations m - 1 losses of 8 bytes and m - 1 announcements of m bytes."""
    iterations, k, followers = 12, 2, (m - 1) // 2
    cfg = config(leasgd, 4, workers=m, local_steps=tau, recategorise_every=k, batch_size=8)
    result = run(leasgd, task(m), cfg)
    rows, tags = result.engine.ledger.take(), list(result.engine.tags)
    by_tag = {tag: rows[rows[:, COLUMN["tag"]] == code] for code, tag in enumerate(tags)}
    exchanges, ranks = -(-iterations // tau), -(-iterations // (k * tau))
    size = models(result).shape[1] * 8
    assert [len(by_tag[tag]) for tag in ("model", "loss", "roles")] == [
        2 * followers * exchanges,
        (m - 1) * ranks,
        (m - 1) * ranks,
    ]
    assert [set(by_tag[tag][:, COLUMN["bytes"]]) for tag in ("model", "loss", "roles")] == [{size}, {8}, {m}]
    assert rows[:, COLUMN["vectors"]].sum() == 2 * followers * exchanges  # losses and roles are no vectors
    assert {LINK_KINDS[int(kind)] for kind in rows[:, COLUMN["kind"]]} == {"client_client"}


@pytest.mark.parametrize(("module", "expected"), [(d_psgd, 10), (easgd, 10), (local_sgd, 0), (allreduce_sgd, 40)])
def test_vectors_of_an_iteration(module: ModuleType, expected: int) -> None:
    """m = 5: a ring's 2 |edges|, EASGD's 2 m, nothing, and of all-reduce 2 m (m - 1) pieces, together 2 (m - 1)
    gradients."""
    result = trained(module, task(), rounds=2)
    size = models(result).shape[1]
    rows = result.engine.ledger.take()
    assert rows[:, COLUMN["vectors"]].sum() == 6 * expected
    whole = 8 if module is allreduce_sgd else expected
    assert rows[:, COLUMN["bytes"]].sum() == 6 * whole * size * 8


# --- theory (section 6) -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mode", "sizes"), [("star", (3, 6)), ("matching", (5,))])
@pytest.mark.slow
def test_distances_stay_below_the_envelope_and_the_floor_does_not_grow_with_p(
    mode: str, sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Quadratic, equal rows: max over workers of E||w - w*||^2 <= c_0 (1 - gamma)^t + eta^2 sigma^2 / gamma.

    All workers start at the distance c_0 = 100 times that floor, along the Hessian's eigenvectors by turns. The noise
    is DP-SGD's, of total variance D (sigma C / n)^2; batches hold all rows, so it is the only one. Expectation over 8
    seeds. Exchanges keep the sum of models, so the mean model's path is known: its expectation shrinks by 1 - eta
    lambda a step, and its variance ends at the sum over the Hessian's eigenvalues lambda of eta^2 (sigma C / n)^2 / m /
    (1 - (1 - eta lambda)^2). No worker's floor is below that. Twice sigma: four times.
    """
    clip, rounds, seeds, sigmas = 1e4, 36, 8, (0.001, 0.0005)  # nothing is clipped
    shard = task(3, rows=12, width=2, classes=0, equal=True).shards[0]
    x = np.column_stack([shard.features, np.ones(12)]).astype(np.float64)
    eigenvalues, vectors = np.linalg.eigh(hessian := x.T @ x / 12)
    mu, smooth = eigenvalues[[0, -1]]
    best = torch.from_numpy(np.linalg.solve(hessian, x.T @ shard.labels / 12))
    beta = 0.5 if mode == "star" else 0.25
    lr = 0.9 * 2 * (1 - beta) / (mu + smooth)  # whatever p
    gamma = 2 * lr * mu * smooth / (mu + smooth)
    c_0 = 100 * lr**2 * 3 * (sigmas[0] * clip / 12) ** 2 / gamma
    away = c_0**0.5 * torch.from_numpy(vectors.T.copy())
    starts = LocalSgd.__init__

    def far(self: LocalSgd, me: Any, *args: Any, **options: Any) -> None:
        starts(self, me, *args, **options)
        torch.nn.utils.vector_to_parameters(best + away[me.clients.index(me.name) % 3], self.model.parameters())

    monkeypatch.setattr(LocalSgd, "__init__", far)

    def errors(m: int, sigma: float) -> torch.Tensor:
        """w - w*, (seeds, rounds, workers, D)."""
        secret, found = privacy_config("dp_sgd", clip=clip, noise_multiplier=sigma), []
        data = task(m, rows=12, width=2, classes=0, equal=True)
        for seed in range(seeds):
            options = {
                "batch_size": 12,
                "lr": lr,
                "alpha": beta / (m - 1) if mode == "star" else beta,
                "weight_decay": 0.0,
            }
            result = run(
                leasgd, data, config(leasgd, rounds, privacy=secret, workers=m, mode=mode, seed=seed, **options)
            )
            seen = {(round, name): values["parameters"] for name, round, values in result.reports}
            w = torch.stack([seen[t, name] for t in range(1, rounds + 1) for name in result.engine.parties])
            found.append(w.view(rounds, m, 3) - best)
        return torch.stack(found)

    t = np.arange(1, rounds + 1)
    floors = {}
    for m, sigma in [*((m, sigmas[0]) for m in sizes), (sizes[0], sigmas[1])]:
        off, noise = errors(m, sigma), 3 * (sigma * clip / 12) ** 2
        worst = off.square().sum(dim=3).mean(dim=0).max(dim=1).values.numpy()
        floor = lr**2 * noise / gamma
        assert (worst <= 1.3 * (c_0 * (1 - gamma) ** t + floor)).all()
        assert worst[:3].min() > 5 * floor  # far away still: it is the decay that was tested
        shrunk = (1 - lr * eigenvalues) ** t[:, None]  # (rounds, eigenvalues)
        variance = (lr**2 * noise / 3 / m * (1 - shrunk**2) / (1 - (1 - lr * eigenvalues) ** 2)).sum(axis=1)
        of_mean = off.mean(dim=2).numpy()  # (seeds, rounds, D)
        path = shrunk * (vectors.T @ away[np.arange(m) % 3].mean(dim=0).numpy())
        assert (np.linalg.norm(of_mean.mean(axis=0) @ vectors - path, axis=1) < 3 * (variance / seeds) ** 0.5).all()
        least = float(variance[-1])
        # with half the noise 0.25
        assert float(np.square(of_mean[:, -10:]).sum(axis=2).mean()) == pytest.approx(least, rel=0.4)
        floors[m, sigma] = float(off[:, -10:].square().sum(dim=3).mean())
        assert 0.6 * least < floors[m, sigma] <= floor
    assert floors[sizes[0], sigmas[0]] == pytest.approx(4 * floors[sizes[0], sigmas[1]], rel=0.1)
    assert all(floors[m, sigmas[0]] <= floors[sizes[0], sigmas[0]] * 1.1 for m in sizes[1:])


# --- privacy ----------------------------------------------------------------------------------------------------------


def test_leasgd_and_d_psgd_spend_the_same_at_the_same_steps() -> None:
    secret = privacy_config("dp_sgd", clip=1.0, noise_multiplier=1.1)
    spent = []
    for module in FAMILY:
        result = run(module, task(), config(module, 3, graph_of(module), secret, workers=5))
        spent.append({p.privacy.spent()["epsilon"] for p in result.engine.order if p.privacy is not None})
    assert all(len(found) == 1 and found == spent[0] for found in spent) and min(spent[0]) > 0


@pytest.mark.parametrize("batch_size", [24, pytest.param(8, marks=pytest.mark.slow)])  # all rows: a closed form
def test_losses_are_outside_of_epsilon_unless_noisy_with_a_budget_of_their_own(batch_size: int) -> None:
    secret = privacy_config("dp_sgd", clip=1.0, epsilon=3.0)
    plain, noisy = (
        run(
            leasgd,
            task(),
            config(
                leasgd,
                2,
                privacy=secret,
                workers=5,
                batch_size=batch_size,
                ranking=how,
                recategorise_every=2,
                ranking_epsilon=2.0,
            ),
        )
        for how in ("running", "noisy")
    )
    outside, inside = (result.engine.parties["worker_0"].privacy.spent() for result in (plain, noisy))
    assert (outside["covers"], inside["covers"]) == ("model", "transcript") and "losses" in outside["not_covered"][0]
    assert 2.97 < outside["epsilon"] <= 3 and 1.9 < inside["ranking_epsilon"] <= 2
    assert 2.97 < inside["epsilon"] <= 3  # both together spend what was asked
    assert (
        max(inside["model_epsilon"], inside["ranking_epsilon"])
        < inside["epsilon"]
        < inside["model_epsilon"] + inside["ranking_epsilon"]
    )


def test_without_noise_and_clipping_whole_poisson_batches_are_the_plain_method() -> None:
    secret = privacy_config("dp_sgd", clip=1e9, noise_multiplier=0.0)
    private = run(leasgd, task(), config(leasgd, 2, privacy=secret, workers=5, batch_size=24))
    torch.testing.assert_close(models(private), models(trained(leasgd, task(), batch_size=24)), **EXACT)
    clipped = run(leasgd, task(), config(leasgd, 2, privacy=replace(secret, clip=0.01), workers=5, batch_size=24))
    assert not torch.allclose(models(clipped), models(private), rtol=1e-3)


@pytest.mark.parametrize("mode", few_fast(["matching", "star"]))
def test_random_ranking_sends_models_alone_and_as_many(mode: str) -> None:
    """As many pairs as with ranks, every pair of workers equally often; and without a pull it is local SGD."""
    data, counts = task(), {}
    for ranking in ("running", "random"):
        counts[ranking] = sent(trained(leasgd, data, ranking=ranking, mode=mode, rho=0.5))
    assert counts["random"] == Counter({"model": counts["running"]["model"]})
    cfg = leasgd_card.Config(workers=5, mode=mode, ranking="random")
    met: Counter[tuple[int, int]] = Counter()
    for i in range(2000):
        drawn = np.random.default_rng(i).permutation(5)  # any draw has as many followers as ranks give
        assert leasgd.ranked(drawn.tolist(), leasgd.followers_of(cfg, 5)).count("F") == (1 if mode == "star" else 2)
        roles = asyncio.run(leasgd.roles_of(SimpleNamespace(clients=[*"abcde"]), i, None, cfg, 0))
        met.update((a, b) for a, others in enumerate(leasgd.meetings(roles, mode, 0, i)) for b in others if a < b)
    assert len(met) == 10 and max(met.values()) < 1.25 * min(met.values())
    alone = trained(leasgd, data, ranking="random", mode=mode, rho=0.0)
    torch.testing.assert_close(models(alone), models(trained(local_sgd, data)), **EXACT)


# --- options and mistakes ---------------------------------------------------------------------------------------------


def test_ranking_by_validation_loss_keeps_rows_from_training() -> None:
    data = task()
    cfg = config(leasgd, 2, workers=5, ranking="validation", validation_fraction=0.25)
    spoiled = [Shard(np.concatenate([s.features[:18], 0 * s.features[18:]]), s.labels) for s in data.shards]
    other = ShardedTask(**{**vars(data), "shards": tuple(spoiled)})
    same = replace(cfg, algorithm=replace(cfg.algorithm, rho=0.0))  # then ranks decide nothing
    torch.testing.assert_close(models(run(leasgd, data, same)), models(run(leasgd, other, same)), **EXACT)


def test_ranking_by_validation_loss_sends_the_loss_on_the_rows_kept() -> None:
    """Of a worker's 24 rows the last 6; a recategorisation begins every round, so the models are those of the round
    before."""
    data, read = task(), []
    cfg = config(leasgd, 3, workers=5, ranking="validation", validation_fraction=0.25, recategorise_every=3)
    result = run(leasgd, data, cfg, on_read=lambda src, dst, tag, round, payload: read.append((src, tag, payload)))
    net = classifiers.build(cfg.model, (3,), 3, seeding.torch_stream(0, "init"))
    models_then = {(round, name): values["parameters"] for name, round, values in result.reports}
    names = list(result.engine.parties)
    for round, (losses, _) in enumerate(found := ranks(read, names)):
        for name, loss in losses.items():
            if round:
                torch.nn.utils.vector_to_parameters(models_then[round, name], net.parameters())
            shard = data.shards[names.index(name)]
            x, y = torch.tensor(shard.features, dtype=torch.float64), torch.tensor(shard.labels)
            kept, trained_on = (float(F.cross_entropy(net(x[rows]), y[rows])) for rows in (slice(18, 24), slice(18)))
            assert loss == pytest.approx(kept, rel=1e-10) and abs(loss - trained_on) > 1e-5
    assert len(found) == 3


@pytest.mark.slow
def test_ranking_by_noisy_loss_sends_what_the_mechanism_released_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each worker's number is the noisy one, and the elected worker, which sends none, is ranked by its noisy one
    too."""
    released: dict[NoisyScalars, list[tuple[float, float]]] = {}
    release = NoisyScalars.release

    def noted(self: NoisyScalars, losses: np.ndarray, expected: float, rng: np.random.Generator) -> float:
        value = release(self, losses, expected, rng)
        released.setdefault(self, []).append((value, float(np.clip(losses, 0, self.bound).sum() / expected)))
        return value

    monkeypatch.setattr(NoisyScalars, "release", noted)
    read: list[tuple[str, str, Any]] = []
    secret = privacy_config("dp_sgd", clip=1.0, noise_multiplier=1.0)
    cfg = config(leasgd, 4, privacy=secret, workers=5, ranking="noisy", ranking_epsilon=2.0, recategorise_every=2)
    result = run(leasgd, task(), cfg, on_read=lambda src, dst, tag, round, payload: read.append((src, tag, payload)))
    names, by_clean_means = list(result.engine.parties), 0
    own = [released[result.engine.parties[name].privacy.scalars] for name in names]
    for number, (losses, roles) in enumerate(found := ranks(read, names)):
        noisy, clean = zip(*(mine[number] for mine in own), strict=True)
        for name, loss in losses.items():
            assert loss == noisy[names.index(name)] and abs(loss - clean[names.index(name)]) > 1e-6
        assert roles == ranked(noisy, 2)
        by_clean_means += roles == ranked(clean, 2)
    assert len(found) == 6 == len(own[0]) and by_clean_means < 6


@pytest.mark.parametrize("partners", ["ranked", "random"])
def test_asynchronous_exchanges_keep_the_sum_of_all_models(apart: torch.Tensor, partners: str) -> None:
    """Without gradients, once no answer is due, and models come together."""
    cfg = config(leasgd_async, 4, workers=5, lr=1e-300, weight_decay=0.0, alpha=0.3, partners=partners)
    result = run(leasgd_async, task(), cfg)
    w = models(result)[:, 0]
    assert all(p.state.asked is None for p in result.engine.order)
    assert float(w.sum()) == pytest.approx(10.0, rel=1e-12) and 0 < float(w.std()) < 0.5 * float(apart.std())


def test_asynchronous_workers_wake_at_their_rates_and_repeat_themselves() -> None:
    cfg = config(leasgd_async, 8, workers=5)
    one, two = run(leasgd_async, task(), cfg), run(leasgd_async, task(), cfg)
    assert torch.equal(models(one), models(two))
    wakes = [p.state.wakes for p in one.engine.order]
    assert wakes[0] < 24 < wakes[-1]  # rates 0.5 and 1.5, and 24 wake-ups on average
    assert sent(one)["model"] > 0
    met: Counter[tuple[str, str]] = Counter()
    free = replace(cfg, algorithm=replace(cfg.algorithm, partners="random"))
    run(
        leasgd_async, task(), free, on_read=lambda src, dst, tag, round, payload: met.update([(src, dst, len(payload))])
    )
    assert len(met) == 20 and {length for _, _, length in met} == {2}  # anybody meets anybody, and no loss is told
    alone = run(leasgd_async, task(), replace(cfg, algorithm=replace(cfg.algorithm, alpha=0.0)))
    assert not torch.allclose(models(alone), models(one), rtol=1e-3)


def test_what_cannot_be_is_told() -> None:
    def keys(module: ModuleType, **options: Any) -> list[str]:
        privacy = options.pop("privacy", None)
        return [problem.key for problem in card_of(module).check(config(module, privacy=privacy, **options))]

    assert keys(leasgd) == keys(leasgd_async) == []
    assert keys(leasgd, workers=2) == keys(leasgd_async, workers=2) == ["algorithm.workers"]
    assert keys(leasgd, alpha=0.5, rho=1.0) == ["algorithm.rho"]
    assert keys(leasgd, mode="star", alpha=0.5) == ["algorithm.alpha"]
    assert keys(leasgd, mode="star") == []
    assert keys(leasgd, ranking="noisy") == ["algorithm.ranking"]
    for module, bad in (
        (leasgd, {"rho": -1.0, "ranking_clip": 0.0}),
        (local_sgd, {"weight_decay": -1.0, "default_rounds": 0}),
        (leasgd_async, {"interval": 0.0}),
    ):
        assert {problem.key for problem in convert(card_of(module).Config, bad)[1]} == bad.keys()
    assert keys(easgd, workers=3, beta=1.49) == [] and keys(easgd, workers=3, beta=1.5) == ["algorithm.beta"]
    with pytest.raises(ConfigError, match="falls into 2 pieces"):
        trained(d_psgd, task(), graph="clusters")
    with pytest.raises(ConfigError, match="needs images"):
        trained(local_sgd, task(), model="cnn3")
    for module in (*FAMILY, leasgd_async, centralized_sgd):
        # 24 rows, 8 a batch
        module.parties(data := task(), cfg := config(module, graph=graph_of(module), workers=5, rounds_per_epoch=3))
        with pytest.raises(ConfigError, match=r"algorithm\.rounds_per_epoch=4: must be at most 3"):
            module.parties(data, replace(cfg, algorithm=replace(cfg.algorithm, rounds_per_epoch=4)))


def test_a_worker_with_one_row_cannot_keep_it_for_ranking() -> None:
    data = task()
    short = Shard(data.shards[2].features[:1], data.shards[2].labels[:1])
    uneven = ShardedTask(**{**vars(data), "shards": (*data.shards[:2], short, *data.shards[3:])})
    with pytest.raises(ConfigError, match=r"algorithm\.ranking=validation: worker_2 has one row"):
        leasgd.parties(uneven, config(leasgd, workers=5, ranking="validation"))
    two = ShardedTask(
        **{**vars(data), "shards": (*data.shards[:2], Shard(np.tile(short.features, (2, 1)), np.tile(short.labels, 2)))}
    )
    assert torch.isfinite(models(run(leasgd, two, config(leasgd, workers=3, ranking="validation")))).all()
