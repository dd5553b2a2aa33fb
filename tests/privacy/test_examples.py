"""DP-SGD of workers with rows of their own: published values, dp-accounting's equal ones, noise, sensitivity,
refusals."""

from __future__ import annotations

import logging
import math

import dp_accounting
import numpy as np
import pytest
import torch
from dp_accounting.pld import privacy_loss_distribution
from dp_accounting.rdp import RdpAccountant

from tests.algorithms.small_shards import config, models, run, task
from tests.every import few_fast
from tests.options import check_keys, make_mechanism, privacy_config
from vflbench.algorithms.gossip import local_sgd
from vflbench.privacy import accountant, examples
from vflbench.privacy.examples import ExamplePrivacy, NoisyScalars
from vflbench.types import ConfigError, FederationError


@pytest.mark.parametrize(
    ("rate", "noise", "steps", "classical", "tight"),
    [(0.01, 4.0, 10_000, 1.26, 1.04), (256 / 60_000, 1.3, 4_688, 1.35, 1.11)],  # 20 epochs
)
def test_published_values(rate: float, noise: float, steps: int, classical: float, tight: float) -> None:
    """The first is quoted by Abadi et al.."""
    history = [(noise, rate, steps)]
    assert round(accountant.classical_epsilon(history, 1e-5), 2) == classical
    assert round(accountant.spent_epsilon(history, 1e-5), 2) == tight
    tighter, central = accountant.spent_epsilon(history, 1e-5, "prv"), accountant.spent_epsilon(history, 1e-5, "gdp")
    assert 0.85 * tight < central < tighter < tight


@pytest.mark.parametrize("history", [[(1.1, 0.02, 840)], [(1.1, 0.02, 84), (3.0, 0.02, 9)], [(2.0, 1.0, 30)]])
@pytest.mark.parametrize(("orders", "tolerance"), [(tuple(range(2, 64)), 1e-6), (accountant.ORDERS, 1e-5)])
def test_rdp_is_that_of_dp_accounting(
    history: list[tuple[float, float, int]],
    orders: tuple[float, ...],
    tolerance: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """To 1e-6 at integer orders, where both compute the same finite sum; to 1e-5 at the orders used, which are also
    fractional.

    At those both cut off an infinite series, each where it likes.
    """
    monkeypatch.setattr(accountant, "ORDERS", orders)
    other = RdpAccountant(list(orders))
    for noise, rate, steps in history:
        event = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(noise))
        other.compose(event, steps)
    assert accountant.spent_epsilon(history, 1e-5) == pytest.approx(other.get_epsilon(1e-5), rel=tolerance)


@pytest.mark.slow
def test_prv_is_within_its_stated_error_of_dp_accountings_losses() -> None:
    """A method against another: Opacus' PRV (FFT over privacy random variables) and dp-accounting's PLD (privacy loss
    distributions).

    Unlike RDP's, equality is not to be had: PRV gives its estimate plus eps_error = 0.01, an upper bound, and the
    estimate is itself within 0.01 of the truth (delta_error = delta / 1000 besides); PLD rounds upwards on a grid of
    1e-4.
    """
    noise, rate, steps, delta = 1.1, 0.02, 840, 1e-5
    losses = privacy_loss_distribution.from_gaussian_mechanism(
        noise, value_discretization_interval=1e-4, sampling_prob=rate
    )
    pld = losses.self_compose(steps).get_epsilon_for_delta(delta)
    assert 0 <= accountant.spent_epsilon([(noise, rate, steps)], delta, "prv") - pld <= 0.02


RANDOM = np.random.default_rng(5)
SAMPLED = [
    (
        float(RANDOM.uniform(0.8, 4)),
        float(np.exp(RANDOM.uniform(np.log(0.003), np.log(0.2)))),
        int(np.exp(RANDOM.uniform(np.log(10), np.log(2000)))),
    )
    for _ in range(20)
]


@pytest.mark.parametrize(
    ("noise", "rate", "steps"),
    few_fast([*SAMPLED[:5], *(pytest.param(*one, marks=pytest.mark.slow) for one in SAMPLED[5:])], 2),
)
def test_three_accountants_agree(noise: float, rate: float, steps: int) -> None:
    """dp-accounting's PLD is the tightest, Opacus' PRV has its stated error, and RDP is the loosest."""
    losses = privacy_loss_distribution.from_gaussian_mechanism(
        noise, value_discretization_interval=1e-3, sampling_prob=rate
    )
    pld = losses.self_compose(steps).get_epsilon_for_delta(1e-5)
    prv, rdp = (accountant.spent_epsilon([(noise, rate, steps)], 1e-5, name) for name in ("prv", "rdp"))
    assert pld <= prv + 0.02 <= rdp + 0.02


