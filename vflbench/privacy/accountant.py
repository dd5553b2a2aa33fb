"""Accounting of Gaussian noise; every conversion to (epsilon, delta) is Opacus' own.

- Releases that every row is part of: Gaussian differential privacy (mu-GDP), which is exact.
- Noisy sums over random batches (DP-SGD), alone or together with such releases: Renyi differential privacy (RDP) of the
  sampled Gaussian mechanism, over Opacus' own orders.

Source: Dong, Roth, Su, "Gaussian Differential Privacy" (2022). A query of L2 sensitivity s plus N(0, sigma^2) is
s/sigma-GDP (Theorem 1). n adaptive mu-GDP releases together are exactly sqrt(n) mu-GDP (Corollary 2). mu-GDP is the
same statement as (epsilon, delta(epsilon))-DP for every epsilon (Corollary 1).
"""

import importlib
import logging
import math
import warnings
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any

import numpy as np

from vflbench.cards.privacy.keys import ORDERS, SEARCH_END, least_epsilon

MOST_NOISE = 1e6  # noise multiplier
LEAST = 1e-9  # an epsilon over its target; below that it counts as this in a root search
History = tuple[tuple[float, float, int], ...]  # noise multiplier, sample rate and steps of releases that compose


def composed_mu(sensitivity: float, noise_multiplier: float, releases: int) -> float:
    """The mu of `releases` Gaussian releases of one row.

    `sensitivity` and `noise_multiplier` are in the same unit, the clipping norm.
    """
    if releases == 0:
        return 0.0
    return math.sqrt(releases) * sensitivity / noise_multiplier if noise_multiplier > 0 else math.inf


def _opacus(module: str) -> Any:
    """A module of Opacus. To import it sets the root logger up, which would write all later messages in its form."""
    handlers = logging.root.handlers[:]
    try:
        return importlib.import_module(f"opacus.{module}")
    finally:
        logging.root.handlers[:] = handlers


@lru_cache(maxsize=1024)
def epsilon(mu: float, delta: float) -> float:
    """The smallest epsilon for which mu-GDP gives (epsilon, delta)-DP; infinity above 500, where Opacus' search ends.

    The first call imports Opacus, which takes seconds; so no module imports it at its top.
    """
    if mu == 0:
        return 0.0
    if math.isinf(mu):
        return math.inf
    gdp = _opacus("accountants.analysis.gdp")
    # Opacus' root search fails without a change of sign, so both ends are tried first.
    if gdp.delta_eps_mu(eps=0.0, mu=mu) <= delta:
        return 0.0
    if gdp.delta_eps_mu(eps=SEARCH_END, mu=mu) > delta:
        return math.inf
    return float(gdp.eps_from_mu(mu=mu, delta=delta))


def calibrate(target: float, delta: float, sensitivity: float, releases: int) -> float:
    """The smallest noise multiplier (to 1e-9 relative) whose epsilon after `releases` releases is at most `target`.

    It bisects over `epsilon` and returns an end that was checked, so the target is never exceeded.

    Raises
    ------
    ValueError : the target or the number of releases is not positive.
    """
    if not (target > 0 and releases > 0):
        raise ValueError(f"cannot calibrate noise to epsilon={target} over {releases} releases: both must be positive")

    def reached(noise_multiplier: float) -> bool:
        return epsilon(composed_mu(sensitivity, noise_multiplier, releases), delta) <= target

    low = high = 1.0
    while not reached(high):
        low, high = high, 2 * high
    while reached(low):
        low, high = low / 2, low
    while high > low * (1 + 1e-9):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if reached(middle) else (middle, high)
    return high


def mu_of(target: float, delta: float) -> float:
    """The largest mu (to 1e-9 relative) whose epsilon is at most `target`; infinity for infinity."""
    return math.inf if math.isinf(target) else 1 / calibrate(target, delta, 1.0, 1)


# --- sums over random batches -----------------------------------------------------------------------------------------


CLASSICAL_ORDERS = tuple(map(float, range(2, 257)))


@lru_cache(maxsize=4096)  # a worker's rate and noise stay the same over a run, and every evaluation needs it
def step_rdp(sample_rate: float, noise_multiplier: float, orders: tuple[float, ...]) -> np.ndarray:
    """The RDP, at each of `orders`, of one noisy sum over a Poisson batch with rate `sample_rate`."""
    compute_rdp = _opacus("accountants.analysis.rdp").compute_rdp
    rdp = np.asarray(compute_rdp(q=sample_rate, noise_multiplier=noise_multiplier, steps=1, orders=list(orders)))
    rdp.setflags(write=False)
    return rdp


def spent_epsilon(history: Sequence[tuple[float, float, int]], delta: float, accountant: str = "rdp") -> float:
    """The epsilon that an accountant of Opacus proves; infinity without noise.

    Never below 0: at a large delta the formulas of RDP and PRV go there, and what they prove then is epsilon 0.

    Parameters
    ----------
    history : (noise multiplier, sample rate, steps) of the releases that are composed.
    accountant : `rdp`: Renyi differential privacy at `ORDERS`. `prv`: privacy random variables, an upper bound within
        0.01 (Gopi, Lee, Wutschitz 2021). `gdp`: the central limit (Bu, Dong, Long, Su 2020), which may be too small.
        `exact`: mu-GDP, which knows no sampling: rates are not looked at.
    """
    spent = tuple((noise, rate, steps) for noise, rate, steps in history if steps and rate)
    if not spent:
        return 0.0
    if any(noise == 0 for noise, _, _ in spent):
        return math.inf
    return max(_proved(spent, delta, accountant), 0.0)


