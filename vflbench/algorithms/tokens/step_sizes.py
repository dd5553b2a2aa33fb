"""Step sizes of methods with tokens, and the Lanczos iteration that finds them."""

import logging
import math
from typing import Any

import numpy as np

from vflbench.algorithms.tokens.block_descent import epoch
from vflbench.cards.algorithms.tokens import centralized_gd, mtcd, stcd
from vflbench.cards.algorithms.tokens.token_methods import NetworkKeys
from vflbench.data.tasks import AlignedTask
from vflbench.models import glm
from vflbench.models.glm import Glm
from vflbench.types import (
    RunConfig,
)

log = logging.getLogger(__name__)

NETWORK_LR = 0.01  # learning rate of networks, where lr is null


def client_lr(cfg: mtcd.Config | centralized_gd.Config | stcd.Config, block: Any, samples: int) -> float:
    """A client's step size: algorithm.lr, or where that is null 1 / L_k, and 0.01 for networks.

    For batches of B samples 1 / L_k is multiplied by B / N: larger steps are not stable.
    """
    if cfg.lr is not None:
        return float(cfg.lr)
    if not isinstance(block, Glm):
        return NETWORK_LR
    size = cfg.batch_size if isinstance(cfg, NetworkKeys) and cfg.batch_size else samples
    return min(size, samples) / samples / max(block.smoothness, 1e-300)


def lr_of(config: RunConfig[NetworkKeys], lr: float, round: int, samples: int) -> float:
    """The step size of `round`: it starts at `lr`, and falls as algorithm.halve_every and algorithm.anneal say."""
    cfg = config.algorithm
    if cfg.anneal:
        assert config.rounds is not None  # decided by the runner
        return lr * (0.01 + 0.99 * (1 + math.cos(math.pi * (round - 1) / config.rounds)) / 2)
    if cfg.halve_every is None:
        return lr
    return lr * 0.5 ** int(epoch(round - 1, samples, cfg.batch_size) / cfg.halve_every + 1e-9)


class Lanczos:
    """The largest eigenvalue of sum_k X_k X_k^T, found by a coordinator that knows no X_k and asks for products.

    It multiplies `vector` by the sum and hands the product to `take`, step by step. Full reorthogonalisation.
    """

    def __init__(self, samples: int, rng: np.random.Generator) -> None:
        start = rng.standard_normal(samples)
        self.basis = [start / np.linalg.norm(start)]
        self.diagonal: list[float] = []
        self.beside: list[float] = []

    @property
    def vector(self) -> np.ndarray:
        """The vector to multiply next, (N,)."""
        return self.basis[-1]

    def take(self, product: np.ndarray) -> None:
        """Take the product of `vector`, (N,)."""
        self.diagonal.append(float(self.vector @ product))
        for _ in range(2):
            for v in self.basis:
                product = product - (v @ product) * v
        size = float(np.linalg.norm(product))
        self.beside.append(size)
        self.basis.append(product / size if size > 0 else product)

    def bound(self) -> float:
        """The largest Ritz value plus its residual.

        An eigenvalue lies between the two. It is mostly the largest one, and within a few % of the result.
        """
        beside = self.beside[: len(self.diagonal) - 1]
        values, vectors = np.linalg.eigh(np.diag(self.diagonal) + np.diag(beside, 1) + np.diag(beside, -1))
        return float(values[-1] + self.beside[-1] * abs(vectors[-1, -1]))


def warn_of_steps(task: AlignedTask, cfg: mtcd.Config) -> None:
    """Log a warning where cluster weights meet a step beyond 1 / (L M), M = Q (S + 1): the order of theorem 1's bound.

    It warns for convex objectives only: the L of a network is not known.
    """
    if cfg.weights != "cluster" or task.objective is None:
        return
    updates = cfg.local_steps * (cfg.hops + 1)
    loss = glm.Loss(task.objective, task.labels)
    blocks = [np.asarray(block, dtype=np.float64) for block in task.features]
    whole = loss.curvature * glm.largest_eigenvalue(np.concatenate(blocks, axis=1)) + loss.decay
    samples = len(task.labels)
    share = min(cfg.batch_size or samples, samples) / samples  # as in client_lr
    lr = cfg.lr
    if lr is None:
        lr = share / max(loss.curvature * max(map(glm.largest_eigenvalue, blocks)) + loss.decay, 1e-300)
    if lr > 1 / (whole * updates):
        log.warning(
            "algorithm.lr=%.3g%s is beyond 1 / (L M) = %.3g, the order of the largest step that is known to converge "
            "with algorithm.weights=cluster and M = %d updates a token between syncs: it may DIVERGE. Lower lr, hops "
            "or local_steps, or use algorithm.weights=average.",
            lr,
            "" if cfg.lr is not None else " (1 / L_k, its default)",
            1 / (whole * updates),
            updates,
        )
