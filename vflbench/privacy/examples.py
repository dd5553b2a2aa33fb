"""DP-SGD of a worker with its own rows: clipped gradients of examples, Gaussian noise on the sum over a random batch.

Abadi et al., arXiv 1607.00133; in decentralized learning: Cheng et al., arXiv 1811.11124 (LEASGD), equation 4. The unit
of protection is one example of a worker's shard, with or without it (add or remove). A batch has each row with
probability b / n (Poisson). The models that a worker sends depend only on its noisy gradients and on what others sent,
so its own epsilon covers them. Where it sends nothing else, that is the whole transcript (`covers`). An algorithm that
sends more states what is outside (`not_covered`; LEASGD: losses, and the roles that follow from them), or gives it a
budget of its own (`NoisyScalars`), which is then part of epsilon. A party that sends nothing protects its model alone:
what a trusted curator with all these rows could release. Where its batches are all rows, each step is a plain Gaussian
release of every row, and mu-GDP accounts for the steps exactly.

clip_unit=batch is that paper's literal text: the batch's whole gradient is clipped to C and gets noise of standard
deviation sigma C. Its sensitivity is 2 C, whatever the batch size: one more example may turn the clipped vector round.
So the noise counts as sigma / 2. (An example is still in a batch only by chance; the sampled Gaussian mechanism
accounts for this with any query of bounded sensitivity.)
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from vflbench.privacy import accountant
from vflbench.privacy.gaussian import gaussian_like
from vflbench.privacy.gradients import poisson
from vflbench.privacy.keys import known_delta, large_delta, reported, target
from vflbench.privacy.mechanisms import Facts
from vflbench.seeding import SecretStream
from vflbench.types import ConfigError, FederationError, PrivacyConfig, Problem

if TYPE_CHECKING:
    import torch

    from vflbench.cards.privacy.dp_sgd import Config

SENSITIVITY = {"example": 1.0, "batch": 2.0}  # of the released sum or mean, in units of the clipping norm, by clip_unit
log = logging.getLogger(__name__)


def warn(config: PrivacyConfig, rows: Sequence[int]) -> None:
    """Log a warning where delta is 1 / n or above: it would allow the publication of a row."""
    if told := large_delta(config, max(rows)):
        log.warning("%s.", told)


def plan(
    config: Any,
    rows: Sequence[int],
    batch: int,
    steps: Callable[[], Sequence[int]],
    beside: Callable[[int], accountant.History] = lambda _: (),
    pooled: bool = False,
) -> None:
    """Warn of a large delta, and calibrate the noise of all workers before a run touches any file.

    The calibration takes seconds. The workers' own `prepare` then finds the values in a cache.

    Parameters
    ----------
    rows : of each worker.
    steps : gives those of each worker; asked only where there is noise, as it may go through all rounds.
    beside : rows of a worker -> its other releases.
    pooled : whether one party has the rows of all, so that full batches are accounted for exactly.

    Raises
    ------
    ConfigError : no noise reaches the target epsilon.
    """
    if not pooled:  # else the runner has, by the task's rows
        warn(config, rows)
    if config.name == "dp_sgd":
        for count, taken in sorted(set(zip(rows, steps(), strict=True))):
            noise_multiplier(config, count, batch, taken, beside(count), pooled)


def noise_multiplier(
    config: Config, rows: int, batch: int, steps: int, beside: accountant.History = (), pooled: bool = False
) -> float:
    """The standard deviation of the noise over the clipping norm, as given or calibrated.

    It is calibrated for `steps` batches of `batch` out of `rows` rows, together with the releases `beside`.

    Raises
    ------
    ConfigError : no noise reaches the target epsilon.
    """
    if config.noise_multiplier is not None:
        return config.noise_multiplier
    assert config.epsilon is not None  # settled
    rate, delta = sample_rate(rows, batch), known_delta(config)
    at_one = calibrated(config.epsilon, delta, rate, steps, accountant_of(config, rate, pooled), beside=beside)
    return SENSITIVITY[config.clip_unit] * at_one


def accountant_of(config: Config, rate: float, pooled: bool) -> str:
    """What counts a party's steps: with all rows in every batch `exact`, else the accountant of the keys."""
    return "exact" if pooled and rate == 1 else config.accountant


def sample_rate(rows: int, batch: int) -> float:
    """The probability with which a row is in a batch."""
    return min(batch, rows) / rows