def _proved(spent: History, delta: float, accountant: str) -> float:
    """What the formulas of `spent_epsilon` give for releases with noise; it may be below 0."""
    if accountant == "exact":
        return epsilon(mu_of_steps(spent), delta)
    if accountant == "prv":
        return _prv_epsilon(spent, delta)
    if accountant == "gdp":
        compute_mu_poisson = _opacus("accountants.analysis.gdp").compute_mu_poisson
        mus = [
            float(compute_mu_poisson(steps=steps, noise_multiplier=noise, sample_rate=rate))
            for noise, rate, steps in spent
        ]
        return epsilon(math.sqrt(sum(mu**2 for mu in mus)), delta)
    get_privacy_spent = _opacus("accountants.analysis.rdp").get_privacy_spent
    rdp = np.sum([steps * step_rdp(rate, noise, ORDERS) for noise, rate, steps in spent], axis=0)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Optimal order is the")  # the orders are part of the specification
        return float(get_privacy_spent(orders=list(ORDERS), rdp=rdp, delta=delta)[0])


def mu_of_steps(history: Sequence[tuple[float, float, int]]) -> float:
    """The mu of noisy sums over all rows; `history` is that of `spent_epsilon`."""
    return math.hypot(*(composed_mu(1.0, noise, steps) for noise, _, steps in history))


@lru_cache(maxsize=1024)
def _prv_epsilon(history: tuple[tuple[float, float, int], ...], delta: float) -> float:
    counted = _opacus("accountants").PRVAccountant()
    counted.history = list(history)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # log(0) at a sample rate of 1
        # Opacus bounds epsilon by RDP only to start its search
        warnings.filterwarnings("ignore", message="Optimal order is the")
        try:
            return float(counted.get_epsilon(delta))
        except RuntimeError:  # "Cannot compute epsilon": the least one of its grid, far below 0, suffices already
            return -math.inf


def classical_epsilon(history: Sequence[tuple[float, float, int]], delta: float) -> float:
    """The epsilon of papers of 2016 to 2019, to compare with.

    It is RDP at integer orders 2 to 256 by the older conversion, rdp + log(1 / delta) / (order - 1). The moments
    accountant of Abadi et al., arXiv 1607.00133, has the same bound.
    """
    spent = [steps * step_rdp(rate, noise, CLASSICAL_ORDERS) for noise, rate, steps in history if steps]
    if not spent:
        return 0.0
    return float(np.min(np.sum(spent, axis=0) + math.log(1 / delta) / (np.array(CLASSICAL_ORDERS) - 1)))


@cache  # called before the run, and again by each worker; as many values as there are sizes of shards
def calibrate_steps(
    target: float, delta: float, sample_rate: float, steps: int, accountant: str = "rdp", beside: History = ()
) -> float:
    """The smallest noise multiplier (to 1e-3 relative) with which `steps` noisy sums over batches stay within `target`.

    The returned value was checked. An evaluation takes Opacus up to seconds (at rates near 1/2), hence a root search
    and no bisection.

    Parameters
    ----------
    beside : other releases of the same rows, which the target covers too.

    Raises
    ------
    ValueError : the target is at or below `least_epsilon`, or so near to it that the noise would exceed 1e6.
    """
    if accountant == "exact" and not beside:
        return calibrate(target, delta, 1.0, steps)
    from scipy.optimize import brentq

    def excess(log_noise: float) -> float:
        epsilon = spent_epsilon([(math.exp(log_noise), sample_rate, steps), *beside], delta, accountant)
        return math.log(max(epsilon / target, LEAST))  # finite, or the root search would fail

    # RDP starts without sampling, which only helps and has a closed form. PRV and GDP cost the same at any rate, and
    # PRV is not made for a rate of 1.
    high, rate = 0.0, 1.0 if accountant == "rdp" else sample_rate
    while spent_epsilon([(math.exp(high), rate, steps), *beside], delta, accountant) > target:
        high += math.log(2)
        if high > math.log(MOST_NOISE):
            reason = f" by the {accountant} accountant"
            if accountant == "rdp":
                reason = f": RDP proves nothing below {least_epsilon(delta):.4g}"
            raise ValueError(f"no noise reaches epsilon={target} at delta={delta}{reason}")
    # Small steps for PRV, whose arrays grow without bound where there is little noise.
    step = 1.0 if accountant == "rdp" else 0.2
    low = high + math.log(sample_rate) - 1 if accountant == "rdp" else high - step
    while excess(low) <= 0:
        low, high = low - step, low
    noise = brentq(excess, low, high, xtol=3e-4) if excess(high) < 0 else high
    while excess(noise) > 0:
        noise += 3e-4
    return math.exp(noise)
