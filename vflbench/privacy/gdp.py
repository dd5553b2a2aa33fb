"""`privacy=gdp_embedding`: clip and Gaussian noise on every published embedding row, mu-GDP over all its publications.

Liu et al.: PubSub-VFL, arXiv 2510.12494. Two rows of L2 norm at most C_z are at most 2 C_z apart. So one publication
with noise of standard deviation sigma is 2 C_z / sigma-GDP, and R of them are sqrt(R) 2 C_z / sigma-GDP.

    calibration   sigma                            what it guarantees
    guaranteed    2 C_z sqrt(R) / mu               mu, with R publications of a row: one per epoch, as a retry sends the
                                                   same noisy row again
    paper         2 C_z N_m sqrt(K) / (mu N)       not mu: it takes credit for the sampling of batches, but a row is
                                                   published by name

with N_m rows in a batch, K = epochs * batches publications and N training rows. (The paper leaves the constant open,
and has no clip.) A target epsilon stands for the mu that is worth it. Both report the mu of what was really published.
With mu=inf or epsilon=inf rows are only clipped: no noise and no guarantee.

An algorithm that declares `gdp_embedding` has to

- have `max_releases(config, rounds)`: how often a row is published in the run, retries left out;
- publish `me.privacy.protect(rows, ids, me.secret_torch_rng("noise"), release=epoch)`, by the one party that speaks for
  its organisation: it counts, and keeps the rows of the release; `me.privacy.forget()` ends it;
- put rows through `me.privacy.clip` where they are computed, so that gradients pass through it (by workers too: it has
  no state);
- serve held-out rows by `privacy/serving.py` inside `me.evaluating()`: `clip`, or `noised`, which counts nothing.
"""

from __future__ import annotations

import math
from typing import Any, TypeVar

from vflbench.cards.privacy.gdp import Config
from vflbench.privacy import accountant, keys
from vflbench.privacy.gaussian import GaussianEmbedding
from vflbench.privacy.keys import SENSITIVITY
from vflbench.privacy.mechanisms import Facts
from vflbench.types import Problem, refuse

Made = TypeVar("Made", bound="GdpEmbedding")


def make(config: Config, facts: Facts) -> GdpEmbedding:
    """The mechanism of one party; raises as `made`."""
    return made(GdpEmbedding, config, facts)


def made(mechanism: type[Made], config: Config, facts: Facts) -> Made:
    """The `mechanism` of one party.

    Raises
    ------
    ConfigError : the algorithm does not say how often a row is published, or has no batches and calibration=paper.
    """
    problems = []
    if not facts.max_releases:
        allowed = "needs an algorithm that says how often a row is published (max_releases)"
        problems.append(Problem("privacy", config.name, allowed))
    if config.calibration == "paper" and not (facts.batch_size and facts.samples):
        allowed = "needs an algorithm with batches (algorithm.batch_size): use guaranteed"
        problems.append(Problem("privacy.calibration", "paper", allowed))
    refuse(problems)
    assert facts.max_releases is not None  # checked above
    return mechanism(config, facts.max_releases, facts.batch_size, facts.samples)


class GdpEmbedding(GaussianEmbedding):
    """As `GaussianEmbedding`, by a target over a known number of publications of a row; one object per party.

    The unit of protection is **one embedding row of one passive party**, in all its publications together, against any
    other row. That is less than one *record*: the bottom model is trained on the record too, so the record has an
    effect on the later embeddings of all other rows. Nothing here hides that.

    Parameters
    ----------
    publications : how often a row is published in the whole run: the number of epochs.
    batch_size, samples : N_m and N; calibration=paper needs them.
    """

    name = "gdp_embedding"
    uncovered: tuple[str, ...] = ("gradients sent back, which tell labels",)

    def __init__(
        self, config: Config, publications: int, batch_size: int | None = None, samples: int | None = None
    ) -> None:
        sensitivity, delta = SENSITIVITY["replace_one"], keys.known_delta(config)
        noise = keys.noise_multiplier(config, sensitivity, publications)
        if config.calibration == "paper":
            assert batch_size and samples
            mu = config.mu if config.mu is not None else accountant.mu_of(config.epsilon or math.inf, delta)
            noise = paper_noise(mu, min(batch_size, samples), publications * math.ceil(samples / batch_size), samples)
        super().__init__(config.clip, noise, delta, "replace_one", publications)
        self.target, self.calibration = keys.target(config), config.calibration
        self.not_covered = (
            *self.uncovered,
            "evaluation exchanges",
            "which rows are in a batch, and how often a batch is tried again",
            "what a record changes in other rows' embeddings, through the bottom model that is trained on it",
        )

    def spent(self) -> dict[str, Any]:
        """What the most published row has spent so far.

        `mu` and `epsilon` are those of what was published; `target` is the configured one.
        """
        not_covered = [*self.not_covered]
        if self.noise_multiplier == 0:
            not_covered.insert(0, "the embeddings: they are clipped and get no noise")
        return super().spent() | {
            "unit": "one embedding row of one passive party, all its publications together",
            "not_covered": not_covered,
            "calibration": self.calibration,
            "guaranteed": self.calibration == "guaranteed" and self.noise_multiplier > 0,
        }


def paper_noise(mu: float, batch_size: int, queries: int, samples: int) -> float:
    """The ratio sigma / C_z by the paper's formula, whose constant is taken as 2 C_z; 0 for mu = inf."""
    return SENSITIVITY["replace_one"] * batch_size * math.sqrt(queries) / (mu * samples)
