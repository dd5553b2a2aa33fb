"""Keys that several mechanisms have, and what is wrong with them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from vflbench.privacy import accountant
from vflbench.types import PrivacyConfig, Problem


@dataclass
class Clipped(PrivacyConfig):
    clip: float = 1.0  # largest L2 norm of what is noised: of a row, of a gradient
    delta: float = 1e-5


@dataclass
class Noisy(Clipped):
    noise_multiplier: float | None = None  # standard deviation over clip; null: calibrated to epsilon
    epsilon: float | None = None  # target; null: noise_multiplier is given


@dataclass
class Labels(PrivacyConfig):
    label_noise: float = 0.5  # lambda: standard deviation of the noise on each coordinate of a one-hot label
    rating_classes: int = 5  # a regression's labels are classes: 5 (1 to 5) | 6 (0 to 5)


@dataclass
class Gradients(Noisy):
    prediction_noise: float | None = None  # standard deviation over prediction_clip of the noise on predictions; null: none
    prediction_clip: float = 1.0  # largest L2 norm of a prediction that is sent, with prediction_noise


def check_clipped(config: Clipped, what: str = "a row") -> list[Problem]:
    """What is wrong with `clip`, the largest L2 norm of `what`, and delta."""
    problems = []
    if not (config.clip > 0 and math.isfinite(config.clip)):
        problems.append(Problem("privacy.clip", config.clip, f"must be a number above 0, the largest L2 norm of {what}"))
    if not 0 < config.delta < 1:
        problems.append(Problem("privacy.delta", config.delta, "must lie between 0 and 1, well below one over the number of rows"))
    return problems


def check_target(config: Noisy) -> list[Problem]:
    """Whether exactly one of a target and its noise is given, and can be."""
    if config.epsilon is None and config.noise_multiplier is None:
        return [Problem("privacy.epsilon", "null", "give a target, privacy.epsilon=8, or the noise, privacy.noise_multiplier=1")]
    if config.epsilon is not None and config.noise_multiplier is not None:
        return [Problem("privacy.epsilon", config.epsilon, "give either epsilon or noise_multiplier, and null for the other")]
    if config.epsilon is not None and not 0 < config.epsilon <= accountant.SEARCH_END:
        return [Problem("privacy.epsilon", config.epsilon, f"must be above 0 and at most {accountant.SEARCH_END:g}")]
    if config.noise_multiplier is not None and not (config.noise_multiplier >= 0 and math.isfinite(config.noise_multiplier)):
        allowed = "must be a number, 0 (clipping only, no guarantee) or above"
        return [Problem("privacy.noise_multiplier", config.noise_multiplier, allowed)]
    return []


def check_labels_keys(config: Labels) -> list[Problem]:
    """What is wrong with the keys of noisy labels."""
    problems = []
    if not (config.label_noise > 0 and math.isfinite(config.label_noise)):
        problems.append(Problem("privacy.label_noise", config.label_noise, "must be a number above 0, a standard deviation"))
    if config.rating_classes not in (5, 6):
        problems.append(Problem("privacy.rating_classes", config.rating_classes, "must be 5 (ratings 1 to 5) or 6 (0 to 5)"))
    return problems


def check_gradients(config: Gradients, rdp: bool = True) -> list[Problem]:
    """What is wrong with the keys of noisy gradients and predictions; `rdp`: whether that accounts for them."""
    problems = []
    if config.epsilon is not None and rdp and 0 < config.delta < 1:
        least = accountant.least_epsilon(config.delta)
        if 0 < config.epsilon <= least:
            allowed = f"must be above {least:.4g}: RDP proves nothing smaller at delta={config.delta:g}"
            problems.append(Problem("privacy.epsilon", config.epsilon, allowed))
    if not (config.prediction_clip > 0 and math.isfinite(config.prediction_clip)):
        allowed = "must be a number above 0, the largest L2 norm of a prediction"
        problems.append(Problem("privacy.prediction_clip", config.prediction_clip, allowed))
    if config.prediction_noise is not None and not (config.prediction_noise > 0 and math.isfinite(config.prediction_noise)):
        problems.append(Problem("privacy.prediction_noise", config.prediction_noise, "must be a number above 0, or null: no noise"))
    return problems
