"""DP-SGD's step over a table: sums of clipped gradients with noise, over random batches (tables.py)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import numpy as np

from vflbench.privacy import accountant
from vflbench.privacy.gaussian import gaussian_like
from vflbench.seeding import SecretStream
from vflbench.types import FederationError

if TYPE_CHECKING:
    import torch

    from vflbench.models.partial import Partial

Numbers = np.random.Generator | SecretStream


class NoisyGradients:
    """DP-SGD's step: rows' gradients, clipped to L2 norm `clip`, summed over a Poisson batch, plus noise.

    The noise is N(0, (sigma clip)^2 I).
    """

    def __init__(self, clip: float, noise_multiplier: float | None, epsilon: float | None, delta: float) -> None:
        self.clip, self.noise_multiplier, self.target, self.delta = clip, noise_multiplier, epsilon, delta
        self.sample_rate = 0.0
        self.planned: int | None = None  # steps that the noise is calibrated for
        self.taken = 0
        self.rows = 0  # whose gradients were summed
        self.clipped: Any = 0  # of them those that were too long; a tensor, so that no device waits

    def prepare(
        self,
        sample_rate: float,
        steps: int,
        rng: Numbers,
        noise: torch.Generator | SecretStream,
        calibrated: float | None = None,
        beside: accountant.History = (),
    ) -> None:
        """Calibrate the noise; after a resume, only take the streams.

        Parameters
        ----------
        sample_rate : the largest probability with which a row is part of a batch.
        steps : batches of the whole run.
        rng : draws batches.
        noise : draws the noise.
        calibrated : the noise multiplier, where it is known already.
        beside : other releases of the same rows, which the target covers too.
        """
        self.rng, self.noise = rng, noise
        if self.planned is not None:
            return
        self.sample_rate, self.planned = sample_rate, steps
        if self.noise_multiplier is None and calibrated is None:
            assert self.target is not None  # checked with the configuration
            calibrated = 0.0  # no row of this party joins: there is nothing to hide
            if sample_rate * steps and math.isfinite(self.target):
                calibrated = accountant.calibrate_steps(self.target, self.delta, sample_rate, steps, beside=beside)
        if self.noise_multiplier is None:  # at last: where no noise is enough, `gradient` goes on to refuse
            self.noise_multiplier = calibrated

    def sample(self, rows: int, rate: float) -> np.ndarray:
        """A Poisson batch: each of `rows` rows with probability `rate`, ascending."""
        return poisson(rows, rate, self.rng)

    def gradient(
        self, model: Partial, x: torch.Tensor, cotangent: torch.Tensor, out: torch.Tensor, inside: torch.Tensor
    ) -> torch.Tensor:
        """The noisy sum of the rows' clipped gradients, of theta's shape; it counts as one step.

        Raises
        ------
        FederationError : all planned steps were taken.
        """
        if self.planned is None or self.noise_multiplier is None or self.taken >= self.planned:
            planned = self.planned or 0
            raise FederationError(f"the noise was calibrated for {planned} steps, and a further one is to be taken")
        self.taken += 1
        # a row of norm 0 gives infinity, and so 1
        factor = (self.clip / model.row_norms(x, cotangent, out, inside)).clamp_(max=1)
        self.rows += len(factor)
        self.clipped += (factor < 1).sum()
        total = model.gradient(x, cotangent * factor[:, None], out, inside)
        return total.add_(gaussian_like(total, self.noise), alpha=self.noise_multiplier * self.clip)

    @property
    def clipped_share(self) -> float | None:
        """The share of gradients that were longer than `clip`; None before any."""
        return float(self.clipped) / self.rows if self.rows else None

    @property
    def history(self) -> tuple[float, float, int]:
        """The noise multiplier, sample rate and steps taken, as the accountant composes them."""
        return self.noise_multiplier or 0.0, self.sample_rate, self.taken

    def state_dict(self) -> dict[str, Any]:
        """The state that a checkpoint keeps."""
        return {
            "noise": self.noise_multiplier,
            "rate": self.sample_rate,
            "planned": self.planned,
            "taken": self.taken,
            "clipped": (int(self.clipped), self.rows),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take the state back from a checkpoint."""
        self.noise_multiplier, self.sample_rate = state["noise"], state["rate"]
        self.planned, self.taken = state["planned"], state["taken"]
        self.clipped, self.rows = state.get("clipped", (0, 0))


def poisson(rows: int, rate: float, rng: Numbers) -> np.ndarray:
    """Each of `rows` rows with probability `rate`, independently; ascending int64.

    The cost is the length of the result; with a secret stream it is `rows`.
    """
    if isinstance(rng, SecretStream):
        return np.flatnonzero(rng.random(rows) < rate)
    return np.sort(rng.choice(rows, size=rng.binomial(rows, rate), replace=False, shuffle=False))


def rehearsed(batches: int, rows: int, rate: float, rng: Numbers) -> Iterator[np.ndarray]:
    """The next Poisson batches that `rng` will give, without a change of `rng`."""
    ahead = deepcopy(rng)
    for _ in range(batches):
        yield poisson(rows, rate, ahead)