class ExamplePrivacy:
    """All that one worker does for privacy; one object per worker, prepared before the first round.

    Parameters
    ----------
    facts : of the run; `alone` and the layout decide what is covered, and of what. None: workers that send models.
    """

    def __init__(self, config: Config, facts: Facts | None = None) -> None:
        facts = facts or Facts("sharded")
        self.alone, self.pooled = facts.alone, facts.layout != "sharded"
        self.config = config
        self.clip, self.delta = config.clip, known_delta(config)
        self.unit, self.accountant = config.clip_unit, str(config.accountant)
        self.noise_multiplier, self.sample_rate = config.noise_multiplier, 0.0
        self.taken = 0  # noisy steps
        self.scalars: NoisyScalars | None = None
        self.planned: int | None = None  # steps that the noise is calibrated for
        self.not_covered: list[str] = []

    def prepare(self, rows: int, batch: int, steps: int, generator: torch.Generator | SecretStream) -> None:
        """Calibrate the noise; what `scalars` will release counts too, so set them before.

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
        beside = () if self.scalars is None else (self.scalars.planned_history,)
        self.accountant = accountant_of(self.config, self.sample_rate, self.pooled)
        self.noise_multiplier = noise_multiplier(self.config, rows, batch, steps, beside, self.pooled)

    def sample(self, rng: np.random.Generator | SecretStream) -> np.ndarray:
        """The rows of a Poisson batch, ascending."""
        return poisson(self.rows, self.sample_rate, rng)

    def factors(self, norms: torch.Tensor) -> torch.Tensor:
        """What examples' gradients are multiplied by, given their L2 norms, (n,); only with unit=example."""
        return (self.clip / norms).clamp_(max=1)  # a norm of 0 gives infinity, and so 1

    def mean_noise(self, like: torch.Tensor) -> torch.Tensor:
        """The `noise` of a sum over the expected batch; only with unit=example."""
        return self.noise(like) / self.expected

    def noise(self, like: torch.Tensor) -> torch.Tensor:
        """Noise for one step's sum (unit=batch: mean), of the shape of `like`.

        Raises
        ------
        FederationError : all planned steps were taken.
        """
        if self.planned is None or self.taken >= self.planned:
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
        return reported(
            target(self.config),
            mechanism="dp_sgd",
            epsilon=epsilon,
            delta=self.delta,
            mu=accountant.mu_of_steps(self.history) if self.accountant == "exact" else None,
            unit="one row with the columns of all parties, and its label"
            if self.pooled
            else "one example of a worker's shard",
            neighbouring="add_remove",
            covers="model" if self.not_covered or self.alone else "transcript",
            not_covered=[
                *self.not_covered,
                "how many rows a worker has",
                "means and scales of columns, where they are standardised: they are taken without noise",
                *(["the mean label, which labels that are numbers are centred by"] if self.pooled else []),
                "evaluation exchanges",
            ],
            accountant=self.accountant,
            releases={"planned": self.planned, "done": self.taken},
            noise_multiplier=self.noise_multiplier,
            clip=self.clip,
            classical_epsilon=accountant.classical_epsilon(self.history, self.delta),
            clip_unit=self.unit,
            sample_rate=self.sample_rate,
            steps=self.taken,
            sampling="none" if self.accountant == "exact" else "poisson",
            **scalars,
        )

    def state_dict(self) -> dict[str, Any]:
        """The state that a checkpoint keeps."""
        return {"taken": self.taken, "scalars": self.scalars.taken if self.scalars is not None else 0}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take the state back from a checkpoint."""
        self.taken = state["taken"]
        if self.scalars is not None:
            self.scalars.taken = state["scalars"]


class NoisyScalars:
    """A worker's mean loss, released now and then with a budget of its own, which is part of the worker's.

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

    @property
    def planned_history(self) -> tuple[float, float, int]:
        """The same of the whole run."""
        return self.noise_multiplier, self.sample_rate, self.planned

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
    target: float,
    delta: float,
    sample_rate: float,
    steps: int,
    accountant_name: str,
    key: str = "privacy.epsilon",
    beside: accountant.History = (),
) -> float:
    """As `accountant.calibrate_steps`; 0 for an infinite target, and where there are no steps.

    Raises
    ------
    ConfigError : no noise reaches the target; the problem is that of `key`.
    """
    if math.isinf(target) or not steps:
        return 0.0
    try:
        return accountant.calibrate_steps(target, delta, sample_rate, steps, accountant_name, beside)
    except ValueError as error:
        raise ConfigError([Problem(key, target, str(error))]) from None
