"""Randomised response on bins: probabilities, what is spent, and that it is used once."""

from __future__ import annotations

import numpy as np
import pytest

from vflbench.privacy.rr_bins import RandomisedBins
from vflbench.seeding import Secret
from vflbench.types import FederationError


@pytest.mark.parametrize("secret", [False, True])
def test_a_cell_keeps_its_bin_as_often_as_epsilon_allows(secret: bool) -> None:
    """And shows each other bin equally often; the ratio of any two probabilities is at most e^epsilon."""
    n, epsilon = 40_000, 1.5
    codes = np.stack([np.full(n, 2), np.full(n, 1), np.zeros(n)], axis=1).astype(np.uint8)
    last = np.array([4, 1, 0], np.uint8)
    rng = Secret().stream("noise") if secret else np.random.default_rng(0)
    mechanism = RandomisedBins(2 * epsilon)
    shown = mechanism.respond(codes, last, rng)
    for j, bins in enumerate((5, 2)):
        keeps = np.exp(epsilon) / (np.exp(epsilon) + bins - 1)
        found = np.bincount(shown[:, j], minlength=bins) / n
        expected = np.full(bins, (1 - keeps) / (bins - 1))
        expected[codes[0, j]] = keeps
        assert expected.max() / expected.min() == pytest.approx(np.exp(epsilon))
        np.testing.assert_allclose(found, expected, atol=5 * 0.5 / np.sqrt(n))
    assert (shown[:, 2] == 0).all() and (codes[:, 0] == 2).all()
    assert mechanism.spent()["epsilon"] == 2 * epsilon  # a column of one bin tells nothing
    with pytest.raises(FederationError, match="bins are released once"):
        mechanism.respond(codes, last, rng)
    given = RandomisedBins(cell_epsilon=epsilon)
    given.respond(codes, last, rng)
    assert given.spent()["epsilon"] == 2 * epsilon and given.spent()["target"] is None
    again = RandomisedBins(2 * epsilon)
    again.load_state_dict(mechanism.state_dict())
    assert again.spent() == mechanism.spent()


def test_nothing_is_spent_before_it_is_sent() -> None:
    assert RandomisedBins(1.0).spent()["epsilon"] == 0