@pytest.mark.parametrize("name", few_fast(["rdp", "prv", "gdp"]))
def test_a_target_is_met_and_not_overshot(name: str) -> None:
    noise = accountant.calibrate_steps(3.0, 1e-5, 0.05, 200, name)
    assert 0.99 * 3 < accountant.spent_epsilon([(noise, 0.05, 200)], 1e-5, name) <= 3


def test_prv_keeps_the_orders_of_its_rdp_start_to_itself(recwarn: pytest.WarningsRecorder) -> None:
    accountant._prv_epsilon.__wrapped__(((1.1, 0.05, 30),), 1e-5)
    assert not [one for one in recwarn if "Optimal order" in str(one.message)]


def test_an_evaluation_asks_opacus_nothing_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    from opacus.accountants.analysis import rdp

    compute, asked = rdp.compute_rdp, []
    monkeypatch.setattr(rdp, "compute_rdp", lambda **how: (asked.append(how["q"]), compute(**how))[1])
    one, two = made(noise=1.37), made(noise=1.37)
    for steps in range(1, 6):
        one.taken = two.taken = steps
        assert one.spent() == two.spent()
    assert asked == [0.1, 0.1]  # for epsilon and for the classical one


def made(
    unit: str = "example", noise: float | None = 1.5, rows: int = 100, batch: int = 10, **options: float
) -> ExamplePrivacy:
    secret = ExamplePrivacy(privacy_config("dp_sgd", clip=2.0, noise_multiplier=noise, clip_unit=unit, **options))  # type: ignore[arg-type]
    secret.prepare(rows, batch, 50, torch.Generator().manual_seed(0))
    return secret


def test_noise_has_the_moments_promised_and_ends_with_the_budget() -> None:
    secret = made()
    draws = torch.cat([secret.noise(torch.zeros(4000, dtype=torch.float64)) for _ in range(50)])
    count = len(draws)
    assert abs(float(draws.mean())) < 5 * 3 / count**0.5
    assert float(draws.var()) == pytest.approx(9, rel=5 * (2 / count) ** 0.5)  # sigma C = 3
    assert float((draws**4).mean()) == pytest.approx(3 * 81, rel=0.05)
    with pytest.raises(FederationError, match="calibrated for 50 steps"):
        secret.noise(torch.zeros(1))


def test_poisson_batches_hold_each_row_with_the_rate() -> None:
    secret, rng = made(), np.random.default_rng(0)
    batches = [secret.sample(rng) for _ in range(2000)]
    sizes, seen = np.array([len(b) for b in batches]), np.bincount(np.concatenate(batches), minlength=100)
    assert abs(sizes.mean() - 10) < 5 * 3 / 2000**0.5 and sizes.var() == pytest.approx(9, rel=0.2)
    assert (abs(seen - 200) < 5 * 200**0.5).all()


@pytest.mark.parametrize("unit", ["example", "batch"])
def test_a_worker_moves_by_the_noisy_mean_of_what_is_clipped(unit: str) -> None:
    """One step from known models; the noise is what the same stream gives again. unit=batch: noise is not divided by
    the batch."""
    data, lr = task(3, rows=30), 0.5
    secret = privacy_config("dp_sgd", clip=0.2, noise_multiplier=0.5, clip_unit=unit)
    how = {"workers": 3, "batch_size": 30, "weight_decay": 0.0}
    moved = run(local_sgd, data, config(local_sgd, 1, "star", secret, lr=lr, **how))
    start = models(run(local_sgd, data, config(local_sgd, 1, "star", lr=1e-300, **how)))
    network = moved.engine.parties["worker_0"].state.model
    for m, shard in enumerate(data.shards):
        x, y = torch.tensor(shard.features, dtype=torch.float64), torch.tensor(shard.labels)
        theta = start[m].clone().requires_grad_()
        weight, bias = theta[:9].view(3, 3), theta[9:]
        losses = torch.nn.functional.cross_entropy(x @ weight.T + bias, y, reduction="none")
        rows = torch.stack([torch.autograd.grad(loss, theta, retain_graph=True)[0] for loss in losses])
        if unit == "example":
            mean = (rows / (rows.norm(dim=1) / 0.2).clamp_min(1)[:, None]).sum(dim=0) / 30
        else:
            whole = rows.sum(dim=0) / 30
            mean = whole / max(1.0, float(whole.norm() / 0.2))
        noise = (start[m] - models(moved)[m]) / lr - mean
        scale = 0.5 * 0.2 / (30 if unit == "example" else 1)
        assert 0.3 * scale < float(noise.square().mean().sqrt()) < 2 * scale
        assert float(noise.norm()) > 0
    assert sum(p.numel() for p in network.parameters()) == 12


