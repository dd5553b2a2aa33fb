"""`privacy=gdp_embedding`: clip and Gaussian noise on every published embedding row, mu-GDP over all its publications.

Liu et al.: PubSub-VFL, arXiv 2510.12494. Two rows of L2 norm at most C_z are at most 2 C_z apart. So one publication
with noise of standard deviation sigma is 2 C_z / sigma-GDP, and R of them are sqrt(R) 2 C_z / sigma-GDP.

    calibration   sigma                            what it guarantees
    guaranteed    2 C_z sqrt(R) / mu               mu, with R = epochs * (1 + max_retries): a row that has reached R is
                                                   published no more
    paper         2 C_z N_m sqrt(K) / (mu N)       not mu: it takes credit for the sampling of batches, but a row is
                                                   published by name

with N_m rows in a batch, K = epochs * batches publications and N training rows. (The paper leaves the constant open,
and has no clip.) Both report the mu of what was really published. With mu=inf rows are only clipped: no noise and no
guarantee.

An algorithm that declares `gdp_embedding` has to

- have `max_releases(config, rounds)`: how often a row has to be published in the run, once per epoch (retries are added
  here);
- ask `me.privacy.may_publish(ids)` before every publication, and publish nothing of the batch where the answer is no;
- publish `me.privacy.protect(rows, ids, me.secret_torch_rng("noise"))`, by the one party that speaks for its
  organisation: it counts;
- put rows through `me.privacy.clip` where they are computed, so that gradients pass through it (by workers too: it has
  no state);
- call only `clip` inside `me.evaluating()`: evaluation carries no noise and is not covered.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np

from vflbench.privacy import keys
from vflbench.privacy.gaussian import SENSITIVITY, GaussianEmbedding, as_index
from vflbench.privacy.mechanisms import Facts
from vflbench.types import OptionInfo, Problem, Range, refuse

if TYPE_CHECKING:
    import torch

OPTIONS = (OptionInfo("gdp_embedding", "clip and Gaussian noise on every embedding that is published, by a target mu"),)
check = keys.check_delta


@dataclass
class Config(keys.Clipped):
    """Keys of gdp_embedding."""

    name: str = "gdp_embedding"
    mu: Annotated[float, Range(above=0, infinite=True)] = 1.0  # of all publications of a row together; inf: no noise
    # how often more than once per epoch a row may be published, on average over the run
    max_retries: Annotated[int, Range(at_least=0)] = 1
    calibration: Literal["guaranteed", "paper"] = "guaranteed"  # how mu becomes noise


def make(config: Config, facts: Facts) -> GdpEmbedding:
    """The mechanism of one party.

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
    return GdpEmbedding(config, facts.max_releases, facts.batch_size, facts.samples, facts.retries)


class GdpEmbedding(GaussianEmbedding):
    """As `GaussianEmbedding`, by a target mu over a bounded number of publications of a row; one object per party.

    The unit of protection is **one embedding row of one passive party**, in all its publications together, against any
    other row. That is less than one *record*: the bottom model is trained on the record too, so the record has an
    effect on the later embeddings of all other rows. Nothing here hides that.

    Parameters
    ----------
    publications : how often a row has to be published in the whole run: the number of epochs.
    batch_size, samples : N_m and N; calibration=paper needs them.
    retries : whether rows may be published again; else `max_retries` counts as 0.
    """

    name = "gdp_embedding"

    def __init__(
        self,
        config: Config,
        publications: int,
        batch_size: int | None = None,
        samples: int | None = None,
        retries: bool = True,
    ) -> None:
        limit = publications * (1 + config.max_retries * retries)
        noise = guaranteed_noise(config.mu, limit)
        if config.calibration == "paper":
            assert batch_size and samples
            queries = publications * math.ceil(samples / batch_size)
            noise = paper_noise(config.mu, min(batch_size, samples), queries, samples)
        super().__init__(config.clip, noise, config.delta, "replace_one", limit)
        self.target, self.calibration = config.mu, config.calibration

    def may_publish(self, ids: torch.Tensor | np.ndarray) -> bool:
        """Whether none of `ids` (n,) would be published more often than R times."""
        _, after = self._counted(as_index(ids))
        assert self.limit is not None
        return int(after.max(initial=0)) <= self.limit

    def spent(self) -> dict[str, Any]:
        """What the most published row has spent so far.

        `mu` and `epsilon` are those of what was published; `target_mu` is the configured one.
        """
        not_covered = [
            "gradients sent back, which tell labels",
            "evaluation exchanges",
            "when messages are sent, which rows are in a batch, and how often a batch is tried again",
            "what a record changes in other rows' embeddings, through the bottom model that is trained on it",
        ]
        if self.noise_multiplier == 0:
            not_covered.insert(0, "the embeddings: mu=inf clips them and adds no noise")
        return super().spent() | {
            "unit": "one embedding row of one passive party, all its publications together",
            "not_covered": "; ".join(not_covered),
            "target_mu": self.target,
            "calibration": self.calibration,
            "max_releases": self.limit,
            "guaranteed": self.calibration == "guaranteed" and self.noise_multiplier > 0,
        }


def guaranteed_noise(mu: float, releases: int) -> float:
    """The ratio sigma / C_z with which `releases` publications of a row are mu-GDP together; 0 for mu = inf."""
    return SENSITIVITY["replace_one"] * math.sqrt(releases) / mu


def paper_noise(mu: float, batch_size: int, queries: int, samples: int) -> float:
    """The ratio sigma / C_z by the paper's formula, whose constant is taken as 2 C_z; 0 for mu = inf."""
    return SENSITIVITY["replace_one"] * batch_size * math.sqrt(queries) / (mu * samples)
