"""Our thin wrapper against dp-accounting, an implementation of its own, and against the formulas' fixed points."""

import math
import sys

import dp_accounting
import pytest
from absl import logging as absl_logging
from dp_accounting.pld import privacy_loss_distribution
from hypothesis import given, settings
from hypothesis import strategies as st

from vflbench.privacy import accountant

# absl's handler holds the stderr of its import and closes it when logging is configured anew: here pytest's, for all
# later tests.
absl_logging.get_absl_handler().python_handler.stream = sys.__stderr__

MU = st.floats(0.01, 25.0)
DELTA = st.floats(1e-10, 0.1)


# mu -> epsilon at delta = 1e-5, ten digits, by bisection of the dual in 50-digit arithmetic (Bu et al. 2020 print 1.34
# for mu = 0.35)
@pytest.mark.parametrize(
    ("mu", "epsilon"),
    [(0.1, 0.3406693647), (0.35, 1.341416443), (1, 4.377178096), (2, 9.997256146), (4, 24.38161088), (10, 91.81728962)],
)
def test_known_values(mu: float, epsilon: float) -> None:
    assert accountant.epsilon(mu, 1e-5) == pytest.approx(epsilon, rel=1e-9)


@settings(deadline=None, max_examples=60)
@given(MU, DELTA)
def test_equals_dp_accounting(mu: float, delta: float) -> None:
    assert accountant.epsilon(mu, delta) == pytest.approx(
        dp_accounting.get_epsilon_gaussian(1 / mu, delta), rel=1e-6, abs=1e-6
    )


@pytest.mark.slow
@settings(deadline=None, max_examples=40)
@given(st.sampled_from([1.0, 2.0]), st.floats(2.0, 50.0), st.integers(1, 100))
def test_composition_equals_dp_accounting(sensitivity: float, noise: float, releases: int) -> None:
    # n releases with standard deviation s are one with s / sqrt(n): what dp-accounting composes by its own routes
    mu = accountant.composed_mu(sensitivity, noise, releases)
    one = dp_accounting.get_epsilon_gaussian(noise / sensitivity / math.sqrt(releases), 1e-5)
    assert accountant.epsilon(mu, 1e-5) == pytest.approx(one, rel=1e-6, abs=1e-6)


def test_composition_below_discretised_and_renyi_accountants() -> None:
    # PLD composition rounds upwards on a grid, RDP is looser still: both are upper bounds of the exact value, PLD a
    # tight one
    noise, releases, delta = 10.0, 30, 1e-5
    exact = accountant.epsilon(accountant.composed_mu(2.0, noise, releases), delta)
    loss = privacy_loss_distribution.from_gaussian_mechanism(noise, sensitivity=2.0, value_discretization_interval=1e-4)
    pld = loss.self_compose(releases).get_epsilon_for_delta(delta)
    event = dp_accounting.SelfComposedDpEvent(dp_accounting.GaussianDpEvent(noise / 2.0), releases)
    rdp = dp_accounting.rdp.RdpAccountant().compose(event).get_epsilon(delta)
    assert exact <= pld + 1e-6 <= rdp
    assert pld == pytest.approx(exact, rel=5e-3)


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(MU, MU, DELTA, DELTA)
def test_monotone(mu_a: float, mu_b: float, delta_a: float, delta_b: float) -> None:
    tolerance = 1e-9
    assert accountant.epsilon(min(mu_a, mu_b), delta_a) <= accountant.epsilon(max(mu_a, mu_b), delta_a) + tolerance
    assert (
        accountant.epsilon(mu_a, max(delta_a, delta_b)) <= accountant.epsilon(mu_a, min(delta_a, delta_b)) + tolerance
    )


def test_edges() -> None:
    assert accountant.composed_mu(2.0, 1.0, 0) == 0.0 and accountant.epsilon(0.0, 1e-5) == 0.0
    assert accountant.composed_mu(2.0, 0.0, 1) == math.inf and accountant.epsilon(math.inf, 1e-5) == math.inf
    assert accountant.epsilon(1e-7, 1e-5) == 0.0  # delta alone pays for so little
    assert accountant.epsilon(57.0, 1e-5) == math.inf  # beyond Opacus' search, never an exception
    assert accountant.composed_mu(2.0, 4.0, 9) == 1.5


@pytest.mark.slow
@settings(deadline=None, max_examples=30)
@given(st.floats(1e-3, 500.0), DELTA, st.sampled_from([1.0, 2.0]), st.integers(1, 2000))
def test_calibration_is_tight_and_never_overshoots(
    target: float, delta: float, sensitivity: float, releases: int
) -> None:
    noise = accountant.calibrate(target, delta, sensitivity, releases)
    assert accountant.epsilon(accountant.composed_mu(sensitivity, noise, releases), delta) <= target
    assert accountant.epsilon(accountant.composed_mu(sensitivity, noise * (1 - 1e-6), releases), delta) > target


@pytest.mark.parametrize(("target", "releases"), [(0.0, 1), (math.nan, 1), (1.0, 0)])
def test_calibration_refuses(target: float, releases: int) -> None:
    with pytest.raises(ValueError, match="cannot calibrate"):
        accountant.calibrate(target, 1e-5, 2.0, releases)


def test_calibration_equals_dp_accounting() -> None:
    noise = accountant.calibrate(3.0, 1e-6, 2.0, 25)
    assert noise == pytest.approx(dp_accounting.get_sigma_gaussian(3.0, 1e-6) * 2.0 * 5.0, rel=1e-6)
