"""DP-SGD of a worker with its own rows: clipped gradients of examples, Gaussian noise on the sum over a random batch.

Abadi et al., arXiv 1607.00133; in decentralized learning: Cheng et al., arXiv 1811.11124 (LEASGD), equation 4. The unit
of protection is one example of a worker's shard, with or without it (add or remove). A batch has each row with
probability b / n (Poisson). The models that a worker sends depend only on its noisy gradients and on what others sent,
so its own epsilon covers them. Where it sends nothing else, that is the whole transcript (`covers`). An algorithm that
sends more states what is outside (`not_covered`; LEASGD: losses, and the roles that follow from them), or gives it a
budget of its own (`NoisyScalars`), which is then part of epsilon.

clip_unit=batch is that paper's literal text: the batch's whole gradient is clipped to C and gets noise of standard
deviation sigma C. Its sensitivity is 2 C, whatever the batch size: one more example may turn the clipped vector round.
So the noise counts as sigma / 2. (An example is still in a batch only by chance; the sampled Gaussian mechanism
accounts for this with any query of bounded sensitivity.)
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from vflbench.privacy import accountant
from vflbench.privacy.gaussian import gaussian_like
from vflbench.privacy.keys import Clipped
from vflbench.privacy.tables import poisson
from vflbench.seeding import SecretStream
from vflbench.types import ConfigError, FederationError, PrivacyConfig, Problem

if TYPE_CHECKING:
    import torch

    from vflbench.privacy.dp_sgd import Config

SENSITIVITY = {"example": 1.0, "batch": 2.0}  # of the released sum or mean, in units of the clipping norm, by clip_unit
log = logging.getLogger(__name__)


def warn(config: PrivacyConfig, rows: Sequence[int]) -> None:
    """Log a warning where delta is 1 / n or above: it would allow the publication of a row."""
    if isinstance(config, Clipped) and config.delta >= 1 / max(rows):
        log.warning(
            "privacy.delta=%g is not below 1/n = %.3g of a party with %d rows: publishing one of them would satisfy "
            "it.",
            config.delta,
            1 / max(rows),
            max(rows),
        )


def plan(config: Any, rows: Sequence[int], batch: int, steps: Sequence[int]) -> None:
    """Warn of a large delta, and calibrate the noise of all workers before a run touches any file.

    The calibration takes seconds. The workers' own `prepare` then finds the values in a cache.

    Parameters
    ----------
    rows, steps : of each worker.

    Raises
    ------
    ConfigError : no noise reaches the target epsilon.
    """
    warn(config, rows)
    if config.name == "dp_sgd":
        for count, taken in sorted(set(zip(rows, steps, strict=True))):
            noise_multiplier(config, count, batch, taken)


def noise_multiplier(config: Config, rows: int, batch: int, steps: int) -> float:
    """The standard deviation of the noise over the clipping norm, as given or calibrated.

    It is calibrated for `steps` batches of `batch` out of `rows` rows.

    Raises
    ------
    ConfigError : no noise reaches the target epsilon.
    """
    if config.noise_multiplier is not None:
        return config.noise_multiplier
    assert config.epsilon is not None  # checked with the configuration
    at_one = calibrated(config.epsilon, config.delta, sample_rate(rows, batch), steps, config.accountant)
    return SENSITIVITY[config.clip_unit] * at_one


def sample_rate(rows: int, batch: int) -> float:
    """The probability with which a row is in a batch."""
    return min(batch, rows) / rows


class ExamplePrivacy:
    """All that one worker does for privacy; one object per worker, prepared before the first round."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.clip, self.delta = config.clip, config.delta
        self.unit, self.accountant = config.clip_unit, config.accountant
        self.noise_multiplier, self.sample_rate = config.noise_multiplier, 0.0
        self.taken = 0  # noisy steps
        self.scalars: NoisyScalars | None = None
        self.not_covered = ""

    def prepare(self, rows: int, batch: int, steps: int, generator: torch.Generator | SecretStream) -> None:
        """Calibrate the noise.

        Parameters
        ----------
        rows : rows that the worker trains on.
        batch : expected rows of a batch.
        steps : batches of the whole run.
        generator : draws the noise.

        Raises
        ------
        ConfigError : no noise reaches the target epsilon.
        """
        self.rows, self.expected, self.planned, self.generator = rows, min(batch, rows), steps, generator
        self.sample_rate = sample_rate(rows, batch)
        self.noise_multiplier = noise_multiplier(self.config, rows, batch, steps)

    def sample(self, rng: np.random.Generator | SecretStream) -> np.ndarray:
        """The rows of a Poisson batch, ascending."""
        return poisson(self.rows, self.sample_rate, rng)

    def noise(self, like: torch.Tensor) -> torch.Tensor:
        """Noise for one step's sum (unit=batch: mean), of the shape of `like`.

        Raises
        ------
        FederationError : all planned steps were taken.
        """
        if self.taken >= self.planned:
            raise FederationError(f"the noise was calibrated for {self.planned} steps, and this is one more")
        self.taken += 1
        assert self.noise_multiplier is not None
        return gaussian_like(like, self.generator).mul_(self.noise_multiplier * self.clip)

    @property
    def history(self) -> list[tuple[float, float, int]]:
        """The noise multiplier at sensitivity 1, sample rate and steps of everything released so far."""
        if self.noise_multiplier is None:  # Ctrl-C came before `prepare`
            return []
        steps = [(self.noise_multiplier / SENSITIVITY[self.unit], self.sample_rate, self.taken)]
        return steps + ([self.scalars.history] if self.scalars is not None else [])

    def spent(self) -> dict[str, Any]:
        """What this worker has spent so far."""
        epsilon = accountant.spent_epsilon(self.history, self.delta, self.accountant)
        scalars: dict[str, Any] = {}
        if self.scalars is not None:
            model, loss = (accountant.spent_epsilon([one], self.delta, self.accountant) for one in self.history)
            scalars = {"model_epsilon": model, "ranking_epsilon": loss, "ranking_noise": self.scalars.noise_multiplier}
        return {
            "mechanism": "dp_sgd",
            "epsilon": epsilon,
            "delta": self.delta,
            "unit": "one example of a worker's shard",
            "neighbouring": "add_remove",
            "covers": "model" if self.not_covered else "transcript",
            **({"not_covered": self.not_covered} if self.not_covered else {}),
            "accountant": self.accountant,
            "classical_epsilon": accountant.classical_epsilon(self.history, self.delta),
            "clip": self.clip,
            "clip_unit": self.unit,
            "noise_multiplier": self.noise_multiplier,
            "sample_rate": self.sample_rate,
            "steps": self.taken,
            "sampling": "poisson",
            **scalars,
        }

    def state_dict(self) -> dict[str, Any]:
        """The state that a checkpoint keeps."""
        return {"taken": self.taken, "scalars": self.scalars.taken if self.scalars is not None else 0}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take the state back from a checkpoint."""
        self.taken = state["taken"]
        if self.scalars is not None:
            self.scalars.taken = state["scalars"]


class NoisyScalars:
    """A worker's mean loss, released now and then with a budget of its own.

    Losses are clipped to [0, bound] and summed over a Poisson batch; the sum gets noise.
    """

    def __init__(
        self, bound: float, epsilon: float, delta: float, sample_rate: float, releases: int, accountant: str
    ) -> None:
        self.bound, self.sample_rate, self.planned, self.taken = bound, sample_rate, releases, 0
        key = "algorithm.ranking_epsilon"
        self.noise_multiplier = calibrated(epsilon, delta, sample_rate, releases, accountant, key)

    @property
    def history(self) -> tuple[float, float, int]:
        """The noise multiplier, sample rate and releases so far."""
        return self.noise_multiplier, self.sample_rate, self.taken

    def release(self, losses: np.ndarray, expected: float, rng: np.random.Generator | SecretStream) -> float:
        """The noisy mean of a batch's losses, (n,).

        Parameters
        ----------
        expected : expected rows of a batch, which the sum is divided by.

        Raises
        ------
        FederationError : all planned releases were made.
        """
        if self.taken >= self.planned:
            raise FederationError(f"the losses' noise was calibrated for {self.planned} releases, and this is one more")
        self.taken += 1
        total = np.clip(losses, 0, self.bound).sum() + rng.normal(scale=self.noise_multiplier * self.bound)
        return float(total / expected)


def calibrated(
    target: float, delta: float, sample_rate: float, steps: int, accountant_name: str, key: str = "privacy.epsilon"
) -> float:
    """As `accountant.calibrate_steps`.

    Raises
    ------
    ConfigError : no noise reaches the target; the problem is that of `key`.
    """
    try:
        return accountant.calibrate_steps(target, delta, sample_rate, steps, accountant_name)
    except ValueError as error:
        raise ConfigError([Problem(key, target, str(error))]) from None
