"""Gaussian differential privacy (mu-GDP) of repeated releases; every conversion to (epsilon, delta) is Opacus' own.

Source: Dong, Roth, Su, "Gaussian Differential Privacy" (2022): adding N(0, sigma^2) to something of L2 sensitivity s is s/sigma-GDP
(Theorem 1), n adaptive mu-GDP releases together are sqrt(n) mu-GDP (Corollary 2), exactly, and mu-GDP is the same statement as
(epsilon, delta(epsilon))-DP for every epsilon (Corollary 1).
"""

from __future__ import annotations

import math
from functools import lru_cache

SEARCH_END = 500.0  # Opacus looks for epsilon in [0, 500]


def composed_mu(sensitivity: float, noise_multiplier: float, releases: int) -> float:
    """mu of `releases` Gaussian releases of one row; `sensitivity` and `noise_multiplier` in the same unit (the clipping norm)."""
    if releases == 0:
        return 0.0
    return math.sqrt(releases) * sensitivity / noise_multiplier if noise_multiplier > 0 else math.inf


@lru_cache(maxsize=1024)
def epsilon(mu: float, delta: float) -> float:
    """The smallest epsilon for which mu-GDP gives (epsilon, delta)-DP; infinity above 500, where Opacus' search ends.

    The first call imports Opacus (seconds), which is why nothing above does.
    """
    if mu == 0:
        return 0.0
    if math.isinf(mu):
        return math.inf
    from opacus.accountants.analysis.gdp import delta_eps_mu, eps_from_mu

    # Opacus' root search fails without a change of sign, so both ends are looked at first.
    if delta_eps_mu(eps=0.0, mu=mu) <= delta:
        return 0.0
    if delta_eps_mu(eps=SEARCH_END, mu=mu) > delta:
        return math.inf
    return float(eps_from_mu(mu=mu, delta=delta))


def calibrate(target: float, delta: float, sensitivity: float, releases: int) -> float:
    """The smallest noise multiplier (to 1e-9 relative) whose epsilon after `releases` releases does not exceed `target`.

    Bisection over `epsilon`; the end that is returned has been checked, so the target is never overshot. Errors: ValueError
    for a target or a number of releases that is not positive.
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
