"""Tells before a run whether the tables' simultaneous updates of the ADMM will settle.

For linear models and the loss (z - y)^2 / 2 with exact updates, the iteration of TablePuppet's equations 7 to 16 is
stable iff rho > (3 mu - 4) / 2. Here mu is the largest eigenvalue of the sum of the tables' projections on the joined
rows: 1 where no two tables share a direction, M where all do (an intercept in every table). The derivation is ours;
runs confirm it.
"""

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np

from vflbench import seeding
from vflbench.cards.algorithms.joins.join_methods import AdmmKeys
from vflbench.data.tasks import AlignedPublic, AlignedTask, RelationalPublic, RelationalTask
from vflbench.models import partial
from vflbench.types import RunConfig

log = logging.getLogger(__name__)


def overlap(blocks: Sequence[np.ndarray], intercepts: Sequence[bool]) -> float:
    """The overlap mu of the tables' joined features.

    Parameters
    ----------
    blocks : per table (n, d_i).
    intercepts : per table, whether its model has one.
    """
    bases = []
    for block, intercept in zip(blocks, intercepts, strict=True):
        x = np.asarray(block, dtype=np.float64)
        x = np.concatenate([x, np.ones((len(x), 1))], axis=1) if intercept else x
        values, vectors = np.linalg.eigh(x.T @ x)
        kept = values > 1e-9 * max(values.max(initial=0.0), 1e-300)
        bases.append(x @ (vectors[:, kept] / np.sqrt(values[kept])))  # an orthonormal basis of its columns
    together = np.concatenate(bases, axis=1)
    return float(np.linalg.eigvalsh(together.T @ together).max(initial=0.0))


def smallest_rho(mu: float) -> float:
    """The bound above which rho is stable."""
    return max((3 * mu - 4) / 2, 0.0)


def warn(rho: float, blocks: Sequence[np.ndarray], intercepts: Sequence[bool]) -> None:
    """Log a warning where `rho` is not above the bound, which is estimated from the joined rows in `blocks`."""
    bound = smallest_rho(overlap(blocks, intercepts))
    if rho <= bound:
        log.warning(
            "algorithm.rho=%g will probably DIVERGE: these %d tables want rho > %.3g. Raise it, or use "
            "algorithm.proximal=true%s.",
            rho,
            len(blocks),
            bound,
            ", or model.intercept=label" if sum(intercepts) > 1 else "",
        )


DIAGNOSED = 20_000  # training rows of the label table from which the bound on rho is estimated


def may_diverge(public: RelationalPublic | AlignedPublic, config: RunConfig[AdmmKeys]) -> bool:
    """Whether the bound on rho is known for this run, and rho could be below it.

    The overlap of M tables is at most M.
    """
    known = (
        not public.classes
        and config.model.name == "linear"
        and not config.model.relu_output
        and not config.algorithm.proximal
    )
    return known and config.algorithm.rho <= (3 * public.blocks - 4) / 2


def decide(
    task: RelationalTask | AlignedTask, config: RunConfig[AdmmKeys]
) -> tuple[RunConfig[AdmmKeys], dict[str, Any]]:
    """Decide nothing, but warn where rho is too small for these data."""
    if may_diverge(task.public, config):
        blocks = task.sample(DIAGNOSED, seeding.stream(config.seed, "diagnosis"))
        intercepts = partial.intercepts(config.model, task.public.blocks, task.public.owner)
        warn(config.algorithm.rho, blocks, intercepts)
    return config, {}
