"""A budget ends every method, however many rounds it is given: none goes through all of them before the first."""

from __future__ import annotations

from pathlib import Path

import pytest

import vflbench
from tests.contracts.test_pairs import SMALL
from vflbench import registry
from vflbench.types import messages

LISTED = "fedavg"  # it once listed all rounds before the first
# what methods of convex problems need
RIDGE = ("dcpa", "extra", "mtcd", "stcd", "svfl", "tree_cg")
BUDGETS = {
    "bytes": ["max_bytes=100"],
    "virtual_seconds": ["max_virtual_seconds=0.01", "engine.compute_clock=modelled", "compute.seconds_per_unit=0.001"],
}


def data_of(algorithm: str) -> str:
    """A small data set that the algorithm runs on."""
    if algorithm in RIDGE:
        return "ridge"
    info, known = registry.algorithms()[algorithm], registry.datasets()
    return next(name for name in SMALL if registry.fit(info, known[name]))


def sends(algorithm: str) -> bool:
    """Whether training sends anything: what only evaluations send is in no budget."""
    return any(entry.times != "per evaluation" for entry in messages(registry.exposed(algorithm)))


CASES = [
    pytest.param(name, budget, marks=[] if name == LISTED else pytest.mark.slow)
    for name in registry.algorithms()
    for budget in BUDGETS
    if budget != "bytes" or sends(name)
]


@pytest.mark.parametrize(("algorithm", "budget"), CASES)
def test_a_budget_ends_every_method(algorithm: str, budget: str, tmp_path: Path) -> None:
    info, data = registry.algorithms()[algorithm], data_of(algorithm)
    words = [f"algorithm={algorithm}", f"dataset={data}", *SMALL[data], "rounds=1000000000", *BUDGETS[budget]]
    words += ["plot=none", "floor=none", "engine.threads=1", *([] if info.epochs else ["eval_every=1"])]
    run = vflbench.run([*words, f"hydra.run.dir={tmp_path / 'run'}"])
    assert run.status == "budget" and f"max_{budget}" in run.summary["reason"]
