"""Keys that several mechanisms have, and what is wrong with them."""

from dataclasses import dataclass
from typing import Annotated

from vflbench.privacy import accountant
from vflbench.types import Positive, PrivacyConfig, Problem, Range


@dataclass
class Clipped(PrivacyConfig):
    """Keys of mechanisms that clip."""

    clip: Positive = 1.0  # largest L2 norm of a row or gradient that gets noise
    delta: float = 1e-5


@dataclass
class Noisy(Clipped):
    """Keys of mechanisms whose noise is given, or calibrated to a target."""

    # standard deviation over clip; null: calibrated to epsilon
    noise_multiplier: Annotated[float, Range(at_least=0)] | None = None
    # target; null: noise_multiplier is given
    epsilon: Annotated[float, Range(above=0, at_most=accountant.SEARCH_END)] | None = None


@dataclass
class Labels(PrivacyConfig):
    """Keys of mechanisms that protect labels."""

    label_noise: Positive = 0.5  # lambda: standard deviation of the noise on each coordinate of a one-hot label
    # a regression's labels are classes: 5 (1 to 5) | 6 (0 to 5)
    rating_classes: Annotated[int, Range(at_least=5, at_most=6)] = 5


@dataclass
class Gradients(Noisy):
    """Keys of mechanisms that protect gradients."""

    # standard deviation over prediction_clip of the noise on predictions; null: none
    prediction_noise: Positive | None = None
    prediction_clip: Positive = 1.0  # largest L2 norm of a prediction that is sent, with prediction_noise


def check_delta(config: Clipped) -> list[Problem]:
    """Return a problem where delta is no probability."""
    if 0 < config.delta < 1:
        return []
    return [Problem("privacy.delta", config.delta, "must lie between 0 and 1, well below one over the number of rows")]


def check_target(config: Noisy, rdp: bool = False) -> list[Problem]:
    """As `check_delta`; and exactly one of a target and its noise must be given.

    Parameters
    ----------
    rdp : whether RDP accounts for the noise, which bounds the target from below.
    """
    problems = check_delta(config)
    least = accountant.least_epsilon(config.delta) if rdp and not problems else 0.0
    if config.epsilon is None and config.noise_multiplier is None:
        allowed = "give a target, privacy.epsilon=8, or the noise, privacy.noise_multiplier=1"
    elif config.epsilon is not None and config.noise_multiplier is not None:
        allowed = "give either epsilon or noise_multiplier, and null for the other"
    elif config.epsilon is not None and config.epsilon <= least:
        allowed = f"must be above {least:.4g}: RDP proves nothing smaller at delta={config.delta:g}"
    else:
        return problems
    return [*problems, Problem("privacy.epsilon", "null" if config.epsilon is None else config.epsilon, allowed)]