def test_clipping_the_batch_costs_twice_the_sensitivity() -> None:
    """Clipped to C it may turn round, by 2 C, whatever the batch's size: the noise counts as half."""
    whole, single, half = made("batch", 2.0), made("example", 2.0), made("example", 1.0)
    for secret in (whole, single, half):
        secret.taken = 50
    assert whole.spent()["epsilon"] == half.spent()["epsilon"] > single.spent()["epsilon"]
    assert made("batch", None, epsilon=2.0).noise_multiplier == 2 * made("example", None, epsilon=2.0).noise_multiplier


def test_noisy_losses_have_their_noise_and_their_budget() -> None:
    scalars = NoisyScalars(4.0, 1.0, 1e-5, 0.1, 500, "rdp")
    rng = np.random.default_rng(0)
    released = np.array([scalars.release(np.array([1.0, 2.0, 9.0]), 10.0, rng) for _ in range(500)])
    deviation = scalars.noise_multiplier * 4 / 10
    assert abs(released.mean() - 0.7) < 5 * deviation / 500**0.5  # 9 counts as 4
    assert released.std() == pytest.approx(deviation, rel=0.2)
    assert 0.99 < accountant.spent_epsilon([scalars.history], 1e-5) <= 1
    with pytest.raises(FederationError, match="500 releases"):
        scalars.release(np.zeros(1), 10.0, rng)


def test_spent_says_what_is_covered() -> None:
    secret = made()
    assert secret.spent()["epsilon"] == 0
    secret.taken = 3
    found = secret.spent()
    assert (found["covers"], found["neighbouring"], found["steps"], found["sample_rate"]) == (
        "transcript",
        "add_remove",
        3,
        0.1,
    )
    assert 0 < found["epsilon"] < found["classical_epsilon"]
    assert any("means and scales of columns" in phrase for phrase in found["not_covered"])
    assert math.isinf(_spent_without_noise())


def _spent_without_noise() -> float:
    secret = made(noise=0.0)
    secret.taken = 1
    epsilon: float = secret.spent()["epsilon"]
    return epsilon


def test_mistakes_are_told(caplog: pytest.LogCaptureFixture) -> None:
    def keys(**options: object) -> list[str]:
        return [p.key for p in check_keys(privacy_config("dp_sgd", **{"epsilon": 1.0, **options}))]  # type: ignore[arg-type]

    assert keys() == []
    assert keys(clip=0.0) == ["clip"]
    assert keys(epsilon=1e-4) == ["privacy.epsilon"]  # RDP proves nothing so small
    assert keys(accountant="pvr") == ["accountant"] and keys(clip_unit="row") == ["clip_unit"]
    with pytest.raises(ConfigError, match=r"no noise reaches epsilon=0\.001"):
        made(noise=None, epsilon=0.001, accountant="prv")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="only workers with rows of their own"):
        make_mechanism(privacy_config("dp_sgd", epsilon=1.0, clip_unit="batch"), layout="relational")
    for predictions in ({"noise_multiplier": 1.0, "prediction_noise": 1.0}, {"split": [0.5, 0.5]}):
        with pytest.raises(ConfigError, match="send no predictions"):
            make_mechanism(privacy_config("dp_sgd", **predictions), layout="sharded")
    with caplog.at_level(logging.WARNING):
        examples.warn(privacy_config("dp_sgd", delta=1e-3), [900, 999])
        assert not caplog.records
        examples.warn(privacy_config("dp_sgd", delta=1e-3), [900, 1000])
    assert "not below 1/n" in caplog.text
