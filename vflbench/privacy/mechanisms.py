"""The `privacy` group: what is wrong with an option, its mechanism for one party, and what all parties together have spent.

The party that owns the data applies its mechanism, before `send`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from vflbench.privacy import accountant, examples, gdp, tables
from vflbench.privacy.examples import ExamplePrivacy
from vflbench.privacy.gaussian import SENSITIVITY, GaussianEmbedding
from vflbench.privacy.gdp import GdpEmbedding
from vflbench.privacy.tables import TablePrivacy
from vflbench.types import ConfigError, PrivacyConfig, Problem, closest

MECHANISMS = ("none", "gaussian_embedding", "gdp_embedding", *tables.MECHANISMS)


def check(config: PrivacyConfig) -> list[Problem]:
    """Everything that is wrong with the privacy group, before any work."""
    if config.name == "none":
        return []
    if config.name not in MECHANISMS:
        return [Problem("privacy", config.name, f"must be one of {', '.join(MECHANISMS)}", closest(config.name, MECHANISMS))]
    problems = tables.check(config) if config.name in tables.MECHANISMS else []
    if config.name == "label_dp":
        return problems
    problems += examples.check(config)
    if not (config.clip > 0 and math.isfinite(config.clip)):
        clipped = "a gradient" if config.name in tables.MECHANISMS else "a row"
        problems.append(Problem("privacy.clip", config.clip, f"must be a number above 0, the largest L2 norm of {clipped}"))
    if not 0 < config.delta < 1:
        problems.append(Problem("privacy.delta", config.delta, "must lie between 0 and 1, well below one over the number of rows"))
    if config.name == "gdp_embedding":
        return problems + gdp.check(config)
    if config.name == "gaussian_embedding" and config.neighbouring not in SENSITIVITY:
        allowed = f"must be one of {', '.join(SENSITIVITY)}"
        problems.append(Problem("privacy.neighbouring", config.neighbouring, allowed, closest(config.neighbouring, SENSITIVITY)))
    if config.epsilon is None and config.noise_multiplier is None:
        problems.append(Problem("privacy.epsilon", "null", "give a target, privacy.epsilon=8, or the noise, privacy.noise_multiplier=1"))
    elif config.epsilon is not None and config.noise_multiplier is not None:
        problems.append(Problem("privacy.epsilon", config.epsilon, "give either epsilon or noise_multiplier, not both"))
    elif config.epsilon is not None and not 0 < config.epsilon <= accountant.SEARCH_END:
        problems.append(Problem("privacy.epsilon", config.epsilon, f"must be above 0 and at most {accountant.SEARCH_END:g}"))
    elif config.noise_multiplier is not None and not (config.noise_multiplier >= 0 and math.isfinite(config.noise_multiplier)):
        allowed = "must be a number, 0 (clipping only, no guarantee) or above"
        problems.append(Problem("privacy.noise_multiplier", config.noise_multiplier, allowed))
    return problems


def make(
    config: PrivacyConfig,
    max_releases: int | None = None,
    layout: str = "relational",
    batch_size: int | None = None,
    samples: int | None = None,
) -> GaussianEmbedding | TablePrivacy | ExamplePrivacy | None:
    """The mechanism of one party (None for `none`): every party needs its own.

    Parameters
    ----------
    max_releases : gaussian_embedding: the algorithm's bound on how often one row of one party can be released in the whole run; a
        target epsilon needs it. gdp_embedding: how often a row has to be published, retries not counted; needed.
    layout : of the task: what a row is.
    batch_size, samples : gdp_embedding with calibration=paper: rows of a publication, and of the training set.

    Raises
    ------
    ConfigError : the configuration is wrong.
    """
    problems = check(config)
    if config.name == "gaussian_embedding" and config.epsilon is not None and not max_releases:
        allowed = "needs an algorithm that bounds how often a row is released; give privacy.noise_multiplier instead"
        problems.append(Problem("privacy.epsilon", config.epsilon, allowed))
    if config.name == "gdp_embedding" and not max_releases:
        problems.append(Problem("privacy", config.name, "needs an algorithm that says how often a row is published (max_releases)"))
    if config.name == "gdp_embedding" and config.calibration == "paper" and not (batch_size and samples):
        problems.append(Problem("privacy.calibration", "paper", "needs an algorithm with batches (algorithm.batch_size): use guaranteed"))
    if layout != "sharded":
        for key, only in (("accountant", "rdp"), ("clip_unit", "example")):
            if getattr(config, key) != only:
                allowed = f"only workers with rows of their own can choose; on {layout} data it is {only}"
                problems.append(Problem(f"privacy.{key}", getattr(config, key), allowed))
    elif config.prediction_noise is not None:
        problems.append(Problem("privacy.prediction_noise", config.prediction_noise, "workers with rows of their own send no predictions"))
    if problems:
        raise ConfigError(problems)
    if config.name == "none":
        return None
    if layout == "sharded":
        return ExamplePrivacy(config)
    if config.name in tables.MECHANISMS:
        return TablePrivacy(config, layout)
    if config.name == "gdp_embedding":
        assert max_releases is not None  # checked above
        return GdpEmbedding(config, max_releases, batch_size, samples)
    noise, limit = config.noise_multiplier, None
    if noise is None:
        assert config.epsilon is not None and max_releases is not None  # checked above
        noise, limit = accountant.calibrate(config.epsilon, config.delta, SENSITIVITY[config.neighbouring], max_releases), max_releases
    return GaussianEmbedding(config.clip, noise, config.delta, config.neighbouring, limit)


def check_labels(config: PrivacyConfig, labels: np.ndarray, classes: int) -> list[Problem]:
    """Whether the mechanism can noise these labels, before any work."""
    return tables.check_labels(labels, classes, config.rating_classes) if config.name in ("label_dp", "tablepuppet") else []


def together(spent: Mapping[str, Mapping[str, Any]]) -> dict[str, Any] | None:
    """What the summary says of parties' `spent()`, by name: that of the one that spent most, and each party's epsilon; None of none."""
    if not spent:
        return None
    most = dict(max(spent.values(), key=lambda s: float(s["epsilon"])))
    if "label_epsilon" in most:  # whoever has the labels
        most["label_epsilon"] = max(s["label_epsilon"] for s in spent.values())
    return most | {"epsilon_by_party": {name: s["epsilon"] for name, s in spent.items()}}
