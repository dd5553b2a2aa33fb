"""The bound on rho: its value for known overlaps, and that runs below it diverge and runs above it do not."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from tests.algorithms.small_joins import config, run, tables
from vflbench.algorithms.joins import rfl_admm_v
from vflbench.algorithms.joins.stability import overlap, smallest_rho


def test_overlap_of_tables_that_share_nothing_one_direction_or_all() -> None:
    rng = np.random.default_rng(0)
    q, _ = np.linalg.qr(rng.normal(size=(50, 6)))
    none = [False] * 3
    assert overlap([q[:, :2] * 7, q[:, 2:4], q[:, 4:]], none) == pytest.approx(1)
    assert overlap([q[:, :2] * 7, q[:, 1:4], q[:, 4:]], none) == pytest.approx(2)
    assert overlap([q[:, :1], np.concatenate([q[:, :1], q[:, :1]], axis=1), q[:, :1]], none) == pytest.approx(3)
    assert overlap([np.zeros((50, 0))] * 3, [True] * 3) == pytest.approx(3)
    assert smallest_rho(3) == 2.5 and smallest_rho(1) == 0


@pytest.mark.parametrize(
    ("intercept", "rho", "stable"), [("tables", 2.0, False), ("tables", 3.0, True), ("label", 1.5, True)]
)
def test_the_bound_is_where_the_iteration_turns(
    intercept: str, rho: float, stable: bool, caplog: pytest.LogCaptureFixture
) -> None:
    options = {"solver": "exact", "rho": rho, "weight_decay": 0.0, "rounds": 150, "model": {"intercept": intercept}}
    with caplog.at_level(logging.WARNING):
        rfl_admm_v.decide(tables(), config(rfl_admm_v, **options))
    losses = run(rfl_admm_v, tables(), config(rfl_admm_v, **options)).losses
    assert (losses[-1] < 2 * losses[0]) == stable
    assert ("will probably DIVERGE" in caplog.text) != stable
    if not stable:
        calmed = run(rfl_admm_v, tables(), config(rfl_admm_v, proximal=True, **options)).losses
        assert calmed[-1] <= calmed[0]
